"""Chunks: when they are sent, in which order, how large, and that nobody stores them."""

import time

from client import Runner, RunnerTest


class Chunks(RunnerTest):
    def test_one_print(self):
        self.assertEqual(self.ok('print("hello")').stdout, ["hello\n"])
        self.assertEqual(self.ok("print('a'); print('b')").stdout, ["a\nb\n"])

    def test_stderr(self):
        run = self.ok("import sys; print('bad', file=sys.stderr)")
        self.assertEqual((run.stdout, run.stderr), ([], ["bad\n"]))

    def test_pause_and_flush_separate(self):
        self.assertEqual(self.ok("import time\nprint(1); time.sleep(0.5); print(2)").stdout, ["1\n", "2\n"])
        self.assertEqual(self.ok("print(1, flush=True); print(2)").stdout, ["1\n", "2\n"])

    def test_sent_while_the_cell_works(self):
        self.runner.begin("import time\nprint('now')\ntime.sleep(2)")
        self.assertEqual(self.runner.line()["type"], "started")
        self.assertEqual(self.runner.line(patience=1.5)["text"], "now\n")
        self.runner.line()

    def test_timestamp(self):
        stamp = self.ok("print(1)").of("stdout")[0]["timestamp"]
        self.assertRegex(stamp, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$")

    def test_carriage_returns_stay(self):
        self.assertEqual(self.ok("for i in range(3): print(f'\\r{i}', end='')").stdout, ["\r0\r1\r2"])

    def test_order_of_prints_and_children(self):
        run = self.ok("print('a'); os.system('echo b'); print('c'); os.write(1, b'd\\n'); print('e'); display('f'); os.write(1, b'g\\n'); 'h'")
        self.assertEqual([line["text"] for line in run.lines[1:-1]], ["a\nb\nc\nd\ne\n", "f", "g\n", "h"])

    def test_descriptors(self):
        run = self.ok("import subprocess, sys\nsubprocess.run('echo out; echo err >&2', shell=True)\nsubprocess.run(['echo', 'again'], stdout=sys.stdout)\nsys.stdout.buffer.write(b'bytes\\n')\nNone")
        self.assertEqual((run.stdout, run.stderr), (["out\nagain\nbytes\n"], ["err\n"]))

    def test_system(self):
        run = self.ok("os.system('exit 3') >> 8, os.waitstatus_to_exitcode(os.system('kill -9 $$')), os.system('true')")
        self.assertEqual(run.text, "(3, -9, 0)")

    def test_split_characters(self):
        self.assertEqual("".join(self.ok("import time\nos.write(1, b'\\xc3'); time.sleep(0.4); os.write(1, b'\\xa9 \\xff\\n')").stdout), "é \ufffd\n")

    def test_size_of_chunks(self):
        run = self.ok("print('x' * 200000, end=''); print('y' * 100, end='')")
        self.assertTrue(all(len(text) <= 65536 for text in run.stdout), [len(t) for t in run.stdout])
        self.assertEqual("".join(run.stdout), "x" * 200000 + "y" * 100)
        self.assertEqual("".join(self.ok("for i in range(50000): print(i)").stdout), "".join(f"{i}\n" for i in range(50000)))

    def test_after_the_run_nothing_comes(self):
        self.ok("import threading, time\ndef late():\n    time.sleep(0.3); print('late'); os.system('echo later')\nthreading.Thread(target=late).start()\nos.system('(sleep 0.3; echo latest) &')")
        self.assertTrue(self.runner.silent(1.0))
        self.assertEqual(self.ok("print('next')").stdout, ["next\n"])

    def test_threads_during_the_run(self):
        self.assertEqual("".join(self.ok("import threading\nt = threading.Thread(target=print, args=('t',)); t.start(); t.join()").stdout), "t\n")


class Bombs(RunnerTest):
    def memory(self):
        return int(self.ok("open('/proc/self/status').read().split('VmRSS:')[1].split()[0]").text.strip("'"))

    def drain(self):
        size = 0
        while True:
            line = self.runner.raw_line()
            size += len(line)
            if line == b'{"type":"done"}':
                return size

    def test_prints_are_not_stored(self):
        before = self.memory()
        self.runner.begin("line = 'x' * 1023\nfor i in range(200_000): print(line)")
        self.assertGreater(self.drain(), 200_000 * 1024)
        self.assertLess(self.memory() - before, 8 << 10)  # KiB

    def test_a_writer_waits_for_its_reader(self):
        self.runner.begin("progress = 0\nfor progress in range(100_000): print('x' * 1023)")
        deadline = time.monotonic() + 30
        last, now = None, self.cpu()
        while now != last and time.monotonic() < deadline:  # blocked: no more CPU time is used
            time.sleep(0.5)
            last, now = now, self.cpu()
        self.assertEqual(last, now)
        self.drain()
        self.assertEqual(self.ok("progress").text, "99999")

    def test_a_child_waits_too(self):
        self.runner.begin("os.system('head -c 50000000 /dev/zero')")
        self.drain()
        self.assertEqual(self.ok("1").text, "1")

    def test_a_child_that_never_stops(self):
        self.runner.begin("import subprocess; p = subprocess.Popen(['yes'])\nfor i in range(100): print(i)")
        self.drain()
        self.runner.begin("p.kill(); r = p.wait(); r")
        self.drain()
        self.assertEqual(self.ok("r").text, "-9")

    def test_many_displays(self):
        self.runner.begin("for i in range(20_000): display(i)")
        self.drain()

    def cpu(self):
        with open(f"/proc/{self.runner.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return fields[11], fields[12]
