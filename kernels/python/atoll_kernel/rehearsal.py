"""What the zygote does before the first fork: imports, then the code paths of real cells, so that copies find them done.

No thread and no descriptor may be left behind, and nothing that a cell could see.
"""

import glob
import io
import os
import shutil
import sys

from . import bundle, jsontext, shell as shells
from .warming import traceless

# The values are of no interest; the ways to them are those of first cells.
CELLS = (
    "print('rehearsal')\n1 + 1",
    "    x = [1, {'a': 2.5}]\n    x",
    "def f(x):\n    return 1 / x\nf(0)",
    "%time 1",
    "echo 'a syntax error'",
)
PANDAS = """
import numpy as np, pandas as pd
frame = pd.DataFrame({'a': [1, 2, 3], 'b': [0.5, np.nan, 2.0], 'c': ['x', 'y', 'z'], 'd': pd.date_range('2024-01-01', periods=3)})
frame.describe()
frame.groupby('c').sum(numeric_only=True)
frame.to_csv()
np.linalg.inv(np.eye(3)) @ np.random.rand(3, 3)
frame
"""
MATPLOTLIB = (
    """
import matplotlib.pyplot as plt
plt.figure()
plt.plot([1, 2, 3], label='a')
plt.title('t'); plt.xlabel('x (s)'); plt.legend(); plt.grid(True)
plt.show()
""",
    """
fig, ax = plt.subplots(1, 2)
ax[0].bar(['a', 'b'], [1, 2]); ax[1].scatter([1, 2], [3, 4])
plt.tight_layout()
fig.savefig('/tmp/rehearsal.png')
fig
""",
)


class Listener(shells.Sink):
    """Makes the lines, sends none."""

    def __init__(self):
        self.results = 0
        self.errors = []

    def result(self, data, main):
        bundle.result_line(data, main)
        self.results += 1

    def error(self, name, value, traceback):
        jsontext.string(traceback)
        self.errors.append(name)


def rehearse(kernel, modules):
    _fonts()
    for name in modules:
        _run(kernel, f"import {name}", quiet=True)
    for code in CELLS:
        _run(kernel, code)
    if "pandas" in sys.modules:
        _run(kernel, PANDAS)
    if "matplotlib.pyplot" in sys.modules:
        listener = _run(kernel, *MATPLOTLIB)
        if listener.results < 2:
            raise RuntimeError(f"figures do not work here: {listener.errors}")
        from . import charts  # noqa: F401
    for name in ("/tmp/rehearsal.png",):
        if os.path.exists(name):
            os.unlink(name)


def _run(kernel, *cells, quiet=False):
    """Cells in one namespace, which then is as it was. An error is no error: some cells are about errors."""
    listener = Listener()
    with traceless(kernel):
        kernel.shell.sink = listener
        sys.stdout = sys.stderr = io.StringIO()
        for code in cells:
            kernel.shell.run_cell(code, store_history=False)
    return listener


def _fonts():
    """matplotlib wants a directory it can write; the template's list of fonts saves making one."""
    target = os.environ["MPLCONFIGDIR"]
    os.makedirs(target, exist_ok=True)
    for name in glob.glob("/var/cache/atoll/matplotlib/fontlist*"):
        shutil.copy(name, target)
