"""`!command`: a shell on a terminal of its own, so that programs behave as if a person looked on."""

import fcntl
import os
import select
import signal
import subprocess
import struct
import sys
import termios
from codecs import getincrementaldecoder

# The shell leads a new session; opening the terminal again makes it the session's controlling terminal.
_LAUNCH = 'exec <>"$1" >&0 2>&0; exec "$0" -c "$2"'


def run(command):
    """Runs `command`, prints what it prints, answers its exit code (negative: the signal that ended it)."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    if not os.access(shell, os.X_OK):
        shell = "/bin/sh"
    master, slave = os.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        child = subprocess.Popen(
            ["/bin/sh", "-c", _LAUNCH, shell, os.ttyname(slave), command],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={"PAGER": "cat", "GIT_PAGER": "cat", **os.environ},  # nobody is there to press a key
        )
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    try:
        _relay(master, child)
    finally:
        os.close(master)
    code = child.wait()
    return -(code - 128) if code > 128 else code


def system(command):
    """os.system() that an interrupt ends: that of the C library ignores SIGINT while it waits."""
    code = subprocess.call(["/bin/sh", "-c", command])
    return code << 8 if code >= 0 else -code


def _relay(master, child):
    decode = getincrementaldecoder("utf-8")("replace").decode
    poll = select.poll()
    poll.register(master, select.POLLIN)
    try:
        _copy(master, poll, decode, None)
    except KeyboardInterrupt:
        # As a person would: Ctrl-C, then, after a moment, the hard way.
        os.write(master, b"\x03")
        try:
            _copy(master, poll, decode, 2000)
        finally:
            if child.poll() is None:
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except OSError:
                    child.kill()
                child.wait()


def _copy(master, poll, decode, patience):
    while poll.poll(patience):
        try:
            data = os.read(master, 65536)
        except OSError:  # EIO: the last process has closed the terminal
            data = b""
        text = decode(data, not data)
        if text:
            sys.stdout.write(text)
        if not data:
            return
