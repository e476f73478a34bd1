"""In a sandbox, as root: what the agent does with a nursery. asker.py READY KERNELS LINE...: prints what each kernel answers to each line."""

import json
import os
import socket
import struct
import sys

ready, kernels, expressions = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("\0atoll-nursery")
listener.listen(1)
listener.settimeout(60)
open(ready, "w").close()
nursery, _ = listener.accept()
print("peer", *struct.unpack("3i", nursery.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1:], flush=True)
for junk in (b"nonsense", b"fork", b"x" * 1000):  # the last two: without a descriptor, too long
    nursery.send(junk)
    if not (answer := nursery.recv(100)).startswith(b"failed "):
        sys.exit(f"{junk[:20]}: {answer}")
for _ in range(kernels):
    ours, theirs = socket.socketpair()
    socket.send_fds(nursery, [b"fork"], [theirs.fileno()])
    theirs.close()
    answer = nursery.recv(100).decode()
    if not answer.startswith("pid "):
        sys.exit(answer)
    stream = ours.makefile("rw")
    for expression in expressions:
        if expression.startswith("{"):  # a line of kernels/protocol.md: the answer ends with one of these
            print(expression, file=stream, flush=True)
            for line in stream:
                print(line.strip(), flush=True)
                if json.loads(line)["type"] in ("ready", "warmed", "done"):
                    break
            continue
        print(json.dumps(expression.replace("KERNEL", answer[4:])), file=stream, flush=True)
        print(stream.readline().strip(), flush=True)
    stream.close()
    ours.close()
nursery.close()
