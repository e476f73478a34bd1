"""Files of the host."""

from model import check_row, Fail, payload_row
from world import file_handle

AREA = "Files of the host"


def canary(world):
    return [world.canary, world.secret]


def handle(world):
    return [*file_handle(world.canary), world.secret]


def fragments(world):
    return [world.home, world.build, world.work, "/var/lib/atoll", "/sandboxes/", "/templates/"]


def through_the_api(world):
    """GET /files for the host's path, for a link to it and for /proc/1/root; a file of the sandbox as control."""
    sandbox = world.main
    sandbox.run(["/bin/ln", "-sfn", world.canary, "/tmp/link-to-host"])
    sandbox.run(["/bin/ln", "-sfn", "/../../../..", "/tmp/link-to-top"])
    for user in ("user", "root"):
        for path in (world.canary, "/tmp/link-to-host", "/tmp/link-to-top" + world.canary, "/proc/1/root" + world.canary,
                     "/proc/self/cwd/../../../../.." + world.canary, "../../../../../.." + world.canary,
                     "/run/atoll/../../../../.." + world.canary):
            status, body = sandbox.download(path, user)
            if world.secret.encode() in body:
                raise Fail(f"GET /files?path={path} as {user} gave the host's file")
            if status < 400:
                raise Fail(f"GET /files?path={path} as {user} answered {status}")
    sandbox.upload("/tmp/mine", world.secret.encode())
    status, body = sandbox.download("/tmp/mine")
    if status != 200 or world.secret.encode() not in body:
        raise Fail(f"the control, a file of the sandbox, answered {status}")
    return "a file inside is given"


ROWS = [
    payload_row("read_host_file", "read a file of the host by its path", "pivot_root into the sandbox's own tree",
                "read_host_file", canary),
    payload_row("read_dotdot", "climb out of the root with ..", "pivot_root; no descriptor or directory outside",
                "read_dotdot", canary, control=dict(bare=True, outside_cwd=True)),
    payload_row("read_by_symlink", "symbolic links to the host's files", "links resolve inside the sandbox's root",
                "read_by_symlink", canary),
    payload_row("read_by_hardlink", "hard links to the host's files", "the host's file system is not there",
                "read_by_hardlink", canary),
    payload_row("chroot_escape", "leave a chroot by an open directory", "the old root is unmounted, not hidden",
                "chroot_escape", canary, control=dict(bare=True)),
    payload_row("read_proc_root", "/proc/PID/root and /proc/PID/cwd of every process", "own PID and mount namespace",
                "read_proc_root", canary, control=dict(bare=True)),
    payload_row("open_by_handle", "open a host file by its file handle", "seccomp refuses open_by_handle_at; no CAP_DAC_READ_SEARCH",
                "open_by_handle", handle, control=dict(bare=True)),
    payload_row("host_path_leak", "host paths in mountinfo, environ, cmdline, maps, cgroup",
                "layers mounted by descriptor, cgroup namespace, agent on a mount of its own, masked /proc", "host_path_leak", fragments,
                control=dict(bare=True)),
    check_row("files_api_paths", "ask the agent's /files for host paths and links to them",
              "the agent serves from inside the sandbox", through_the_api),
]
