"""A person at a terminal: terminal.py COMMAND... runs it on a pseudo-terminal, waits for a prompt, types, and reads.

Types `echo $((6*7))-typed`, wants to see 42-typed, asks for the size, types `exit`, and ends as the command does. What the terminal
showed goes to stdout.
"""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time

LIMIT = 30.0


def main():
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execvp(sys.argv[1], sys.argv[1:])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    shown = b""
    end = time.monotonic() + LIMIT

    def wait_for(text):
        nonlocal shown
        begin = len(shown)
        while text not in shown[begin:]:
            ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
            if not ready:
                sys.stdout.buffer.write(shown)
                sys.exit(f"\n'{text.decode()}' did not appear within {LIMIT:.0f} s")
            try:
                data = os.read(terminal, 65536)
            except OSError:
                data = b""
            if not data:
                sys.stdout.buffer.write(shown)
                sys.exit(f"\nended before '{text.decode()}' appeared")
            shown += data

    wait_for(b"$ ")
    os.write(terminal, b"echo $((6*7))-typed\n")
    wait_for(b"42-typed")
    os.write(terminal, b"echo size $(stty size)\n")
    wait_for(b"size 33 111")
    os.write(terminal, b"exit\n")
    try:
        while data := os.read(terminal, 65536):
            shown += data
    except OSError:
        pass
    _, status = os.waitpid(pid, 0)
    sys.stdout.buffer.write(shown)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
