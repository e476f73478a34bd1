"""Starts the Java runner: takes the agent's `start` line off the socket, enters the directory and becomes Java with that environment.

A Java process can change neither its directory nor its environment, so this is done before it exists.
"""

import json
import os
import signal
import socket
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OPTIONS = [
    "-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8", "-Dstderr.encoding=UTF-8", "-Djava.awt.headless=true",
    "--add-opens", "java.base/java.io=ALL-UNNAMED",
    # the generators of random numbers that a copy of the process must seed anew
    "--add-opens", "java.base/java.lang=ALL-UNNAMED", "--add-opens", "java.base/java.util=ALL-UNNAMED",
    "--add-opens", "java.base/java.util.concurrent=ALL-UNNAMED",
]


def first_line(peer):
    """The first line, and nothing of what follows it."""
    line = b""
    while not line.endswith(b"\n"):
        seen = peer.recv(1 << 16, socket.MSG_PEEK)
        if not seen:
            sys.exit(0)
        line += peer.recv(seen.find(b"\n") + 1 or len(seen))
    return line


def enter(directory, home):
    for candidate in (directory, home, "/"):
        try:
            os.chdir(candidate)
            return
        except (OSError, TypeError, ValueError):
            continue


def main():
    peer = socket.socket(fileno=3)
    peer.setblocking(True)
    start = json.loads(first_line(peer))
    env = {name: str(value) for name, value in (start.get("env") or {}).items()}
    enter(start.get("cwd"), env.get("HOME"))
    peer.detach()
    os.set_inheritable(3, True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Java does not listen for a signal that it finds ignored
    os.execvpe("java", ["java", *OPTIONS, os.path.join(HERE, "Main.java")], env)


main()
