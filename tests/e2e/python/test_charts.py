import datetime
import json

from e2b_code_interpreter.charts import (
    BarChart, BoxAndWhiskerChart, Chart, ChartType, LineChart, PieChart, ScatterChart, SuperChart)

from interpreter import chart_cell, row
from support import settle


async def chart(case, name):
    execution = await settle(case.sbx.run_code(chart_cell(name)))
    assert execution.error is None, execution.error
    assert execution.results[0].png
    return execution.results[0].chart


def labels_of(got):
    return (got.title, got.x_label, got.y_label, got.x_unit, got.y_unit)


def floats(values):
    return bool(values) and all(isinstance(value, float) for value in values)


def pick(got, field):
    return [getattr(element, field) for element in got.elements]


@row("charts/bar: values, labels, groups")
async def test_bar(case):
    got = await chart(case, "bar")
    assert isinstance(got, BarChart) and got.type == ChartType.BAR
    assert labels_of(got) == ("Book Sales by Authors", "Authors", "Number of Books Sold", None, None)
    assert [(bar.label, bar.group, bar.value) for bar in got.elements] == [
        (f"Author {letter}", "Books Sold", 100.0 * (i + 1)) for i, letter in enumerate("ABCD")]


@row("charts/box: five numbers and outliers")
async def test_box(case):
    got = await chart(case, "box")
    assert isinstance(got, BoxAndWhiskerChart)
    assert labels_of(got) == ("Exam Scores Distribution", "Class", "Score", None, None)
    assert pick(got, "label") == ["Class A", "Class B", "Class C"]
    assert pick(got, "outliers") == [[], [76], []]
    assert pick(got, "min") == [78, 84, 75]
    assert pick(got, "first_quartile") == [85, 84.75, 79]
    assert pick(got, "median") == [88, 88, 82]
    assert pick(got, "third_quartile") == [90, 90.5, 86]
    assert pick(got, "max") == [92, 95, 88]


@row("charts/line: dates, units, two lines")
async def test_line(case):
    got = await chart(case, "line")
    assert isinstance(got, LineChart)
    assert labels_of(got) == ("Plot of sin(x) and cos(x)", "Time (s)", "Amplitude (Hz)", "s", "Hz")
    assert (got.x_scale, got.y_scale) == ("datetime", "linear")
    assert all(datetime.datetime.fromisoformat(tick) for tick in got.x_ticks) and floats(got.y_ticks)
    assert all(isinstance(text, str) for text in [*got.x_tick_labels, *got.y_tick_labels])
    assert pick(got, "label") == ["sin(x)", "cos(x)"]
    for points in pick(got, "points"):
        assert len(points) == 100
        assert all(isinstance(x, str) and isinstance(y, float) for x, y in points)


@row("charts/log: logarithmic axis")
async def test_log(case):
    got = await chart(case, "log")
    assert isinstance(got, LineChart)
    assert labels_of(got) == ("Chart with Log Scale on Y-axis", "X-axis", "Y-axis (log scale)", None, "log scale")
    assert (got.x_scale, got.y_scale) == ("linear", "log")
    assert floats(got.x_ticks) and floats(got.y_ticks)
    (line,) = got.elements
    assert line.label == "y = e^x" and len(line.points) == 100
    assert all(floats(point) for point in line.points)


@row("charts/pie: angles")
async def test_pie(case):
    got = await chart(case, "pie")
    assert isinstance(got, PieChart) and got.title == "Will I wake up early tomorrow?"
    assert [(part.label, part.angle, part.radius) for part in got.elements] == [("No", 324, 1), ("No, in blue", 36, 1)]


@row("charts/scale: datetime")
async def test_scale_datetime(case):
    got = await chart(case, "scale-datetime")
    assert isinstance(got, LineChart) and (got.x_scale, got.y_scale) == ("datetime", "linear")


@row("charts/scale: categorical")
async def test_scale_categorical(case):
    got = await chart(case, "scale-categorical")
    assert isinstance(got, LineChart) and (got.x_scale, got.y_scale) == ("linear", "categorical")


@row("charts/scatter: two datasets")
async def test_scatter(case):
    got = await chart(case, "scatter")
    assert isinstance(got, ScatterChart)
    assert labels_of(got) == (None, "A", "B", None, None)
    assert (got.x_scale, got.y_scale) == ("linear", "linear")
    assert floats(got.x_ticks) and floats(got.y_ticks)
    assert [(data.label, len(data.points)) for data in got.elements] == [("Dataset 1", 5), ("Dataset 2", 10)]
    assert all(isinstance(point, tuple) and floats(point) for data in got.elements for point in data.points)


@row("charts/superchart: two in one figure")
async def test_superchart(case):
    got = await chart(case, "superchart")
    assert isinstance(got, SuperChart) and got.title == "Multiple Charts Example"
    line, scatter = got.elements
    assert isinstance(line, LineChart) and (line.title, line.x_label, line.y_label) == ("Sine Wave", None, None)
    assert [len(element.points) for element in line.elements] == [100]
    assert isinstance(scatter, ScatterChart) and (scatter.title, scatter.x_label, scatter.y_label) == ("Scatter Plot", "X", "Y")
    assert [len(element.points) for element in scatter.elements] == [5]


@row("charts/unknown: other artists")
async def test_unknown(case):
    got = await chart(case, "unknown")
    assert type(got) is Chart and (got.type, got.title, got.elements) == (ChartType.UNKNOWN, "Two Concentric Circles", [])


@row("charts/json: the whole execution")
async def test_json(case):
    execution = await settle(case.sbx.run_code(chart_cell("scatter")))
    document = json.loads(execution.to_json())
    assert document["results"][0]["chart"]["type"] == "scatter"
