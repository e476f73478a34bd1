"""The R runner, spoken to as the agent does. Runs inside a template root that has R: see tests/run."""

import base64
import json
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

KERNELS = os.environ.get("ATOLL_KERNELS", "/run/atoll/kernels")
DEADLINE = 60  # seconds that an answer may take before the test fails


class Runner:
    """One runner process and the agent's end of its socket."""

    def __init__(self, env=None, cwd="/home/user"):
        ours, theirs = socket.socketpair()
        ours.settimeout(DEADLINE)

        def place():
            os.setsid()
            os.dup2(theirs.fileno(), 3)
            os.set_inheritable(3, True)
            os.setgid(1000)
            os.setuid(1000)

        self.process = subprocess.Popen(
            ["Rscript", "--vanilla", f"{KERNELS}/r/main.R"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=place,
            close_fds=False,
            cwd="/",
            env={"PATH": os.environ["PATH"], "HOME": "/home/user", "LEFT_OVER": "1"},
        )
        theirs.close()
        self.socket = ours
        self.lines = ours.makefile("rb")
        if env is None:
            env = {"PATH": os.environ["PATH"], "HOME": "/home/user", "USER": "user"}
        self.send({"op": "start", "env": env, "cwd": cwd})
        answer = self.read()
        assert answer == {"type": "ready"}, answer

    def send(self, request):
        self.socket.sendall(json.dumps(request, ensure_ascii=False).encode() + b"\n")

    def read(self):
        line = self.lines.readline()
        if not line:
            raise EOFError(self.process.stderr.read().decode())
        assert line.isascii() and line.endswith(b"\n"), line
        return json.loads(line, parse_constant=lambda name: 1 / 0)

    def collect(self):
        messages = [self.read()]
        while messages[-1]["type"] != "done":
            messages.append(self.read())
        return messages

    def run(self, code, env=None):
        request = {"op": "execute", "code": code}
        if env is not None:
            request["env"] = env
        self.send(request)
        return Run(self.collect())

    def close(self):
        self.lines.close()
        self.socket.close()
        try:
            self.process.wait(DEADLINE)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process.stderr.close()


class Run:
    def __init__(self, messages):
        self.messages = messages
        assert messages[0]["type"] == "started" and messages[-1]["type"] == "done", messages
        self.count = messages[0]["execution_count"]
        self.done = messages[-1]
        body = messages[1:-1]
        self.order = [m["type"] for m in body]
        self.stdout = [m["text"] for m in body if m["type"] == "stdout"]
        self.stderr = [m["text"] for m in body if m["type"] == "stderr"]
        self.results = [m for m in body if m["type"] == "result"]
        self.texts = [m["text"] for m in self.results]
        errors = [m for m in body if m["type"] == "error"]
        assert len(errors) <= 1, errors
        self.error = errors[0] if errors else None


class Shared(unittest.TestCase):
    """Tests that one runner serves one after the other."""

    @classmethod
    def setUpClass(cls):
        cls.runner = Runner()

    @classmethod
    def tearDownClass(cls):
        cls.runner.close()

    def run_code(self, code, env=None):
        return self.runner.run(code, env)

    def assert_quiet(self, run):
        self.assertEqual(run.order, [])


class Values(Shared):
    def test_a_visible_value_is_a_result(self):
        run = self.run_code("getwd()")
        self.assertEqual(
            run.results,
            [{"type": "result", "text": '[1] "/home/user"', "extra": {}, "is_main_result": False}],
        )
        self.assertEqual(run.done, {"type": "done"})
        self.assertEqual(list(run.results[0])[0], "type")

    def test_several_values(self):
        self.assertEqual(self.run_code("1 + 5; NULL\nTRUE").texts, ["[1] 6", "NULL", "[1] TRUE"])

    def test_invisible_values_and_assignments(self):
        self.assert_quiet(self.run_code("x <- 3\ninvisible(7)\nf <- function(a) a\nif (FALSE) 1"))
        self.assertEqual(self.run_code("f(x)").texts, ["[1] 3"])

    def test_nothing(self):
        for code in ("", "\n\n", "# only a comment"):
            self.assert_quiet(self.run_code(code))

    def test_functions_print_their_source(self):
        self.assertEqual(self.run_code("function(a)   { a+1 } # here").texts, ["function(a)   { a+1 }"])

    def test_several_lines(self):
        self.assertEqual(self.run_code("matrix(1:4, 2)").texts, ["     [,1] [,2]\n[1,]    1    3\n[2,]    2    4"])

    def test_data_frames_are_tables_too(self):
        run = self.run_code('data.frame(a = 1:2, b = c("<x>", "y&z"))')
        self.assertEqual(run.texts, ["  a   b\n1 1 <x>\n2 2 y&z"])
        self.assertIn("<td>&lt;x&gt;</td>", run.results[0]["html"])
        self.assertIn("y&amp;z", run.results[0]["html"])
        big = self.run_code("data.frame(n = seq_len(5000))").results[0]
        self.assertLess(big["html"].count("<tr>"), 100)
        self.assertIn("5000", big["html"])

    def test_methods_of_the_user(self):
        run = self.run_code('print.shy <- function(x, ...) cat("shy\\n")\nstructure(1, class = "shy")')
        self.assertEqual(run.texts, ["shy"])
        run = self.run_code(
            'setClass("P", representation(n = "numeric"))\n'
            'setMethod("show", "P", function(object) cat("P of", object@n, "\\n"))\nnew("P", n = 2)'
        )
        self.assertEqual(run.texts[-1], "P of 2 ")

    def test_quotes_around_all_of_it_are_trimmed(self):
        self.assertEqual(self.run_code("noquote('\\'q\\'')").texts, ["[1] 'q'"])
        run = self.run_code("print.bare <- function(x, ...) cat('\"in\"\\n'); structure(1, class = 'bare')")
        self.assertEqual(run.texts, ["in"])

    def test_unicode(self):
        run = self.run_code("s <- '\u00e9\u4e2d\U0001f600'\nnchar(s)\ns")
        self.assertEqual(run.texts, ["[1] 3", '[1] "\u00e9\u4e2d\U0001f600"'])

    def test_code_arrives_as_it_is(self):
        odd = "".join(chr(c) for c in range(1, 0x250) if chr(c) not in "\r'\\") + "\u2028\ufffd\U0001f468\u200d\U0001f469"
        points = self.run_code(f"s <- '{odd}'; cat(utf8ToInt(s))").stdout
        self.assertEqual([int(p) for p in "".join(points).split()], [ord(c) for c in odd])
        # As JSON may write it too: escapes, surrogate pairs, a lone half, NUL.
        self.runner.socket.sendall(
            b'{"op":"execute", "unknown": [1, {"a": ["}"]}], '
            b'"code":"s <- \'\\u00e9\\ud83d\\ude00\\ud83d\\u0000\\/\'; cat(utf8ToInt(s))" }\n'
        )
        run = Run(self.runner.collect())
        self.assertEqual(run.stdout, ["233 128512 65533 65533 47"])

    def test_large_code(self):
        code = "x <- c(" + ",".join(map(str, range(300_000))) + ")\nlength(x)"
        self.assertEqual(self.run_code(code).texts, ["[1] 300000"])

    def test_windows_line_ends(self):
        self.assertEqual(self.run_code("a <- 1\r\na + 1\r\n").texts, ["[1] 2"])

    def test_large_values_are_cut(self):
        run = self.run_code('strrep("a", 6e6)')
        self.assertEqual(len(run.texts), 1)
        self.assertLess(len(run.texts[0]), 5_000_000)
        self.assertTrue(run.texts[0].endswith("(the rest of this value is not shown)"))
        self.assertEqual(run.stdout, [])

    def test_global_environment_is_the_users(self):
        self.run_code("rm(list = ls(all.names = TRUE))")
        self.assertEqual(self.run_code("ls(all.names = TRUE)").texts, ["character(0)"])


class Output(Shared):
    def test_one_chunk_per_expression(self):
        run = self.run_code('print("Hello, World!")')
        self.assertEqual(run.stdout, ['[1] "Hello, World!"\n'])
        self.assertEqual(run.results, [])
        stamp = run.messages[1]["timestamp"]
        self.assertRegex(stamp, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$")
        run = self.run_code('for (i in 1:3) print(i)\ncat("a"); cat("b\\n")')
        self.assertEqual(run.stdout, ["[1] 1\n[1] 2\n[1] 3\n", "a", "b\n"])

    def test_order_with_results(self):
        run = self.run_code('cat("before\\n")\n1\ncat("after\\n")\nf <- function() { cat("in f\\n"); 2 }\nf()')
        self.assertEqual(run.order, ["stdout", "result", "stdout", "stdout", "result"])

    def test_messages(self):
        run = self.run_code('message("m")')
        self.assertEqual((run.stderr, run.stdout), (["m\n\n"], []))
        run = self.run_code('{ cat("1\\n"); message("2"); cat("3\\n") }')
        self.assertEqual([m["text"] for m in run.messages[1:-1]], ["1\n", "2\n\n", "3\n"])
        self.assert_quiet(self.run_code('suppressMessages(message("m"))'))

    def test_warnings(self):
        self.assertEqual(self.run_code('warning("w")').stderr, ["Warning message:\n\u201cw\u201d\n"])
        run = self.run_code('f <- function(x) { warning("w"); x }\nf(2)')
        self.assertEqual(run.stderr, ["Warning message in f(2):\n\u201cw\u201d\n"])
        self.assertEqual(run.texts, ["[1] 2"])
        self.assert_quiet(self.run_code('suppressWarnings(warning("w"))'))
        self.assert_quiet(self.run_code('options(warn = -1); warning("w"); options(warn = 0)'))

    def test_children(self):
        self.assertEqual(self.run_code('system("echo out; echo err >&2")').stdout, ["out\n"])
        self.assertEqual(self.run_code('system("echo out; echo err >&2")').stderr, ["err\n"])
        self.assertEqual(self.run_code('system("echo hi", intern = TRUE)').texts, ['[1] "hi"'])
        self.assertEqual(self.run_code('system2("echo", "two")').stdout, ["two\n"])

    def test_children_do_not_have_the_socket(self):
        run = self.run_code('system("readlink /proc/self/fd/* 2>/dev/null", intern = TRUE)')
        self.assertIn("pipe:", run.texts[0])
        self.assertNotIn("socket:", run.texts[0])
        own = 'any(grepl("socket:", Sys.readlink(dir("/proc/self/fd", full.names = TRUE))))'
        self.assertEqual(self.run_code(own).texts, ["[1] TRUE"])

    def test_long_output_is_sent_in_parts(self):
        run = self.run_code('for (i in 1:40000) cat("\u00e9\u00e9\u00e9\u00e9\u00e9\\n")')
        self.assertEqual("".join(run.stdout), "\u00e9\u00e9\u00e9\u00e9\u00e9\n" * 40000)
        self.assertTrue(all(len(text) <= 65536 for text in run.stdout))

    def test_bytes_that_are_no_text(self):
        run = self.run_code('system("printf \'a\\\\377b\\\\000c\'")')
        self.assertEqual(run.stdout, ["a\ufffdb\u0000c"])

    def test_output_between_runs_is_dropped(self):
        self.run_code('system("(sleep 0.3; echo late) &")')
        time.sleep(0.8)
        self.assert_quiet(self.run_code("x <- 1"))

    def test_forked_children(self):
        run = self.run_code("unlist(parallel::mclapply(1:2, function(i) { message('from a child'); i * 10 }, mc.cores = 2))")
        self.assertEqual(run.texts, ["[1] 10 20"])
        self.assertEqual("".join(run.stderr).count("from a child"), 2)
        run = self.run_code("p <- parallel::mcparallel({ quit(); 1 }); invisible(suppressWarnings(parallel::mccollect(p)))\n2")
        self.assertEqual(run.texts, ["[1] 2"])

    def test_sink_is_the_users(self):
        run = self.run_code('f <- tempfile(); sink(f); cat("away\\n"); 5; sink(); readLines(f)')
        self.assertEqual(run.texts, ['[1] "away"  "[1] 5"'])
        self.assertEqual(run.stdout, [])

    def test_standard_input_is_empty(self):
        self.assertEqual(self.run_code('readLines(file("stdin"))').texts, ["character(0)"])
        self.assertEqual(self.run_code('readline("? ")').texts[-1], '[1] ""')
        self.assertEqual(self.run_code("1 + 1").texts, ["[1] 2"])


class Errors(Shared):
    def test_top_level(self):
        run = self.run_code('cat("before\\n")\nstop("boom")\ncat("after\\n")')
        self.assertEqual(run.stdout, ["before\n"])
        self.assertEqual(run.error["name"], "ERROR")
        self.assertEqual(run.error["value"], "Error: boom\n")
        self.assertTrue(run.error["traceback"].startswith("Error: boom\nTraceback:\n"), run.error)
        self.assertEqual(run.order, ["stdout", "error"])

    def test_in_a_function(self):
        run = self.run_code('f <- function(x) stop("msg")\ng <- function(x) f(x)\ng(1)')
        self.assertEqual(run.error["value"], "Error in f(x): msg\n")
        lines = run.error["traceback"].splitlines()
        self.assertEqual(lines[:2], ["Error in f(x): msg", "Traceback:"])
        self.assertEqual([re.sub(r" +#.*", "", line) for line in lines[2:]], ["1. g(1)", "2. f(x)", '3. stop("msg")'])

    def test_unknown_names(self):
        self.assertEqual(self.run_code("xyz").error["value"], "Error: object 'xyz' not found\n")
        self.assertEqual(self.run_code("1 + 'a'").error["value"], 'Error in 1 + "a": non-numeric argument to binary operator\n')

    def test_parse_errors_run_nothing(self):
        run = self.run_code("cat('no\\n')\nf(")
        self.assertEqual(run.order, ["error"])
        self.assertTrue(run.error["value"].startswith("Error in parse(text = input): <text>:3:0: unexpected end of input"), run.error)
        self.assertEqual(run.error["name"], "ERROR")
        self.assertIn("unexpected symbol", self.run_code("a b").error["value"])

    def test_caught_errors_are_none(self):
        self.assertEqual(self.run_code('tryCatch(stop("x"), error = function(e) "caught")').texts, ['[1] "caught"'])
        run = self.run_code('try(stop("x"), silent = TRUE)\n1')
        self.assertIsNone(run.error)

    def test_conditions_and_odd_messages(self):
        run = self.run_code('stop(structure(class = c("own", "error", "condition"), list(message = "m", call = NULL)))')
        self.assertEqual(run.error["value"], "Error: m\n")
        run = self.run_code('stop("quote \\" and \u00e9\\nsecond line")')
        self.assertEqual(run.error["value"], 'Error: quote " and \u00e9\nsecond line\n')

    def test_error_while_printing(self):
        run = self.run_code('print.bad <- function(x, ...) { cat("partly\\n"); stop("no") }\nstructure(1, class = "bad")')
        self.assertEqual(run.stdout, ["partly\n"])
        self.assertEqual(run.error["value"], "Error in print.bad(x): no\n")
        self.assertEqual(self.run_code("1").texts, ["[1] 1"])

    def test_deep_recursion(self):
        run = self.run_code("f <- function(n) f(n + 1)\nf(1)")
        self.assertEqual(run.error["name"], "ERROR")
        self.assertRegex(run.error["value"], "nested too deeply|C stack|stack usage")
        self.assertLess(run.error["traceback"].count("\n"), 200)
        self.assertEqual(self.run_code("f <- NULL; 1").texts, ["[1] 1"])

    def test_quit_ends_the_run_only(self):
        for call in ("quit()", "q('no', 1)", "base::quit(status = 3)"):
            run = self.run_code(f"kept <- 5\ncat('a\\n')\n{call}\ncat('b\\n')")
            self.assertEqual((run.stdout, run.error), (["a\n"], None))
            self.assertEqual(self.run_code("kept").texts, ["[1] 5"])

    def test_abort(self):
        self.assertEqual(self.run_code("1; invokeRestart('abort'); 2").texts, ["[1] 1"])
        self.assertEqual(self.run_code("3").texts, ["[1] 3"])


class Plots(Shared):
    def assert_plots(self, run, count):
        plots = [r for r in run.results if "png" in r]
        self.assertEqual(len(plots), count)
        for plot in plots:
            self.assertEqual(plot["text"], "plot without title")
            png = base64.b64decode(plot["png"], validate=True)
            self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
            self.assertEqual(struct.unpack(">II", png[16:24]), (840, 840))
        return [p["png"] for p in plots]

    def setUp(self):
        self.run_code("graphics.off()")

    def test_one_plot(self):
        run = self.run_code("plot(1:10)")
        self.assert_plots(run, 1)
        self.assertEqual(len(run.results), 1)
        self.assertEqual((run.stdout, run.stderr, run.error), ([], [], None))

    def test_one_result_per_finished_plot(self):
        self.assert_plots(self.run_code("plot(1:10)\nlines(10:1)\ntitle('t')"), 1)
        self.assert_plots(self.run_code("for (i in 1:3) plot(i)"), 3)
        self.assert_plots(self.run_code("par(mfrow = c(1, 2)); plot(1); plot(2)"), 1)

    def test_order(self):
        run = self.run_code("plot(1)\ncat('x\\n')\nplot(2)\ncat('y\\n')")
        self.assertEqual(run.order, ["stdout", "result", "stdout", "result"])

    def test_later_runs_go_on(self):
        first = self.assert_plots(self.run_code("plot(1:10)"), 1)
        self.assert_plots(self.run_code("x <- 1"), 0)
        second = self.assert_plots(self.run_code("lines(10:1, col = 'red')"), 1)
        self.assertNotEqual(first, second)
        self.assert_plots(self.run_code("plot(3)"), 1)
        self.assert_plots(self.run_code("points(1, 3.1)\nplot(4)"), 2)

    def test_closing(self):
        run = self.run_code("plot(1:10)\ninvisible(dev.off())")
        self.assert_plots(run, 1)
        run = self.run_code("f <- function() { hist(c(1, 2, 2)); dev.off() }\ninvisible(f())")
        self.assert_plots(run, 1)
        self.run_code("plot(1)")
        self.assert_plots(self.run_code("invisible(dev.off())"), 0)

    def test_plots_into_files_are_the_users(self):
        run = self.run_code("f <- tempfile(fileext = '.png'); png(f); plot(1); invisible(dev.off()); file.size(f) > 0")
        self.assert_plots(run, 0)
        self.assertEqual(run.texts, ["[1] TRUE"])

    def test_nothing_drawn(self):
        self.assert_plots(self.run_code("invisible(dev.new()); par(mar = c(1, 1, 1, 1))"), 0)

    def test_before_an_error(self):
        run = self.run_code("plot(1)\nstop('x')")
        self.assertEqual(run.order, ["result", "error"])

    def test_values_beside_plots(self):
        run = self.run_code("h <- hist(c(1, 2, 2, 3))\nb <- barplot(1:3)\nb")
        self.assert_plots(run, 2)
        self.assertIn("[1,]", run.texts[-2] + run.texts[-1])

    def test_grid_and_text(self):
        self.assert_plots(self.run_code("grid::grid.newpage(); grid::grid.circle(); grid::grid.newpage(); grid::grid.text('\u4e2d\u00e9')"), 2)
        run = self.run_code("plot(1, main = '\u00e9\u20ac')")
        self.assert_plots(run, 1)
        self.assertEqual(run.stderr, [])

    def test_home_stays_clean(self):
        self.run_code("plot(1:3)\nmessage('x')\nsystem('true')")
        self.assertEqual(self.run_code("dir('/home/user', pattern = 'Rplots|Rhistory|RData', all.files = TRUE)").texts, ["character(0)"])


class Environment(unittest.TestCase):
    def setUp(self):
        self.runner = None

    def tearDown(self):
        if self.runner:
            self.runner.close()

    def start(self, env=None, cwd="/home/user"):
        base = {"PATH": os.environ["PATH"], "HOME": "/home/user"}
        self.runner = Runner({**base, **(env or {})}, cwd)
        return self.runner

    def test_of_start(self):
        values = {"TEST_ENV_VAR": "supertest", "ODD": "a\"b'c\\d\ne\u00e9 $X `x`", "EMPTY": ""}
        runner = self.start(values)
        self.assertEqual(runner.run('Sys.getenv("TEST_ENV_VAR")').texts, ['[1] "supertest"'])
        run = runner.run('identical(Sys.getenv("ODD"), "a\\"b\'c\\\\d\\ne\u00e9 $X `x`")\nSys.getenv("EMPTY", "unset")')
        self.assertEqual(run.texts, ["[1] TRUE", '[1] ""'])
        self.assertEqual(runner.run('Sys.getenv("LEFT_OVER", "gone")').texts, ['[1] "gone"'])
        self.assertEqual(runner.run('system("echo $TEST_ENV_VAR")').stdout, ["supertest\n"])
        self.assertEqual(runner.run('nzchar(Sys.getenv("R_HOME"))').texts, ["[1] TRUE"])

    def test_of_one_run(self):
        runner = self.start({"KEPT": "supertest"})
        read = 'Sys.getenv("FOO", unset = "default")\nSys.getenv("KEPT")'
        self.assertEqual(runner.run(read, {"FOO": "bar", "KEPT": "overwrite"}).texts, ['[1] "bar"', '[1] "overwrite"'])
        self.assertEqual(runner.run(read).texts, ['[1] "default"', '[1] "supertest"'])
        runner.run('Sys.setenv(FOO = "own")')
        self.assertEqual(runner.run(read).texts[0], '[1] "own"')
        self.assertIsNotNone(runner.run('stop("x")', {"FOO": "bar"}).error)
        self.assertEqual(runner.run(read).texts[0], '[1] "default"')

    def test_directory(self):
        self.assertEqual(self.start(cwd="/tmp").run("getwd()").texts, ['[1] "/tmp"'])
        self.runner.close()
        self.assertEqual(self.start(cwd="/no/such").run("getwd()").texts, ['[1] "/home/user"'])
        self.runner.close()
        self.assertEqual(self.start({"HOME": "/no"}, cwd="/root").run("getwd()").texts, ['[1] "/"'])

    def test_counts(self):
        runner = self.start()
        counts = [runner.run(code).count for code in ("1", "stop()", "f(", "")]
        self.assertEqual(counts, [1, 2, 3, 4])


class Copies(Shared):
    """Told that it is a copy of another one."""

    def draw(self, code, seed, env=None):
        self.runner.send({"op": "forked", "seed": seed * 32, "env": env or {}})
        return self.run_code(code).texts

    def test_generator(self):
        code = "runif(3); rnorm(2)"
        first = self.draw(code, "a1")
        self.assertNotEqual(first, self.run_code(code).texts)
        self.assertEqual(first, self.draw(code, "a1"))
        self.assertNotEqual(first, self.draw(code, "b2"))

    def test_variables_stay(self):
        show = 'Sys.getenv("E2B_SANDBOX_ID")'
        self.assertEqual(self.draw(show, "a1", {"E2B_SANDBOX_ID": "i2"}), ['[1] "i2"'])
        self.assertEqual(self.run_code(show, {"E2B_SANDBOX_ID": "lent"}).texts, ['[1] "lent"'])
        self.assertEqual(self.run_code(show).texts, ['[1] "i2"'])
        self.assertEqual(self.draw(show, "a1", {"E2B_SANDBOX_ID": "i3"}), ['[1] "i3"'])
        self.assertEqual(self.run_code(show, {"E2B_SANDBOX_ID": "lent"}).texts, ['[1] "lent"'])
        self.assertEqual(self.run_code(show).texts, ['[1] "i3"'])


class Life(unittest.TestCase):
    def setUp(self):
        self.runner = Runner()

    def tearDown(self):
        self.runner.close()

    def interrupt_when(self, code, ready):
        """Runs code that says on stdout when it may be interrupted."""
        self.runner.send({"op": "execute", "code": code})
        if ready is None:
            self.assertEqual(self.runner.read()["type"], "started")
        else:
            for _ in range(DEADLINE * 20):
                if os.path.exists(ready):
                    break
                time.sleep(0.05)
            self.assertTrue(os.path.exists(ready))
            self.assertEqual(self.runner.read()["type"], "started")
        os.kill(self.runner.process.pid, signal.SIGINT)
        messages = []
        while not messages or messages[-1]["type"] != "done":
            messages.append(self.runner.read())
        return messages

    def marker(self):
        directory = tempfile.mkdtemp()
        os.chmod(directory, 0o777)
        return os.path.join(directory, "ready")

    def assert_interrupted(self, code):
        ready = self.marker()
        messages = self.interrupt_when(f"kept <- 7\nhidden <- file.create('{ready}')\n{code}", ready)
        errors = [m for m in messages if m["type"] == "error"]
        self.assertEqual([e["name"] for e in errors], ["ExecutionAborted"])
        self.assertEqual(self.runner.run("kept").texts, ["[1] 7"])
        return messages

    def test_interrupt_keeps_the_state(self):
        self.assert_interrupted("Sys.sleep(300)")

    def test_interrupt_of_a_loop(self):
        messages = self.assert_interrupted("cat('said\\n')\nrepeat { }")
        self.assertEqual([m["text"] for m in messages if m["type"] == "stdout"], ["said\n"])

    def test_interrupt_of_a_flood(self):
        self.assert_interrupted("repeat cat('0123456789abcdef\\n')")

    def test_interrupt_of_endless_plots(self):
        messages = self.assert_interrupted("repeat plot(1)")
        self.assertLess(sum(m["type"] == "result" for m in messages), 2000)
        self.assertEqual(self.runner.run("length(dir(file.path(tempdir(), 'atoll-plots'))) < 4").texts, ["[1] TRUE"])

    def test_interrupts_that_the_user_handles(self):
        ready = self.marker()
        code = f"tryCatch({{ file.create('{ready}'); Sys.sleep(300) }}, interrupt = function(e) 'handled')"
        messages = self.interrupt_when(code, ready)
        self.assertEqual([m.get("text") for m in messages if m["type"] == "result"], ['[1] "handled"'])

    def test_interrupt_while_nobody_reads(self):
        self.runner.send({"op": "execute", "code": "kept <- 1\nrepeat cat('0123456789abcdef\\n')"})
        time.sleep(1)
        os.kill(self.runner.process.pid, signal.SIGINT)
        run = Run(self.runner.collect())
        self.assertEqual(run.error["name"], "ExecutionAborted")
        self.assertEqual(self.runner.run("kept").texts, ["[1] 1"])

    def test_a_crash_ends_the_process(self):
        self.runner.send({"op": "execute", "code": "tools::pskill(Sys.getpid(), 11)"})
        with self.assertRaises(EOFError):
            self.runner.collect()
        self.assertEqual(self.runner.process.wait(DEADLINE), -signal.SIGSEGV)

    def test_descriptors_closed_by_the_user(self):
        self.runner.run("parallel:::closeStdout(); parallel:::closeStderr()")
        self.assertEqual(self.runner.run("cat('lost\\n')\nx <- 3").error, None)
        self.assertEqual(self.runner.run("x").texts, ["[1] 3"])
        self.assertEqual(self.runner.run("cat('heard\\n')").stdout, ["heard\n"])

    def test_interrupt_restores_the_environment(self):
        ready = self.marker()
        self.runner.send({"op": "execute", "code": f"x <- file.create('{ready}'); Sys.sleep(300)", "env": {"FOO": "bar"}})
        while not os.path.exists(ready):
            time.sleep(0.05)
        os.kill(self.runner.process.pid, signal.SIGINT)
        self.runner.collect()
        self.assertEqual(self.runner.run('Sys.getenv("FOO", "default")').texts, ['[1] "default"'])

    def test_interrupt_of_a_command(self):
        ready = self.marker()
        messages = self.interrupt_when(f"kept <- 1\nsystem('touch {ready}; sleep 300')", ready)
        self.assertEqual(messages[-1]["type"], "done")
        self.assertEqual(self.runner.run("kept").texts, ["[1] 1"])

    def test_interrupts_between_runs_are_ignored(self):
        for _ in range(20):
            os.kill(self.runner.process.pid, signal.SIGINT)
            run = self.runner.run("1 + 1")
            self.assertIn(run.texts, (["[1] 2"], []))
            self.assertTrue(run.error is None or run.error["name"] == "ExecutionAborted")
        time.sleep(0.2)
        os.kill(self.runner.process.pid, signal.SIGINT)
        time.sleep(0.2)
        self.assertEqual(self.runner.run("2").texts, ["[1] 2"])

    def test_it_ends_with_the_socket(self):
        self.runner.run("x <- tempdir()")
        self.runner.lines.close()
        self.runner.socket.close()
        self.assertEqual(self.runner.process.wait(DEADLINE), 0)

    def test_a_client_that_does_not_read_holds_the_writer(self):
        self.runner.send({"op": "execute", "code": "for (i in 1:300000) cat('0123456789012345678\\n')\n'end'"})
        time.sleep(1)
        run = Run(self.runner.collect())
        self.assertEqual(sum(map(len, run.stdout)), 6_000_000)
        self.assertEqual(run.texts, ['[1] "end"'])

    def test_warm_is_answered(self):
        self.runner.send({"op": "warm"})
        self.assertEqual(self.runner.read(), {"type": "warmed"})


if __name__ == "__main__":
    unittest.main()
