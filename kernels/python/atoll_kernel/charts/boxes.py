"""Box-and-whisker charts.

matplotlib keeps no statistics of a box plot, only what it drew: per box a closed path, and lines. The path starts with
the edge of the first quartile, so its first edge also tells whether the plot stands or lies. In the plot's own
coordinates (`across` the boxes, `along` the values) the lines are, in the order of drawing: two whiskers (no extent
across), two caps, the median, perhaps a line of the mean, and one line of markers with all outliers of the box.
"""

from dataclasses import dataclass, field

import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from .axis import label_fields, scale_of, tick_labels, title_of
from .values import number, rounded_coordinate

_PLAIN_CORNERS = 4
_NOTCHED_CORNERS = 10
# The first corner is repeated at the end, and again by the command that closes the path.
_CORNERS_BY_VERTICES = {5: _PLAIN_CORNERS, 6: _PLAIN_CORNERS, 11: _NOTCHED_CORNERS, 12: _NOTCHED_CORNERS}


@dataclass
class _Box:
    left: float
    right: float
    first_quartile: float
    third_quartile: float
    median: float | None = None
    median_width: float = -1.0
    low: float | None = None
    high: float | None = None
    markers: list = field(default_factory=list)

    def spans(self, across):
        slack = 1e-9 * max(1.0, abs(self.left), abs(self.right))
        return self.left - slack <= min(across) and max(across) <= self.right + slack

    def is_at(self, edge, value):
        slack = 1e-9 * max(abs(self.first_quartile), abs(self.third_quartile), abs(value))
        return abs(edge - value) <= slack


def box_chart(ax):
    """None when the patches are no boxes."""
    outlines = [_corners(patch) for patch in ax.patches if isinstance(patch, PathPatch)]
    if any(corners is None for corners in outlines):
        return None
    lying = all(corners[0][0] == corners[1][0] for corners in outlines)
    boxes = [_box(corners[:, ::-1] if lying else corners) for corners in outlines]
    for line in ax.lines:
        data = np.column_stack([np.ravel(line.get_xdata(orig=False)), np.ravel(line.get_ydata(orig=False))])
        _sort_in(boxes, data[:, ::-1] if lying else data)
    axis, value_axis = (ax.yaxis, ax.xaxis) if lying else (ax.xaxis, ax.yaxis)
    labels = _labels(axis, boxes)
    return {
        "type": "box_and_whisker",
        "title": title_of(ax),
        "elements": [_element(label, box) for label, box in zip(labels, boxes)],
        **label_fields(axis, value_axis),
    }


def _corners(patch):
    """The corners of a box, without the points that close the path; None for other shapes."""
    path = patch.get_path()
    count = _CORNERS_BY_VERTICES.get(len(path.vertices))
    straight = path.codes is None or set(path.codes) <= {Path.MOVETO, Path.LINETO, Path.CLOSEPOLY}
    if count is None or not straight or (path.vertices[count:] != path.vertices[0]).any():
        return None
    corners = path.vertices[:count]
    return corners if (corners[0] == corners[1]).any() else None


def _box(corners):
    across = corners[:, 0]
    box = _Box(
        left=float(across.min()),
        right=float(across.max()),
        first_quartile=float(corners[0][1]),
        third_quartile=float(corners[len(corners) // 2][1]),
    )
    if len(corners) == _NOTCHED_CORNERS:
        box.median, box.median_width = float(corners[3][1]), box.right - box.left
    return box


def _sort_in(boxes, data):
    """Finds the box that a line belongs to and what the line says about it."""
    if not len(data):
        return
    across, along = data[:, 0], data[:, 1]
    for box in boxes:
        if not box.spans(across):
            continue
        if len(data) == 2 and across[0] != across[1]:
            _take_bar(box, across, along)
        elif len(data) == 2 and _take_whisker(box, along):
            pass
        elif (across == across[0]).all():
            _take_markers(box, along)


def _take_bar(box, across, along):
    if along[0] != along[1] or not box.first_quartile <= along[0] <= box.third_quartile:
        return
    # The median is as wide as the box. So may be two others: the cap of a whisker without length, which lies on the
    # edge and was drawn before the median, and the mean, which was drawn after it.
    width = abs(across[1] - across[0])
    may_be_cap = box.median in (box.first_quartile, box.third_quartile)
    if width > box.median_width or (width == box.median_width and may_be_cap):
        box.median, box.median_width = float(along[0]), width


def _take_whisker(box, along):
    low, high = float(min(along)), float(max(along))
    is_low, is_high = box.is_at(box.first_quartile, high), box.is_at(box.third_quartile, low)
    if is_low:
        box.low = low
    if is_high:
        box.high = high
    return is_low or is_high


def _take_markers(box, along):
    values = [value for value in map(number, along) if value is not None]
    if values and values not in box.markers:
        box.markers.append(values)


def _element(label, box):
    # Without its whiskers (both ends removed by hand) a box ends where it ends. A marker between the ends is a mean.
    low = box.first_quartile if box.low is None else box.low
    high = box.third_quartile if box.high is None else box.high
    return {
        "label": label,
        "min": number(low),
        "first_quartile": rounded_coordinate(box.first_quartile),
        "median": None if box.median is None else number(box.median),
        "third_quartile": rounded_coordinate(box.third_quartile),
        "max": number(high),
        "outliers": [v for values in box.markers for v in values if not low <= v <= high],
    }


def _labels(axis, boxes):
    """The label of the tick at each box; next to it where several boxes share a category."""
    ticks, labels = list(axis.get_majorticklocs()), tick_labels(axis)
    reach = 0.5 if scale_of(axis, ticks, labels) == "categorical" else 1e-9
    return [_label_at((box.left + box.right) / 2, ticks, labels, reach) for box in boxes]


def _label_at(position, ticks, labels, reach):
    near = min(range(len(ticks)), key=lambda i: abs(ticks[i] - position), default=None)
    if near is None or abs(ticks[near] - position) > reach:
        return f"{position:.10g}"
    return labels[near]
