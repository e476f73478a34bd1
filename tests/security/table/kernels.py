"""Kernels that were forked from a zygote: what they have from outside, and what they can do with it."""

import contextlib
import ctypes
import hashlib
import json
import os
import subprocess
import sys
import time

from client import ApiError
from model import check_row, Fail, Skip
from world import all_pids, read_text, status_of

AREA = "Forked kernels of the code interpreter"
TEMPLATE = "code-interpreter-slim"
PORT = "49999"
READY_WAIT = 90  # seconds for the template's zygotes to start


def cell(sandbox, code, context=None):
    """Runs a cell that prints one JSON value; the value."""
    body = json.dumps({"code": code, **({"context_id": context} if context else {})})
    headers = sandbox.headers(**{"E2b-Sandbox-Port": PORT, "Content-Type": "application/json"})
    status, text = sandbox.api.request("POST", "/execute", body, headers)
    if status != 200:
        raise ApiError(status, text)
    out = ""
    for line in text.decode().splitlines():
        event = json.loads(line)
        if event["type"] == "stdout":
            out += event["text"]
        elif event["type"] == "error":
            raise Fail(f"a cell failed: {event['name']}: {event['value']}")
    return json.loads(out)


def another_context(sandbox):
    headers = sandbox.headers(**{"E2b-Sandbox-Port": PORT, "Content-Type": "application/json"})
    status, text = sandbox.api.request("POST", "/contexts", json.dumps({"language": "python"}), headers)
    if status not in (200, 201):
        raise ApiError(status, text)
    return json.loads(text)["id"]


def is_forked(sandbox, context=None):
    return "zygote.py" in cell(sandbox, "print(__import__('json').dumps(open('/proc/self/cmdline').read()))", context)


@contextlib.contextmanager
def forked(world, count=1):
    """Sandboxes whose default kernel came from a zygote."""
    made = []
    deadline = time.monotonic() + READY_WAIT
    try:
        while len(made) < count:
            try:
                sandbox = world.new_sandbox(template=TEMPLATE)
            except ApiError as error:
                if error.status in (400, 404):
                    raise Skip(f"no template {TEMPLATE}")
                raise
            if is_forked(sandbox):
                made.append(sandbox)
                continue
            world.drop_sandbox(sandbox)
            if time.monotonic() > deadline:
                raise Fail("no kernel came from a zygote")
            time.sleep(0.5)
        yield made
    finally:
        for sandbox in made:
            world.drop_sandbox(sandbox)


def zygotes(world):
    """Host pids of the server's zygotes: children of the warden."""
    warden = world.warden_pid()
    found = []
    for pid in all_pids():
        with contextlib.suppress(OSError):
            if int(status_of(pid)["PPid"]) == warden and "zygote.py" in read_text(f"/proc/{pid}/cmdline"):
                found.append(pid)
    if not found:
        raise Fail("the warden has no zygote")
    return found


def kernel_pids(world, sandbox):
    """Host pids of nursery and kernels."""
    found = []
    for pid in world.pids_of(sandbox):
        with contextlib.suppress(OSError):
            if "zygote.py" in read_text(f"/proc/{pid}/cmdline"):
                found.append(pid)
    if not found:
        raise Fail("no process of the sandbox came from a zygote")
    return found


SOURCES = ("import json, random, secrets, ssl, uuid, numpy, os, tempfile\n"
           "print(json.dumps([random.random(), float(numpy.random.random()), str(uuid.uuid4()), secrets.token_hex(16), "
           "ssl.RAND_bytes(16).hex(), float(numpy.random.default_rng().random()), os.urandom(16).hex(), tempfile.mktemp()]))")


def randomness(world):
    with forked(world, 2) as sandboxes:
        drawn = []
        for sandbox in sandboxes:
            drawn.append(cell(sandbox, SOURCES))
            context = another_context(sandbox)
            if not is_forked(sandbox, context):
                raise Fail("the second context's kernel was not forked")
            drawn.append(cell(sandbox, SOURCES, context))
    for values in zip(*drawn):
        if len(set(values)) != len(values):
            raise Fail(f"siblings drew the same: {values}")
    # Forked without what Python and the runner do after a fork, siblings agree.
    code = ("import ctypes, os, random\nrandom.seed(1)\nfor _ in 'ab':\n"
            "  if ctypes.CDLL(None).fork() == 0:\n    print(random.random(), flush=True)\n    os._exit(0)\n  os.wait()\n")
    same = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    if len(same) != 2 or same[0] != same[1]:
        raise Fail(f"the control did not agree: {same}")
    return "succeeded"


def environment(world):
    allowed = {"LANG", "PATH"}
    with forked(world) as (sandbox,):
        names = cell(sandbox, "import json\nprint(json.dumps([e.split('=')[0] for e in open('/proc/self/environ').read().split('\\0') if e]))")
        own = cell(sandbox, "import json, os\nprint(json.dumps(dict(os.environ)))")
        for pid in kernel_pids(world, sandbox):
            if world.secret in read_text(f"/proc/{pid}/environ"):
                raise Fail("the server's environment is in a kernel")
    if set(names) - allowed:
        raise Fail(f"a kernel's first environment has {sorted(set(names) - allowed)}")
    if world.secret in json.dumps(own):
        raise Fail("os.environ has the server's canary")
    if world.secret not in read_text(f"/proc/{world.server.pid}/environ"):
        raise Fail("the canary is not in the server's environment, so this shows nothing")
    return "succeeded"


def open_files(pid):
    """{target} of what a process has open, device nodes left out."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if not target.startswith(("/dev/null", "anon_inode:")):
                found.add(target)
    return found


def descriptors(world):
    with forked(world) as (sandbox,):
        ours = set(world.pids_of(sandbox))
        theirs = set()
        for pid in all_pids():
            if pid not in ours:
                with contextlib.suppress(OSError):
                    theirs |= open_files(pid)
        for pid in kernel_pids(world, sandbox):
            if shared := open_files(pid) & theirs:
                raise Fail(f"a kernel has open what others outside have: {sorted(shared)}")
            for target in open_files(pid):
                if target.startswith("/") and not target.startswith(("/dev/", "/home/", "/tmp/", "/usr/", "/proc/", "/memfd:")):
                    raise Fail(f"a kernel has {target} open")
        if not any(open_files(zygote) & theirs for zygote in zygotes(world)):
            raise Fail("the control found nothing that a zygote shares")
    return "succeeded"


def sights(world):
    """Names of the host in what procfs tells a kernel of itself."""
    templates = os.path.realpath(os.environ.get("ATOLL_TEMPLATES") or os.path.join(world.home, "templates"))
    with forked(world, 2) as (sandbox, other):
        text = cell(sandbox, "import json, os\n"
                             "print(json.dumps(''.join(open('/proc/self/' + n, errors='replace').read() for n in "
                             "('maps', 'mountinfo', 'mounts', 'cgroup', 'cmdline', 'stat', 'status', 'smaps', 'numa_maps', 'auxv') "
                             "if os.path.exists('/proc/self/' + n)) + ' '.join(os.readlink('/proc/self/' + n) for n in ('exe', 'cwd', 'root'))))")
        needles = {"the home": world.home, "the templates": templates, "its own id": sandbox.id, "another's id": other.id,
                   "the stage": "/stage", "the secret": world.secret, "the template's name": TEMPLATE}
        for what, needle in needles.items():
            if needle in text:
                raise Fail(f"a kernel sees {what}")
        if not any(TEMPLATE in read_text(f"/proc/{pid}/mountinfo") for pid in zygotes(world)):
            raise Fail("the zygote's mounts do not name the template, so this shows nothing")
    return "succeeded"


ALIKE = ("import json, os\n"
         "s = dict(l.split(':', 1) for l in open('/proc/self/status'))\n"
         "keys = ['Uid', 'Gid', 'Groups', 'CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp', 'Seccomp_filters', "
         "'Cpus_allowed', 'Umask']\n"
         "out = {k: s[k].strip() for k in keys}\n"
         "out.update({n: os.readlink('/proc/self/ns/' + n) for n in os.listdir('/proc/self/ns')})\n"
         "for n in ('uid_map', 'gid_map', 'cgroup', 'limits', 'oom_score_adj', 'loginuid', 'setgroups'):\n"
         "    out[n] = open('/proc/self/' + n).read()\n"
         "out['nice'] = os.nice(0)\n"
         "print(json.dumps(out))")


def alike(world):
    with forked(world) as (sandbox,):
        kernel = cell(sandbox, ALIKE)
        code, out, err = sandbox.run(["/usr/bin/python3", "-c", ALIKE])
        if code != 0:
            raise Fail(f"the command failed: {err[-200:]!r}")
        command = json.loads(out)
        sudo = cell(sandbox, "import json, subprocess\nprint(json.dumps(subprocess.run(['sudo', '-n', 'id', '-u'], capture_output=True, "
                             "text=True).stdout.strip()))")
    different = {key: (kernel[key], command[key]) for key in command if kernel[key] != command[key]}
    if different:
        raise Fail(f"a kernel is not like a command: {different}")
    if sudo != "0":
        raise Fail(f"sudo in a kernel says {sudo!r}")
    zygote = status_of(zygotes(world)[0])
    if not [key for key in ("Uid", "CapEff", "CapBnd", "Seccomp") if zygote[key] != command[key]]:
        raise Fail("the control: the zygote has what a command has")
    return "succeeded"


READ_MEMORY = ("import ctypes, json, os\n"
               "libc = ctypes.CDLL(None, use_errno=True)\n"
               "class V(ctypes.Structure): _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]\n"
               "def read(pid, address, n=32):\n"
               "    buffer = ctypes.create_string_buffer(n)\n"
               "    a, b = V(ctypes.addressof(buffer), n), V(address, n)\n"
               "    if libc.process_vm_readv(pid, ctypes.byref(a), 1, ctypes.byref(b), 1, 0) < 0: return ctypes.get_errno()\n"
               "    return buffer.raw.decode(errors='replace')\n"
               "def attach(pid):\n"
               "    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]\n"
               "    if libc.ptrace(16, pid, None, None) < 0: return ctypes.get_errno()\n"
               "    os.waitpid(pid, 0x40000000); libc.ptrace(17, pid, None, None); return 'attached'\n")


def tracing(world):
    ask = f"print(json.dumps([read({world.victim.pid}, {int(world.victim.address, 16)}), attach({world.victim.pid})]))"
    with forked(world) as (sandbox,):
        inside = cell(sandbox, READ_MEMORY + ask)
        init = cell(sandbox, READ_MEMORY + "print(json.dumps([read(1, 0x400000), attach(1)]))")
        pids = cell(sandbox, "import json, os\nprint(json.dumps(sorted(int(n) for n in os.listdir('/proc') if n.isdigit())))")
        here = {int(status_of(pid)["NSpid"].split()[-1]) for pid in world.pids_of(sandbox)}
    if not all(isinstance(answer, int) for answer in inside + init):
        raise Fail(f"a kernel reached a process that is not its user's: {inside} {init}")
    if set(pids) - here - {max(pids)}:
        raise Fail(f"a kernel sees processes of others: {sorted(set(pids) - here)}")
    done = subprocess.run([sys.executable, "-c", READ_MEMORY + ask], capture_output=True, text=True)
    if world.victim.secret not in done.stdout or "attached" not in done.stdout:
        raise Fail(f"the control did not reach the victim: {done.stdout}{done.stderr[-300:]}")
    return "succeeded"


WRITE = ("import json, os\n"
         "tried = ['/proc/%(pid)s/exe']\n"
         "try: tried += ['/proc/%(pid)s/map_files/' + l.split()[0] for l in open('/proc/%(pid)s/maps')][:40]\n"
         "except PermissionError: pass\n"
         "said = []\n"
         "for path in tried:\n"
         "    for flags in (os.O_WRONLY, os.O_RDWR | os.O_APPEND):\n"
         "        try: os.close(os.open(path, flags)); said.append(path)\n"
         "        except OSError: pass\n"
         "    for change in (lambda: os.truncate(path, 0), lambda: os.chmod(path, 0o777), lambda: os.chown(path, 0, 0), lambda: os.utime(path)):\n"
         "        try: change(); said.append(path)\n"
         "        except OSError: pass\n"
         "print(json.dumps(said))")


def writing(world):
    templates = os.environ.get("ATOLL_TEMPLATES") or os.path.join(world.home, "templates")
    python = os.path.realpath(os.path.join(templates, TEMPLATE, "rootfs/usr/bin/python3.13"))

    def state():
        info = os.stat(python)
        with open(python, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest(), info.st_mode, info.st_uid, info.st_mtime_ns, info.st_size

    before = state()
    with forked(world) as (sandbox,):
        opened = cell(sandbox, WRITE % {"pid": "self"})
        pid = cell(sandbox, "import json, os\nprint(json.dumps(os.getpid()))")
        code, out, err = sandbox.run(["/usr/bin/python3", "-c", WRITE % {"pid": pid}], user="root")
        if code != 0:
            raise Fail(f"the attack as root failed to run: {err[-300:]!r}")
    opened += json.loads(out)
    if opened or state() != before:
        raise Fail(f"the template can be changed through a kernel: {opened[:3]}")
    info = os.stat(python)  # the control: without the read-only mount it can be changed; to what it was
    os.utime(python, ns=(info.st_atime_ns, info.st_mtime_ns))
    return "succeeded"


def impostor(world):
    """The agent's socket for its nursery: taken by it, deaf to users."""
    code = ("import json, socket, struct\n"
            "out = []\n"
            "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
            "try:\n"
            "    s.settimeout(3); s.connect('\\0atoll-nursery'); out.append(s.recv(100).decode() or 'closed')\n"
            "except OSError as e: out.append('refused')\n"
            "print(json.dumps(out))")
    with forked(world) as (sandbox,):
        answers = [cell(sandbox, code)]
        command, out, _ = sandbox.run(["/usr/bin/python3", "-c", code], user="root")
        answers.append(json.loads(out) if command == 0 else ["failed"])
        if any(answer not in (["closed"], ["refused"]) for answer in answers):
            raise Fail(f"somebody other than the nursery was served: {answers}")
        if not is_forked(sandbox, another_context(sandbox)):
            raise Fail("the nursery lost its place")
    return "see test"


ROWS = [
    check_row("kernel_randomness", "guess a sibling's random numbers: all kernels are copies of one process",
              "Python's after-fork hooks and the runner seed anew", randomness),
    check_row("kernel_environment", "find the server's environment in a kernel that was forked outside",
              "the zygote starts with an environment of constants; `start` replaces it", environment),
    check_row("kernel_descriptors", "use descriptors that a kernel inherited from outside",
              "all are closed before it enters; its socket is made inside", descriptors),
    check_row("kernel_sights", "read the host's paths, ids and other sandboxes from /proc/self",
              "the zygote's root is the template; namespaces and cgroups are the sandbox's", sights),
    check_row("kernel_like_a_command", "a forked kernel keeps a right, a group, a namespace or a limit that a command does not have",
              "the same filters, bounding set, ids, cgroups and namespaces; fails closed", alike),
    check_row("kernel_tracing", "trace or read host processes, or the agent, from a kernel",
              "pid namespace, ids without rights, agent of another user", tracing),
    check_row("kernel_template", "write the template through /proc/self/exe and mapped files, also as root (CVE-2019-5736 class)",
              "the zygote's template is a read-only mount", writing),
    check_row("kernel_impostor", "connect to the agent in the nursery's place", "one peer, uid 0 inside, before any user code runs", impostor),
]
