"""What SECURITY.md promises, as values. A sandbox that has more than this fails the suite."""

# Capabilities of the sandbox's root, valid in its own user namespace only.
CAPABILITIES = ["chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "net_bind_service",
                "net_raw", "sys_chroot", "setfcap"]

# Device nodes below /dev; a name that ends in / stands for what is below it.
DEVICES = ["full", "null", "random", "tty", "urandom", "zero", "pts/"]

# Files of /proc that may be opened for writing: each is private to the sandbox's namespaces or to the process.
WRITABLE_PROC = []

IDS_PER_SANDBOX = 65536

_BITS = ["chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap",
         "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner",
         "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice",
         "sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap",
         "mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf",
         "checkpoint_restore"]


def mask(names):
    return sum(1 << _BITS.index(name) for name in names)


def names(bits):
    return [name for number, name in enumerate(_BITS) if bits >> number & 1]


CAPABILITY_MASK = mask(CAPABILITIES)
