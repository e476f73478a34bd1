"""Memory in files: sandboxes that CRIU made again, and copies of a sandbox, are held by the same lines."""

import contextlib
import os
import subprocess
import sys
import time

from client import Sandbox
from model import check_row, Fail, Skip
from table import descriptors, devices, files, identity, kernel, mounts, neighbours, processes, syscalls
from table.api import agent_request, expect
from table.limits import bomb, memory_args, pid_args
from world import status_of

AREA = "Memory in files"
ATTACKS = [files, descriptors, processes, devices, kernel, mounts, syscalls, neighbours, identity]
SLEEPER = "71423"  # seconds: what tells the process that must come back from all others


def with_processes(world):
    """A new sandbox in which both users have a process."""
    sandbox = world.new_sandbox()
    for user in ("user", "root"):
        code, _, err = sandbox.run(["/bin/sh", "-c", f"setsid sleep {SLEEPER} > /dev/null 2>&1 < /dev/null &"], user=user)
        if code != 0:
            raise Fail(f"cannot start a process inside: {err!r}")
    must_have_processes(sandbox, 50)
    return sandbox


def must_have_processes(sandbox, looks=1):
    for left in reversed(range(looks)):
        _, out, _ = sandbox.run(["/usr/bin/pgrep", "-c", "-f", f"^sleep {SLEEPER}"], user="root")
        if out.strip() == b"2":
            return
        time.sleep(0.1 if left else 0)
    raise Fail(f"of two processes {out!r} are there")


def pause(world, sandbox):
    world.api.call("POST", f"/sandboxes/{sandbox.id}/pause", {})
    info = world.api.info(sandbox.id)
    if info["memoryTier"] == "frozen" and "CRIU" in info.get("memoryReason", ""):
        raise Skip(f"no memory in files on this machine: {info['memoryReason']}")
    if info["memoryTier"] != "dumped":
        raise Fail(f"the memory is not in files: {info['memoryTier']}, {info.get('memoryReason')}")


def restored(world):
    sandbox = with_processes(world)
    pause(world, sandbox)
    world.api.call("POST", f"/sandboxes/{sandbox.id}/connect", {"timeout": 3600})
    must_have_processes(sandbox)
    return sandbox


def forked(world):
    """(source, copy)"""
    source = with_processes(world)
    (made,) = world.api.call("POST", f"/sandboxes/{source.id}/fork", {"count": 1, "timeout": 3600})
    if "sandbox" not in made:
        raise Fail(f"no fork: {made}")
    copy = Sandbox(world.api, made["sandbox"]["sandboxID"], made["sandbox"].get("envdAccessToken"))
    copy.has_payloads = False
    world.extra.append(copy)
    must_have_processes(copy)
    return source, copy


def try_all(world, sandbox):
    """Every attack of the other areas from this sandbox; their controls were shown there."""
    held, through = 0, []
    for row in (row for area in ATTACKS for row in area.ROWS if row.attempt):
        with contextlib.suppress(Skip):
            with world.attacked_from(sandbox):
                verdicts = row.attempt(world)
            for user, verdict in verdicts:
                if verdict.word == "BLOCKED":
                    held += 1
                elif verdict.word != "INCONCLUSIVE" or dict(row.attempt(world))[user].word != "INCONCLUSIVE":
                    through.append(f"{row.name} as {user}: {verdict}")
    if through:
        raise Fail("; ".join(through))
    if held < 200:
        raise Fail(f"only {held} attacks were tried")
    return f"each attack's own, above; {held} attempts"


def restored_attacks(world):
    sandbox = restored(world)
    shown = try_all(world, sandbox)
    world.drop_sandbox(sandbox)
    return shown


def forked_attacks(world):
    source, copy = forked(world)
    shown = try_all(world, copy)
    for sandbox in (source, copy):
        world.drop_sandbox(sandbox)
    return shown


def confinement(world):
    """Ids, capabilities, filters and namespaces of what came back, beside those of its source."""
    again = restored(world)
    source, copy = forked(world)
    for main, neighbour in ((again, source), (copy, source)):
        with world.attacked_from(main, neighbour):
            identity.sandbox_uids(world)
            shown = identity.sandbox_confinement(world)
        filters = {status_of(pid)["Seccomp_filters"] for pid in (*world.pids_of(main), *world.pids_of(world.main))}
        if len(filters) != 1:
            raise Fail(f"processes of one kind have {sorted(filters)} filters")
    for sandbox in (again, source, copy):
        world.drop_sandbox(sandbox)
    return shown


def tokens_of_forks(world):
    """A copy has its source's token in its memory: it opens nothing, neither there nor here."""
    source, copy = forked(world)
    if copy.token == source.token:
        raise Fail("source and copy have the same token")
    for sandbox, token in ((source, copy.token), (copy, source.token), (copy, None)):
        expect("a token of another one", agent_request(world, sandbox, "GET", "/envs", token), (401,))
    for sandbox in (source, copy):
        expect("the control", agent_request(world, sandbox, "GET", "/envs", sandbox.token), (200,))
        world.drop_sandbox(sandbox)
    return "the right token is served"


OPENER = """
import os, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1]))
for path in sys.argv[3:]:
    try:
        open(path).close()
    except OSError:
        continue
    sys.exit(42)
"""


def images_on_disk(world):
    """Nobody but root opens an image, the server's user neither."""
    sandbox = with_processes(world)
    pause(world, sandbox)
    images = [os.path.join(top, name) for top, _, names in os.walk(world.home) for name in names
              if sandbox.id in top and name.startswith("pages-")]
    if not images:
        raise Fail(f"no image of sandbox {sandbox.id} below {world.home}")
    server = status_of(world.server.pid)
    uid, gid = identity.ids(server, "Uid")[0], identity.ids(server, "Gid")[0]
    for who, expected in (((uid, gid), 0), ((0, 0), 42)):
        done = subprocess.run([sys.executable, "-c", OPENER, *map(str, who), *images], capture_output=True, text=True)
        if done.returncode != expected:
            raise Fail(f"images opened by uid {who[0]}: exit {done.returncode}, {done.stderr[-200:]}")
    world.api.call("POST", f"/sandboxes/{sandbox.id}/connect", {"timeout": 3600})
    must_have_processes(sandbox)
    world.drop_sandbox(sandbox)
    return "root opens them"


ROWS = [
    check_row("restored_attacks", "all attacks by payload above, from a sandbox that came back from files",
              "ids, filters, capabilities, namespaces and mounts are made again before a process runs on", restored_attacks),
    check_row("forked_attacks", "all attacks by payload above, from a copy of a sandbox", "the same", forked_attacks),
    check_row("restored_confinement", "come back with more rights, fewer filters, or ids and namespaces of another",
              "the warden makes what CRIU fills; copies have their own range and namespaces", confinement),
    check_row("forked_tokens", "use the token of the source on a copy, or the copy's on the source", "copies get tokens of their own",
              tokens_of_forks),
    check_row("images_on_disk", "read a paused sandbox's memory on the host", "images are root's, mode 0700", images_on_disk),
    bomb("restored_fork_bomb", "fork without end after a restore", "pids limit of the new cgroup", "fork_bomb", pid_args, users=("root",),
         make=restored),
    bomb("restored_memory_bomb", "take memory without end after a restore", "memory limit of the new cgroup", "memory_bomb", memory_args,
         need_mib=1024, users=("root",), make=restored),
]
