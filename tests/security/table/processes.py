"""Processes of the host."""

from model import Fail, payload_row

AREA = "Processes of the host"


def unsignalled(world):
    if world.victim.signals() != world.signals_before:
        raise Fail("the process on the host got the signal")


def remember_signals(world):
    world.signals_before = world.victim.signals()
    return [world.victim.pid]


def marker(world):
    half = len(world.marker) // 2
    return [world.marker[:half], world.marker[half:], world.victim.pid]


ROWS = [
    payload_row("see_host_process", "find a host process in /proc or by kill(pid, 0)", "own PID namespace and procfs",
                "see_host_process", marker, control=dict(bare=True)),
    payload_row("signal_host_process", "signal a host process by number or pidfd", "own PID namespace",
                "signal_host_process", remember_signals, also=unsignalled),
    payload_row("ptrace_host_process", "attach to a host process", "own PID and user namespace", "ptrace_host_process",
                lambda world: [world.victim.pid]),
    payload_row("read_host_memory", "read a host process's memory", "own PID and user namespace", "read_host_memory",
                lambda world: [world.victim.pid, world.victim.address, world.victim.secret]),
    payload_row("steal_host_descriptor", "take a host process's descriptor (pidfd_getfd)", "own PID and user namespace",
                "steal_host_descriptor", lambda world: [world.victim.pid, world.victim.fd, world.secret]),
] + [
    payload_row(f"join_host_namespace_{kind}", f"join the host's {kind} namespace",
                "own PID namespace; seccomp refuses setns", "join_host_namespace",
                lambda world, kind=kind: [world.victim.pid, kind])
    for kind in ("mnt", "net", "pid", "ipc", "uts", "cgroup")
]
