"""A nursery for tests of the agent: nursery.py NAME MAIN.py [MODE]. Forks kernels that run MAIN.py."""
import array
import os
import runpy
import socket
import sys

name, main = sys.argv[1:3]
mode = sys.argv[3] if len(sys.argv) > 3 else ""
agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
agent.connect("\0" + name)
while True:
    text, control, _, _ = agent.recvmsg(64, socket.CMSG_SPACE(4))
    if not text:
        sys.exit()
    link = array.array("i", control[0][2][:4])[0]
    if mode == "lies":
        agent.send(b"pid %d" % os.getppid())
        os.close(link)
        continue
    if mode == "refuses":
        agent.send(b"failed no memory")
        os.close(link)
        continue
    reading, writing = os.pipe()
    if os.fork() == 0:
        child = os.fork()
        if child:
            os.write(writing, b"%d" % child)
            os._exit(0)
        os.setsid()
        if link != 3:
            os.dup2(link, 3)
        os.closerange(4, 64)
        os.environ.clear()
        os.environ["FORKED"] = "1"
        runpy.run_path(main, run_name="__main__")
        os._exit(0)
    os.wait()
    os.close(link)
    os.close(writing)
    agent.send(b"pid " + os.read(reading, 32))
    os.close(reading)
