"""Bar charts and pies."""

import re

import numpy as np
from matplotlib.category import StrCategoryLocator
from matplotlib.container import BarContainer
from matplotlib.patches import Wedge
from matplotlib.ticker import FixedLocator

from .axis import date_of, is_date_axis, label_fields, tick_labels, title_of
from .values import number, rounded

_AUTOMATIC = re.compile(r"_container(\d+)")


def bar_chart(ax):
    """One element per bar. Of horizontal bars the axes are reported as if the bars stood."""
    containers = [c for c in ax.containers if isinstance(c, BarContainer)]
    lying = bool(containers) and _is_horizontal(containers[0])
    axes = (ax.yaxis, ax.xaxis) if lying else (ax.xaxis, ax.yaxis)
    return {
        "type": "bar",
        "title": title_of(ax),
        "elements": [bar for i, c in enumerate(containers) for bar in _bars(ax, c, i)],
        **label_fields(*axes),
    }


def pie_chart(ax):
    return {
        "type": "pie",
        "title": title_of(ax),
        "elements": [_slice(patch) for patch in ax.patches if isinstance(patch, Wedge)],
    }


def _slice(wedge):
    label = str(wedge.get_label())
    return {
        "label": "" if label.startswith("_") else label,
        "angle": rounded(abs(wedge.theta2 - wedge.theta1)),
        "radius": number(wedge.r),
    }


def _is_horizontal(container):
    return container.orientation == "horizontal"


def _bars(ax, container, index):
    if _is_horizontal(container):
        axis = ax.yaxis
        values = [bar.get_width() for bar in container.patches]
        middles = [bar.get_y() + bar.get_height() / 2 for bar in container.patches]
    else:
        axis = ax.xaxis
        values = [bar.get_height() for bar in container.patches]
        middles = [bar.get_x() + bar.get_width() / 2 for bar in container.patches]
    group = _group(container, index)
    return [
        {"label": label, "group": group, "value": number(value)}
        for label, value in zip(_labels(axis, middles), values)
    ]


def _group(container, index):
    label = str(container.get_label())
    automatic = _AUTOMATIC.fullmatch(label)
    if automatic:
        return f"Group {automatic.group(1)}"
    return f"Group {index}" if label.startswith("_") else label


def _labels(axis, positions):
    """The names of the bars at these positions.

    Where ticks were set for the bars (categories, or by hand) a bar has the label of the tick next to it, also when
    several groups stand around one tick. Other ticks stand where they please, and the position itself is the name.
    """
    if not isinstance(axis.get_major_locator(), (FixedLocator, StrCategoryLocator)):
        return [_position_text(axis, p) for p in positions]
    ticks, labels = np.asarray(axis.get_majorticklocs(), dtype=float), tick_labels(axis)
    if not len(ticks):
        return [_position_text(axis, p) for p in positions]
    nearest = [int(np.argmin(np.abs(ticks - p))) for p in positions]
    if len(set(nearest)) == len(positions):
        return [labels[i] for i in nearest]
    if len(labels) == len(positions):
        return labels
    return [
        labels[i] if abs(ticks[i] - p) < 1e-9 else _position_text(axis, p)
        for i, p in zip(nearest, positions)
    ]


def _position_text(axis, position):
    date = date_of(position) if is_date_axis(axis) else None
    if date is None:
        return f"{position:.10g}"
    at_midnight = (date.hour, date.minute, date.second, date.microsecond) == (0, 0, 0, 0)
    return date.date().isoformat() if at_midnight else date.replace(tzinfo=None).isoformat()
