"""The Bash runner: one live interactive shell on a terminal of its own.

Speaks the protocol of kernels/protocol.md over descriptor 3. The shell's standard input is a pipe, over which this
program sends one line per cell: `begin`, an eval of the code with /dev/null as input, `end`. `begin` and `end` are
functions that write marks into the terminal itself, so they are in order with the output and redirections of the
user do not move them. What lies between the two marks of a run is its output; everything else (prompts, notices of
jobs, output of background jobs between runs) is dropped. A second `end` on a line of its own follows each cell: after
Ctrl-C an interactive shell gives up the line it was at and reads the next one.
"""

import fcntl
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import termios
import time

CONTROL = 3
CHUNK = 64 * 1024
# A signal to the foreground of a terminal, sent by its other end.
TIOCSIG = 0x40045436
# How long output that is on its way through the terminal may take when the shell has gone, in ms.
LINGER = 100
# A carriage return may be the first half of a line end: how long the second half may take, in ms.
HALF = 50
# After an interrupt, how long until the shell is asked once more whether it is done, in seconds.
RETRY = 1.0
# How long a job has to die of Ctrl-C, in seconds.
LOST = 0.2
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# What a shell must not be told by a variable: it has its own or reads them only.
OWN = {"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID", "_", "HISTFILE", "PROMPT_COMMAND", "PS1", "PS2", "TMOUT"}
# What an interactive shell says on its way out.
FAREWELL = b"exit\n"

PREPARE = r"""
PS1= PS2= PROMPT_COMMAND=; unset HISTFILE TMOUT MAILCHECK; set +o history +o histexpand; shopt -u checkwinsize
__atoll_mark() { builtin printf '\002%s;%s;%s\003' "$@" >/dev/tty; }
__atoll_begin() { __atoll_trace=; case $- in *x*) set +x; __atoll_trace='set -x; ';; esac; __atoll_mark NONCE "$1" begin; case $- in *e*) ;; *) return "$2";; esac; }
__atoll_end() { builtin set -- "$1" "$?"; __atoll_mark NONCE "$1" "$2"; case $- in *e*) ;; *) return "$2";; esac; }
"""


def encoded(text):
    return text.replace("\0", "").encode(errors="replace")


def quoted(text):
    return "'" + text.replace("\0", "").replace("'", "'\\''") + "'"


def timestamp():
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}+00:00"


def backslash_at_end(code):
    code = code.rstrip("\r\n")
    return (len(code) - len(code.rstrip("\\"))) % 2 == 1


class Lines:
    """Output of a run, cut into messages: a line, a part that ends with a carriage return, or 64 Ki of neither."""

    ENDS = re.compile(rb"\r?\n|\r(?=[^\n])")

    def __init__(self, emit):
        self.emit = emit
        self.rest = b""

    def add(self, data):
        # Nothing ends within the rest; its last byte may be half of an end.
        known = max(len(self.rest) - 1, 0)
        data = self.rest + data
        at, out = 0, []
        for found in self.ENDS.finditer(data, known):
            end = b"\n" if found[0] == b"\r\n" else found[0]
            out += self.cut(data[at:found.start()] + end)
            at = found.end()
        self.rest = data[at:]
        if out and out[-1] == FAREWELL and not self.rest:
            self.rest = out.pop()
        if len(self.rest) > CHUNK:
            *whole, self.rest = self.cut(self.rest)
            out += whole
        self.emit(out)

    @staticmethod
    def cut(line):
        pieces = []
        while len(line) > CHUNK:
            at = CHUNK
            while at > CHUNK - 4 and line[at] & 0xC0 == 0x80:  # not inside of a character
                at -= 1
            pieces.append(line[:at])
            line = line[at:]
        return [*pieces, line]

    def half(self):
        """Is the last thing a carriage return of which nobody knows yet what follows?"""
        return self.rest.endswith(b"\r")

    def flush_half(self):
        rest, self.rest = self.rest, b""
        self.emit([rest])

    def finish(self, drop=b""):
        rest, self.rest = self.rest, b""
        if rest and rest != drop:
            self.emit([rest if rest.endswith((b"\r", b"\n")) else rest + b"\n"])


class Shell:
    def __init__(self, env):
        self.nonce = str(int.from_bytes(os.urandom(12), "big"))
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.modes = termios.tcgetattr(self.slave)
        self.modes[1] &= ~termios.ONLCR
        self.modes[3] &= ~(termios.ECHO | termios.ECHONL)
        termios.tcsetattr(self.slave, termios.TCSANOW, self.modes)
        reader, self.pipe = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self.become(reader, env)
        os.close(reader)
        os.set_blocking(self.pipe, False)
        os.set_blocking(self.master, False)
        self.pidfd = os.pidfd_open(self.pid)
        self.to_send = b""
        self.send(PREPARE.replace("NONCE", self.nonce))

    def become(self, reader, env):
        try:
            os.setsid()
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            os.dup2(reader, 0)
            os.dup2(self.slave, 1)
            os.dup2(self.slave, 2)
            for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.execve("/bin/bash", ["bash", "--noprofile", "--norc", "--noediting", "-i"],
                      {encoded(name): encoded(value) for name, value in env.items()})
        except BaseException as error:
            os.write(2, f"bash did not start: {error}\n".encode(errors="replace"))
        finally:
            os._exit(127)

    def send(self, text):
        self.to_send += text.encode(errors="replace")
        self.flush()

    def flush(self):
        """Writes what the pipe takes."""
        while self.to_send:
            try:
                count = os.write(self.pipe, self.to_send[:CHUNK])
            except BlockingIOError:
                return
            except BrokenPipeError:
                self.to_send = b""
                return
            self.to_send = self.to_send[count:]

    def interrupt(self):
        """Ctrl-C, whatever the modes of the terminal and whoever runs in its foreground."""
        try:
            fcntl.ioctl(self.master, TIOCSIG, signal.SIGINT)
        except OSError:
            pass

    def interrupt_again(self):
        """For a job in front that dies of Ctrl-C but lives: it came when that job was being started, not yet itself."""
        try:
            job = os.tcgetpgrp(self.master)
            if job == self.pid:
                return
            with open(f"/proc/{job}/status", "rb") as file:
                masks = re.findall(rb"^Sig(?:Blk|Ign|Cgt):\s*([0-9a-f]+)", file.read(), re.MULTILINE)
            if not any(int(mask, 16) >> (signal.SIGINT - 1) & 1 for mask in masks):
                os.killpg(job, signal.SIGINT)  # not by the terminal: that may be the shell's again
        except OSError:
            pass

    def read(self):
        try:
            return os.read(self.master, CHUNK)
        except BlockingIOError:
            return b""

    def reap(self):
        status = os.waitpid(self.pid, 0)[1]
        return os.waitstatus_to_exitcode(status)


class Runner:
    def __init__(self):
        self.socket = socket.socket(fileno=CONTROL)
        os.set_inheritable(CONTROL, False)
        self.shell = None
        self.gone = False  # the shell has ended, this process waits to be replaced
        self.base = {}
        self.changed = set()  # variables of the last run, to be given back
        self.count = 0
        self.status = 0
        # Of a run:
        self.running = self.begun = False
        self.interrupted = None  # when it was asked for
        self.sent = 0.0
        self.lines = None
        self.seen = b""  # read from the terminal, not yet looked at
        # A signal ends the wait of the loop, which then waits with a limit.
        self.woken, waker = os.pipe()
        for end in (self.woken, waker):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, self.on_interrupt)

    # --- protocol

    def tell(self, *messages):
        self.socket.sendall("".join(json.dumps(message) + "\n" for message in messages).encode("ascii"))

    def emit(self, pieces):
        if pieces:
            now = timestamp()
            self.tell(*({"type": "stdout", "text": piece.decode(errors="replace"), "timestamp": now} for piece in pieces))

    def start(self, request):
        self.base = {**request.get("env", {}), "TERM": "xterm", "PAGER": "cat"}
        for name in OWN | {"PWD", "OLDPWD"}:
            self.base.pop(name, None)
        os.environ.clear()
        for place in (request.get("cwd"), self.base.get("HOME"), "/"):
            try:
                os.chdir(place or "/")
                break
            except OSError:
                continue
        self.shell = Shell(self.base)
        self.tell({"type": "ready"})

    def forked(self, request):
        """This process is a copy of another one now. What the shell says to this belongs to no run."""
        env = {name: value for name, value in (request.get("env") or {}).items() if NAME.match(name) and name not in OWN}
        self.base.update(env)
        if self.shell and not self.gone:
            words = [f"builtin export {name}={quoted(value)}" for name, value in env.items()]
            self.shell.send("".join(f"{{ {word}; }} 2>/dev/null; " for word in [f"RANDOM={int(request['seed'][:8], 16)}", *words]) + "\n")

    def execute(self, request):
        self.count += 1
        code = request["code"]
        if backslash_at_end(code):
            self.tell({"type": "started", "execution_count": self.count},
                      {"type": "error", "name": "", "value": "Cell has trailing backslash", "traceback": ""}, {"type": "done"})
            return
        env = {name: value for name, value in (request.get("env") or {}).items() if NAME.match(name) and name not in OWN}
        termios.tcsetattr(self.shell.slave, termios.TCSANOW, self.shell.modes)
        self.running, self.begun, self.interrupted, self.lines = True, False, None, Lines(self.emit)
        self.tell({"type": "started", "execution_count": self.count})
        self.shell.send(f"{self.variables(env)}{{ __atoll_begin {self.count} {self.status}; }} 2>/dev/null; "
                        f"builtin eval \"$__atoll_trace\"{quoted(code)} </dev/null; {{ __atoll_end {self.count}; }} 2>/dev/null\n"
                        f"{self.end_line()}")

    def end_line(self):
        # Nothing in it that half a line could leave open.
        return f"__atoll_end {self.count} 2>/dev/null\n"

    def variables(self, env):
        """Shell text that gives back what the last run was lent and lends `env` to this one."""
        back = {name: self.base.get(name) for name in self.changed}
        self.changed = set(env)
        words = [f"builtin unset -v {name}" if value is None else f"builtin export {name}={quoted(value)}"
                 for name, value in {**back, **env}.items()]
        return "".join(f"{{ {word}; }} 2>/dev/null; " for word in words)

    def on_interrupt(self, *_):
        if self.running:
            self.interrupted = time.monotonic()
            self.pass_interrupt()

    def pass_interrupt(self):
        """Not before the shell has read the whole cell: it would take the rest for another one."""
        if self.begun:
            self.shell.interrupt()
            self.sent = time.monotonic()

    # --- output

    def look(self, data):
        """Output of the terminal: what belongs to the run goes to the client, marks move the run on."""
        self.seen += data
        while self.seen:
            at = self.seen.find(b"\2")
            text, self.seen = (self.seen, b"") if at < 0 else (self.seen[:at], self.seen[at:])
            if self.begun and text:
                self.lines.add(text)
            if at < 0:
                return
            mark, expected = self.seen[:128].partition(b"\3"), b"\2" + self.shell.nonce.encode() + b";"
            if not mark[1] and len(mark[0]) < 128 and expected.startswith(mark[0][:len(expected)]):
                return  # the rest is on its way
            if not mark[1] or not mark[0].startswith(expected):
                if self.begun:
                    self.lines.add(b"\2")
                self.seen = self.seen[1:]
                continue
            self.seen = self.seen[len(mark[0]) + 1:]
            _, number, what = mark[0].decode("ascii", "replace").split(";")
            if self.running and number == str(self.count):
                self.on_mark(what)

    def on_mark(self, what):
        if what == "begin":
            self.begun = True
            if self.interrupted is not None:
                self.pass_interrupt()
        elif self.begun:
            self.status = int(what)
            self.end({"type": "done"})

    def end(self, done, drop=b""):
        self.lines.finish(drop)
        self.running = self.begun = False
        failed = [{"type": "error", "name": "", "value": str(self.status), "traceback": ""}] if self.status else []
        self.tell(*failed, done)

    def shell_ended(self):
        if not self.running:
            sys.exit(0)  # the agent makes a new one
        poll = select.poll()
        poll.register(self.shell.master, select.POLLIN)
        while poll.poll(LINGER) and (data := self.shell.read()):
            self.look(data)
        code = self.shell.reap()
        self.status = code if code >= 0 else 128 - code
        self.gone = True
        if self.running:
            self.end({"type": "done", "restart": True}, drop=FAREWELL)

    # --- loop

    def serve(self, requests):
        """Does what the lines in `requests` ask until a run is under way; returns what is left."""
        while b"\n" in requests and not self.running:
            line, _, requests = requests.partition(b"\n")
            request = json.loads(line)
            if request["op"] == "start":
                self.start(request)
            elif request["op"] == "forked":
                self.forked(request)
            elif request["op"] == "execute" and not self.gone:
                self.execute(request)
        return requests

    def run(self):
        requests = b""
        while True:
            requests = self.serve(requests)
            poll = select.poll()
            poll.register(self.woken, select.POLLIN)
            poll.register(CONTROL, 0 if self.running else select.POLLIN)  # during a run POLLHUP alone
            if self.shell and not self.gone:
                poll.register(self.shell.master, select.POLLIN)
                poll.register(self.shell.pidfd, select.POLLIN)
                if self.shell.to_send:
                    poll.register(self.shell.pipe, select.POLLOUT)
            half = self.running and self.lines.half()
            ready = dict(poll.poll(HALF if half else 200 if self.running and self.interrupted else None))
            if self.woken in ready:
                os.read(self.woken, 4096)
            if half and self.shell.master not in ready:
                self.lines.flush_half()
            if CONTROL in ready:
                data = self.socket.recv(1 << 20) if ready[CONTROL] & select.POLLIN else b""
                if not data:
                    return
                requests += data
            if not self.shell or self.gone:
                continue
            if self.shell.pipe in ready:
                self.shell.flush()
            if self.shell.master in ready:
                self.look(self.shell.read())
            elif self.shell.pidfd in ready:
                self.shell_ended()
            if self.begun and self.interrupted and time.monotonic() - self.sent > LOST:
                self.shell.interrupt_again()
                self.sent = time.monotonic()
            if self.begun and self.interrupted and time.monotonic() - self.interrupted > RETRY:
                # Two interrupts in a row may have cost the second `end` its line.
                self.interrupted = time.monotonic()
                self.shell.send(self.end_line())


if __name__ == "__main__":
    try:
        Runner().run()
    except (BrokenPipeError, ConnectionResetError):
        pass
