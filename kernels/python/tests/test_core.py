"""Cells, values, errors: the rows of the wire reference that need no library."""

from client import Runner, RunnerTest

DASHES = "-" * 75


class Cells(RunnerTest):
    def test_value(self):
        self.assertEqual(self.ok("x = 1; x").results, [{"type": "result", "text": "1", "extra": {}, "is_main_result": True}])

    def test_state(self):
        self.ok("x = 1")
        self.assertEqual(self.ok("x += 1; x").text, "2")

    def test_indented_code(self):
        self.assertEqual(self.ok("\n\n        y = 3\n        if y:\n            y += 1\n        y").text, "4")

    def test_only_the_last_expression(self):
        for code in ("None", "1;", "x = 3", "if True:\n    5", "for i in [1]: i"):
            self.assertEqual(self.ok(code).results, [], code)
        self.assertEqual([r["text"] for r in self.ok("1\n2").results], ["2"])

    def test_names_of_a_cell(self):
        self.ok("41 + 1")
        self.assertEqual(self.ok("_").text, "42")
        self.assertEqual(self.ok("Out[max(Out)], In[-1], os.name").text, "(42, 'Out[max(Out)], In[-1], os.name', 'posix')")

    def test_display(self):
        run = self.ok("print(1); display(2); print(3); 4")
        shown = [(line["type"], line["text"], line.get("is_main_result")) for line in run.lines[1:-1]]
        self.assertEqual(shown, [("stdout", "1\n", None), ("result", "2", False), ("stdout", "3\n", None), ("result", "4", True)])

    def test_update_and_clear_change_nothing(self):
        run = self.ok("from IPython.display import clear_output\nh = display(1, display_id=True)\nh.update(2)\nclear_output()")
        self.assertEqual([r["text"] for r in run.results], ["1"])

    def test_raw_bundle(self):
        run = self.ok("display({'text/latex': 'x', 'application/x-own': {'a': 1}}, raw=True)")
        self.assertEqual(run.results, [{"type": "result", "latex": "x", "extra": {"application/x-own": {"a": 1}}, "is_main_result": False}])

    def test_display_objects(self):
        run = self.ok("from IPython.display import *\ndisplay(HTML('<b>x</b>'), Markdown('*x*'), JSON({'a': 1.0}), Javascript('1'), Latex('$x$'))")
        fields = [set(r) - {"type", "text", "extra", "is_main_result"} for r in run.results]
        self.assertEqual(fields, [{"html"}, {"markdown"}, {"json"}, {"javascript"}, {"latex"}])
        self.assertEqual(run.results[0]["text"], "<IPython.core.display.HTML object>")

    def test_values(self):
        for code, text in (("True", "True"), ("(1, 2)", "(1, 2)"), ("'abc'", "abc"), ('"it\'s"', "it's"), ("b'x'", "b'x'"), ("'a\\nb'", "a\\nb"), ("{1}", "{1}"), ("'\\''", "'"), ("1.0", "1.0")):
            run = self.ok(code)
            self.assertEqual(run.results, [{"type": "result", "text": text, "extra": {}, "is_main_result": True}], code)

    def test_json(self):
        for code, value in (("[1, 2.0]", [1, 2.0]), ("{}", {}), ("{'a': float('nan'), 2: (None, True)}", {"a": None, "2": [None, True]}), ("{'d': __import__('datetime').date(2024, 1, 2)}", {"d": "2024-01-02"})):
            self.assertEqual(self.ok(code).results[0]["json"], value, code)
        for code in ("[{1}]", "{'a': {1}}", "[object()]", "l = []; l.append(l); l"):
            self.assertNotIn("json", self.ok(code).results[0], code)
        self.assertIsInstance(self.ok("[1.0]").results[0]["json"][0], float)

    def test_long_lists_are_whole(self):
        self.assertEqual(self.ok("list(range(1500))").text.count("\n"), 1499)

    def test_own_representations(self):
        run = self.ok("class D:\n    def _repr_e2b_data_(self): return {'q': [1]}\n    def _repr_e2b_chart_(self): return {'type': 'line'}\n    def __repr__(self): return 'D'\nD()")
        self.assertEqual(run.results, [{"type": "result", "text": "D", "data": {"q": [1]}, "chart": {"type": "line"}, "extra": {}, "is_main_result": True}])

    def test_registered_printers(self):
        self.ok("f = get_ipython().display_formatter.formatters['text/html']\nf.for_type(int, lambda i: f'<b>{i}</b>')")
        self.assertEqual(self.ok("7").results[0]["html"], "<b>7</b>")
        self.ok("f.pop(int);")
        self.assertNotIn("html", self.ok("7").results[0])
        self.ok("%precision 2")
        self.assertEqual(self.ok("1.23456").text, "1.23")
        self.ok("%precision")

    def test_unicode(self):
        run = self.ok("print('\\ud83d\\ude00 \\u2028 \\ud800 é \\\\ud800')")
        self.assertEqual(run.stdout, ["\U0001f600 \u2028 \ufffd é \\ud800\n"])

    def test_help_shows_nothing(self):
        for code in ("?len", "len?"):
            self.assertEqual(self.ok(code).lines[1:-1], [])


class Counting(RunnerTest):
    def test_counts(self):
        self.assertEqual(self.run_code("echo 'x'").count, 1)
        self.assertEqual(self.run_code("").count, 2)
        self.assertEqual(self.run_code("  \n").count, 2)
        self.assertEqual(self.run_code("# only this").count, 2)
        self.assertEqual(self.run_code("1").count, 3)


class Errors(RunnerTest):
    def test_error(self):
        run = self.run_code("print('before')\nxyz\nprint('after')")
        self.assertEqual(run.stdout, ["before\n"])
        self.assertEqual((run.error["name"], run.error["value"]), ("NameError", "name 'xyz' is not defined"))
        trace = run.error["traceback"]
        self.assertTrue(trace.startswith(DASHES + "NameError "), trace)
        self.assertEqual(len(trace[75:].split("Cell In")[0]), 75)
        self.assertIn(f"Traceback (most recent call last)Cell In[{run.count}], line 2\n", trace)
        self.assertTrue(trace.endswith("NameError: name 'xyz' is not defined"))
        self.assertEqual([line["type"] for line in run.lines], ["started", "stdout", "error", "done"])

    def test_syntax_error(self):
        run = self.run_code("echo 'hi'")
        self.assertEqual(run.error["name"], "SyntaxError")
        self.assertTrue(run.error["value"].startswith("invalid syntax ("))
        self.assertEqual(run.error["traceback"], f"  Cell In[{run.count}], line 1\n    echo 'hi'\n         ^\nSyntaxError: invalid syntax\n")

    def test_chain(self):
        self.assertIn("The above exception was the direct cause of the following exception:", self.run_code("raise KeyError(1) from ValueError()").error["traceback"])

    def test_system_exit(self):
        run = self.run_code("import sys; sys.exit(3)")
        self.assertEqual(run.error, {"type": "error", "name": "SystemExit", "value": "3", "traceback": "An exception has occurred, use %tb to see the full traceback.\nSystemExit: 3\n"})
        self.assertIn("UserWarning", "".join(run.stderr))
        self.assertEqual(self.ok("1").text, "1")

    def test_input(self):
        for code in ("input()", "input('name? ')", "import getpass; getpass.getpass()"):
            error = self.run_code(code).error
            self.assertEqual(error["name"], "StdinNotImplementedError")
            self.assertEqual(error["value"], "raw_input was called, but this frontend does not support input requests.")

    def test_unknown_magic(self):
        run = self.run_code("%nosuch")
        self.assertEqual(run.stderr, ["UsageError: Line magic function `%nosuch` not found.\n"])
        self.assertEqual((run.error["name"], run.error["traceback"]), ("UsageError", ""))

    def test_exit(self):
        for code in ("exit()", "quit", "exit"):
            run = self.ok(code)
            self.assertEqual(run.lines[-1], {"type": "done", "restart": True}, code)
        self.assertEqual(self.ok("1").lines[-1], {"type": "done"})

    def test_repr_that_raises(self):
        run = self.run_code("class R:\n    def __repr__(self): raise ValueError('no')\nR()")
        self.assertEqual((run.error["name"], run.error["value"]), ("ValueError", "no"))

    def test_str_of_an_exception_raises(self):
        self.assertEqual(self.run_code("raise type('X', (Exception,), {'__str__': lambda s: 1/0})()").error["name"], "X")

    def test_warnings_and_logging(self):
        self.assertIn("careful", "".join(self.ok("import warnings; warnings.warn('careful')").stderr))
        self.assertEqual(self.ok("import logging; logging.warning('w')").stderr, ["WARNING:root:w\n"])


class Commands(RunnerTest):
    def test_terminal(self):
        self.assertEqual(self.ok("!pwd").stdout, ["/home/user\r\n"])
        self.assertEqual(self.ok("!echo err >&2; test -t 1 && test -t 2 && echo tty").stdout, ["err\r\ntty\r\n"])

    def test_exit_codes(self):
        self.ok("!exit 3")
        self.assertEqual(self.ok("_exit_code").text, "3")
        self.ok("!kill -9 $$")
        self.assertEqual(self.ok("_exit_code").text, "-9")

    def test_variables_and_capture(self):
        self.ok("word = 'x y'")
        self.assertEqual(self.ok("!echo {word} $word").stdout, ["x y x y\r\n"])
        self.assertEqual(self.ok("a = !echo q\na").results[0]["json"], ["q"])

    def test_background_is_refused(self):
        self.assertEqual(self.run_code("!sleep 1 &").error["name"], "OSError")

    def test_bash_cell(self):
        run = self.run_code("%%bash\necho a; echo b >&2; exit 3")
        self.assertEqual((run.stdout, run.stderr), (["a\n"], ["b\n"]))
        self.assertEqual(run.error["name"], "CalledProcessError")

    def test_cd(self):
        self.assertEqual(self.ok("%cd /tmp").stdout, ["/tmp\n"])
        self.assertEqual(self.ok("%cd -").stdout, ["/home/user\n"])

    def test_pip_note(self):
        self.assertIn("restart the kernel", "".join(self.ok("%pip --version").stdout))

    def test_matplotlib_magic(self):
        self.ok("%matplotlib inline")


class Tasks(RunnerTest):
    def test_await(self):
        self.assertEqual(self.ok("import asyncio\nawait asyncio.sleep(0.01, result=7)").text, "7")

    def test_tasks_go_on_between_runs(self):
        self.ok("import asyncio, time\ndone = []\nasync def work():\n    await asyncio.sleep(0.05)\n    done.append(1)\nt = asyncio.create_task(work())")
        self.assertTrue(self.runner.silent(0.5))
        self.assertEqual(self.ok("done, t.done()").text, "([1], True)")

    def test_a_thread_wakes_the_loop(self):
        self.ok("import asyncio, time\nf = asyncio.get_running_loop().run_in_executor(None, lambda: time.sleep(0.05) or 'r')")
        self.assertTrue(self.runner.silent(0.4))
        self.assertEqual(self.ok("f.done()").text, "True")

    def test_asyncio_run(self):
        self.assertEqual(self.ok("import asyncio\nasync def m(): return 5\nasyncio.run(m())").text, "5")
        self.ok("t = asyncio.create_task(m())")
        self.assertEqual(self.ok("await t").text, "5")

    def test_error_in_await(self):
        self.assertEqual(self.run_code("import asyncio\nawait asyncio.sleep(0)\n1/0").error["name"], "ZeroDivisionError")

    def test_closed_loop(self):
        self.ok("import asyncio\nasyncio.get_event_loop().close()")
        self.assertEqual(self.ok("await asyncio.sleep(0, 3)").text, "3")


class Arguments(RunnerTest):
    def call(self, code, **arguments):
        return self.run_code(code, arguments=arguments)

    def test_value(self):
        run = self.call("def main(a, b=2): return {'sum': a + b}\n'no result'", a=1)
        self.assertEqual(run.results, [{"type": "result", "json": {"sum": 3}, "text": '{"sum":3}', "extra": {}, "is_main_result": True}])

    def test_awaited(self):
        self.assertEqual(self.call("import asyncio\nasync def main(x):\n    await asyncio.sleep(0.01)\n    return [x, 1.0, None]", x="é").results[0]["json"], ["é", 1.0, None])

    def test_none(self):
        self.assertEqual(self.call("def main(): print('x')").results, [{"type": "result", "json": None, "text": "null", "extra": {}, "is_main_result": True}])

    def test_typed_errors(self):
        self.run_code("main = None")
        for code, name in (("1", "MissingMain"), ("main = 3", "MissingMain"), ("def main(): return {1}", "UnserializableResult"), ("def main(): return [float('inf')]", "UnserializableResult"), ("def main(): return object()", "UnserializableResult")):
            run = self.call(code)
            self.assertEqual((run.error["name"], run.results), (name, []), code)
        self.assertEqual(self.call("def main(): pass", x=1).error["name"], "InvalidArguments")
        self.assertEqual(self.call("def main(a): pass").error["name"], "InvalidArguments")

    def test_errors_of_the_code(self):
        run = self.call("def main():\n    return 1 / 0")
        self.assertEqual(run.error["name"], "ZeroDivisionError")
        self.assertIn("----> 2     return 1 / 0", run.error["traceback"])
        self.assertNotIn("atoll_kernel", run.error["traceback"])
        self.assertEqual(self.call("1 / 0\ndef main(): pass").error["name"], "ZeroDivisionError")
        self.assertEqual(self.call("def main(): raise TypeError('inner')").error["name"], "TypeError")
        self.assertEqual(self.call("def main():\n    import sys; sys.exit(2)").error["name"], "SystemExit")


class Environment(RunnerTest):
    def test_per_run(self):
        code = "os.getenv('FOO', 'default')"
        self.assertEqual(self.ok(code, env={"FOO": "bar"}).text, "bar")
        self.assertEqual(self.ok(code).text, "default")

    def test_value_of_start_comes_back(self):
        self.ok("os.environ['USER'] = 'changed'")
        self.assertEqual(self.ok("!echo $USER", env={"USER": "run"}).stdout, ["run\r\n"])
        self.assertEqual(self.ok("os.environ['USER']").text, "user")

    def test_reset_after_an_error(self):
        self.assertEqual(self.run_code("1/0", env={"FOO": "x"}).error["name"], "ZeroDivisionError")
        self.assertEqual(self.ok("'FOO' in os.environ").text, "False")

    def test_odd_names(self):
        self.ok("1", env={"": "x", "A=B": "y", "N": "a'\"\n$x\\"})
        self.assertEqual(self.ok("os.environ['N']", env={"N": "a'\"\n"}).text, "a\\'\"\\n")

    def test_start(self):
        runner = Runner(cwd="/nonexistent", env={"HOME": "/tmp", "PYTHONPATH": "/opt/mine", "TZ": "Asia/Tokyo"})
        self.addCleanup(runner.close)
        self.assertEqual(runner.run("os.getcwd()").text, "/tmp")
        self.assertEqual(runner.run("import sys, time; '/opt/mine' in sys.path, time.tzname[0]").text, "(True, 'JST')")
        self.assertEqual(runner.run("sorted(os.environ)").text, "['HOME', 'MPLBACKEND', 'PYTHONPATH', 'TZ']")
