"""Clients of the crash test: what they were told, and whether it is still true.

A sandbox of the model is touched by one thread at a time (its lock). What a client was told is `known`; a request
that broke off leaves one thing unknown, which the next look settles: it happened, or it did not. Anything else is a
violation and ends the test.
"""

import hashlib
import random
import threading
import time
import uuid

from client import Inside, Unknown

LIFE = 1800
PER_WORKER = 3


class Violation(Exception):
    pass


class Box:
    """One sandbox as its client knows it."""

    def __init__(self, created, tag):
        self.id, self.token, self.tag = created["sandboxID"], created.get("envdAccessToken"), tag
        self.lock = threading.Lock()
        self.state = "running"  # running, paused, gone; None: unknown
        self.may_be = ()        # what it can be when it is unknown
        self.files = {}         # path -> sha256 of content that was confirmed
        self.pids = set()       # processes that were confirmed to run
        self.boot_id = None
        self.pause_keeps = True  # of the pause that is known or unknown
        self.lasts = None        # monotonic time until which it must be there
        self.ends = None         # and after which it must be gone

    def __repr__(self):
        return f"{self.id} ({self.state or '/'.join(self.may_be)})"


class Counters:
    def __init__(self):
        self.lock = threading.Lock()
        self.values = {}

    def add(self, name, count=1):
        with self.lock:
            self.values[name] = self.values.get(name, 0) + count


class Load:
    def __init__(self, api, seed):
        self.api, self.seed = api, seed
        self.lock = threading.Lock()
        self.boxes = {}      # id -> Box
        self.half = set()    # tags of creates without an answer
        self.counters = Counters()
        self.stop = threading.Event()
        self.failure = None
        self.hold = threading.Event()  # set: workers rest
        self.resting = 0

    # ---- threads ----

    def start(self, workers):
        self.threads = [threading.Thread(target=self.work, args=(number,), daemon=True) for number in range(workers)]
        for thread in self.threads:
            thread.start()

    def finish(self):
        self.stop.set()
        self.hold.clear()
        for thread in self.threads:
            thread.join(90)
            if thread.is_alive():
                self.fail("a client hangs")

    def rest(self, limit=90):
        """Waits until no client is in the middle of anything."""
        self.hold.set()
        end = time.monotonic() + limit
        while self.resting < len(self.threads):
            if self.failure:
                raise Violation(self.failure)
            if time.monotonic() > end:
                raise Violation(f"clients hang: {self.resting} of {len(self.threads)} came to rest within {limit} s")
            time.sleep(0.01)

    def go_on(self):
        self.hold.clear()

    def fail(self, what):
        with self.lock:
            self.failure = self.failure or str(what)
        self.stop.set()

    def work(self, number):
        dice = random.Random(f"{self.seed}-{number}")
        mine = []
        while not self.stop.is_set():
            if self.hold.is_set():
                with self.lock:
                    self.resting += 1
                while self.hold.is_set() and not self.stop.is_set():
                    time.sleep(0.005)
                with self.lock:
                    self.resting -= 1
                continue
            try:
                mine = [box for box in mine if box.state != "gone"]
                self.step(dice, mine)
            except Unknown:
                self.counters.add("broken off")
                time.sleep(0.02)
            except Exception as failure:  # noqa: BLE001 - a violation, or a mistake in this test: both end it
                self.fail(f"client {number}: {type(failure).__name__}: {failure}")

    # ---- steps ----

    def step(self, dice, mine):
        if len(mine) < PER_WORKER and dice.random() < 0.4 or not mine:
            box = self.create(3 if dice.random() < 0.1 else LIFE)
            if box and not box.ends:
                mine.append(box)
            return
        box = dice.choice(mine)
        with box.lock:
            if box.state is None:
                self.settle(box)
            if box.state == "running":
                actions = [self.exec, self.write, self.write, self.read, self.spawn, self.look, self.pause, self.kill]
                weights = [4, 3, 3, 4, 2, 2, 3, 1]
                dice.choices(actions, weights)[0](box, dice)
            elif box.state == "paused":
                dice.choices([self.resume, self.look, self.kill], [6, 1, 1])[0](box, dice)

    def create(self, life):
        tag = uuid.uuid4().hex
        with self.lock:
            self.half.add(tag)
        asked = time.monotonic()
        answer = self.api.call("POST", "/v2/sandboxes", {"templateID": "base", "timeout": life, "metadata": {"crash": tag}})
        if answer.status == 201:
            box = Box(answer.json, tag)
            if life != LIFE:
                # It must end by itself; nobody touches it again.
                box.lasts, box.ends = asked + life, time.monotonic() + life
                self.counters.add("short-lived")
            with self.lock:
                self.half.discard(tag)
                self.boxes[box.id] = box
            self.counters.add("create")
            return box
        if answer.status < 500 and answer.status != 429:
            raise Violation(f"create was refused: {answer} after {time.monotonic() - asked:.1f} s")
        self.counters.add("create failed")
        return None

    def expect(self, box, answer, *statuses):
        """A definite answer, or Unknown for one that a server in trouble may give."""
        if answer.status in statuses:
            return
        if answer.status in (500, 502, 503, 504):
            self.counters.add(f"answered {answer.status}")
            raise Unknown(f"{answer}")
        raise Violation(f"{box!r}: {answer}")

    def inside(self, box):
        return Inside(self.api, box.id, box.token)

    def exec(self, box, dice):
        word = uuid.uuid4().hex
        answer, out, code = self.inside(box).run(f"echo {word}; cat /proc/sys/kernel/random/boot_id")
        self.expect(box, answer, 200)
        lines = out.decode().split()
        if code != 0 or len(lines) != 2 or lines[0] != word:
            raise Violation(f"{box!r}: exec printed {out!r}, exit {code}")
        if box.boot_id not in (None, lines[1]):
            raise Violation(f"{box!r}: it has booted again: {box.boot_id} is now {lines[1]}")
        box.boot_id = lines[1]
        self.counters.add("exec")

    def write(self, box, dice):
        content = dice.randbytes(dice.randrange(1, 60_000))
        path = f"/home/user/{uuid.uuid4().hex}"  # never written twice: a broken write leaves only this one in doubt
        answer = self.inside(box).write(path, content)
        self.expect(box, answer, 200)
        box.files[path] = hashlib.sha256(content).hexdigest()
        self.counters.add("write")

    def read(self, box, dice):
        if not box.files:
            return
        self.check_file(box, dice.choice(sorted(box.files)))
        self.counters.add("read")

    def check_file(self, box, path):
        answer = self.inside(box).read(path)
        self.expect(box, answer, 200)
        if hashlib.sha256(answer.body).hexdigest() != box.files[path]:
            raise Violation(f"{box!r}: {path} has other content than was written ({len(answer.body)} bytes)")

    def spawn(self, box, dice):
        if len(box.pids) >= 5:
            return self.check_processes(box)
        answer, pid, _ = self.inside(box).run("exec sleep 86400", until_start=True)
        self.expect(box, answer, 200)
        box.pids.add(pid)
        self.counters.add("spawn")

    def check_processes(self, box):
        answer, pids = self.inside(box).processes()
        self.expect(box, answer, 200)
        if missing := box.pids - pids:
            raise Violation(f"{box!r}: processes {missing} are gone, there are {pids}")

    def look(self, box, dice=None):
        answer = self.api.call("GET", f"/sandboxes/{box.id}")
        self.expect(box, answer, 200)
        if answer.json["state"] != box.state:
            raise Violation(f"{box!r}: the server says {answer.json['state']}")
        if answer.json.get("envdAccessToken") != box.token:
            raise Violation(f"{box!r}: its token has changed")
        self.counters.add("look")

    def pause(self, box, dice):
        box.pause_keeps = dice.random() < 0.8
        self.change(box, ("running", "paused"), "paused", "POST", f"/sandboxes/{box.id}/pause", {"memory": box.pause_keeps}, 204)
        self.note_pause(box)
        self.counters.add("pause" if box.pause_keeps else "pause, disk only")

    def note_pause(self, box):
        if not box.pause_keeps:
            box.pids, box.boot_id = set(), None

    def resume(self, box, dice=None):
        self.change(box, ("paused", "running"), "running", "POST", f"/sandboxes/{box.id}/connect", {"timeout": LIFE}, 200, 201)
        self.check_processes(box)
        self.counters.add("resume")

    def kill(self, box, dice=None):
        self.change(box, ("running", "paused", "gone"), "gone", "DELETE", f"/sandboxes/{box.id}", None, 204, 404)
        self.counters.add("kill")

    def change(self, box, may_be, to, method, target, body, *statuses):
        box.may_be, box.state = may_be, None
        answer = self.api.call(method, target, body)
        self.expect(box, answer, *statuses, *((409,) if to != "gone" else ()))
        if answer.status == 409:  # another change, one that broke off, is still going on
            raise Unknown("409")
        box.state = to

    def settle(self, box):
        """What became of a change that broke off."""
        answer = self.api.call("GET", f"/sandboxes/{box.id}")
        self.expect(box, answer, 200, 404)
        found = "gone" if answer.status == 404 else answer.json["state"]
        if found not in box.may_be:
            raise Violation(f"{box!r}: it is {found}")
        if found == "paused":
            self.note_pause(box)
        box.state = found
        self.counters.add("settled")

    # ---- checks ----

    def check_list(self):
        """Everything that no client is busy with must be listed as its client knows it. After every kill."""
        known = {}
        with self.lock:
            boxes = list(self.boxes.values())
        for box in boxes:
            if box.lock.acquire(blocking=False):
                known[box.id] = box
        try:
            rows = self.api.list()
            for box in known.values():
                row = rows.get(box.id)
                if box.ends is not None:
                    if row and time.monotonic() > box.ends + 10:
                        raise Violation(f"{box!r}: its time was over {time.monotonic() - box.ends:.1f} s ago and it still runs")
                    if not row and time.monotonic() < box.lasts:
                        raise Violation(f"{box!r}: gone before its time")
                elif box.state in ("running", "paused") and (not row or row["state"] != box.state):
                    raise Violation(f"{box!r}: lost; the server says {row and row['state']}")
                elif box.state == "gone" and row:
                    raise Violation(f"{box!r}: killed and there again")
        finally:
            for box in known.values():
                box.lock.release()

    def check_all(self):
        """Everything of every sandbox; no client is busy."""
        with self.lock:
            boxes, half = list(self.boxes.values()), set(self.half)
        rows = self.api.list()
        for box in boxes:
            if box.ends is not None or box.state == "gone":
                continue
            patiently(lambda box=box: self.check_box(box))
        tags = {box.tag for box in boxes}
        for row in rows.values():
            tag = row.get("metadata", {}).get("crash")
            if tag in tags:
                continue
            if tag not in half:
                raise Violation(f"{row['sandboxID']} belongs to nobody")
            # A create without an answer: it is there, so it must work.
            patiently(lambda row=row: self.check_half_done(row))
        with self.lock:
            self.half = set()
            self.boxes = {box.id: box for box in boxes if box.state != "gone" and box.ends is None or box.ends and box.ends > time.monotonic() - 15}

    def check_box(self, box):
        if box.state is None:
            self.settle(box)
        if box.state == "gone":
            return
        self.look(box)
        if box.state == "paused":
            self.resume(box)
        for path in sorted(box.files):
            self.check_file(box, path)
        self.check_processes(box)
        self.exec(box, None)
        self.counters.add("checked whole")

    def check_half_done(self, row):
        answer = self.api.call("GET", f"/sandboxes/{row['sandboxID']}")
        if answer.status == 404:
            return
        inside = Inside(self.api, row["sandboxID"], answer.json.get("envdAccessToken"))
        answer, out, code = inside.run("echo here")
        if answer.status != 200 or out != b"here\n":
            raise Violation(f"{row['sandboxID']}, of a create that broke off, does not work: {answer} {out!r}")
        answer = self.api.call("DELETE", f"/sandboxes/{row['sandboxID']}")
        if answer.status not in (204, 404):
            raise Unknown(f"{answer}")
        self.counters.add("half-done, there")


def patiently(check, limit=60):
    """A server that has just started may be busy; a violation is one at once. One try may take all the time: there are two at least."""
    end = time.monotonic() + limit
    tries = 0
    while True:
        tries += 1
        try:
            return check()
        except Unknown as failure:
            if tries > 1 and time.monotonic() > end:
                raise Violation(f"no definite answer within {limit} s: {failure}") from failure
            time.sleep(0.1)
