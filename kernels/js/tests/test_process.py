"""Output, environment, interrupts, arguments, the process itself."""

import os
import random
import subprocess
import time
import unittest

import client
from node import NodeRunner, NodeTest


class Output(NodeTest):
    def test_chunks(self):
        run = self.ok("console.log('a', 1); console.info('b'); process.stdout.write('c'); console.error('d'); console.warn('e'); process.stderr.write('f')")
        self.assertEqual((run.stdout, run.stderr), (["a 1\n", "b\n", "c"], ["d\n", "e\n", "f"]))
        self.assertRegex(run.lines[1]["timestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$")
        self.assertEqual(list(run.lines[1])[0], "type")

    def test_long_text(self):
        run = self.ok("console.log('x' + '😀'.repeat(100000))")
        self.assertTrue(all(len(t.encode("utf-16-le")) // 2 <= 65536 for t in run.stdout))
        self.assertEqual("".join(run.stdout), "x" + "😀" * 100000 + "\n")

    def test_characters(self):
        self.assertEqual(self.ok("console.log('\\ud800 \\u2028 ä \\\\ud800')").stdout, ["\ufffd \u2028 ä \\ud800\n"])

    def test_bytes(self):
        self.assertEqual(self.ok("const bytes = Buffer.from('é'); process.stdout.write(bytes.subarray(0, 1)); process.stdout.write(bytes.subarray(1)); 0").stdout, ["é"])
        self.assertEqual(self.error("process.stdout.write(5)")["name"], "TypeError")

    def test_order_with_result(self):
        run = self.ok("console.log(1); $$.display().text('t'); console.log(2); 3")
        self.assertEqual([line["type"] for line in run.lines], ["started", "stdout", "result", "stdout", "result", "done"])

    def test_streams_cannot_be_closed(self):
        self.ok("process.stdout.end(); process.stdout.destroy(); process.stderr.end('x')")
        self.assertEqual(self.ok("console.log('still')").stdout, ["still\n"])
        self.assertEqual(self.ok("await require('stream/promises').pipeline(require('stream').Readable.from(['p']), process.stdout, { end: false })").stdout, ["p"])

    def test_between_runs(self):
        self.ok("setTimeout(() => console.log('late'), 50); 0")
        self.assertTrue(self.runner.silent(0.3))

    def test_children(self):
        self.ok("require('child_process').execSync('echo from child; echo err >&2', { stdio: 'inherit' }); 0")
        self.assertEqual(self.runner.process.stdout.readline(), b"from child\n")
        self.assertEqual(self.runner.process.stderr.readline(), b"err\n")
        own = self.text("require('fs').readlinkSync('/proc/self/fd/3')")
        self.assertTrue(own.startswith("socket:"))
        self.assertNotIn(own, self.text("require('child_process').execSync('ls -l /proc/self/fd').toString()"))

    def test_slow_reader(self):
        """A reader that stops reading stops the program; memory does not grow with what is printed."""
        runner = NodeRunner()
        try:
            runner.begin("const line = 'y'.repeat(10000); for (let i = 0; i < 30000; i++) console.log(line); 'end'")
            time.sleep(1)
            with open(f"/proc/{runner.pid}/status") as status:
                resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
            self.assertLess(resident, 200_000)
            run = runner.finish()
            self.assertEqual((len(run.stdout), run.text), (30000, "end"))
        finally:
            runner.close()


class Environment(NodeTest):
    def test_runs(self):
        self.assertEqual(self.text("process.env.FOO || 'default'", env={"FOO": "b'a\\r"}), "b'a\\\\r")
        self.assertEqual(self.text("process.env.FOO || 'default'"), "default")
        self.assertEqual(self.error("process.env.FOO = 'mine'; throw 1", env={"FOO": "x"})["name"], "number")
        self.assertEqual(self.text("process.env.FOO || 'default'"), "default")

    def test_start(self):
        runner = NodeRunner(env={**client.ENV, "TEST_ENV_VAR": "supertest"})
        try:
            code = "require('child_process').execSync('echo $TEST_ENV_VAR').toString().trim()"
            self.assertEqual(runner.run(code).text, "supertest")
            self.assertEqual(runner.run(code, env={"TEST_ENV_VAR": "overwrite"}).text, "overwrite")
            self.assertEqual(runner.run(code).text, "supertest")
            names = set(runner.run("Object.keys(process.env).join(' ')").text.split())
            self.assertEqual(names, {*client.ENV, "TEST_ENV_VAR"})
        finally:
            runner.close()

    def test_directory(self):
        self.assertEqual(self.text("process.cwd()"), "/home/user")
        for cwd, real in [("/tmp", "/tmp"), ("/root", "/home/user"), ("/nowhere", "/home/user")]:
            runner = NodeRunner(cwd=cwd)
            self.assertEqual(runner.run("process.cwd()").text, real)
            runner.close()


class Interrupt(NodeTest):
    def stop(self, code, **more):
        self.runner.begin(f"console.log('go'); {code}", **more)
        run = client.Run()
        while not run.stdout:
            run.lines.append(self.runner.line())
        time.sleep(0.2)
        self.runner.interrupt()
        return self.runner.finish(run)

    def test_state_is_kept(self):
        self.ok("let kept = 5; const also = 6")
        for code in ["while (true) {}", "await Promise.resolve(); while (true) {}", "await new Promise(() => setInterval(() => {}, 1000))",
                     "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)", "while (true) console.log('x'.repeat(1000))",
                     "({ [require('util').inspect.custom]() { while (true) ; } })", "process.nextTick(() => { while (true) ; })"]:
            with self.subTest(code):
                run = self.stop(code)
                self.assertEqual(run.error["name"], "Interrupted")
                self.assertEqual(self.text("kept + also"), "11")
                self.assertEqual(self.text("await new Promise(r => setTimeout(r, 1, 'timers'))"), "timers")

    def test_output_is_never_cut(self):
        for _ in range(20):
            self.assertEqual(self.stop("while (true) console.log('x'.repeat(50000))").error["name"], "Interrupted")
        self.assertEqual(self.text("1 + 1"), "2")

    def test_any_moment(self):
        """Before, during and just after a run: every run ends in order, nothing is broken by it."""
        cells = ["for (let i = 0; i < 3e6; i++);", "for (let i = 0; i < 200; i++) console.log('x'.repeat(3000))",
                 "await new Promise(r => setTimeout(r, 3)); 5", "const c = 5; c", "1 + 1"]
        choose = random.Random(7)
        for listener in ["0", "process.on('SIGINT', () => {}); 0"]:
            runner = NodeRunner()
            try:
                runner.run(listener)
                for number in range(400):
                    runner.begin(choose.choice(cells))
                    time.sleep(choose.random() * 0.01)
                    runner.interrupt()
                    run = runner.finish()
                    self.assertIn(run.error and run.error["name"], [None, "Interrupted"], run.lines[-2:])
                    self.assertEqual(run.count, number + 2)
            finally:
                runner.close()

    def test_half_loaded_modules(self):
        with open("/home/user/slow.js", "w") as file:
            file.write("exports.a = 1; const until = Date.now() + (globalThis.fast ? 0 : 60000); while (Date.now() < until) ; exports.b = 2;")
        self.assertEqual(self.stop("require('./slow.js')").error["name"], "Interrupted")
        self.assertEqual(self.text("globalThis.fast = true; require('./slow.js').b"), "2")
        os.remove("/home/user/slow.js")

    def test_main(self):
        self.ok("function main() { while (true) ; }")
        self.assertEqual(self.stop("0", arguments={}).error["name"], "Interrupted")

    def test_idle(self):
        self.ok("1")
        for _ in range(3):
            self.runner.interrupt()
        self.assertTrue(self.runner.silent(0.3))
        self.assertEqual(self.text("1 + 1"), "2")

    def test_env_is_restored(self):
        self.stop("while (true) {}", env={"GONE": "1"})
        self.assertEqual(self.text("typeof process.env.GONE"), "undefined")


class Arguments(NodeTest):
    def test_call(self):
        run = self.ok("console.log('cell'); function main({ a, b }) { return { sum: a + b, list: [1.5, null, 'é'] } }; 99", arguments={"a": 1, "b": 2})
        self.assertEqual(run.results, [{"type": "result", "text": '{"sum":3,"list":[1.5,null,"é"]}', "json": {"sum": 3, "list": [1.5, None, "é"]},
                                        "extra": {}, "is_main_result": True}])
        self.assertEqual(run.stdout, ["cell\n"])

    def test_forms(self):
        for code, value in [("async function main(x) { await 1; return [x.k] }", ["v"]), ("const main = (x) => x.k", "v"), ("var main = () => {}", None),
                            ("let main: (x: any) => number = (x) => 3", 3), ("const main = () => Promise.resolve(true)", True)]:
            with self.subTest(code):
                self.assertEqual(self.ok(code, arguments={"k": "v"}).results[0]["json"], value)

    def test_errors(self):
        for code, name in [("var main = 5", "MissingMain"), ("function main() { return NaN }", "UnserializableResult"),
                           ("function main() { return [1n] }", "UnserializableResult"), ("function main() { return main }", "UnserializableResult"),
                           ("function main() { const a = []; a.push(a); return a }", "UnserializableResult"),
                           ("function main() { return { x: Infinity } }", "UnserializableResult"),
                           ("function main() { throw new RangeError('r') }", "RangeError"), ("async function main() { throw new URIError('r') }", "URIError"),
                           ("syntax error here", "SyntaxError")]:
            with self.subTest(code):
                run = self.run_code(code, arguments={})
                self.assertEqual((run.error["name"], run.results), (name, []))

    def test_missing(self):
        runner = NodeRunner()
        self.assertEqual(runner.run("1", arguments={}).error["name"], "MissingMain")
        runner.close()


class Process(NodeTest):
    def test_uncaught(self):
        run = self.ok("setTimeout(() => { throw new Error('late') }, 1); setTimeout(() => Promise.reject(new Error('lost')), 2); await new Promise(r => setTimeout(r, 100)); 7")
        self.assertEqual(run.text, "7")
        self.assertIn("Error: late\n    at ", run.stderr[0])
        self.assertIn("Error: lost\n    at ", run.stderr[1])

    def test_exit(self):
        for code in ["process.exit(3)", "setTimeout(() => process.exit(3), 1); await new Promise(() => {})", "process.on('exit', () => console.log('bye')); process.exit(3)"]:
            with self.subTest(code):
                runner = NodeRunner()
                runner.begin(code)
                run = client.Run()
                with self.assertRaises(client.Died):
                    runner.finish(run)
                self.assertEqual([line["type"] for line in run.lines], ["started", *(["stdout"] if "bye" in code else [])])
                self.assertEqual(runner.process.wait(10), 3)
                runner.close()

    def test_ends_with_the_socket(self):
        runner = NodeRunner()
        runner.run("setInterval(() => {}, 1000); 0")
        runner.close()
        self.assertEqual(runner.process.returncode, 0)

    def test_long_code(self):
        for size in [65536 - 40, 65536, 200_000, 3_000_000]:
            text = "z" * size
            self.assertEqual(self.text(f"'{text}'.length"), str(size))

    def test_globals(self):
        self.assertEqual(self.text("Object.keys(globalThis).filter(k => /atoll|\\$\\$/.test(k)).length"), "0")
        self.assertEqual(self.text("process.argv.length"), "1")

    def test_no_files(self):
        self.ok("console.log(1)")
        found = subprocess.run(["find", "/home/user", "-newer", f"/proc/{self.runner.pid}/cmdline", "-type", "f"], capture_output=True, text=True)
        self.assertEqual(found.stdout, "")

    def test_fake_clock(self):
        self.ok("Date = class { toISOString() { return 'never' } }; JSON.stringify = () => 'broken'; 0")
        run = self.ok("console.log('x')")
        self.assertEqual(run.stdout, ["x\n"])
        self.assertRegex(run.lines[1]["timestamp"], r"^20")

    def test_unresolvable_await(self):
        """Programs wait like this for ever, while timers and servers go on."""
        self.ok("globalThis.fill = () => { let a = []; for (let i = 0; i < 1e6; i++) a.push({}) }")
        self.runner.begin("setTimeout(() => { fill(); console.log('go') }, 10); await new Promise(() => {})")
        run = client.Run()
        while not run.stdout:
            run.lines.append(self.runner.line())
        self.assertTrue(self.runner.silent())
        self.runner.interrupt()
        self.assertEqual(self.runner.finish(run).error["name"], "Interrupted")


if __name__ == "__main__":
    unittest.main()
