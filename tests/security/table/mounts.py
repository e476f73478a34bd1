"""Mounts, namespaces and cgroups."""

from model import payload_row

AREA = "Mounts, namespaces, cgroups"
REFUSED = "seccomp refuses; no CAP_SYS_ADMIN"


def own_mount(world):
    """What a control may remount: the tmpfs of its own mount namespace."""
    return [world.stage]


ROWS = [
    payload_row(f"mount_{kind}", f"mount a new {kind}", REFUSED, "mount_new", [kind])
    for kind in ("tmpfs", "proc", "sysfs", "devpts", "overlay", "cgroup2", "debugfs", "tracefs", "bpf", "mqueue")
] + [
    payload_row("mount_bind", "bind one directory over another", REFUSED, "mount_bind"),
    payload_row("remount_dev", "make the read-only /dev writable", REFUSED, "remount", ["/dev"], control_args=own_mount),
    payload_row("remount_proc_sys", "make the read-only /proc/sys writable", REFUSED, "remount", ["/proc/sys"],
                control_args=own_mount),
    payload_row("remount_agent", "make the agent's read-only mount writable", REFUSED, "remount", ["/run/atoll/atoll-agent"],
                control_args=own_mount),
    payload_row("remount_kernels", "make the runners' read-only mount writable", REFUSED, "remount", ["/run/atoll/kernels"],
                control_args=own_mount),
    payload_row("unmount_proc", "unmount /proc", REFUSED, "unmount", ["/proc"]),
    payload_row("unmount_mask", "take a mask off /proc", REFUSED, "unmask_by_bind", ["/proc/kcore"]),
    payload_row("fresh_proc", "mount a second, unmasked /proc", REFUSED, "fresh_proc"),
    payload_row("pivot_root", "exchange the root", REFUSED, "pivot_root"),
    payload_row("open_tree", "clone and attach mounts (open_tree, move_mount)", REFUSED, "open_tree"),
    payload_row("fsopen", "mount by fsopen and fsmount", REFUSED, "fsopen"),
    payload_row("new_user_namespace", "make a user namespace (clone, clone3, unshare)",
                "seccomp refuses the flags; clone3 does not exist", "new_user_namespace"),
] + [
    payload_row(f"new_namespace_{kind}", f"make a {kind} namespace", "seccomp refuses the flag", "new_namespace", [kind])
    for kind in ("mnt", "net", "pid", "uts", "ipc", "cgroup", "time")
] + [
    payload_row("cgroup_release_agent", "mount cgroups, write release_agent (CVE-2022-0492)", REFUSED, "cgroup_release_agent"),
    payload_row("cgroup_own_limits", "lift its own limits in the cgroup tree", "no cgroup file system inside",
                "cgroup_own_limits"),
]
