"""System calls, other ABIs and sockets that no sandbox needs."""

import os
import socket

import policy
from model import payload_row
from world import status_of

AREA = "System calls and sockets"


def call(name, attack, protection="not on the seccomp allow-list", **more):
    return payload_row(name, attack, protection, name, **more)


def lacks_sys_resource(world):
    if "sys_resource" not in policy.names(int(status_of(os.getpid())["CapEff"], 16)):
        return "no control on this machine: its root lacks CAP_SYS_RESOURCE"


def family(name, attack, domain, kind=socket.SOCK_RAW, protocol=0, **more):
    return payload_row(f"socket_{name}", attack, "seccomp refuses the address family", "open_socket",
                       [domain, int(kind), protocol], **more)


ROWS = [
    call("io_uring", "io_uring, which passes by seccomp"),
    call("bpf", "load BPF programs and maps", "seccomp refuses"),
    call("perf_event", "open performance counters", "seccomp refuses"),
    call("userfaultfd", "userfaultfd, by call and by device"),
    call("keyctl", "reach the kernel's keyrings", "seccomp refuses"),
    call("add_key", "store keys in the kernel", "seccomp refuses"),
    call("request_key", "make the kernel ask for a key", "seccomp refuses"),
    call("quotactl", "reach disk quotas", "seccomp refuses"),
    call("fanotify_permission", "decide about others' file accesses", "seccomp refuses"),
    call("personality", "map page zero by personality", "seccomp allows harmless values only"),
    call("int80", "32-bit system calls by int 0x80", "seccomp kills foreign ABIs"),
    call("x32", "system calls of the x32 ABI", "seccomp kills foreign ABIs"),
    call("ptrace_seccomp_bypass", "change a call's number after the filter looked", "seccomp runs after ptrace (Linux 4.8)"),
    call("tiocsti", "type into a terminal (TIOCSTI, TIOCLINUX)", "seccomp refuses the requests"),
    call("realtime_hog", "real-time class or negative nice", "no CAP_SYS_NICE; RLIMIT_RTPRIO and RLIMIT_NICE 0"),
    call("oom_immunity", "immunity against the out-of-memory killer", "no CAP_SYS_RESOURCE over the host",
         skip=lacks_sys_resource),
    family("packet", "raw packets (AF_PACKET)", 17, protocol=0x300),
    family("vsock", "the hypervisor (AF_VSOCK)", 40, socket.SOCK_STREAM),
    family("alg", "the kernel's crypto (AF_ALG)", 38, socket.SOCK_SEQPACKET),
    family("xdp", "AF_XDP", 44),
    family("key", "AF_KEY", 15, protocol=2),
    family("tipc", "AF_TIPC", 30),
    family("can", "AF_CAN", 29, protocol=1),
    family("bluetooth", "AF_BLUETOOTH", 31, protocol=1),
    family("smc", "AF_SMC", 43, socket.SOCK_STREAM),
    family("netlink_audit", "the audit system (NETLINK_AUDIT)", 16, protocol=9),
    family("netlink_xfrm", "IPsec tables (NETLINK_XFRM)", 16, protocol=6),
    family("netlink_crypto", "NETLINK_CRYPTO", 16, protocol=21),
    family("netlink_generic", "generic netlink families", 16, protocol=16),
    family("sctp", "SCTP", 2, socket.SOCK_STREAM, 132),
    family("mptcp", "MPTCP", 2, socket.SOCK_STREAM, 262),
    payload_row("nf_tables", "change the firewall (nf_tables)", "seccomp refuses NETLINK_NETFILTER; no CAP_NET_ADMIN", "nf_tables",
                control=dict(own=["net"])),
]
