"""The Python code-interpreter SDK as a bench client; the same lines as code_client.mjs."""

import json
import sys
import time

from e2b_code_interpreter import Sandbox

kept = None


def check(execution, expect):
    if execution.error:
        raise RuntimeError(f"{execution.error.name}: {execution.error.value}")
    if execution.text != expect:
        raise RuntimeError(f"expected {expect}, got {execution.text}")


def first(template, code, expect):
    began = time.perf_counter()
    sandbox = Sandbox.create(template, timeout=60)
    made = time.perf_counter()
    execution = sandbox.run_code(code)
    ran = time.perf_counter()
    sandbox.kill()
    check(execution, expect)
    return {"create": (made - began) * 1000, "run": (ran - made) * 1000, "total": (ran - began) * 1000}


def open_(template):
    global kept
    kept = Sandbox.create(template, timeout=3600)
    return {"id": kept.sandbox_id}


def run(code, expect):
    began = time.perf_counter()
    execution = kept.run_code(code)
    total = (time.perf_counter() - began) * 1000
    check(execution, expect)
    return {"total": total}


def close():
    kept.kill()
    return {}


OPERATIONS = {"first": first, "open": open_, "run": run, "close": close}

for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = OPERATIONS[request.pop("op")](**request)
    except Exception as error:  # told to the parent, which ends the run
        answer = {"error": repr(error)}
    print(json.dumps(answer), flush=True)
