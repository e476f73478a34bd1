"""The zygote of a template: a Python that has loaded and rehearsed everything, and is forked into sandboxes.

Life of a process that starts here (kernels/zygote/README.md has the calls): the zygote, root in the template's read-only tree,
one thread, nothing of any sandbox in memory -> on a request of the warden a copy enters a sandbox and is its nursery, without
privileges -> on a request of the agent a copy of that is a kernel and speaks kernels/protocol.md on descriptor 3.
"""

import ctypes
import gc
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.join(os.path.dirname(HERE), "zygote", "libatoll-zygote.so")
SETTINGS = "/etc/atoll/zygote.json"  # of the template, optional: {"modules": [...], "immortal": bool, "huge_pages": bool}
WARDEN, SETUP, AGENT, KERNEL = 3, 4, 3, 3

# What cells import most. What a template does not have is left out.
MODULES = (
    "asyncio base64 bisect calendar collections concurrent.futures contextlib copy csv dataclasses datetime decimal enum "
    "fractions functools glob gzip hashlib heapq html io itertools json logging math multiprocessing operator pathlib pickle "
    "pprint random re secrets shutil socket sqlite3 ssl statistics string struct subprocess tempfile textwrap threading time "
    "traceback typing unittest urllib.parse urllib.request uuid warnings zipfile "
    "numpy pandas matplotlib matplotlib.pyplot matplotlib.dates matplotlib_inline.backend_inline PIL.Image requests"
).split()

# Libraries that would start threads, or look for a home, while they are imported here.
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "HOME": "/tmp",
    "MPLCONFIGDIR": "/tmp/matplotlib",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}


def settings():
    try:
        with open(SETTINGS, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        found = {}
    return {"modules": MODULES, "immortal": True, "huge_pages": True, **found}


def prepare(modules):
    """A kernel that has everything but a sandbox, and the generators it must seed there."""
    os.environ.clear()
    os.environ.update(ENVIRONMENT)
    sys.dont_write_bytecode = True
    if sys.path[:1] == [HERE]:
        del sys.path[0]
    sys.path.insert(0, HERE)
    from atoll_kernel import afterfork, rehearsal
    from atoll_kernel.kernel import Kernel

    sys.path[0] = ""
    sys.argv[:] = [""]
    kernel = Kernel()
    rehearsal.rehearse(kernel, modules)
    generators = afterfork.generators()
    sys.dont_write_bytecode = False
    os.environ.clear()
    return kernel, generators


def become_kernel(kernel, generators):
    """In the copy: its own random numbers, its own socket. Does not return."""
    from atoll_kernel import afterfork

    afterfork.renew(generators)
    kernel.attach(KERNEL)
    kernel.serve()


def main():
    library = ctypes.PyDLL(LIBRARY)  # holds the interpreter's lock in calls: they fork
    if library.atoll_zygote_open(WARDEN, SETUP) < 0:
        os._exit(1)
    wanted = settings()
    if wanted["huge_pages"]:
        library.atoll_arenas_install()
    gc.disable()
    kernel, generators = prepare(wanted["modules"])
    gc.collect()
    gc.freeze()
    if wanted["immortal"]:
        library.atoll_immortalise()
        gc.freeze()  # also what became known to the collector on the way: a collection in a copy must not write to shared pages
    if wanted["huge_pages"]:
        library.atoll_memory_settle()
    if library.atoll_zygote_ready(WARDEN) < 0:
        os._exit(1)
    while (state := library.atoll_zygote_serve_once(WARDEN)) == 0:
        pass
    if state < 0:
        os._exit(1)
    while (state := library.atoll_nursery_fork(AGENT)) == 0:
        pass
    if state < 0:
        os._exit(0)
    gc.enable()
    become_kernel(kernel, generators)


if __name__ == "__main__":
    main()
