#!/usr/bin/env python3
"""Runs a payload on the host without the protections of a sandbox: the control of an attack.

Everything that a control could leave behind is private to it: it gets a mount namespace of its own and a tmpfs to
work in, so that its mounts and files vanish with it. --bare adds what a naive sandbox would have, and no more: a
chroot with the host's /proc and /dev.
"""

import argparse
import ctypes
import os
import shutil
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)
CLONE = {"mnt": 0x00020000, "uts": 0x04000000, "ipc": 0x08000000, "net": 0x40000000}
MS_BIND, MS_REC, MS_PRIVATE, MS_MOVE = 4096, 16384, 1 << 18, 8192


def check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        print(f"INCONCLUSIVE {what}: {os.strerror(number)}", flush=True)
        sys.exit(3)


def mount(source, target, kind=None, flags=0, data=None):
    encode = lambda text: None if text is None else os.fsencode(text)
    check(libc.mount(encode(source), encode(target), encode(kind), flags, encode(data)), f"mount {target}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True, help="a directory of the test's own, on a disk")
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--outside-cwd", action="store_true", help="keep a working directory outside the chroot")
    parser.add_argument("--leak", help="let the payload inherit a descriptor of this directory")
    parser.add_argument("--own", action="append", default=[], choices=list(CLONE), help="further namespaces")
    parser.add_argument("--uid", type=int, help="run without root")
    parser.add_argument("--dev", help="make this directory, with a null node in it")
    parser.add_argument("payload")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    options = parser.parse_args()

    flags = CLONE["mnt"]
    for name in options.own:
        flags |= CLONE[name]
    check(libc.unshare(flags), "unshare")
    mount(None, "/", None, MS_REC | MS_PRIVATE)

    stage = os.path.join(options.work, "stage")
    os.makedirs(stage, exist_ok=True)
    mount("control", stage, "tmpfs", 0, "mode=1777")
    shutil.copy(options.payload, os.path.join(stage, "payload"))
    os.chmod(os.path.join(stage, "payload"), 0o755)
    if options.dev:
        directory = os.path.join(stage, options.dev)
        os.makedirs(directory)
        os.mknod(os.path.join(directory, "null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))

    leaked = os.open(options.leak, os.O_RDONLY | os.O_DIRECTORY) if options.leak else None
    if leaked is not None:
        os.set_inheritable(leaked, True)

    if options.bare:
        root = os.path.join(options.work, "bare")
        for name in ("proc", "dev", "tmp"):
            os.makedirs(os.path.join(root, name), exist_ok=True)
        mount(root, root, None, MS_BIND)
        mount("/proc", os.path.join(root, "proc"), None, MS_BIND | MS_REC)
        mount("/dev", os.path.join(root, "dev"), None, MS_BIND | MS_REC)
        mount(stage, os.path.join(root, "tmp"), None, MS_MOVE)
        os.chdir(options.work if options.outside_cwd else root)
        os.chroot(root)
        if not options.outside_cwd:
            os.chdir("/")
    else:
        os.chdir("/")
    if options.uid is not None:
        os.setgroups([])
        os.setresgid(options.uid, options.uid, options.uid)
        os.setresuid(options.uid, options.uid, options.uid)
    scratch = "/tmp" if options.bare else stage
    os.execve(f"{scratch}/payload", [options.payload.rsplit("/", 1)[-1]] + options.args, {"PAYLOAD_SCRATCH": scratch})


main()
