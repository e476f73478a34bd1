"""The same for the code interpreter: rows whose sandbox is one of its SDK."""

import functools
import json
import os
from pathlib import Path

import e2b_code_interpreter

import support
from support import Flavor

CELLS = Path(__file__).resolve().parents[1] / "cells"
LANGUAGES = {name: cells for name, cells in json.loads((CELLS / "languages.json").read_text()).items() if name != "comment"}
TEMPLATE = os.environ.get("E2E_CODE_TEMPLATE", "code-interpreter-v1")
KINDS = {
    "sync": Flavor("sync", e2b_code_interpreter.Sandbox, TEMPLATE),
    "async": Flavor("async", e2b_code_interpreter.AsyncSandbox, TEMPLATE),
}
# What several variants of a row add: no traffic without the token.
SECURE = {"secure": True, "network": {"allow_public_traffic": False}}

# A full template has all languages; R and Java take a while to start on a small machine.
row = functools.partial(support.row, kinds=KINDS, seconds=60)


def chart_cell(name):
    return (CELLS / "charts" / f"{name}.py").read_text()


def stdout(execution):
    return "".join(execution.logs.stdout)


def shown(execution, at):
    """The value that a cell of languages.json shows."""
    assert execution.error is None, execution.error
    text = {"stdout": lambda: stdout(execution), "first": lambda: execution.results[0].text, "result": lambda: execution.text}[at]()
    return text.strip()
