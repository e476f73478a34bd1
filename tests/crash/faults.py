"""Part `faults`: the warden fails or dies at a named step of a dump, a snapshot or a restore (`--fail-at`, `--die-at`, src/runtime/jail/faults.h).

The server starts a small script in place of its warden, which takes the fault from a file, once, and becomes the warden. Each case ends the warden in
service, so that the next one has the fault, and asks for the operation.
"""

import os
import random
import shlex
import subprocess

from client import Unknown
from cycles import Midway, say
from load import Violation
from server import BUILD
from watched import end_everything

# Which steps belong to which request, and what a sandbox may be afterwards.
TABLE = [
    # operation, prefixes of steps, states after a failure, states after a death; a resume has the steps of its plan
    ("pause", ("freeze", "dump"), {"running", "paused"}, {"running", "paused"}),
    # One that cannot be thawed again is paused, frozen: nothing of it is lost.
    ("snapshot", ("snapshot", "thaw"), {"running", "paused"}, {"running"}),
    ("resume", (), {"paused"}, {"paused", "running"}),
]
SHORT = 24  # cases of a short run, by the seed

SCRIPT = """#!/bin/bash
# The warden, with the fault that a test has laid ready, if there is one.
fault=()
if mv {armed} {armed}.taken 2>/dev/null; then read -r -a fault <{armed}.taken; fi
exec -a atoll-warden {warden} "$@" "${{fault[@]}}"
"""


def make_programs(directory):
    """The server's program beside the script: it looks for its warden in its own directory."""
    programs = directory / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    for name in ("atoll", "atoll-agent"):
        (programs / name).unlink(missing_ok=True)
        os.link(BUILD / "bin" / name, programs / name)
    lib = directory / "lib"
    lib.unlink(missing_ok=True)
    lib.symlink_to(BUILD / "lib")
    armed = directory / "armed"
    armed.unlink(missing_ok=True)
    script = programs / "atoll-warden"
    script.write_text(SCRIPT.format(armed=shlex.quote(str(armed)), warden=shlex.quote(str(BUILD / "bin/atoll-warden"))))
    script.chmod(0o755)
    return programs / "atoll", armed


def steps():
    """Names of the steps of each operation, from the warden itself."""
    warden = str(BUILD / "bin/atoll-warden")
    names = subprocess.run([warden, "--operation-steps"], capture_output=True, text=True, check=True).stdout.split()
    plan = subprocess.run([warden, "--dry-run", "--kept-memory"], capture_output=True, text=True).stdout.splitlines()
    return names, [line.split()[2] for line in plan if len(line.split()) > 2]


def cases():
    """(operation, option, moment, states) of every fault there is."""
    names, plan = steps()
    found = []
    for operation, prefixes, failed, died in TABLE:
        own = [name for name in names if name.split(".")[0] in prefixes] + (plan if operation == "resume" else [])
        if not own:
            raise Violation(f"the warden names no step of a {operation}")
        for name in own:
            found += [(operation, "--fail-at", name, failed), (operation, "--die-at", name, died), (operation, "--die-at", name + "+", died)]
    return found


class Faults(Midway):
    def arm(self, armed, option, moment):
        """Ends the warden in service; its successor has the fault."""
        armed.write_text(f"{option} {moment}\n")
        self.server.wait_for_other(self.server.kill_one(1), "the warden was killed")
        if armed.exists():
            raise Violation("the new warden did not take its fault")

    def case(self, armed, operation, option, moment, states):
        self.prepare(operation)
        before = dict(self.box.last)
        self.arm(armed, option, moment)
        pids = self.server.patient_pids()
        attempt, good = self.attempt(operation)
        answer = attempt.done()
        answered = answer is not None and answer.status in good
        if option == "--die-at" and not answered:
            self.server.wait_for_other(pids[0], f"the warden died at {moment} of a {operation}")
        elif self.server.pids() == pids:
            # The step failed, with a failure that a pause may live with; or it was not taken at all. The fault goes with this warden.
            self.counters[f"{operation}, {option}, answered" if answered else f"{operation}, {option}, refused"] += 1
            self.server.wait_for_other(self.server.kill_one(1), "the warden was killed")
        else:
            self.server.wait_for_other(pids[0], f"the warden died at {moment} of a {operation}")
        state = self.box.state()
        if not answered and state not in states:
            raise Violation(f"{operation} {option} {moment}: {self.box} is {state}")
        if answer is not None and not answered and answer.json.get("code") != answer.status:
            raise Violation(f"{operation} {option} {moment}: no typed error: {answer}")
        self.after_snapshot = {"running"} if answered else states
        self.settle(operation, answered, answer, before)
        self.counters[option] += 1


def run(options, server):
    program, armed = make_programs(BUILD / "crash")
    server.program = program
    server.options = ["--pool-ready", "0", "--pool-skeletons", "0", "--no-zygotes"]
    end_everything(server.start())
    everything = cases()
    dice = random.Random(f"{options.seed}-faults")
    chosen = everything if options.long else sorted(dice.sample(everything, min(SHORT, len(everything))), key=everything.index)
    faults = Faults(options, server)
    try:
        for number, (operation, option, moment, states) in enumerate(chosen, 1):
            try:
                faults.case(armed, operation, option, moment, states)
            except (Violation, Unknown) as failure:
                raise Violation(f"{operation} {option} {moment}: {failure}") from failure
            say("faults", number, len(chosen))
    finally:
        for name, count in sorted(faults.counters.items()):
            print(f"  {name:<44}{count:>6}")
    end_everything(server.api)
    if (code := server.stop()) != 0:
        raise Violation(f"the server ended with {code}")
    if left := server.leaks():
        raise Violation(f"left behind:\n{left}")
    return f"{len(chosen)} of {len(everything)} faults"
