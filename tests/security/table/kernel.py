"""Settings and secrets of the host's kernel, its clock and its name."""

import os
import platform
import secrets
import subprocess

import policy
from model import Fail, held, payload_row, Row

AREA = "The host's kernel"


def missing(path):
    return lambda world: None if os.path.exists(path) else f"no control on this machine: it has no {path}"


def setting(name, path, *more, attack=None):
    protection = "read-only or masked /proc" if path.startswith("/proc") else "no sysfs"
    return payload_row(f"write_{name}", attack or f"write {path}", protection, "write_kernel_setting", [path, *more],
                       skip=missing(path))


def secret(name, path, *more):
    protection = "masked, or for the host's root only" if path.startswith("/proc") else "no sysfs"
    return payload_row(f"read_{name}", f"read {path}", protection, "read_kernel_file", [path, *more],
                       skip=missing(path))


def hostname_control(world):
    """In a UTS namespace that stands for the host: the payload renames it, a second process of it sees the name."""
    name = "control-" + secrets.token_hex(4)
    done = subprocess.run(
        ["unshare", "--uts", "sh", "-c", '"$0" "$1" >/dev/null; cat /proc/sys/kernel/hostname', world.payload("set_hostname"), name],
        capture_output=True)
    if done.stdout.decode().strip() != name:
        raise Fail("the control did not rename its machine")
    return "succeeded"


def hostname(world):
    before = platform.node()
    for user in ("user", "root"):
        verdict = world.inside("set_hostname", ["attacked-" + secrets.token_hex(4)], user)
        with open("/proc/sys/kernel/hostname") as file:
            if file.read().strip() != before:
                raise Fail(f"as {user}: the host is called {platform.node()} now")
        if verdict.word != "BLOCKED":
            raise Fail(f"as {user}: {verdict}")
    return held(hostname_control(world))


ROWS = [
    setting("core_pattern", "/proc/sys/kernel/core_pattern"),
    setting("modprobe", "/proc/sys/kernel/modprobe"),
    setting("panic", "/proc/sys/kernel/panic"),
    setting("sysrq", "/proc/sys/kernel/sysrq"),
    setting("overcommit", "/proc/sys/vm/overcommit_memory"),
    setting("drop_caches", "/proc/sys/vm/drop_caches", "open"),
    setting("randomize_va_space", "/proc/sys/kernel/randomize_va_space"),
    setting("ip_forward", "/proc/sys/net/ipv4/ip_forward"),
    setting("sysrq_trigger", "/proc/sysrq-trigger", "open"),
    setting("binfmt_misc", "/proc/sys/fs/binfmt_misc/register", "open", attack="register a binary format"),
    setting("uevent_helper", "/sys/kernel/uevent_helper"),
    setting("thp", "/sys/kernel/mm/transparent_hugepage/enabled", "open"),
    setting("power_state", "/sys/power/state", "open"),
    setting("irq", "/proc/irq/default_smp_affinity"),
    payload_row("sweep_proc_sys", "open every file of /proc/sys for writing", "/proc/sys is read-only",
                "sweep_writable_settings", ["/proc/sys", *policy.WRITABLE_PROC]),
    payload_row("sweep_sys", "open every file of /sys for writing", "no sysfs", "sweep_writable_settings", ["/sys"],
                skip=missing("/sys/kernel")),
    secret("kcore", "/proc/kcore"),
    secret("kallsyms", "/proc/kallsyms", "addresses"),
    secret("keys", "/proc/keys"),
    secret("iomem", "/proc/iomem", "addresses"),
    secret("vmallocinfo", "/proc/vmallocinfo"),
    secret("slabinfo", "/proc/slabinfo"),
    secret("timer_list", "/proc/timer_list"),
    secret("kpageflags", "/proc/kpageflags"),
    secret("kernel_cmdline", "/proc/cmdline"),
    secret("partitions", "/proc/partitions"),
    secret("interrupts", "/proc/interrupts"),
    secret("sys_vmcoreinfo", "/sys/kernel/vmcoreinfo"),
    secret("efi_or_acpi", "/sys/firmware/acpi/tables/FACP"),
    payload_row("read_kernel_log", "read the kernel's log", "seccomp refuses syslog; /proc/kmsg masked", "read_kernel_log"),
    payload_row("load_module", "load a kernel module", "seccomp refuses; no CAP_SYS_MODULE", "load_module"),
    payload_row("kexec", "load another kernel", "seccomp refuses; no CAP_SYS_BOOT", "kexec"),
    payload_row("reboot", "restart the machine", "seccomp refuses; no CAP_SYS_BOOT", "reboot"),
    payload_row("swapon", "turn on swap", "seccomp refuses; no CAP_SYS_ADMIN", "swapon"),
    payload_row("set_clock", "set the machine's clock", "seccomp refuses; no CAP_SYS_TIME over the host", "set_clock"),
    Row("set_hostname", "rename the host", "own UTS namespace; seccomp refuses", hostname,
        lambda world: held(hostname_control(world))),
    payload_row("process_accounting", "turn on process accounting", "seccomp refuses", "process_accounting"),
    payload_row("port_io", "direct access to I/O ports", "seccomp refuses; no CAP_SYS_RAWIO", "port_io"),
]
