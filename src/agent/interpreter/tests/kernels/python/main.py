"""A runner for tests of the agent: it speaks protocol.md, and misbehaves when asked. Code is one command per line."""
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time


class Interrupted(Exception):
    pass


class Runner:
    def __init__(self):
        self.link = socket.socket(fileno=3)
        self.link.set_inheritable(False)
        self.lines = self.link.makefile("rb")
        self.count = 0
        self.running = False
        self.deaf = False
        self.message = {}
        signal.signal(signal.SIGINT, self.on_interrupt)

    def on_interrupt(self, *_):
        if self.running and not self.deaf:
            raise Interrupted

    def say(self, **message):
        self.link.sendall(json.dumps(message).encode() + b"\n")

    def out(self, text, kind="stdout"):
        self.say(type=kind, text=text, timestamp="2026-01-01T00:00:00.000000+00:00")

    def serve(self):
        for line in self.lines:
            self.message = json.loads(line)
            op = self.message["op"]
            if op == "start":
                self.start = self.message
                self.say(type="ready")
            elif op == "forked":
                self.forked = self.message
            elif op == "warm":
                self.warm = True
                self.say(type="warmed")
            else:
                self.run(self.message["code"])

    def run(self, code):
        self.count += 1
        end = {"type": "done"}
        try:
            self.running = True
            self.say(type="started", execution_count=self.count)
            for command in code.splitlines():
                name, _, rest = command.partition(" ")
                if name == "exit":
                    end["restart"] = True
                else:
                    getattr(self, "do_" + name)(rest)
        except Interrupted:
            self.say(type="error", name="Interrupted", value="", traceback="")
        self.running = False
        self.say(**end)

    def do_print(self, text):
        self.out(text + "\n")

    def do_raw(self, text):
        self.link.sendall(text.encode() + b"\n")

    def do_fd(self, text):
        for byte in text.encode():
            os.write(1, bytes([byte]))
            time.sleep(0.01)

    def do_error(self, text):
        self.say(type="error", name=text, value="v", traceback="t")

    def do_slow_error(self, text):
        self.do_error(text)
        time.sleep(0.005)

    def do_sleep(self, text):
        time.sleep(float(text))

    def do_deaf(self, _):
        self.deaf = True

    def do_die(self, text):
        os._exit(int(text or 1))

    def do_segfault(self, _):
        ctypes.string_at(0)

    def do_hang_up(self, _):
        self.link.shutdown(socket.SHUT_RDWR)
        time.sleep(1000)

    def do_flood(self, text):
        """Writes that many mebibytes; keeps count in the file."""
        size, _, path = text.partition(" ")
        piece = "x" * 65536
        for i in range(int(size) * 16):
            self.out(piece)
            if path:
                with open(path, "w") as file:
                    file.write(str(i + 1))

    def do_results(self, text):
        for i in range(int(text)):
            self.say(type="result", text=str(i), extra={}, is_main_result=False)

    def do_long(self, text):
        self.link.sendall(b'{"type":"result","text":"')
        for _ in range(int(text)):
            self.link.sendall(b"x" * (1 << 20))
        self.link.sendall(b'","extra":{},"is_main_result":true}\n')

    def do_show(self, text):
        values = {
            "start": lambda: self.start,
            "message": lambda: self.message,
            "pid": os.getpid,
            "session": lambda: os.getsid(0) == os.getpid(),
            "descriptors": lambda: sorted(int(n) for n in os.listdir("/proc/self/fd"))[:-1],
            "warm": lambda: hasattr(self, "warm"),
            "forked": lambda: self.forked,
        }
        self.say(type="result", text="", json=values[text](), extra={}, is_main_result=True)

    def do_children(self, path):
        """One child in the session, one in a session of its own."""
        pids = [subprocess.Popen(["sleep", "1000"], start_new_session=own).pid for own in (False, True)]
        with open(path, "w") as file:
            file.write(" ".join(map(str, pids)))


if __name__ == "__main__":
    if os.environ.get("STAND_IN_FAILS"):
        sys.exit("cannot start: STAND_IN_FAILS is set")
    Runner().serve()
