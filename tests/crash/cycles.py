"""Parts `cycles`, `expiry` and `midway`: one sandbox under write load (witness.py) is paused and resumed, by hand and by its timeout, and
while the server or the warden dies in the middle of it. Memory and files have to be what they have to be after every single one."""

import random
import sys
import threading
import time
from collections import Counter

from client import Unknown
from load import Violation, patiently
from watched import LIFE, Watched, delete_snapshot, end_everything, snapshots

EXPIRY_LIMIT = 30


def say(part, done, of, text=""):
    if done % max(1, of // 5) == 0 or done == of:
        print(f"crash: {part} {done}/{of}{text}", file=sys.stderr, flush=True)


def note_tier(options, box, tiers):
    """Counts which tier a paused sandbox is in; one that is not in files fails the run where memory can be written to files."""
    info = patiently(box.info)
    if info["state"] != "paused":
        raise Violation(f"{box}: {info['state']} after its pause")
    tier = info.get("memoryTier", "frozen")
    tiers[tier] += 1
    if tier != options.tier:
        raise Violation(f"{box}: paused as {tier}, not {options.tier}: {info.get('memoryReason')}")


def run_cycles(options, server):
    """Pause and resume by hand, and, beside it, another sandbox that is paused by its timeout."""
    tiers, failures = Counter(), []

    def guarded(work, *arguments):
        try:
            work(options, server.api, *arguments)
        except (Violation, Unknown) as failure:
            failures.append(str(failure))

    threads = [threading.Thread(target=guarded, args=(by_hand, tiers, failures), daemon=True),
               threading.Thread(target=guarded, args=(by_timeout, tiers, failures), daemon=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Violation(failures[0])
    end_everything(server.api)
    return f"{options.cycles} pauses by hand, {options.expiries} by timeout, {dict(tiers)}"


def by_hand(options, api, tiers, failures):
    box = Watched(api)
    for number in range(1, options.cycles + 1):
        if failures:
            return
        box.check()
        time.sleep(number % 10 * 0.005)  # a pause meets writes, not always the same ones
        box.pause()
        note_tier(options, box, tiers)
        box.resume()
        box.check()
        say("cycles", number, options.cycles, f", step {box.last['n']}")
    box.must_move()
    box.kill()


def by_timeout(options, api, tiers, failures):
    box = Watched(api, autoPause=True)
    for number in range(1, options.expiries + 1):
        if failures:
            return
        box.check()
        box.expect(api.call("POST", box.target + "/timeout", {"timeout": 1}), 204)
        end = time.monotonic() + EXPIRY_LIMIT
        # Pausing is shown as paused: the tier settles with the pause.
        while (info := patiently(box.info))["state"] != "paused" or info.get("memoryTier", "frozen") != options.tier:
            if time.monotonic() > end:
                raise Violation(f"{box}: {EXPIRY_LIMIT} s after its timeout it is {info['state']}, {info.get('memoryTier')}: {info.get('memoryReason')}")
            time.sleep(0.05)
        tiers[info.get("memoryTier", "frozen")] += 1
        box.resume()
        box.check()
        say("expiry", number, options.expiries)
    box.must_move()
    box.kill()


# ---- midway ----


class Attempt(threading.Thread):
    """A request on its way: what came of it, or nothing is known."""

    def __init__(self, api, target, body):
        super().__init__(daemon=True)
        self.api, self.target, self.body = api, target, body
        self.answer = None
        self.took = None
        self.start()

    def run(self):
        began = time.monotonic()
        try:
            self.answer = self.api.call("POST", self.target, self.body, timeout=120)
        except Unknown:
            return
        self.took = time.monotonic() - began

    def done(self):
        self.join(150)
        if self.is_alive():
            raise Violation(f"{self.target}: no answer and no end of the connection")
        return self.answer


class Midway:
    """A sandbox is paused, resumed or snapshotted, and somewhere in it somebody dies. Then it is as it was, or as it should become."""

    OPERATIONS = {
        "pause": ("/pause", {"memory": True}, (204,)),
        "resume": ("/connect", {"timeout": LIFE}, (200, 201)),
        "snapshot": ("/snapshots", {}, (201,)),
    }

    def __init__(self, options, server):
        self.options, self.server, self.api = options, server, server.api
        self.dice = random.Random(f"{options.seed}-midway")
        self.box = Watched(self.api)
        self.took = {}
        self.counters = Counter()
        self.kinds = [kind for kind in self.OPERATIONS if options.tier == "dumped" or kind != "snapshot"]

    def prepare(self, kind):
        """Into the state that the operation starts from."""
        state = self.box.state()
        if kind == "resume" and state != "paused":
            self.box.pause()
        elif kind != "resume" and state != "running":
            self.box.resume()
        if kind != "resume":
            self.box.check()

    def attempt(self, kind, target=None):
        path, body, good = self.OPERATIONS[kind]
        return Attempt(self.api, (target or self.box.target) + path, body), good

    def measure(self):
        """How long each takes when nobody dies, so that deaths hit all of its length."""
        for kind in self.kinds:
            self.prepare(kind)
            attempt, good = self.attempt(kind)
            self.box.expect(attempt.done(), *good)
            self.took[kind] = attempt.took
            if kind == "snapshot":
                patiently(lambda made=attempt: delete_snapshot(self.api, made.answer.json["snapshotID"]))

    def one(self, kind, victim):
        self.prepare(kind)
        before = dict(self.box.last)
        attempt, good = self.attempt(kind)
        time.sleep(self.dice.uniform(0, self.took[kind] * 1.3))
        killed = self.server.kill_one(victim)
        self.server.wait_for_other(killed, f"the {('server', 'warden')[victim]} was killed in a {kind}")
        answer = attempt.done()
        answered = answer is not None and answer.status in good
        if answer is not None and not answered and answer.status not in (409, 500, 502, 503, 504):
            raise Violation(f"{kind}: {answer}")
        self.settle(kind, answered, answer, before)
        self.counters[f"{kind}, {('server', 'warden')[victim]} killed, {'answered' if answered else 'not answered'}"] += 1

    after_snapshot = {"running"}

    def settle(self, kind, answered, answer, before):
        state = self.box.state()
        if answered and kind != "snapshot" and state != ("paused" if kind == "pause" else "running"):
            raise Violation(f"{self.box}: its {kind} was answered, now it is {state}")
        if kind == "snapshot" and state not in self.after_snapshot:
            raise Violation(f"{self.box}: {state} after a snapshot")
        self.counters[f"{kind}: {state} afterwards"] += 1
        self.box.resume()
        self.box.check()
        self.box.must_move()
        if kind == "snapshot":
            self.check_snapshots(answer.json["snapshotID"] if answered else None, before)

    def check_snapshots(self, promised, before):
        """What was answered is listed; what is listed can be used and is not older than its request."""
        listed = patiently(lambda: snapshots(self.api))
        if promised and promised not in listed:
            raise Violation(f"{promised} was answered and is not listed: {sorted(listed)}")
        for snapshot in listed:
            answer = patiently(lambda snapshot=snapshot: self.create_from(snapshot))
            made = Watched.copy(self.box, answer.json, before)
            made.check(same_boot=False)
            made.kill()
            patiently(lambda snapshot=snapshot: delete_snapshot(self.api, snapshot))
            self.counters["snapshots used"] += 1

    def create_from(self, snapshot):
        answer = self.api.call("POST", "/v2/sandboxes", {"templateID": snapshot, "timeout": LIFE}, timeout=120)
        if answer.status in (500, 502, 503, 504):
            raise Unknown(f"create from {snapshot}: {answer}")
        return self.box.expect(answer, 201)


def run_midway(options, server):
    midway = Midway(options, server)
    midway.measure()
    try:
        for number in range(1, options.deaths + 1):
            # Each operation meets each victim; where in it is the dice's.
            midway.one(midway.kinds[number % len(midway.kinds)], number // len(midway.kinds) % 2)
            say("midway", number, options.deaths)
    finally:
        for name, count in sorted(midway.counters.items()):
            print(f"  {name:<44}{count:>6}")
    end_everything(server.api)
    return f"{options.deaths} deaths in the middle"
