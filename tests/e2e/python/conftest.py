"""Writes one JSON object per finished case to the file named by E2E_RESULTS, for tests/e2e/run."""

import gc
import json
import os
import signal
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

# httpcore closes an abandoned stream when it is collected, under a lock that the request which is just being made may
# hold: the client then waits for itself for ever. Garbage is collected between cases, when no request is under way.
gc.disable()


def pytest_runtest_logfinish():
    gc.collect()


LIMIT_SECONDS = 30
TIME_SCALE = float(os.environ.get("E2E_TIME_SCALE", "1"))


def pytest_collection_modifyitems(items):
    # Rows that do not apply are no cases at all, rather than skipped ones.
    items[:] = [item for item in items if not any(mark.args[0] for mark in item.iter_markers("skipif"))]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    row = item.get_closest_marker("row")
    limit = ((row and row.kwargs.get("seconds")) or LIMIT_SECONDS) * TIME_SCALE

    def expired(signum, frame):
        raise TimeoutError(f"case took longer than {limit:.0f} s")

    previous = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    row = item.get_closest_marker("row")
    callspec = getattr(item, "callspec", None)
    report.user_properties.append(("row", row.args[0] if row else item.name))
    report.user_properties.append(("client", callspec.params.get("flavor") if callspec else None))


def pytest_runtest_logreport(report):
    path = os.environ.get("E2E_RESULTS")
    # With workers, only the controlling process reports.
    if not path or os.environ.get("PYTEST_XDIST_WORKER"):
        return
    if report.when != "call" and report.outcome != "failed":
        return
    properties = dict(report.user_properties)
    line = {
        "id": properties.get("row"),
        "client": properties.get("client"),
        "outcome": report.outcome,
        "ms": round(report.duration * 1000),
        "error": report.longreprtext if report.failed else None,
    }
    with open(path, "a") as out:
        out.write(json.dumps(line) + "\n")
