"""A figure as data: what its axes show, as a dict that is ready for JSON.

`chart_of(figure)` is called after the figure was rendered, so that ticks and labels are final. It looks only at public
properties of matplotlib's objects, changes nothing that is drawn, and imports neither pandas nor a backend. Importing
this package imports matplotlib: import it when the first figure exists.

Which artists make which type of chart is decided in `_chart_of_axes`, in the order in which it is written there.
"""

import warnings

import numpy as np
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle, StepPatch, Wedge

from . import bars, boxes, series
from .axis import is_reference_line, title_of

# More points than this (over all axes) are no longer a chart that a client draws again; the picture shows them.
MAX_POINTS = 200_000


def chart_of(figure):
    """The chart of a figure, or None when it has no data or too many points."""
    axes = figure.axes
    if not any(ax.has_data() for ax in axes):
        return None
    if sum(series.count_points(ax) for ax in axes) > MAX_POINTS:
        return None
    with warnings.catch_warnings():
        # What there is to warn of was said when the figure was drawn.
        warnings.simplefilter("ignore")
        if len(axes) == 1:
            return _chart_of_axes(axes[0])
        return {
            "type": "superchart",
            "title": str(figure.get_suptitle()),
            "elements": [_chart_of_axes(ax) for ax in axes],
        }


def _chart_of_axes(ax):
    for matches, extract in (
        (_is_line, series.line_chart),
        (_is_box, boxes.box_chart),
        (_is_scatter, series.scatter_chart),
        (_is_pie, bars.pie_chart),
        (_is_bar, bars.bar_chart),
    ):
        if matches(ax):
            return extract(ax) or _unknown(ax)
    return _unknown(ax)


def _unknown(ax):
    return {"type": "unknown", "title": title_of(ax), "elements": []}


def _artists(ax):
    """What was added to the axes and can be seen, without texts, legends, spines and the axes' own parts."""
    added = [*ax.lines, *ax.patches, *ax.collections, *ax.images, *ax.tables, *ax.artists]
    return [artist for artist in added if not _is_empty(artist)]


def _is_empty(artist):
    """Without points or extent: what seaborn adds for its legend only, and bands of error without an error."""
    if isinstance(artist, Line2D):
        return len(artist.get_xdata(orig=False)) == 0
    if isinstance(artist, Rectangle):
        return artist.get_width() == 0 and artist.get_height() == 0
    if isinstance(artist, PolyCollection):
        return not any(np.isfinite(path.vertices).all(axis=1).any() for path in artist.get_paths())
    return False


def _data_artists(ax):
    return [a for a in _artists(ax) if not (isinstance(a, Line2D) and is_reference_line(a))]


def _all_of(artists, kind):
    return all(isinstance(a, kind) for a in artists)


def _is_flat(ax):
    # The artists of a 3-d plot hold their projection on the screen, not their data.
    return ax.name != "3d"


def _is_line(ax):
    return _is_flat(ax) and _all_of(_artists(ax), Line2D)


def _is_box(ax):
    artists = _artists(ax)
    return _is_flat(ax) and _all_of(artists, (PathPatch, Line2D)) and not any(
        isinstance(a, StepPatch) for a in artists
    )


def _is_scatter(ax):
    return _is_flat(ax) and _all_of(_data_artists(ax), PathCollection)


def _is_pie(ax):
    return _is_flat(ax) and _all_of(_data_artists(ax), Wedge)


def _is_bar(ax):
    return _is_flat(ax) and _all_of(_data_artists(ax), Rectangle)
