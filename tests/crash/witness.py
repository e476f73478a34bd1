#!/usr/bin/python3
"""Runs inside a sandbox: memory, a file and a shared mapping that follow from one number, which only grows.

Step n writes what follows from n into a slot of each, without rest; so at any moment each of them can be compared with what it has to be. A large
block of random bytes never changes: its hash is told at the start. GET / answers with the number and what was found; everything is looked at with the
writer standing still. A pipe to a child and a TCP connection to itself must carry the number too.
"""

import hashlib
import http.server
import json
import mmap
import os
import socket
import subprocess
import sys
import threading
import time

PORT = 8000
SLOTS, BLOCK, RECORD = 256, 32768, 64
FILE = "/home/user/witness.ring"


def block(n):
    return hashlib.shake_128(b"block %d" % n).digest(BLOCK)


def record(n):
    return b"%-10d%s" % (n, hashlib.sha256(b"record %d" % n).hexdigest().encode()[:RECORD - 10])


class Witness:
    def __init__(self, still_mib):
        self.lock = threading.Lock()
        self.still = os.urandom(still_mib << 20)
        self.memory = bytearray(SLOTS * BLOCK)
        self.file = os.open(FILE, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        with open("/dev/shm/witness", "wb+") as shared:
            shared.truncate(SLOTS * RECORD)
            self.shared = mmap.mmap(shared.fileno(), SLOTS * RECORD)
        self.child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.near = socket.create_connection(listener.getsockname())
            self.far, _ = listener.accept()
        self.n = 0
        self.writing = ""
        threading.Thread(target=self.write, daemon=True).start()

    def write(self):
        try:
            while True:
                with self.lock:
                    n = self.n + 1
                    slot = n % SLOTS
                    self.memory[slot * BLOCK:(slot + 1) * BLOCK] = block(n)
                    os.pwrite(self.file, record(n), slot * RECORD)
                    self.shared[slot * RECORD:(slot + 1) * RECORD] = record(n)
                    if n % 64 == 0:
                        os.fsync(self.file)
                    self.n = n
                time.sleep(0.001)
        except OSError as failure:
            self.writing = str(failure)

    def check(self):
        with self.lock:
            n = self.n
            wrong = []
            content = os.pread(self.file, SLOTS * RECORD, 0)
            for k in range(max(1, n - SLOTS + 1), n + 1):
                slot = k % SLOTS
                place = slice(slot * RECORD, (slot + 1) * RECORD)
                wrong += [f"{what} of step {k}" for what, good in (
                    ("memory", self.memory[slot * BLOCK:(slot + 1) * BLOCK] == block(k)),
                    ("file", content[place] == record(k)),
                    ("shared mapping", self.shared[place] == record(k))) if not good]
            word = b"%d\n" % n
            self.child.stdin.write(word)
            self.child.stdin.flush()
            if self.child.stdout.readline() != word:
                wrong.append("the child's echo")
            self.near.sendall(word)
            if self.far.recv(100) != word:
                wrong.append("the connection")
            still = hashlib.sha256(self.still).hexdigest()
        if self.writing:
            wrong.append(f"writing: {self.writing}")
        with open("/proc/sys/kernel/random/boot_id") as boot:
            return {"n": n, "pid": os.getpid(), "still": still, "boot": boot.read().strip(), "wrong": wrong[:5]}


def main():
    witness = Witness(int(sys.argv[1]))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(witness.check()).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()


if __name__ == "__main__":
    main()
