"""A zygote whose kernels evaluate one expression per line: what the library does, without a runner. For tests of the jail."""

import ctypes
import os
import sys

lib = ctypes.PyDLL("/run/atoll/kernels/zygote/libatoll-zygote.so")
if lib.atoll_zygote_open(3, 4) < 0:
    sys.exit(1)
lib.atoll_arenas_install()

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import gc
import json
import random
import secrets
import socket
import ssl
import uuid

import numpy

random.random(), numpy.random.random(), uuid.uuid4(), secrets.token_hex(), ssl.RAND_bytes(8)
marker = "secret-of-the-zygote" if os.path.exists("/tmp") else ""
gc.collect()
gc.freeze()
lib.atoll_memory_settle()
if lib.atoll_zygote_ready(3) < 0:
    sys.exit(1)
while (result := lib.atoll_zygote_serve_once(3)) == 0:
    pass
if result < 0:
    os._exit(1)
while (result := lib.atoll_nursery_fork(3)) == 0:
    pass
if result < 0:
    os._exit(0)
numpy.random.seed()
channel = socket.socket(fileno=3).makefile("rw")
for line in channel:
    try:
        answer = eval(json.loads(line))
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer, default=str), file=channel, flush=True)
