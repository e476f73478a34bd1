import os
import re
import time
import unittest

from client import Kernel


class Bash(unittest.TestCase):
    def setUp(self):
        self.kernel = Kernel()
        self.addCleanup(self.kernel.close)
        self.run_cell = self.kernel.run

    def out(self, code, **options):
        run = self.run_cell(code, **options)
        self.assertIsNone(run.error, run.stdout)
        self.assertFalse(run.restart)
        return run.stdout

    def text(self, code, **options):
        return "".join(self.out(code, **options))

    def failed(self, code, value, stdout=None):
        run = self.run_cell(code)
        self.assertEqual(run.error, {"type": "error", "name": "", "value": value, "traceback": ""})
        if stdout is not None:
            self.assertEqual(run.stdout, stdout)
        return run


class Output(Bash):
    def test_one_message_per_line(self):
        self.assertEqual(self.out("echo 1; echo 2"), ["1\n", "2\n"])
        self.assertEqual(self.out("echo; echo"), ["\n", "\n"])
        self.assertEqual(self.out(""), [])
        self.assertEqual(self.out("# nothing"), [])

    def test_stderr_is_merged_in_order(self):
        self.assertEqual(self.out("echo a; echo b >&2; echo c; ls /nowhere 2>&1 >&2 | sed s/.*/d/"), ["a\n", "b\n", "c\n", "d\n"])

    def test_partial_last_line(self):
        self.assertEqual(self.out("printf 'no newline'"), ["no newline\n"])
        self.assertEqual(self.out("printf 'a\\nb'"), ["a\n", "b\n"])

    def test_carriage_returns(self):
        self.assertEqual(self.out(r"printf 'a\r\nb\r\n'"), ["a\n", "b\n"])
        self.assertEqual(self.out(r"printf '1\r2\r3\n'"), ["1\r", "2\r", "3\n"])
        self.assertEqual(self.out(r"printf '50%%\r'"), ["50%\r"])
        self.assertEqual(self.out(r"printf '50%%\r'; sleep 0.3; printf '\r60%%\n'"), ["50%\r", "\r", "60%\n"])

    def test_characters(self):
        self.assertEqual(self.out("echo 'žluťoučký 🐎 \u2028 \x85'"), ["žluťoučký 🐎 \u2028 \x85\n"])
        self.assertEqual(self.out(r"printf '\xff\xfe\n'"), ["\ufffd\ufffd\n"])
        self.assertEqual(self.out(r"printf '\002\003 a\002b\n'"), ["\2\3 a\2b\n"])
        self.assertEqual(self.out("printf 'a\\tb\\n'"), ["a\tb\n"])

    def test_long_line_is_cut(self):
        parts = self.out("head -c 300000 /dev/zero | tr '\\0' x; echo")
        self.assertTrue(all(len(part) <= 65536 for part in parts))
        self.assertEqual("".join(parts), "x" * 300000 + "\n")
        text = self.text("for i in {1..50000}; do printf 'ä€'; done")
        self.assertEqual(text, "ä€" * 50000 + "\n")

    def test_many_lines(self):
        self.assertEqual(self.out("seq 20000"), [f"{n}\n" for n in range(1, 20001)])

    def test_timestamps(self):
        self.kernel.begin("echo x")
        stamp = self.kernel.read()["timestamp"]
        self.assertRegex(stamp, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$")
        self.kernel.finish()

    def test_lines_arrive_while_it_runs(self):
        self.kernel.begin("echo first; sleep 60")
        self.assertEqual(self.kernel.read()["text"], "first\n")
        self.kernel.interrupt()
        self.kernel.finish()

    def test_a_client_that_does_not_read_stops_the_output(self):
        self.kernel.begin("n=0; while echo line $n $(printf '%0200d' 0); do n=$((n + 1)); done")
        self.kernel.read()
        time.sleep(1)
        self.kernel.interrupt()
        run = self.kernel.finish()
        self.assertEqual(run.code, "130")
        # Nothing is lost between the pieces that came.
        numbers = [int(found[1]) for line in run.stdout if (found := re.match(r"line (\d+) ", line))]
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
        self.assertEqual(self.out("echo on"), ["on\n"])


class State(Bash):
    def test_it_stays(self):
        self.out("x=1; f() { echo f$1; }; cd /; declare -A map=([k]=v); alias hi='echo hi'; shopt -s extglob")
        self.assertEqual(self.out("echo $x; f 2; pwd; echo ${map[k]}; hi; echo ${x/+(1)/one}"), ["1\n", "f2\n", "/\n", "v\n", "hi\n", "one\n"])

    def test_counts(self):
        counts = [self.run_cell(code).count for code in ("echo", "false", "if true; then", "", "echo \\")]
        self.assertEqual(counts, [1, 2, 3, 4, 5])

    def test_status_of_the_cell_before(self):
        self.failed("(exit 7)", "7")
        self.assertEqual(self.out("echo $?"), ["7\n"])
        self.assertEqual(self.out("echo $?"), ["0\n"])

    def test_where_it_starts(self):
        self.assertEqual(self.out("pwd; echo $TERM $PAGER; tty >/dev/null && echo tty || [ -t 1 ] && echo out"),
                         ["/tmp\n", "xterm cat\n", "out\n"])
        self.assertEqual(self.out("set -o | grep -c 'history.*on'; true"), ["0\n"])
        self.assertEqual(self.out('echo "${HISTFILE-none}"'), ["none\n"])

    def test_a_directory_that_is_not_there(self):
        other = Kernel(cwd="/nowhere/at/all")
        self.addCleanup(other.close)
        self.assertEqual(other.run("pwd").stdout, ["/tmp\n"])

    def test_redirections_of_the_shell_itself(self):
        self.assertEqual(self.out("exec 5>&1 >/dev/null; echo lost"), [])
        self.assertEqual(self.out("echo lost; echo kept >&2"), ["kept\n"])
        self.assertEqual(self.out("exec >&5 5>&-; echo back"), ["back\n"])
        self.assertEqual(self.out("exec </dev/null; echo in"), ["in\n"])
        self.assertEqual(self.out("exec 0<&-; echo closed"), ["closed\n"])
        self.assertEqual(self.out("exec >&- 2>&-"), [])
        self.assertEqual(self.out("exec >/dev/tty 2>&1; echo again"), ["again\n"])

    def test_modes_of_the_terminal(self):
        self.out("stty raw echo </dev/tty")
        self.assertEqual(self.out("echo a; echo b"), ["a\n", "b\n"])
        self.out("stty olcuc -isig </dev/tty")
        self.assertEqual(self.out("echo a"), ["a\n"])

    def test_trace_and_prompts(self):
        self.assertEqual(self.out("PS1='prompt$ ' PS2='more> ' PROMPT_COMMAND='echo prompting'"), [])
        self.assertEqual(self.out("echo one\necho two"), ["one\n", "two\n"])
        self.assertEqual(self.out("set -v"), [])
        self.assertEqual(self.out("set +v"), ["set +v\n"])
        self.assertEqual(self.out("set -x; PS4='+ '"), ["++ PS4='+ '\n"])
        self.assertEqual(self.out("echo hi"), ["++ echo hi\n", "hi\n"])
        self.out("set +x")
        self.assertEqual(self.out("echo hi"), ["hi\n"])


class Errors(Bash):
    def test_exit_status(self):
        self.failed("false", "1", [])
        self.failed("echo before; false", "1", ["before\n"])
        self.failed("(exit 42)", "42", [])
        self.assertEqual(self.out("false; true"), [])
        run = self.failed("nosuchcommand", "127")
        self.assertEqual(len(run.stdout), 1)
        self.assertIn("nosuchcommand: command not found", run.stdout[0])

    def test_trailing_backslash(self):
        self.failed("echo \\", "Cell has trailing backslash", [])
        self.failed("echo \\\n\n", "Cell has trailing backslash", [])
        self.assertEqual(self.out("echo a\\\\"), ["a\\\n"])
        self.assertEqual(self.out("echo a \\\n  b"), ["a b\n"])

    def test_incomplete_input(self):
        for code in ("if true; then", "echo 'open", 'echo "open', "f() {", "echo $(", "case x in", "((1 + ", "done", "fi; )"):
            run = self.run_cell(code)
            self.assertNotIn(run.code, (None, "0"), code)
            self.assertTrue(run.stdout, code)
            self.assertEqual(self.out("echo on"), ["on\n"], code)

    def test_here_documents(self):
        self.assertEqual(self.out("cat <<EOF\na $((1 + 1))\nb\nEOF\necho end"), ["a 2\n", "b\n", "end\n"])
        self.assertEqual(self.out("cat <<'EOF'\n$x `y` \\\nEOF"), ["$x `y` \\\n"])
        run = self.run_cell("cat <<EOF\nunfinished")
        self.assertIn("unfinished\n", run.stdout)
        self.assertEqual(self.out("echo on"), ["on\n"])

    def test_nothing_reads_the_control_pipe(self):
        self.failed("read x", "1", [])
        self.assertEqual(self.out("cat; python3 -c 'import sys; print(len(sys.stdin.read()))'"), ["0\n"])

    def test_jumps_outside_of_loops(self):
        for code in ("break", "continue", "return 3"):
            self.run_cell(code)
            self.assertEqual(self.out("echo on"), ["on\n"], code)

    def test_exit(self):
        run = self.failed("echo bye; exit 3; echo never", "3", ["bye\n"])
        self.assertTrue(run.restart)

    def test_exit_with_success(self):
        run = self.run_cell("exit")
        self.assertEqual((run.stdout, run.error, run.restart), ([], None, True))

    def test_set_e(self):
        self.assertEqual(self.out("set -e; echo on"), ["on\n"])
        self.assertEqual(self.out("echo exit"), ["exit\n"])
        run = self.failed("echo a; false; echo never", "1", ["a\n"])
        self.assertTrue(run.restart)

    def test_exec(self):
        run = self.failed("exec sh -c 'echo other; exit 5'", "5", ["other\n"])
        self.assertTrue(run.restart)

    def test_killed_by_itself(self):
        run = self.failed("kill -9 $$", "137", [])
        self.assertTrue(run.restart)

    def test_ends_while_idle(self):
        self.out("(sleep 0.1; kill -9 $$) >/dev/null 2>&1 &\ntrue")
        self.kernel.process.wait(10)


class Variables(Bash):
    ODD = "'\"$HOME `id` \\ \n\ttwo words; echo \u017elu\u0165 \U0001f40e !! # \\'"

    def test_set_and_removed(self):
        self.assertEqual(self.out("echo ${FOO:-default}; sh -c 'echo $FOO'", env={"FOO": "bar"}), ["bar\n", "bar\n"])
        self.assertEqual(self.out("echo ${FOO:-default}"), ["default\n"])
        self.out("FOO=own")
        self.assertEqual(self.out("echo $FOO", env={"FOO": "lent"}), ["lent\n"])
        self.assertEqual(self.out("echo ${FOO:-default}"), ["default\n"])

    def test_value_of_the_start_comes_back(self):
        kernel = Kernel(env={"PATH": os.environ["PATH"], "TEST": "supertest", "ODD": self.ODD, "not-a-name": "x"})
        self.addCleanup(kernel.close)
        self.assertEqual(kernel.run("echo $TEST", env={"TEST": "overwrite"}).stdout, ["overwrite\n"])
        self.assertEqual(kernel.run("echo $TEST; sh -c 'echo $TEST'").stdout, ["supertest\n", "supertest\n"])
        self.assertEqual("".join(kernel.run('printf %s "$ODD"', env={"ODD": "x"}).stdout), "x\n")
        self.assertEqual("".join(kernel.run('printf %s "$ODD"').stdout), self.ODD + "\n")

    def test_after_a_failure(self):
        self.run_cell("false", env={"FOO": "bar"})
        self.assertEqual(self.out("echo ${FOO:-default}"), ["default\n"])
        self.kernel.begin("sleep 60", env={"FOO": "bar"})
        time.sleep(0.3)
        self.kernel.interrupt()
        self.assertEqual(self.kernel.finish().code, "130")
        self.assertEqual(self.out("echo ${FOO:-default}"), ["default\n"])

    def test_odd_values(self):
        self.assertEqual(self.text('printf %s "$FOO"', env={"FOO": self.ODD}), self.ODD + "\n")
        self.assertEqual(self.text("printenv FOO", env={"FOO": self.ODD}), self.ODD + "\n")
        self.assertEqual(self.out('echo "${FOO-unset}"', env={"FOO": ""}), ["\n"])
        self.assertEqual(self.out("echo hm", env={"a b": "x", "$(touch /tmp/no)": "y", "UID": "0", "": "z"}), ["hm\n"])


class Interrupts(Bash):
    def interrupted(self, code, after=0.3):
        self.kernel.begin(code)
        time.sleep(after)
        self.kernel.interrupt()
        run = self.kernel.finish()
        self.assertEqual(run.code, "130", run.stdout)
        self.assertFalse(run.restart)
        self.assertNotIn("never\n", run.stdout)
        return run

    def test_of_commands_builtins_and_pipelines(self):
        self.out("x=kept")
        for code in ("sleep 60; echo never", "while :; do :; done; echo never", "(while :; do sleep 1; done); echo never",
                     "sleep 60 | cat; echo never", "wait_for_me() { sleep 60; }; wait_for_me; echo never",
                     "for i in 1 2 3; do sleep 60; done; echo never", "yes >/dev/null; echo never", "yes; echo never",
                     "read x </dev/tty; echo never", "cat /dev/tty; echo never", "sleep 60 & wait; echo never",
                     "stty -isig </dev/tty; sleep 60; echo never"):
            with self.subTest(code):
                self.interrupted(code)
                self.assertEqual(self.out("echo $x"), ["kept\n"])

    def test_at_once(self):
        for _ in range(10):
            self.kernel.begin("sleep 60 # " + "long " * 20000)
            self.kernel.interrupt()
            self.assertEqual(self.kernel.finish().code, "130")
            self.assertEqual(self.out("echo on"), ["on\n"])

    def test_again_and_again(self):
        self.kernel.begin("trap 'echo got' INT; n=0; while [ $n -lt 3 ]; do sleep 0.3; n=$((n + 1)); done; trap - INT; (exit 9)")
        for _ in range(3):
            time.sleep(0.15)
            self.kernel.interrupt()
        self.kernel.finish()
        self.assertEqual(self.out("trap - INT; echo on"), ["on\n"])

    def test_idle(self):
        self.out("echo")
        self.kernel.interrupt()
        self.kernel.interrupt()
        time.sleep(0.2)
        self.assertEqual(self.out("echo on"), ["on\n"])

    def test_a_program_that_takes_its_time(self):
        self.kernel.begin("""python3 -c '
import time
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(2.5)
    print("cleaned up", flush=True)
    raise SystemExit(4)
'""")
        self.assertEqual(self.kernel.read()["text"], "ready\n")
        self.kernel.interrupt()
        run = self.kernel.finish()
        self.assertEqual((run.stdout[-1], run.code), ("cleaned up\n", "4"))
        self.assertEqual(self.out("echo on"), ["on\n"])


class Background(Bash):
    def test_the_run_does_not_wait(self):
        run = self.run_cell("sleep 60 & echo started")
        self.assertIn("started\n", run.stdout)
        self.assertIsNone(run.error)
        self.out("kill %1; wait 2>/dev/null; true")

    def test_late_output_belongs_to_no_run(self):
        self.out("(sleep 0.2; echo late) &\ntrue")
        time.sleep(0.6)
        self.assertEqual(self.out("echo on"), ["on\n"])

    def test_endless_output_in_the_background(self):
        self.out("yes spam & true")
        self.assertIn("on\n", self.run_cell("echo on").stdout)
        self.run_cell("kill %1; wait")
        time.sleep(0.2)
        self.assertEqual(self.out("echo quiet")[-1], "quiet\n")

    def test_a_server_outlives_its_shell(self):
        run = self.run_cell("nohup sleep 2 >/dev/null 2>&1 & exit 0")
        self.assertTrue(run.restart)

    def test_nothing_inherits_the_socket(self):
        text = self.text("ls -l /proc/self/fd")
        self.assertNotIn("socket:", text)

    def test_the_end_of_the_socket_ends_all(self):
        (pid,) = self.out("echo $$")
        self.kernel.socket.shutdown(2)
        self.kernel.process.wait(10)
        end = time.monotonic() + 10
        while os.path.exists(f"/proc/{pid.strip()}") and time.monotonic() < end:
            time.sleep(0.05)
        self.assertFalse(os.path.exists(f"/proc/{pid.strip()}"))


class Copies(Bash):
    """Told that it is a copy of another one."""

    def draw(self, code, seed, **more):
        self.kernel.send({"op": "forked", "seed": seed * 32, **more})
        return self.text(code)

    def test_random(self):
        code = "echo $RANDOM $RANDOM $RANDOM"
        first = self.draw(code, "a1")
        self.assertNotEqual(first, self.text(code))
        self.assertEqual(first, self.draw(code, "a1"))
        self.assertNotEqual(first, self.draw(code, "b2"))

    def test_variables_stay(self):
        show = "echo $E2B_SANDBOX_ID; env | grep -c ^E2B_SANDBOX_ID="
        self.assertEqual(self.draw(show, "a1", env={"E2B_SANDBOX_ID": "i'2"}), "i'2\n1\n")
        self.assertEqual(self.text(show, env={"E2B_SANDBOX_ID": "lent"}), "lent\n1\n")
        self.assertEqual(self.text(show), "i'2\n1\n")

    def test_status_stays(self):
        self.run_cell("(exit 3)")
        self.assertEqual(self.draw("echo $?", "a1"), "3\n")

if __name__ == "__main__":
    unittest.main()
