"""A file system of the test's own for a home: an ext4 image on a loop device, in this mount namespace alone."""

import array
import ctypes
import fcntl
import os
import subprocess
from pathlib import Path

# include/uapi: EXT4_IOC_SHUTDOWN and its flag "neither flush data nor the journal"
SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
MNT_DETACH = 2
libc = ctypes.CDLL(None, use_errno=True)


def tool(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {(done.stderr + done.stdout).strip()}")


def detach(path):
    if libc.umount2(str(path).encode(), MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), f"umount {path}: {os.strerror(ctypes.get_errno())}")


class Disk:
    def __init__(self, directory, mib):
        self.image, self.place, self.mib = Path(directory) / "image", Path(directory) / "home", mib

    def make(self):
        self.place.mkdir(parents=True, exist_ok=True)
        self.image.unlink(missing_ok=True)
        with open(self.image, "wb") as image:
            image.truncate(self.mib << 20)
        tool("mkfs.ext4", "-q", "-F", "-m", "0", self.image)
        self.mount()

    def mount(self):
        tool("mount", "-o", "loop", self.image, self.place)

    def lose_power(self):
        """From now on nothing reaches the image: what is not in it yet is lost, as it would be with the machine."""
        directory = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(directory, SHUTDOWN, array.array("I", [NO_LOG_FLUSH]))
        finally:
            os.close(directory)

    def unmount(self):
        tool("umount", self.place)

    def remove(self):
        if os.path.ismount(self.place):
            detach(self.place)
        self.image.unlink(missing_ok=True)

    # ---- space ----

    @property
    def filler(self):
        return self.place / "filler"

    def free(self):
        now = os.statvfs(self.place)
        return now.f_bavail * now.f_frsize

    def fill(self, leave):
        """Takes all space but `leave` bytes."""
        with open(self.filler, "ab") as file:
            length = os.fstat(file.fileno()).st_size
            while (more := self.free() - leave) > 0:
                step = min(more, 64 << 20)
                try:
                    os.posix_fallocate(file.fileno(), length, step)
                except OSError:
                    return
                length += step

    def empty(self):
        self.filler.unlink(missing_ok=True)
