"""Devices."""

import os

import policy
from model import payload_row

AREA = "Devices"


def missing(path):
    return lambda world: None if os.path.exists(path) else f"no control on this machine: it has no {path}"


def node(path, *fallback):
    """The numbers of a node, or the usual ones where the host has none."""
    def of(world):
        if not os.path.exists(path):
            return ["c", *fallback]
        number = os.stat(path).st_rdev
        return ["c", os.major(number), os.minor(number)]
    return of


HARMLESS = ["mem", "kmsg", "kvm", "loop-control", "fuse", "net/tun", "vsock", "userfaultfd", "port", "hpet", "vga_arbiter",
            "btrfs-control", "cpu_dma_latency"]
NO_NODE = "no CAP_MKNOD; nodev mounts; device cgroup (version 1)"

ROWS = [
    payload_row("open_disk", "open a block device of the host", "own /dev without it", "open_device",
                lambda world: [world.disk().path, world.secret]),
    payload_row("make_disk", "make a node of a block device and open it", NO_NODE, "make_device",
                lambda world: ["b", world.disk().major, world.disk().minor, world.secret]),
    payload_row("mount_disk", "mount a block device of the host", "seccomp refuses; no CAP_SYS_ADMIN; no such device",
                "mount_block_device",
                lambda world: [world.disk().path, world.disk().major, world.disk().minor, "ext4", "secret.txt", world.secret]),
    payload_row("make_kmsg", "make a node of the kernel's log and open it", NO_NODE, "make_device", ["c", "1", "11"]),
    payload_row("make_mem", "make a node of the machine's memory and open it", NO_NODE, "make_device", ["c", "1", "1"],
                skip=missing("/dev/mem")),
    payload_row("make_kvm", "make a node of /dev/kvm and open it", NO_NODE, "make_device", node("/dev/kvm", 10, 232),
                skip=missing("/dev/kvm")),
] + [
    payload_row("open_" + name.replace("-", "_").replace("/", "_"), f"open /dev/{name}", "own /dev without it",
                "open_device", [f"/dev/{name}"], skip=missing(f"/dev/{name}"))
    for name in HARMLESS
] + [
    payload_row("undocumented_device", "find a device that is not documented",
                f"own /dev with {len(policy.DEVICES) - 1} nodes and own terminals", "undocumented_device", policy.DEVICES,
                control=dict(bare=True)),
    payload_row("replace_device_node", "replace, move, re-mode or add nodes in the shared /dev", "/dev is read-only",
                "replace_device_node", ["/dev"], control=dict(dev="dev"),
                control_args=lambda world: [world.stage + "/dev"]),
]
