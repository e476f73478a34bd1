"""Line and scatter charts: series of points."""

import re

import numpy as np
from matplotlib.collections import PathCollection

from .axis import is_reference_line, label_fields, tick_fields, title_of
from .values import json_values, numbers

_AUTOMATIC = re.compile(r"_child(\d+)")


def line_chart(ax):
    return _chart(ax, "line", [_line(x) for x in ax.lines if not is_reference_line(x)])


def scatter_chart(ax):
    return _chart(ax, "scatter", [_collection(c) for c in ax.collections if isinstance(c, PathCollection)])


def count_points(ax):
    lines = sum(np.size(line.get_xdata(orig=False)) for line in ax.lines)
    offsets = sum(len(collection.get_offsets()) for collection in ax.collections)
    return lines + offsets + len(ax.patches)


def _chart(ax, kind, elements):
    return {
        "type": kind,
        "title": title_of(ax),
        "elements": elements,
        **label_fields(ax.xaxis, ax.yaxis),
        **tick_fields(ax),
    }


def _line(line):
    label = str(line.get_label())
    automatic = _AUTOMATIC.fullmatch(label)
    # The data as they were given: categories and dates are still what they were for the user.
    x, y = json_values(line.get_xdata(orig=True)), json_values(line.get_ydata(orig=True))
    return {
        "label": f"Line {automatic.group(1)}" if automatic else label,
        "points": [[a, b] for a, b in zip(x, y)],
    }


def _collection(collection):
    offsets = np.ma.asarray(collection.get_offsets())
    x, y = numbers(offsets[:, 0]), numbers(offsets[:, 1])
    return {"label": str(collection.get_label()), "points": [[a, b] for a, b in zip(x, y)]}
