"""Representations beyond IPython's own: `json` of lists and dicts, `data` of frames, `chart` of figures.

Nothing is imported for it: types of pandas and matplotlib are known by name until a cell has imported them.
"""

from .private import __builtins__  # isort: skip

import datetime
import math
import sys

from IPython.core.formatters import BaseFormatter, DisplayFormatter
from traitlets import ObjectName, Unicode

from . import jsontext


class DataFormatter(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = (dict, list)


class ChartFormatter(BaseFormatter):
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = (dict,)

    def __call__(self, obj):
        # Not registered by type: matplotlib-inline takes Figure out of every formatter when it chooses its own.
        figures = sys.modules.get("matplotlib.figure")
        if figures is not None and isinstance(obj, figures.Figure):
            return figure_chart(obj)
        return super().__call__(obj)


class Formatter(DisplayFormatter):
    """All representations of a value. Plain builtins have but one, and are not put to every formatter."""

    _plain = frozenset((bool, bytes, complex, float, int, str, tuple))

    def __init__(self, **options):
        super().__init__(**options)
        formatters = self.formatters
        as_json = formatters["application/json"]
        as_json.for_type(list, json_copy)
        as_json.for_type(dict, json_copy)
        data = formatters["e2b/data"] = DataFormatter(parent=self)
        data.for_type_by_name("pandas.core.frame", "DataFrame", frame_data)
        formatters["e2b/chart"] = ChartFormatter(parent=self)
        self._text = formatters["text/plain"]
        others = [f for f in formatters.values() if f is not self._text]
        # Where a cell can register printers of its own for these types.
        self._known = len(formatters)
        self._printers = [f.type_printers for f in (*others, self.ipython_display_formatter, self.mimebundle_formatter)]
        self._printers += [f.singleton_printers for f in others]
        self._formatters = formatters

    def format(self, obj, include=None, exclude=None):
        kind = type(obj)
        if kind in self._plain and not include and not exclude and len(self._formatters) == self._known:
            for printers in self._printers:
                if kind in printers or id(obj) in printers:
                    break
            else:
                text = self._text(obj)
                return ({} if text is None else {"text/plain": text}), {}
        return super().format(obj, include, exclude)


def json_copy(value):
    try:
        return jsontext.plain(value)
    except Exception:
        return None


def figure_chart(figure):
    try:
        from .charts import chart_of

        return chart_of(figure) or {}
    except Exception:
        return {}


def frame_data(frame):
    """Column name -> list of values."""
    try:
        return {str(name): [_cell(v) for v in frame.iloc[:, i].tolist()] for i, name in enumerate(frame.columns)}
    except Exception:
        return None


def _cell(value):
    kind = type(value)
    if kind is int or kind is str or kind is bool or value is None:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        if value is pandas.NA:
            return None
        if value is pandas.NaT:
            return "NaT"
    if isinstance(value, (datetime.date, datetime.time)):  # Timestamp is one
        return value.isoformat()
    try:
        return jsontext.plain(value)
    except Exception:
        return str(value)
