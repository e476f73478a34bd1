"""`atoll run` and `atoll repl`: code in the interpreter of a sandbox."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from support import ATOLL, CLEAN, Terminal, check, equal, until

PLOT = """
import matplotlib.pyplot as plt
import pandas as pd
table = pd.DataFrame({"x": [1, 2, 3], "y": [1, 4, 9]})
table.to_csv("squares.csv", index=False)
plt.plot(table.x, table.y)
plt.show()
table
"""


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory() as path:
        yield Path(path) / "out"


def run_streams(m):
    """run: output, value, exit status"""
    equal(m.atoll("run", 'import sys; print("out"); print("err", file=sys.stderr); 6 * 7'), "out\n42\n")
    check("err\n" in m.stderr, m.stderr)
    equal(m.atoll("run", stdin=b"print('from stdin')"), "from stdin\n")
    equal(m.atoll("run", "-", stdin=b"print('from stdin')"), "from stdin\n")
    m.atoll("run", "import sys; sys.exit(7)", code=7)
    equal(m.atoll("run", "xyz", code=1), "")
    check("NameError: name 'xyz' is not defined" in m.stderr, m.stderr)
    m.atoll("run", "--language", "cobol", "x", code=1)
    check("unknown language" in m.stderr, m.stderr)
    m.atoll("run", "--template", "nowhere", "1", code=1)


def run_languages(m):
    """run: languages by option and by file name"""
    equal(m.atoll("run", "-l", "bash", "x=4; echo $((x * 2)); (exit 3)", code=3), "8\n")
    equal(m.atoll("run", "-l", "js", "console.log('a'); 1 + 1"), "a\n2\n")
    equal(m.atoll("run", "-l", "ts", "const n: number = 5; n * 2"), "10\n")
    with tempfile.TemporaryDirectory() as path:
        for name, text, expected in (("a.py", "print(__name__)", "__main__\n"), ("b.js", "console.log(typeof require)", "function\n"),
                                     ("c.sh", "echo $0 >/dev/null; echo sh", "sh\n")):
            file = Path(path) / name
            file.write_text(text)
            equal(m.atoll("run", str(file)), expected, name)
            equal(m.atoll("run", "--file", str(file)), expected, name)
        m.atoll("run", "--file", path + "/missing.py", code=1)
        m.atoll("run", "--file", path + "/a.py", "1", code=1)


def run_files(m):
    """run: images and new files are saved and named, nothing is overwritten"""
    with folder() as out:
        text = m.atoll("run", "--output", str(out), PLOT)
        check("x  y" in text and "<Figure" not in text, text)
        equal(sorted(path.name for path in out.iterdir()), ["result.png", "squares.csv"])
        check((out / "result.png").read_bytes().startswith(b"\x89PNG\r\n"), "not a PNG")
        equal((out / "squares.csv").read_text(), "x,y\n1,1\n2,4\n3,9\n")
        for name in ("result.png", "squares.csv"):
            check(f"saved {out}/{name}" in m.stderr, m.stderr)
        m.atoll("run", "--output", str(out), 'import os; os.makedirs("a/b"); open("a/b/c", "wb").write(bytes(3_000_000)); open("squares.csv", "w"); '
                'os.symlink("/etc/passwd", "link"); open(".hidden", "w"); open("odd\\nname", "w");')
        equal(sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()), ["a/b/c", "result.png", "squares-2.csv", "squares.csv"])
        equal((out / "a/b/c").stat().st_size, 3_000_000)
        check("1 files were not saved" in m.stderr, m.stderr)
    with folder() as out:
        m.atoll("run", "--output", str(out), "print(1)")
        check(not out.exists(), "an empty folder was made")


def run_json(m):
    """run --json: the whole execution"""
    with folder() as out:
        whole = json.loads(m.atoll("run", "--json", "--output", str(out), "print('a')\nopen('f', 'w')\n{'k': 1.0}"))
        equal(whole["logs"], {"stdout": ["a\n"], "stderr": []})
        equal((whole["execution_count"], whole["error"], whole["files"]), (1, None, [f"{out}/f"]))
        equal((whole["results"][0]["json"], whole["results"][0]["is_main_result"]), ({"k": 1.0}, True))
        whole = json.loads(m.atoll("run", "--json", "1/0", code=1))
        equal(whole["error"]["name"], "ZeroDivisionError")


def run_options(m):
    """run: variables, timeout, templates without an interpreter"""
    equal(m.atoll("run", "-e", "A=b c", "-e", "E=", "import os; print(os.environ['A'], repr(os.environ['E']))"), "b c ''\n")
    m.atoll("run", "-e", "A", "1", code=1)
    m.atoll("run", "--timeout", "2", "while True: pass", code=124)
    check("--timeout" in m.stderr, m.stderr)
    equal(m.atoll("run", "--template", "base", "import sys; print(1); sys.exit(5)", code=5), "1\n")
    m.atoll("run", "--template", "base", "-l", "ts", "1", code=1)
    check("no code interpreter" in m.stderr, m.stderr)


def run_packages(m):
    """run: what pip and npm install as the user is found by the kernels"""
    make = """
mkdir -p /tmp/p/tiny_pkg && cd /tmp/p && echo 'VALUE = 11' > tiny_pkg/__init__.py
echo 'from setuptools import setup; setup(name="tiny_pkg", version="1", packages=["tiny_pkg"])' > setup.py
pip install --quiet --no-index --no-build-isolation . || exit 1
mkdir -p /tmp/n && cd /tmp/n && echo 'module.exports = 12' > index.js && echo '{"name": "tiny-n", "version": "1.0.0"}' > package.json
npm pack --silent > /dev/null && npm install --global --offline --silent ./tiny-n-1.0.0.tgz || exit 1
node -e 'console.log(require("tiny-n"))'
ls -A /home/user
"""
    code = f"import subprocess\nprint(subprocess.run(['bash', '-c', {make!r}], capture_output=True, text=True))\nimport tiny_pkg\nprint(tiny_pkg.VALUE, tiny_pkg.__file__)"
    seen = m.atoll("run", code)
    check("stdout='12\\n.bash_logout\\n.bashrc\\n.profile\\n'" in seen, seen)
    check("\n11 /usr/local/lib/python3.13/dist-packages/tiny_pkg/__init__.py\n" in seen, seen)


def run_interrupted(m):
    """run: Ctrl-C ends the code and the sandbox"""
    command = [ATOLL, "run", "--home", str(m.home), "print('begun', flush=True)\nimport time; time.sleep(100)"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=CLEAN)
    equal(running.stdout.readline(), b"begun\n")
    running.send_signal(signal.SIGINT)
    equal(running.wait(30), 128 + signal.SIGINT)
    until("everything is gone", lambda: not list((m.home / "state").glob("run-*")))


def run_kept(m):
    """run --keep: a sandbox of the server stays"""
    equal(m.atoll("run", "--keep", "-e", "A=kept", "import os; open('note', 'w').write('n'); print(os.environ['A'])"), "kept\n")
    box = next(line.split()[1] for line in m.stderr.splitlines() if line.startswith("sandbox "))
    equal([row["sandboxID"] for row in m.sandboxes()], [box])
    equal(m.atoll("sandbox", "exec", box, "--", "cat", "/home/user/note"), "n")
    m.atoll("sandbox", "kill", box)


def repl_lines(m):
    """repl: plain lines keep their state; blocks, errors, files"""
    with folder() as out:
        text = m.atoll("repl", "--output", str(out), stdin=b"x = 20\nfor i in range(2):\n  print(i)\n\nx * 2\nopen('f.txt', 'w').close()\nf(\n1)\nx + 1")
        equal(text, "0\n1\n40\n21\n")
        check("NameError" in m.stderr and f"saved {out}/f.txt" in m.stderr, m.stderr)
        m.atoll("repl", stdin=b"1/0\n", code=1)
        equal(m.atoll("repl", "-l", "bash", stdin=b"x=1\nfor i in a b\ndo echo $i$x\ndone\n:quit\necho no\n"), "a1\nb1\n")


def repl_terminal(m):
    """repl: a terminal with history; Ctrl-C gives up a line or interrupts a cell"""
    with tempfile.TemporaryDirectory() as home:
        before, CLEAN["HOME"] = CLEAN.get("HOME"), home
        try:
            terminal = Terminal([ATOLL, "repl", "--home", str(m.home)])
            terminal.expect_prompt("python> ")
            terminal.type("answer = 6 * 7\r")
            terminal.expect_prompt("python> ")
            terminal.type("answer +\x03")
            terminal.expect_prompt("python> ")
            terminal.type("import time; print('be' + 'gun'); time.sleep(100)\r")
            terminal.expect("begun")
            terminal.type("\x03")
            terminal.expect("interrupted", 20)
            terminal.expect_prompt("python> ")
            terminal.type("print('kept', answer)\r")
            terminal.expect("kept 42", 20)
            terminal.expect_prompt("python> ")
            terminal.type("if answer:\r")
            terminal.expect_prompt("... ")
            terminal.type("  print('blo' + 'ck')\r\r")
            terminal.expect("block")
            terminal.expect_prompt("python> ")
            terminal.type("\x04")
            equal(terminal.end(), 0)
            terminal = Terminal([ATOLL, "repl", "--home", str(m.home)])
            terminal.expect_prompt("python> ")
            os.kill(terminal.pid, signal.SIGTERM)
            equal(terminal.end(30), 128 + signal.SIGTERM)
            terminal = Terminal([ATOLL, "repl", "--home", str(m.home)])
            terminal.expect_prompt("python> ")
            terminal.type("\x1b[A\x1b[A\r")
            terminal.expect("print('kept', answer)")
            terminal.expect("NameError")
            terminal.expect_prompt("python> ")
            terminal.type(":quit\r")
            equal(terminal.end(), 0)
        finally:
            CLEAN["HOME"] = before


TESTS = [run_streams, run_languages, run_files, run_json, run_options, run_packages, run_interrupted, run_kept, repl_lines, repl_terminal]
