"""An official SDK as a child process that is told what to do line by line; the clock runs inside it."""

import json
import os
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent


class Client:
    """bench/client.mjs, bench/code_client.mjs or bench/code_client.py under the given interpreter."""

    def __init__(self, interpreter, env, script="client.mjs"):
        self.process = subprocess.Popen([interpreter, str(BENCH / script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, **env})

    def call(self, op, **arguments):
        self.process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the client ended")
        answer = json.loads(line)
        if "error" in answer:
            sys.exit(f"{op} failed: {answer['error']}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()
