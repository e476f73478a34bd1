"""What charts with two axes have in common: labels, units, ticks and scales."""

import re

import matplotlib.dates
import numpy as np
from matplotlib.lines import AxLine

from .values import json_value

_UNIT = re.compile(r"\s\((.*?)\)|\[(.*?)\]")


def title_of(ax):
    return ax.get_title() or None


def unit_of(label):
    """`Time (s)` and `Amplitude [Hz]` name their unit."""
    match = _UNIT.search(label)
    return (match.group(1) or match.group(2) or None) if match else None


def label_fields(x_axis, y_axis):
    x_label, y_label = x_axis.get_label_text(), y_axis.get_label_text()
    return {
        "x_label": x_label or None,
        "y_label": y_label or None,
        "x_unit": unit_of(x_label),
        "y_unit": unit_of(y_label),
    }


def tick_fields(ax):
    return {**_ticks(ax.xaxis, "x"), **_ticks(ax.yaxis, "y")}


def tick_labels(axis):
    return [text.get_text() for text in axis.get_ticklabels()]


def is_date_axis(axis):
    """Whether matplotlib itself converts dates on this axis; then positions are days since 1970."""
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    return converter is not None and type(converter).__module__ == matplotlib.dates.__name__


def scale_of(axis, ticks, labels):
    """`ticks` and `labels` as the axis has them now."""
    if is_date_axis(axis):
        return "datetime"
    if axis.get_scale() != "linear":
        return axis.get_scale()
    pairs = list(zip(ticks, labels))
    if pairs and all(tick == i and label != str(i) for i, (tick, label) in enumerate(pairs)):
        return "categorical"
    return "linear"


def is_reference_line(line):
    """A horizontal or vertical line of two points (axhline and the like), or one without ends: no data."""
    if isinstance(line, AxLine):
        return True
    x, y = np.ravel(line.get_xdata(orig=False)), np.ravel(line.get_ydata(orig=False))
    return len(x) == 2 and len(y) == 2 and bool(x[0] == x[1] or y[0] == y[1])


def date_of(position):
    """The instant of a position on a date axis, or None when no calendar has it."""
    try:
        return matplotlib.dates.num2date(position)
    except (ValueError, OverflowError):
        return None


def _ticks(axis, name):
    ticks = list(axis.get_majorticklocs())
    labels = tick_labels(axis)
    return {
        f"{name}_ticks": _tick_values(axis, ticks),
        f"{name}_tick_labels": labels,
        f"{name}_scale": scale_of(axis, ticks, labels),
    }


def _tick_values(axis, ticks):
    if is_date_axis(axis):
        dates = [date_of(tick) for tick in ticks]
        return [date.isoformat() if date else None for date in dates]
    if ticks and isinstance(ticks[0], np.integer):
        return [tick.item() if isinstance(tick, np.integer) else json_value(tick) for tick in ticks]
    return [json_value(tick) for tick in ticks]
