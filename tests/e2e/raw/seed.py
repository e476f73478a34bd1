"""One half of the seed flow as a program of its own: seed.py make | seed.py find ID PID. seed.mjs is its twin."""

import json
import os
import sys
import time
import urllib.request

from e2b_code_interpreter import Sandbox


def visit(sandbox):
    with urllib.request.urlopen(f"https://8000-{sandbox.sandbox_id}.{os.environ['E2E_DOMAIN']}/", timeout=15) as response:
        return response.status, response.read()


def make():
    sandbox = Sandbox.create(os.environ.get("E2E_CODE_TEMPLATE", "code-interpreter-v1"), timeout=300, envs={"SEED": "yes"})
    execution = sandbox.run_code(
        'import pandas as pd\nframe = pd.DataFrame({"n": range(1000)})\ndef total(): return int(frame.n.sum())\nsecret = "told once"')
    assert execution.error is None, execution.error
    sandbox.files.write("www/index.html", "from the seed")
    sandbox.files.write("/tmp/note", "written before")
    sandbox.commands.run("cd www && exec python3 -m http.server 8000", background=True, timeout=0)
    counter = sandbox.commands.run("n=0; while :; do n=$((n+1)); echo $n > /dev/shm/n; sleep 0.02; done", background=True, timeout=0)
    for tries in range(300):
        try:
            assert visit(sandbox) == (200, b"from the seed")
            break
        except OSError:
            time.sleep(0.05)
    assert visit(sandbox)[0] == 200
    sandbox.pause()
    print(json.dumps({"id": sandbox.sandbox_id, "pid": counter.pid}))


def find(sandbox_id, pid):
    sandbox = Sandbox.connect(sandbox_id)
    assert sandbox.run_code("total(), secret").text == "(499500, 'told once')"
    assert visit(sandbox) == (200, b"from the seed")
    assert sandbox.files.read("/tmp/note") == "written before"
    assert sandbox.commands.run("echo $SEED").stdout == "yes\n"
    assert pid in [entry.pid for entry in sandbox.commands.list()]
    before = int(sandbox.files.read("/dev/shm/n"))
    end = time.monotonic() + 15
    while int(sandbox.files.read("/dev/shm/n") or 0) <= before:
        assert time.monotonic() < end, "the process counts"
    sandbox.commands.kill(pid)
    print("found")


if sys.argv[1] == "make":
    make()
else:
    find(sys.argv[2], int(sys.argv[3]))
