"""The Java runner: snippets, values, output, errors, environment, interrupts."""

import os
import subprocess
import time
import unittest

import client
from node import NodeRunner


class JavaRunner(NodeRunner):
    command = ["/usr/bin/python3", "-IS", "/run/atoll/kernels/java/start.py"]


class JavaTest(client.RunnerTest):
    @classmethod
    def setUpClass(cls):
        cls.runner = JavaRunner(env={**client.ENV, "TEST_ENV_VAR": "supertest"})

    def text(self, code, **more):
        return self.ok(code, **more).text

    def error(self, code, **more):
        run = self.run_code(code, **more)
        self.assertIsNotNone(run.error, run.lines)
        return run.error


class Cells(JavaTest):
    def test_result_line(self):
        self.assertEqual(self.ok("1 + 1").results, [{"type": "result", "text": "2", "extra": {}, "is_main_result": True}])

    def test_values(self):
        for code, text in {
            "int x = 5; x": "5", "x + 1": "6", '"str"': "str", "List.of(1, 2)": "[1, 2]", "new BigInteger(\"7\")": "7", "'c'": "c", "1.0": "1.0",
            '"é😀\\n"': "é😀\n", "\"'q'\"": "q", "Stream.of(1, 2).collect(Collectors.toList())": "[1, 2]", "    x": "5",
            "class K { public String toString() { return \"k\"; } }\nnew K()": "k", "int f(int a) { return a * 2; }\nf(4)": "8",
            "record P(int a) {}\nnew P(3)": "P[a=3]", "System.getProperty(\"user.dir\")": "/home/user", "import java.time.*; LocalDate.of(2020, 1, 1)": "2020-01-01",
            "int a1 = 1; // one\nint b1 = 2; /* two */\na1 + b1 // three": "3",
        }.items():
            with self.subTest(code):
                self.assertEqual(self.text(code), text)

    def test_no_result(self):
        for code in ["", "// words", "int n0 = 5", "n0 = 6", "null", "String none = null; none", "System.gc()", "for (int i = 0; i < 3; i++) {}", "import java.text.*;", "5; int after = 1"]:
            with self.subTest(code):
                self.assertEqual(self.ok(code).results, [])

    def test_state_and_redefinition(self):
        self.ok("int s = 1; int twice() { return s * 2; }")
        self.assertEqual(self.text("s += 1; twice()"), "4")
        self.ok("String s = \"now text\"; int twice() { return s.length(); }")
        self.assertEqual(self.text("twice()"), "8")

    def test_count(self):
        first = self.ok("1").count
        self.assertEqual(self.run_code("nosuch").count, first + 1)
        self.assertEqual(self.ok("").count, first + 2)


class Output(JavaTest):
    def test_println_is_two_messages(self):
        self.assertEqual(self.ok('System.out.println("Hello, World!")').stdout, ["Hello, World!", "\n"])
        self.assertEqual(self.ok("System.out.println(5); System.out.println();").stdout, ["5", "\n", "\n"])

    def test_others(self):
        run = self.ok('System.out.print("a"); printf("%d%n", 3); System.err.println("e"); System.out.write(0xc3); System.out.write(0xa9); System.out.append("x");')
        self.assertEqual((run.stdout, run.stderr), (["a", "3\n", "é", "x"], ["e", "\n"]))
        self.assertRegex(run.lines[1]["timestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$")

    def test_long(self):
        run = self.ok('System.out.print("x" + "😀".repeat(100000))')
        self.assertEqual("".join(run.stdout), "x" + "😀" * 100000)
        self.assertTrue(all(len(t.encode("utf-16-le")) // 2 <= 65536 for t in run.stdout))

    def test_close(self):
        self.ok("System.out.close(); System.err.close();")
        self.assertEqual(self.ok('System.out.print("still")').stdout, ["still"])

    def test_thread(self):
        run = self.ok('Thread t = new Thread(() -> { throw new IllegalStateException("in thread"); }); t.start(); t.join();')
        self.assertIn("java.lang.IllegalStateException: in thread", "".join(run.stderr), run.lines)

    def test_between_runs(self):
        self.ok('new Thread(() -> { try { Thread.sleep(100); } catch (Exception e) {} System.out.println("late"); }).start();')
        self.assertTrue(self.runner.silent(0.4))

    def test_children(self):
        self.ok('new ProcessBuilder("sh", "-c", "echo from child").inheritIO().start().waitFor()')
        self.assertEqual(self.runner.process.stdout.readline(), b"from child\n")


class Errors(JavaTest):
    def test_exception(self):
        run = self.run_code('System.out.print("before"); throw new IllegalStateException("boom"); System.out.print("after");')
        self.assertEqual(run.stdout, ["before"])
        self.assertEqual((run.error["name"], run.error["value"]), ("EvalException", "boom"))
        self.assertIn("java.lang.IllegalStateException: boom", run.error["traceback"])

    def test_no_message(self):
        self.assertEqual(self.error("throw new RuntimeException()")["value"], "")
        self.assertEqual(self.error("int zero = 0; 1 / zero")["value"], "/ by zero")

    def test_compilation(self):
        error = self.error("int good = 1;\nnosuch + good")
        self.assertEqual((error["name"], error["value"]), ("CompilationException", ""))
        self.assertIn("nosuch + good\n^^^^^^\ncannot find symbol", error["traceback"])
        self.assertEqual(self.error("int bad = \"text\";")["name"], "CompilationException")
        self.assertEqual(self.error("int 5x;")["name"], "CompilationException")

    def test_incomplete(self):
        error = self.error("int half(int a) {")
        self.assertEqual((error["name"], error["value"]), ("IncompleteSourceException", "int half(int a) {"))

    def test_unresolved(self):
        self.ok("int user() { return missing(); }")
        self.assertEqual(self.error("user()")["name"], "UnresolvedReferenceException")
        self.ok("int missing() { return 4; }")
        self.assertEqual(self.text("user()"), "4")

    def test_deep_recursion(self):
        error = self.error("int deep(int n) { return deep(n + 1) + 1; } deep(0)")
        self.assertEqual(error["name"], "EvalException")
        self.assertIn("StackOverflowError", error["traceback"])


class Environment(JavaTest):
    def test_properties(self):
        code = 'System.getProperty("FOO", "default")'
        self.assertEqual(self.text(code, env={"FOO": "b'a\"r"}), "b'a\"r")
        self.assertEqual(self.text(code), "default")
        self.error('System.setProperty("FOO", "mine"); throw new Error()', env={"FOO": "x"})
        self.assertEqual(self.text(code), "default")

    def test_sandbox(self):
        code = 'System.getProperty("TEST_ENV_VAR")'
        self.assertEqual(self.text(code), "supertest")
        self.assertEqual(self.text(code, env={"TEST_ENV_VAR": "overwrite"}), "overwrite")
        self.assertEqual(self.text(code), "supertest")
        self.assertEqual(self.text('System.getenv("TEST_ENV_VAR")'), "supertest")

    def test_relative_files(self):
        self.ok('Files.writeString(Path.of("made.txt"), "é"); new FileWriter("made2.txt").close();')
        try:
            with open("/home/user/made.txt", encoding="utf-8") as file:
                self.assertEqual(file.read(), "é")
            self.assertTrue(os.path.exists("/home/user/made2.txt"))
        finally:
            os.remove("/home/user/made.txt")
            os.remove("/home/user/made2.txt")

    def test_no_files(self):
        self.ok("Preferences.userRoot().get(\"a\", \"b\")")
        found = subprocess.run(["find", "/home/user", "-newer", f"/proc/{self.runner.pid}/cmdline", "-type", "f"], capture_output=True, text=True)
        self.assertEqual(found.stdout, "")


class Interrupt(JavaTest):
    def stop(self, code):
        self.runner.begin(f'System.out.print("go"); {code}')
        run = client.Run()
        while not run.stdout:
            run.lines.append(self.runner.line())
        time.sleep(0.2)
        self.runner.interrupt()
        return self.runner.finish(run)

    def test_state_is_kept(self):
        self.ok("int kept = 5;")
        for code in ["while (true) {}", "Thread.sleep(100000);", 'while (true) System.out.println("x".repeat(1000));', "new CountDownLatch(1).await();",
                     "try { Thread.sleep(100000); } catch (InterruptedException e) { while (true) {} }", "for (;;) Thread.sleep(10);"]:
            with self.subTest(code):
                run = self.stop(code)
                self.assertEqual(run.error["name"], "EvaluationInterruptedException")
                self.assertEqual(self.text("kept"), "5")

    def test_idle(self):
        self.ok("1")
        self.runner.interrupt()
        self.assertTrue(self.runner.silent(0.3))
        self.assertEqual(self.text("2"), "2")


class Copies(JavaTest):
    """Told that it is a copy of another one."""

    def draw(self, code, seed, **more):
        self.runner.send({"op": "forked", "seed": seed * 32, **more})
        return self.text(code)

    def test_shared_generators(self):
        for code in ("Math.random()", "new SplittableRandom().nextLong()"):
            with self.subTest(code):
                first = self.draw(code, "a1")
                self.assertNotEqual(first, self.text(code))
                self.assertEqual(first, self.draw(code, "a1"))
                self.assertNotEqual(first, self.draw(code, "b2"))

    def test_properties_stay(self):
        show = 'System.getProperty("E2B_SANDBOX_ID")'
        self.assertEqual(self.draw(show, "a1", env={"E2B_SANDBOX_ID": "i2"}), "i2")
        self.assertEqual(self.text(show, env={"E2B_SANDBOX_ID": "lent"}), "lent")
        self.assertEqual(self.text(show), "i2")


class Process(unittest.TestCase):
    def test_exit(self):
        runner = JavaRunner()
        runner.begin("System.exit(3)")
        with self.assertRaises(client.Died):
            runner.finish()
        self.assertEqual(runner.process.wait(10), 3)
        runner.close()

    def test_directory(self):
        for cwd, real in [("/tmp", "/tmp"), ("/root", "/home/user")]:
            runner = JavaRunner(cwd=cwd)
            self.assertEqual(runner.run('System.getProperty("user.dir")').text, real)
            runner.close()
            self.assertEqual(runner.process.returncode, 0)


if __name__ == "__main__":
    unittest.main()
