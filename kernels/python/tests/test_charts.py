"""Charts as data: every figure that the wire reference names, and those whose result is our own decision.

Runs inside a template root, with kernels/python on the module path; it needs matplotlib, and pandas for one figure.
"""

import datetime
import io
import json
import math
import unittest
import warnings

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D

from atoll_kernel import charts
from atoll_kernel.charts import axis, chart_of, values

SCORES = {
    "Class A": [85, 90, 78, 92, 88],
    "Class B": [95, 89, 76, 91, 84, 87],
    "Class C": [75, 82, 88, 79, 86],
}
BOX_KEYS = {"label", "min", "first_quartile", "median", "third_quartile", "max", "outliers"}


class ChartCase(unittest.TestCase):
    def setUp(self):
        plt.close("all")
        ignored = warnings.catch_warnings()
        ignored.__enter__()
        self.addCleanup(ignored.__exit__, None, None, None)
        warnings.simplefilter("ignore")

    def chart(self, figure=None):
        """The chart as a client gets it: rendered first, then through JSON."""
        figure = figure or plt.gcf()
        figure.savefig(io.BytesIO(), bbox_inches="tight")
        chart = chart_of(figure)
        return json.loads(json.dumps(chart, allow_nan=False))

    def column(self, chart, key):
        return [element[key] for element in chart["elements"]]

    def assert_floats(self, items):
        self.assertTrue(items)
        for item in items:
            self.assertIs(type(item), float)

    def assert_strings(self, items):
        self.assertTrue(items)
        for item in items:
            self.assertIs(type(item), str)


class Bar(ChartCase):
    def test_book_sales(self):
        plt.figure(figsize=(10, 6))
        authors = ["Author A", "Author B", "Author C", "Author D"]
        plt.bar(authors, [100, 200, 300, 400], label="Books Sold", color="blue")
        plt.xlabel("Authors")
        plt.ylabel("Number of Books Sold")
        plt.title("Book Sales by Authors")
        plt.tight_layout()
        self.assertEqual(
            self.chart(),
            {
                "type": "bar",
                "title": "Book Sales by Authors",
                "elements": [
                    {"label": author, "group": "Books Sold", "value": value}
                    for author, value in zip(authors, [100.0, 200.0, 300.0, 400.0])
                ],
                "x_label": "Authors",
                "y_label": "Number of Books Sold",
                "x_unit": None,
                "y_unit": None,
            },
        )
        self.assert_floats(self.column(chart_of(plt.gcf()), "value"))

    def test_horizontal_bars_are_reported_standing(self):
        plt.barh(["a", "b", "c"], [1, 2, 3])
        plt.xlabel("X (m)")
        plt.ylabel("Y")
        chart = self.chart()
        self.assertEqual(
            chart["elements"],
            [
                {"label": "a", "group": "Group 0", "value": 1.0},
                {"label": "b", "group": "Group 0", "value": 2.0},
                {"label": "c", "group": "Group 0", "value": 3.0},
            ],
        )
        self.assertEqual((chart["x_label"], chart["y_label"]), ("Y", "X (m)"))
        self.assertEqual((chart["x_unit"], chart["y_unit"]), (None, "m"))

    def test_two_horizontal_groups_swap_the_labels_once(self):
        plt.barh(["a", "b"], [1, 2], label="first")
        plt.barh(["a", "b"], [3, 4], left=[1, 2])
        plt.ylabel("names")
        chart = self.chart()
        self.assertEqual(chart["x_label"], "names")
        self.assertEqual(self.column(chart, "group"), ["first", "first", "Group 1", "Group 1"])
        self.assertEqual(self.column(chart, "value"), [1.0, 2.0, 3.0, 4.0])

    def test_equal_and_single_bars_keep_their_heights(self):
        plt.bar(["a", "b"], [5, 5])
        self.assertEqual(self.column(self.chart(), "value"), [5.0, 5.0])
        self.assertEqual(self.column(self.chart(), "label"), ["a", "b"])
        plt.close("all")
        plt.bar(["only"], [7])
        self.assertEqual(self.chart()["elements"], [{"label": "only", "group": "Group 0", "value": 7.0}])

    def test_groups_around_shared_ticks(self):
        x = np.arange(3)
        plt.bar(x - 0.2, [1, 2, 3], 0.4, label="2024")
        plt.bar(x + 0.2, [4, 5, 6], 0.4, label="2025")
        plt.xticks(x, ["north", "east", "south"])
        plt.legend()
        chart = self.chart()
        self.assertEqual(self.column(chart, "label"), ["north", "east", "south"] * 2)
        self.assertEqual(self.column(chart, "group"), ["2024"] * 3 + ["2025"] * 3)

    def test_numeric_positions_name_the_bars(self):
        plt.bar([2021, 2022, 2023], [3, 1, 2])
        self.assertEqual(self.column(self.chart(), "label"), ["2021", "2022", "2023"])
        plt.close("all")
        plt.bar([datetime.date(2024, 1, 31), datetime.date(2024, 2, 1)], [3, 1])
        self.assertEqual(self.column(self.chart(), "label"), ["2024-01-31", "2024-02-01"])

    def test_histogram(self):
        plt.hist([1, 2, 2, 3, 3, 3], bins=[0.5, 1.5, 2.5, 3.5])
        chart = self.chart()
        self.assertEqual(chart["type"], "bar")
        self.assertEqual(self.column(chart, "label"), ["1", "2", "3"])
        self.assertEqual(self.column(chart, "value"), [1.0, 2.0, 3.0])

    def test_what_does_not_disturb(self):
        bars = plt.bar(["a", "b"], [1, 2], label="g")
        plt.axhline(1.5)
        plt.bar_label(bars)
        plt.legend()
        chart = self.chart()
        self.assertEqual(chart["type"], "bar")
        self.assertEqual(len(chart["elements"]), 2)

    def test_what_does(self):
        plt.bar(["a", "b"], [1, 2], yerr=[0.1, 0.1])
        self.assertEqual(self.chart()["type"], "unknown")
        plt.close("all")
        plt.bar(["a", "b"], [1, 2])
        plt.plot([0, 1], [1, 2])
        self.assertEqual(self.chart()["type"], "unknown")

    def test_gaps(self):
        plt.bar(["a", "b"], [1, math.nan])
        self.assertEqual(self.column(self.chart(), "value"), [1.0, None])


class Box(ChartCase):
    EXPECTED = {
        "min": [78.0, 84.0, 75.0],
        "first_quartile": [85.0, 84.75, 79.0],
        "median": [88.0, 88.0, 82.0],
        "third_quartile": [90.0, 90.5, 86.0],
        "max": [92.0, 95.0, 88.0],
        "outliers": [[], [76.0], []],
        "label": ["Class A", "Class B", "Class C"],
    }

    def draw(self, **options):
        _, ax = plt.subplots(figsize=(10, 6))
        ax.boxplot(list(SCORES.values()), labels=list(SCORES), **options)
        ax.set_title("Exam Scores Distribution")
        ax.set_xlabel("Class")
        ax.set_ylabel("Score")
        return ax

    def assert_scores(self, chart):
        self.assertEqual(chart["type"], "box_and_whisker")
        for key, expected in self.EXPECTED.items():
            self.assertEqual(self.column(chart, key), expected, key)
        for element in chart["elements"]:
            self.assertEqual(set(element), BOX_KEYS)
            self.assert_strings([element["label"]])
            self.assert_floats([v for k, v in element.items() if k not in ("label", "outliers")])

    def test_exam_scores(self):
        ax = self.draw(patch_artist=True)
        ax.legend()
        chart = self.chart()
        self.assert_scores(chart)
        self.assertEqual(chart["title"], "Exam Scores Distribution")
        self.assertEqual((chart["x_label"], chart["y_label"]), ("Class", "Score"))
        self.assertEqual((chart["x_unit"], chart["y_unit"]), (None, None))
        self.assertEqual(set(chart), {"type", "title", "elements", "x_label", "y_label", "x_unit", "y_unit"})

    def test_drawn_twice(self):
        ax = self.draw()
        ax.boxplot(list(SCORES.values()), labels=list(SCORES), patch_artist=True)
        self.assert_scores(self.chart())

    def test_without_patches_it_is_lines(self):
        self.draw()
        self.assertEqual(self.chart()["type"], "line")

    def test_horizontal(self):
        self.draw(patch_artist=True, vert=False)
        chart = self.chart()
        self.assert_scores(chart)

    def test_horizontal_swaps_labels_and_units(self):
        ax = self.draw(patch_artist=True, vert=False)
        ax.set_xlabel("Score (points)")
        ax.set_ylabel("Class")
        chart = self.chart()
        self.assertEqual((chart["x_label"], chart["y_label"]), ("Class", "Score (points)"))
        self.assertEqual((chart["x_unit"], chart["y_unit"]), (None, "points"))

    def test_notched(self):
        for vertical in (True, False):
            plt.close("all")
            self.draw(patch_artist=True, notch=True, vert=vertical)
            self.assert_scores(self.chart())

    def test_means_are_no_outliers_and_no_medians(self):
        for as_line in (True, False):
            plt.close("all")
            self.draw(patch_artist=True, showmeans=True, meanline=as_line)
            self.assert_scores(self.chart())

    def test_single_box(self):
        plt.boxplot([[1, 2, 3, 4, 5]], patch_artist=True)
        self.assertEqual(
            self.chart()["elements"],
            [{"label": "1", "min": 1.0, "first_quartile": 2.0, "median": 3.0, "third_quartile": 4.0, "max": 5.0,
              "outliers": []}],
        )

    def test_equal_boxes(self):
        plt.boxplot([[1, 2, 3, 4, 5], [11, 12, 13, 14, 15]], patch_artist=True)
        chart = self.chart()
        self.assertEqual(self.column(chart, "median"), [3.0, 13.0])
        self.assertEqual(self.column(chart, "min"), [1.0, 11.0])

    def test_several_outliers(self):
        plt.boxplot([[10, 11, 12, 13, 14, 50, 60, -40], [10, 11, 12, 12, 12, 12, 13, 14, 50, 50]], patch_artist=True)
        outliers = self.column(self.chart(), "outliers")
        self.assertEqual([sorted(values) for values in outliers], [[-40.0, 50.0, 60.0], [50.0, 50.0]])

    def test_whiskers_without_length(self):
        plt.boxplot([[1, 1, 1, 2, 3], [4, 4, 4, 4]], patch_artist=True, capwidths=0.5, widths=0.5)
        low, flat = self.chart()["elements"]
        self.assertEqual((low["min"], low["first_quartile"], low["median"], low["max"]), (1.0, 1.0, 1.0, 3.0))
        self.assertEqual(
            {key: flat[key] for key in BOX_KEYS - {"label", "outliers"}},
            {"min": 4.0, "first_quartile": 4.0, "median": 4.0, "third_quartile": 4.0, "max": 4.0},
        )
        plt.close("all")
        plt.boxplot([[1, 1, 2, 3, 3]], patch_artist=True, capwidths=0.5, widths=0.5)
        self.assertEqual(self.column(self.chart(), "median"), [2.0])

    def test_large_values_keep_their_digits(self):
        plt.boxplot([[12345601.0, 12345602.0, 12345603.0]], patch_artist=True)
        element = self.chart()["elements"][0]
        self.assertEqual((element["first_quartile"], element["third_quartile"]), (12345602.0, 12345602.0))

    def test_other_patches_are_no_boxes(self):
        plt.stairs([1, 2, 3])
        self.assertEqual(self.chart()["type"], "unknown")
        plt.close("all")
        plt.gca().add_patch(matplotlib.patches.PathPatch(matplotlib.path.Path.unit_circle()))
        self.assertEqual(self.chart()["type"], "unknown")


class Line(ChartCase):
    def dates(self):
        start = datetime.date(2023, 9, 1)
        return [start + datetime.timedelta(seconds=i) for i in range(100)]

    def test_dates(self):
        x = np.linspace(0, 10, 100)
        plt.figure(figsize=(10, 5))
        plt.plot(self.dates(), np.sin(x), label="sin(x)")
        plt.plot(self.dates(), np.cos(x), label="cos(x)")
        plt.xlabel("Time (s)")
        plt.ylabel("Amplitude [Hz]")
        plt.title("Plot of sin(x) and cos(x)")
        plt.legend()
        plt.grid(True)
        chart = self.chart()
        self.assertEqual(chart["type"], "line")
        self.assertEqual(chart["title"], "Plot of sin(x) and cos(x)")
        self.assertEqual((chart["x_label"], chart["y_label"]), ("Time (s)", "Amplitude [Hz]"))
        self.assertEqual((chart["x_unit"], chart["y_unit"]), ("s", "Hz"))
        self.assertEqual((chart["x_scale"], chart["y_scale"]), ("datetime", "linear"))
        self.assert_strings(chart["x_ticks"])
        for tick in chart["x_ticks"]:
            self.assertRegex(tick, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")
            datetime.datetime.fromisoformat(tick)
        self.assert_floats(chart["y_ticks"])
        self.assert_strings(chart["x_tick_labels"] + chart["y_tick_labels"])
        self.assertEqual(len(chart["x_ticks"]), len(chart["x_tick_labels"]))
        self.assertIn("\u22120.50", chart["y_tick_labels"])
        self.assertEqual(self.column(chart, "label"), ["sin(x)", "cos(x)"])
        for element in chart["elements"]:
            self.assertEqual(len(element["points"]), 100)
            self.assertEqual({point[0] for point in element["points"]}, {"2023-09-01"})
            self.assert_floats([point[1] for point in element["points"]])
        self.assertEqual(chart["elements"][0]["points"][1][1], math.sin(x[1]))

    def test_log(self):
        x = np.linspace(0, 100, 100)
        plt.plot(x, np.exp(x), label="y = e^x")
        plt.yscale("log")
        plt.title("Chart with Log Scale on Y-axis")
        plt.xlabel("X-axis")
        plt.ylabel("Y-axis (log scale)")
        plt.legend()
        plt.grid(True)
        chart = self.chart()
        self.assertEqual(chart["type"], "line")
        self.assertEqual((chart["x_unit"], chart["y_unit"]), (None, "log scale"))
        self.assertEqual((chart["x_scale"], chart["y_scale"]), ("linear", "log"))
        self.assert_floats(chart["x_ticks"] + chart["y_ticks"])
        self.assertEqual((chart["y_ticks"][0], chart["y_ticks"][-1]), (1e-9, 1e57))
        self.assertEqual(chart["y_tick_labels"][0], "$\\mathdefault{10^{-9}}$")
        self.assertEqual(self.column(chart, "label"), ["y = e^x"])
        self.assertEqual(len(chart["elements"][0]["points"]), 100)
        for point in chart["elements"][0]["points"]:
            self.assert_floats(point)

    def test_categories(self):
        plt.plot([1, 2, 3, 4, 5], ["A", "B", "C", "D", "E"])
        chart = self.chart()
        self.assertEqual(chart["type"], "line")
        self.assertEqual((chart["x_scale"], chart["y_scale"]), ("linear", "categorical"))
        self.assertEqual(chart["y_ticks"], [0.0, 1.0, 2.0, 3.0, 4.0])
        self.assertEqual(chart["y_tick_labels"], ["A", "B", "C", "D", "E"])
        self.assertEqual(
            chart["elements"],
            [{"label": "Line 0", "points": [[1.0, "A"], [2.0, "B"], [3.0, "C"], [4.0, "D"], [5.0, "E"]]}],
        )
        self.assertEqual((chart["title"], chart["x_label"], chart["y_unit"]), (None, None, None))

    def test_datetimes(self):
        start = datetime.datetime(2023, 9, 1)
        plt.plot([start + datetime.timedelta(hours=i) for i in range(3)], [1, 2, 3])
        chart = self.chart()
        self.assertEqual((chart["x_scale"], chart["y_scale"]), ("datetime", "linear"))
        self.assertEqual(chart["elements"][0]["points"][1], ["2023-09-01T01:00:00", 2.0])
        plt.close("all")
        plt.plot(np.array(["2023-09-01T01:00:00.5", "NaT", "2023-09-02"], dtype="datetime64[ns]"), [1, 2, 3])
        points = self.chart()["elements"][0]["points"]
        self.assertEqual([p[0] for p in points], ["2023-09-01T01:00:00", None, "2023-09-02T00:00:00"])

    def test_pandas_series(self):
        import pandas

        frame = pandas.DataFrame({"t": pandas.to_datetime(["2024-01-01", "2024-01-02"]), "v": [1, None]})
        plt.plot(frame["t"], frame["v"])
        chart = self.chart()
        self.assertEqual(chart["x_scale"], "datetime")
        self.assertEqual(
            chart["elements"][0]["points"], [["2024-01-01T00:00:00", 1.0], ["2024-01-02T00:00:00", None]]
        )

    def test_labels_of_unnamed_lines(self):
        plt.plot([1, 2, 3], [1, 4, 9], label="squares")
        plt.plot([1, 2, 3], [1, 8, 27])
        self.assertEqual(self.column(self.chart(), "label"), ["squares", "Line 1"])

    def test_gaps(self):
        plt.plot([1, 2, 3, 4], np.ma.masked_equal([1.0, math.nan, 7.0, math.inf], 7.0))
        self.assertEqual([p[1] for p in self.chart()["elements"][0]["points"]], [1.0, None, None, None])

    def test_reference_lines_are_no_data(self):
        plt.plot([1, 2, 3], [1, 4, 9])
        plt.axhline(3)
        plt.axvline(2)
        plt.axline((0, 0), slope=1)
        chart = self.chart()
        self.assertEqual(self.column(chart, "label"), ["Line 0"])

    def test_ticks_set_by_hand(self):
        plt.plot([1, 2, 3], [1, 4, 9])
        plt.xticks([1, 2, 3])
        chart = self.chart()
        self.assertEqual(json.dumps(chart["x_ticks"]), "[1, 2, 3]")
        self.assertEqual(chart["x_scale"], "linear")

    def test_no_ticks(self):
        plt.plot([1, 2, 3], [1, 4, 9])
        plt.xticks([])
        chart = self.chart()
        self.assertEqual((chart["x_ticks"], chart["x_tick_labels"], chart["x_scale"]), ([], [], "linear"))
        self.assertEqual(len(chart["elements"][0]["points"]), 3)

    def test_polar(self):
        plt.polar([0, 1, 2], [1, 2, 3])
        self.assertEqual(self.chart()["type"], "line")

    def test_three_dimensions_are_unknown(self):
        ax = plt.figure().add_subplot(projection="3d")
        ax.plot([0, 1, 2], [1, 2, 3], [2, 3, 4])
        self.assertEqual(self.chart()["type"], "unknown")


class Scatter(ChartCase):
    def test_two_datasets(self):
        random = np.random.default_rng(0)
        plt.scatter(random.random(5), random.random(5), label="Dataset 1")
        plt.scatter(random.random(10), random.random(10), label="Dataset 2")
        plt.xlabel("A")
        plt.ylabel("B")
        plt.legend()
        chart = self.chart()
        self.assertEqual(chart["type"], "scatter")
        self.assertIsNone(chart["title"])
        self.assertEqual((chart["x_label"], chart["y_label"]), ("A", "B"))
        self.assertEqual((chart["x_scale"], chart["y_scale"]), ("linear", "linear"))
        self.assert_floats(chart["x_ticks"] + chart["y_ticks"])
        self.assertEqual(self.column(chart, "label"), ["Dataset 1", "Dataset 2"])
        self.assertEqual([len(points) for points in self.column(chart, "points")], [5, 10])
        for points in self.column(chart, "points"):
            for point in points:
                self.assertEqual(len(point), 2)
                self.assert_floats(point)

    def test_automatic_labels_stay(self):
        plt.scatter([1], [2], label="named")
        plt.scatter([1, 2], [2, math.nan])
        chart = self.chart()
        self.assertEqual(self.column(chart, "label"), ["named", "_child1"])
        self.assertEqual(chart["elements"][1]["points"][0], [1.0, 2.0])

    def test_coordinates_are_converted(self):
        plt.scatter(["a", "b"], [datetime.date(1970, 1, 2), datetime.date(1970, 1, 3)])
        chart = self.chart()
        self.assertEqual(chart["elements"][0]["points"], [[0.0, 1.0], [1.0, 2.0]])
        self.assertEqual((chart["x_scale"], chart["y_scale"]), ("categorical", "datetime"))


class Pie(ChartCase):
    def test_wedges(self):
        plt.pie([90, 10], labels=["No", "No, in blue"], autopct="%1.1f%%", startangle=90)
        plt.axis("equal")
        plt.xlabel("x")
        plt.title("Will I wake up early tomorrow?")
        self.assertEqual(
            self.chart(),
            {
                "type": "pie",
                "title": "Will I wake up early tomorrow?",
                "elements": [
                    {"label": "No", "angle": 324.0, "radius": 1.0},
                    {"label": "No, in blue", "angle": 36.0, "radius": 1.0},
                ],
            },
        )

    def test_unlabelled_and_clockwise(self):
        plt.pie([1, 2, 4], counterclock=False)
        chart = self.chart()
        self.assertEqual(self.column(chart, "label"), ["", "", ""])
        self.assertEqual(self.column(chart, "angle"), [51.42857, 102.857, 205.714])

    def test_donut(self):
        plt.pie([1, 1], labels=["a", "b"], radius=1.25, wedgeprops={"width": 0.4})
        chart = self.chart()
        self.assertEqual(self.column(chart, "radius"), [1.25, 1.25])
        self.assertEqual(self.column(chart, "angle"), [180.0, 180.0])


class SuperChart(ChartCase):
    def test_line_and_scatter(self):
        figure, (left, right) = plt.subplots(1, 2, figsize=(14, 5))
        x = np.linspace(0, 10, 100)
        left.plot(x, np.sin(x))
        left.set_title("Sine Wave")
        left.grid(True)
        right.scatter([1, 2, 3, 4, 5], [5, 4, 3, 2, 1])
        right.set_title("Scatter Plot")
        right.set_xlabel("X")
        right.set_ylabel("Y")
        right.grid(True)
        figure.suptitle("Multiple Charts Example")
        chart = self.chart()
        self.assertEqual(set(chart), {"type", "title", "elements"})
        self.assertEqual((chart["type"], chart["title"]), ("superchart", "Multiple Charts Example"))
        line, scatter = chart["elements"]
        self.assertEqual((line["type"], line["title"]), ("line", "Sine Wave"))
        self.assertEqual((line["x_label"], line["y_label"]), (None, None))
        self.assertEqual([len(points) for points in self.column(line, "points")], [100])
        self.assertEqual((scatter["type"], scatter["title"]), ("scatter", "Scatter Plot"))
        self.assertEqual((scatter["x_label"], scatter["y_label"]), ("X", "Y"))
        self.assertEqual([len(points) for points in self.column(scatter, "points")], [5])

    def test_blank_neighbour_and_no_title(self):
        _, (left, _) = plt.subplots(1, 2)
        left.plot([1, 2, 3])
        chart = self.chart()
        self.assertEqual(chart["title"], "")
        blank = chart["elements"][1]
        self.assertEqual((blank["type"], blank["elements"]), ("line", []))
        self.assertEqual((blank["x_ticks"][0], blank["x_ticks"][-1]), (0.0, 1.0))

    def test_twin_axes(self):
        _, ax = plt.subplots()
        ax.plot([1, 2, 3])
        ax.twinx().plot([3, 2, 1])
        chart = self.chart()
        self.assertEqual(chart["type"], "superchart")
        self.assertEqual(self.column(chart, "type"), ["line", "line"])

    def test_image_with_colorbar(self):
        plt.imshow([[1, 2], [3, 4]])
        plt.colorbar()
        chart = self.chart()
        self.assertEqual(chart["type"], "superchart")
        self.assertEqual(self.column(chart, "type"), ["unknown", "unknown"])


class NoChart(ChartCase):
    def test_without_axes_or_data(self):
        self.assertIsNone(chart_of(plt.figure()))
        figure, _ = plt.subplots(2, 2)
        self.assertIsNone(chart_of(figure))
        plt.close("all")
        plt.text(0.5, 0.5, "only text")
        self.assertIsNone(chart_of(plt.gcf()))

    def test_too_many_points(self):
        plt.plot(np.arange(charts.MAX_POINTS))
        self.assertEqual(len(chart_of(plt.gcf())["elements"][0]["points"]), charts.MAX_POINTS)
        plt.scatter([1], [1])
        self.assertIsNone(chart_of(plt.gcf()))

    def test_unknown(self):
        circles = plt.Circle((0, 0), 1, fill=False), plt.Circle((0, 0), 0.5, fill=False)
        _, ax = plt.subplots()
        for circle in circles:
            ax.add_artist(circle)
        ax.grid(True)
        plt.title("Two Concentric Circles")
        self.assertEqual(self.chart(), {"type": "unknown", "title": "Two Concentric Circles", "elements": []})

    def test_other_unknowns(self):
        for draw in (
            lambda: plt.imshow([[1, 2], [3, 4]]),
            lambda: plt.fill_between([1, 2, 3], [1, 2, 3]),
            lambda: plt.stackplot([1, 2, 3], [[1, 2, 3], [3, 2, 1]]),
            lambda: plt.errorbar([1, 2, 3], [1, 2, 3], yerr=0.1),
            lambda: plt.violinplot([[1, 2, 3]]),
            lambda: plt.contour([[1, 2], [3, 4]]),
            lambda: plt.hexbin([1, 2, 3], [1, 2, 3], gridsize=3),
        ):
            plt.close("all")
            draw()
            self.assertEqual(self.chart(), {"type": "unknown", "title": None, "elements": []})

    def test_the_figure_stays_as_it_was(self):
        plt.plot([1, 2, 3], [1, 4, 9])
        before, after = io.BytesIO(), io.BytesIO()
        plt.savefig(before, bbox_inches="tight")
        chart_of(plt.gcf())
        plt.savefig(after, bbox_inches="tight")
        self.assertEqual(before.getvalue(), after.getvalue())


class Proxies(ChartCase):
    """seaborn draws things without extent, for its legends."""

    def test_beside_scatter(self):
        plt.scatter([1, 2], [3, 4])
        plt.plot([], [], "o", label="kind a")
        chart = self.chart()
        self.assertEqual((chart["type"], len(chart["elements"])), ("scatter", 1))

    def test_beside_boxes(self):
        plt.boxplot([[1, 2, 3, 4, 5]], patch_artist=True)
        plt.gca().add_patch(plt.Rectangle((0, 0), 0, 0, label="kind a"))
        chart = self.chart()
        self.assertEqual((chart["type"], self.column(chart, "median")), ("box_and_whisker", [3.0]))

    def test_bands_without_extent(self):
        plt.plot([1, 2, 3], [1, 2, 4])
        plt.fill_between([1, 2, 3], [math.nan] * 3, [math.nan] * 3)
        self.assertEqual(self.chart()["type"], "line")

    def test_empty_series_stay(self):
        plt.plot([], [])
        chart = self.chart()
        self.assertEqual(chart["elements"], [{"label": "Line 0", "points": []}])


class Rules(ChartCase):
    def test_units(self):
        for label, unit in (
            ("Time (s)", "s"),
            ("Amplitude [Hz]", "Hz"),
            ("V (a) [b]", "a"),
            ("[b] (a)", "b"),
            ("f(x)", None),
            ("empty ()", None),
            ("plain", None),
            ("", None),
        ):
            self.assertEqual(axis.unit_of(label), unit, label)

    def test_scales(self):
        _, ax = plt.subplots()
        self.assertEqual(axis.scale_of(ax.xaxis, [1, 2, 3], ["1", "2", "3"]), "linear")
        self.assertEqual(axis.scale_of(ax.xaxis, [0, 1, 2], ["a", "b", "c"]), "categorical")
        self.assertEqual(axis.scale_of(ax.xaxis, [0, 1, 2], ["0", "1", "2"]), "linear")
        self.assertEqual(axis.scale_of(ax.xaxis, [], []), "linear")
        for scale in ("log", "symlog", "logit", "asinh"):
            ax.set_xscale(scale)
            self.assertEqual(axis.scale_of(ax.xaxis, [], []), scale)
        _, ax = plt.subplots()
        ax.plot([datetime.date(2024, 1, 1)], [1])
        self.assertEqual(axis.scale_of(ax.xaxis, [0, 1], ["a", "b"]), "datetime")

    def test_reference_lines(self):
        self.assertTrue(axis.is_reference_line(Line2D([1, 1], [0, 5])))
        self.assertTrue(axis.is_reference_line(Line2D([0, 5], [1, 1])))
        self.assertFalse(axis.is_reference_line(Line2D([0, 5], [0, 5])))
        self.assertFalse(axis.is_reference_line(Line2D([1, 1, 1, 1], [0, 1, 2, 3])))

    def test_rounding(self):
        for value, expected in (
            (323.99999, 324.0),
            (36.0000014, 36.0),
            (51.428570, 51.42857),
            (102.85714, 102.857),
            (0.0, 0.0),
            (-84.75, -84.75),
        ):
            self.assertEqual(values.rounded(value), expected)
        self.assertIsNone(values.rounded(math.nan))


if __name__ == "__main__":
    unittest.main()
