"""Rows of the suite and their results."""

import dataclasses
import re
from typing import Callable, Optional

HELD, FAILED, SKIPPED = "held", "failed", "skipped"

# A control that ends like this met a kernel without the feature, not a protection.
NOT_HERE = {"ENOSYS", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "ENODEV", "ENXIO", "EOPNOTSUPP"}


@dataclasses.dataclass
class Verdict:
    """What a payload said: `word` is SUCCEEDED, BLOCKED, INCONCLUSIVE; KILLED or NOTHING if it did not get so far."""
    word: str
    text: str

    @property
    def reason(self):
        return self.text.split(" ", 1)[0]

    def __str__(self):
        return f"{self.word} {self.text}"


EXIT_STATUS = {"SUCCEEDED": 42, "BLOCKED": 0, "INCONCLUSIVE": 3}


def parse_verdict(exit_code, stdout, stderr=b""):
    """The payload's one line; its exit status must say the same."""
    for line in stdout.decode(errors="replace").splitlines():
        match = re.match(r"(SUCCEEDED|BLOCKED|INCONCLUSIVE) ?(.*)", line)
        if match:
            if match[1] == "BLOCKED" and exit_code == -1:  # the killer came for the rest of it after it had spoken
                return Verdict("KILLED", match[2])
            if exit_code != EXIT_STATUS[match[1]]:
                return Verdict("NOTHING", f"said {line!r} and ended with {exit_code}")
            return Verdict(match[1], match[2])
    if exit_code == -1:
        return Verdict("KILLED", "SIGKILL killed with all its processes")
    tail = (stdout + stderr).decode(errors="replace").strip()[-200:]
    return Verdict("NOTHING", f"exit status {exit_code}, {tail!r}")


@dataclasses.dataclass
class Result:
    status: str
    control: str = ""
    detail: str = ""


class Fail(Exception):
    """A row that did not hold."""


class Skip(Exception):
    """A row that cannot be decided on this machine."""


@dataclasses.dataclass
class Row:
    name: str
    attack: str
    protection: str
    run: Callable  # (world) -> Result
    control: Optional[Callable] = None  # (world) -> Result, for --controls
    attempt: Optional[Callable] = None  # (world) -> [(user, Verdict)]: the attack without its control
    area: str = ""


def held(control="succeeded", detail=""):
    return Result(HELD, control, detail)


def judge_control(verdict):
    """'succeeded', or raises."""
    if verdict.word == "SUCCEEDED":
        return "succeeded"
    if verdict.word == "INCONCLUSIVE":
        raise Skip(f"no control on this machine: {verdict.text}")
    if verdict.word == "BLOCKED" and verdict.reason in NOT_HERE:
        raise Skip(f"no control on this machine: its kernel lacks the feature ({verdict.reason})")
    raise Fail(f"the control did not succeed, so the payload proves nothing: {verdict}")


def payload_row(name, attack, protection, payload, args=(), control=None, control_args=None,
                users=("user", "root"), skip=None, also=None):
    """A payload that must be blocked inside, for every user, and must succeed outside.

    args, control_args: values or functions of the world. control: keyword arguments of World.on_host. skip: function
    of the world, why there can be no control here, or None; the attack inside is tried nevertheless. also: function of
    the world, called after the attack, that raises Fail if it had an effect on the host.
    """
    value = lambda x, world: [str(a) for a in (x(world) if callable(x) else x)]

    def run_control(world):
        if skip and (reason := skip(world)):
            raise Skip(reason)
        chosen = control_args if control_args is not None else args
        return judge_control(world.on_host(payload, value(chosen, world), **(control or {})))

    def attempt(world):
        verdicts = [(user, world.inside(payload, value(args, world), user)) for user in users]
        if also:
            also(world)
        return verdicts

    def run(world):
        said = []
        for user, verdict in attempt(world):
            if verdict.word != "BLOCKED":
                outcome = run_control_quietly(world)
                if outcome == "skipped" and verdict.word == "INCONCLUSIVE":
                    raise Skip(f"cannot be decided here: {verdict.text}")
                raise Fail(f"as {user}: {verdict}")
            said.append(f"{user}: {verdict.text}")
        try:
            outcome = run_control(world)
        except Skip as reason:
            return Result(SKIPPED, "", f"blocked inside ({'; '.join(said)}); {reason}")
        return held(outcome, "; ".join(said))

    def run_control_quietly(world):
        try:
            return run_control(world)
        except Skip:
            return "skipped"
        except Fail:
            return "failed"

    return Row(name, attack, protection, run, lambda world: held(run_control(world)), attempt)


def check_row(name, attack, protection, run, control=None):
    """A check in Python: returns what its control showed, raises Fail or Skip."""
    return Row(name, attack, protection, lambda world: held(run(world) or "see test"), control)
