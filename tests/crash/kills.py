"""Part `kills`: the server or its warden dies at random, again and again, under the load of many clients (load.py)."""

import random
import sys
import time

from load import Load, Violation, patiently

CHECK_EVERY = 25
WORKERS = 4
PAUSE = 0.3  # mean seconds of load between kills


def kill_one(server, dice, load):
    """Kills the server or the warden and waits until a new pair is healthy. Milliseconds of the gap."""
    victim = dice.randrange(2)
    name = ("server", "warden")[victim]
    load.counters.add(name + " killed")
    began = time.monotonic()
    server.wait_for_other(server.kill_one(victim), f"the {name} was killed")
    return (time.monotonic() - began) * 1000


def chaos(kills, server, load, dice):
    gaps = []
    for number in range(1, kills + 1):
        time.sleep(dice.uniform(0.05, PAUSE * 2))
        if load.failure:
            raise Violation(load.failure)
        gaps.append(kill_one(server, dice, load))
        patiently(load.check_list)
        if number % CHECK_EVERY == 0 or number == kills:
            load.rest()
            load.check_all()
            load.go_on()
            print(f"crash: {number}/{kills} kills, {len(load.boxes)} sandboxes, nothing lost", file=sys.stderr, flush=True)
    return sorted(gaps)


def end_all(load):
    """Short-lived ones must have ended by themselves, the others are killed."""
    load.finish()
    if load.failure:
        raise Violation(load.failure)
    short = [box for box in load.boxes.values() if box.ends]
    end = max([time.monotonic(), *(box.ends for box in short)]) + 15
    while True:
        rows = patiently(load.api.list)
        late = [box for box in short if box.id in rows]
        if not late:
            break
        if time.monotonic() > end:
            raise Violation(f"{late[0]!r}: its time is over and it still runs")
        time.sleep(0.1)
    for box_id in rows:
        answer = patiently(lambda box_id=box_id: load.api.call("DELETE", f"/sandboxes/{box_id}"))
        if answer.status not in (204, 404):
            raise Violation(f"kill {box_id}: {answer}")
    if rows := patiently(load.api.list):
        raise Violation(f"still there after kills: {sorted(rows)}")


def run(options, server):
    load = Load(server.api, options.seed)
    gaps = []
    try:
        load.start(WORKERS)
        gaps = chaos(options.kills, server, load, random.Random(options.seed))
        end_all(load)
    finally:
        load.stop.set()
        for name, count in sorted(load.counters.values.items()):
            print(f"  {name:<24}{count:>8}")
        if gaps:
            print(f"  until healthy again, ms: p50 {gaps[len(gaps) // 2]:.0f}, p99 {gaps[int(len(gaps) * 0.99)]:.0f}, worst {gaps[-1]:.0f}")
    return f"{options.kills} kills"
