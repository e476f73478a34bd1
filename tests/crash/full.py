"""Part `full`: no space is left on the home's disk, before or in the middle of writing memory. The sandbox runs on, its client is told, and nothing is left."""

import threading
import time

from disk import Disk
from load import Violation
from watched import Watched, end_everything

STILL_MIB = 200      # memory that has to be written
LEAVE = 48 << 20     # less than that
BEGIN = 100 << 20    # less too: one that is faster than the filler does not get through either
TELLS = (429, 503, 507)


def written(server, box):
    """Files of a dump or a snapshot that did not come to its end."""
    memory = [path for path in server.home.glob(f"sandboxes/*/{box.id}/memory*") if path.is_dir()]
    return memory + list(server.home.glob("snapshots/*/*"))


def begun(server, box):
    return any(file.stat().st_size for path in written(server, box) for file in path.rglob("*") if file.is_file())


def refused(answer, what):
    if answer.status not in TELLS:
        raise Violation(f"{what} without space: {answer}")
    said = answer.json
    if said.get("code") != answer.status or not said.get("message"):
        raise Violation(f"{what} without space is no typed error: {answer}")


def goes_on(server, box, what):
    if (state := box.state()) != "running":
        raise Violation(f"{box}: {state} after a {what} without space")
    box.check()
    box.must_move()
    end = time.monotonic() + 10
    while left := written(server, box):
        if time.monotonic() > end:
            raise Violation(f"a {what} without space left {left}")
        time.sleep(0.05)


def filled_meanwhile(server, disk, box, ask):
    """Asks, and takes the space away when the first bytes have been written."""
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            if quiet(begun, server, box):
                disk.fill(4 << 20)
                return
            time.sleep(0.001)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        return ask()
    finally:
        stop.set()
        watcher.join()


def quiet(look, *arguments):
    """Files come and go while one looks."""
    try:
        return look(*arguments)
    except OSError:
        return None


def run(options, server):
    disk = Disk(server.home.parent, 3 << 10)
    disk.make()
    server.mounts = [disk.place]
    try:
        return story(options, server, disk)
    finally:
        server.stop()
        disk.remove()


def story(options, server, disk):
    api = server.start()
    box = Watched(api, still_mib=STILL_MIB)
    requests = {
        "pause": lambda: api.call("POST", box.target + "/pause", {"memory": True}, timeout=120),
        "snapshot": lambda: api.call("POST", box.target + "/snapshots", {}, timeout=120),
        "fork": lambda: api.call("POST", box.target + "/fork", {"count": 2, "timeout": 300}, timeout=120),
    }
    for what, ask in requests.items():
        disk.fill(LEAVE)
        refused(ask(), what)
        goes_on(server, box, what)
        disk.empty()
    for what, ask in requests.items():
        disk.fill(BEGIN)
        answer = filled_meanwhile(server, disk, box, ask)
        disk.empty()
        refused(answer, what)
        goes_on(server, box, what)
    # With space it works again, the same sandbox.
    box.pause()
    box.resume()
    box.check()
    end_everything(api)
    if (code := server.stop()) != 0:
        raise Violation(f"the server ended with {code}")
    if left := server.leaks():
        raise Violation(f"left behind:\n{left}")
    return "6 times without space, 3 of them in the middle"
