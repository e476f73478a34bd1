"""Figures, frames, images: nothing is imported before a cell does, and each has its representations."""

import base64

from client import RunnerTest

PNG = b"\x89PNG\r\n\x1a\n"


class Lazy(RunnerTest):
    def test_nothing_heavy_is_loaded(self):
        self.assertEqual(self.ok("import sys; [m for m in ('numpy', 'pandas', 'matplotlib', 'PIL') if m in sys.modules]").text, "[]")


class Home(RunnerTest):
    def test_no_file_appears(self):
        files = "!find /home/user -printf '%p %s %T@\\n' | sort"
        before = self.ok(files).stdout
        self.ok("import matplotlib.pyplot as plt, pandas as pd\nplt.plot([1]); plt.show(); display(pd.DataFrame({'a': [1]}))\n%cd /tmp\n%cd /home/user")
        self.run_code("1/0")
        self.run_code("%history\n%who\n!true")
        self.assertEqual(self.ok(files).stdout, before)
        self.ok("open('seen', 'w').close()")
        self.assertNotEqual(self.ok(files).stdout, before)
        self.ok("os.unlink('seen')")


class Figures(RunnerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.runner.run("import matplotlib.pyplot as plt")

    def fields(self, run):
        return [(sorted(set(r) - {"type", "extra", "is_main_result"}), r["is_main_result"]) for r in run.results]

    def test_show(self):
        run = self.ok("    plt.plot([1, 2, 3])\n    plt.show()\n    x = 5\n    x")
        self.assertEqual(self.fields(run), [(["chart", "png", "text"], False), (["text"], True)])
        self.assertEqual(run.results[0]["text"], "<Figure size 640x480 with 1 Axes>")
        self.assertEqual((run.results[0]["chart"]["type"], run.results[0]["extra"]), ("line", {}))
        self.assertTrue(base64.b64decode(run.results[0]["png"]).startswith(PNG))
        self.assertEqual(run.stderr, [])

    def test_end_of_run(self):
        run = self.ok("plt.plot([1])")
        self.assertEqual(self.fields(run), [(["json", "text"], True) if "json" in run.results[0] else (["text"], True), (["chart", "png", "text"], False)])
        self.assertEqual(self.ok("plt.get_fignums()").text, "[]")

    def test_figure_as_value(self):
        run = self.ok("fig, ax = plt.subplots(figsize=(10, 6)); ax.plot([1]); fig")
        self.assertEqual([(r["text"], r["is_main_result"]) for r in run.results], [("<Figure size 1000x600 with 1 Axes>", True), ("<Figure size 1000x600 with 1 Axes>", False)])

    def test_several_in_order(self):
        run = self.ok("for i in (1, 2):\n    plt.figure(figsize=(i, i)); plt.plot([1])\nplt.show()")
        self.assertEqual([r["text"] for r in run.results], ["<Figure size 100x100 with 1 Axes>", "<Figure size 200x200 with 1 Axes>"])

    def test_empty(self):
        run = self.ok("fig = plt.figure()")
        self.assertEqual(self.fields(run), [(["chart", "text"], False)])
        self.assertEqual(run.results[0]["chart"], {})
        run = self.ok("fig, ax = plt.subplots()")
        self.assertEqual(self.fields(run), [(["chart", "png", "text"], False)])
        self.assertEqual(run.results[0]["chart"], {})

    def test_savefig(self):
        for name in ("png", "jpg"):
            run = self.ok(f"plt.bar(['a', 'b'], [1, 2]); plt.savefig('/tmp/f.{name}'); plt.show()")
            self.assertEqual([r["text"].split()[0] for r in run.results], ["<PIL.Image.Image", "<Figure"], name)
        self.assertEqual(len(self.ok("plt.plot([1]); plt.savefig('/tmp/f.png'); plt.close()").results), 1)
        self.assertEqual(len(self.ok("plt.plot([1]); plt.savefig('/tmp/f.svg'); plt.close()").results), 0)

    def test_chart_that_cannot_be_read(self):
        run = self.ok("import matplotlib.axes\nplt.plot([1]); plt.gca().get_title = lambda *a: 1/0\nplt.show()")
        self.assertEqual(run.results[-1]["chart"], {})


class Images(RunnerTest):
    def test_hooks(self):
        self.ok("from PIL import Image; import io, pathlib; im = Image.new('RGB', (4, 4))")
        for code in ("im", "im.show()", "im.save('/tmp/t.png')", "im.save('/tmp/t.png', 'PNG')"):
            run = self.ok(code)
            self.assertEqual(len(run.results), 1, code)
            self.assertTrue(base64.b64decode(run.results[0]["png"]).startswith(PNG))
            self.assertIn("jpeg", run.results[0])
            self.assertEqual(run.results[0]["text"], "<PIL.Image.Image image mode=RGB size=4x4>")
        for code in ("im.save(io.BytesIO(), 'png')", "im.save(pathlib.Path('/tmp/u.png'))"):
            self.assertEqual(self.ok(code).results, [], code)
        self.assertNotIn("jpeg", self.ok("Image.new('RGBA', (4, 4))").results[0])
        self.assertEqual(self.ok("Image.open('/tmp/t.png').size").text, "(4, 4)")


class Frames(RunnerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.runner.run("import pandas as pd, numpy as np, datetime, decimal")

    def data(self, code):
        return self.ok(code).results[0]["data"]

    def test_frame(self):
        run = self.ok("        pd.DataFrame({'a': [1, 2, 3]})")
        self.assertEqual(set(run.results[0]), {"type", "text", "html", "data", "extra", "is_main_result"})
        self.assertEqual(run.text, "   a\n0  1\n1  2\n2  3")
        self.assertIn("<style scoped>", run.results[0]["html"])
        self.assertEqual(run.results[0]["data"], {"a": [1, 2, 3]})

    def test_values(self):
        for column, wanted in (
            ("[1.5, float('nan'), float('inf')]", [1.5, None, None]), ("[None, pd.NA, 'x']", [None, None, "x"]), ("[True, False]", [True, False]),
            ("[pd.Timestamp('2024-01-02'), pd.NaT]", ["2024-01-02T00:00:00", "NaT"]), ("pd.to_datetime(['2024-01-01']).tz_localize('UTC')", ["2024-01-01T00:00:00+00:00"]),
            ("[datetime.date(2024, 1, 1)]", ["2024-01-01"]), ("pd.Categorical(['a', 'b'])", ["a", "b"]), ("[[1, 2], [3]]", [[1, 2], [3]]),
            ("[pd.Timedelta('1h')]", ["0 days 01:00:00"]), ("[decimal.Decimal('1.5')]", ["1.5"]), ("[{1}]", ["{1}"]), ("[1.0, 2.0]", [1.0, 2.0]), ("pd.array([1, None])", [1, None]),
        ):
            self.assertEqual(self.data(f"pd.DataFrame({{'c': {column}}})"), {"c": wanted}, column)

    def test_names(self):
        self.assertEqual(self.data("pd.DataFrame({5: [1], ('x', 'y'): [2]})"), {"5": [1], "('x', 'y')": [2]})
        self.assertEqual(self.data("pd.DataFrame()"), {})

    def test_wide_frames_are_cut_as_in_a_notebook(self):
        self.assertIn("[2 rows x 40 columns]", self.ok("pd.DataFrame(np.zeros((2, 40)))").text)

    def test_others(self):
        for code in ("pd.Series([1, 2])", "np.array([1, 2])", "np.float64(1.5)"):
            self.assertEqual(set(self.ok(code).results[0]), {"type", "text", "extra", "is_main_result"}, code)
        self.assertEqual(self.ok("[np.int64(3), np.array([1.5, np.nan])]").results[0]["json"], [3, [1.5, None]])


class Sympy(RunnerTest):
    def test_latex(self):
        run = self.run_code("import sympy; sympy.Symbol('x') ** 2")
        if run.error and run.error["name"] == "ModuleNotFoundError":
            self.skipTest("no sympy in this template")
        self.assertEqual(run.text, "x**2")
        self.assertIn("x^{2}", run.results[0]["latex"])


class Plotly(RunnerTest):
    def test_show(self):
        run = self.run_code("import plotly.graph_objects as go; go.Figure(go.Bar(y=[1, 2])).show()")
        if run.error and run.error["name"] == "ModuleNotFoundError":
            self.skipTest("no plotly in this template")
        self.assertIsNone(run.error)
        self.assertEqual(len([r for r in run.results if "html" in r]), 2)
        self.assertTrue(any("application/vnd.plotly.v1+json" in r["extra"] for r in run.results))
