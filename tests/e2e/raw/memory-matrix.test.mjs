// What a dump must carry: every kind of program and kernel object, paused, brought back from files and looked at, twice. What cannot be dumped
// stays frozen, says why, and goes on as well. What sandboxes cannot have at all is shown by trying.
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { assert, limited, Raw, Sandbox, until } from './support.mjs'
import { Interpreter } from './kernel.mjs'
import { commandLine, pids, status } from './machine.mjs'
import { hold, note, pause, processesOf, resume, warden } from './memory.mjs'

const parallel = { concurrency: 3 }
const rounds = 2

// One row. `before` prepares; `after` looks, once per round.
function row(id, { kind = Raw, seconds = 90, expected = 'dumped', reason = /^$/, skip, create = {} }, body) {
  test(id, { ...limited(seconds), skip }, async (t) => {
    const sandbox = await kind.create({ metadata: { e2e: id }, timeout: 300, ...create })
    t.signal.addEventListener('abort', () => sandbox.kill().catch(() => {}))
    try {
      const after = await body(sandbox)
      for (let round = 1; round <= rounds; round++) {
        assert.match(await pause(sandbox, expected), reason)
        if (expected === 'dumped') assert.deepEqual(processesOf(sandbox), [], 'processes of a dumped sandbox')
        await resume(sandbox)
        await after(round)
      }
    } catch (error) {
      if (error instanceof Error) error.stack = `sandbox ${sandbox.id}: ${error.stack}`
      throw error
    } finally {
      for (const stream of sandbox.streams) stream.close()
      await sandbox.kill()
    }
  })
}

// A row whose state is held by a Python program: `before` and `after` are its code, `after` leaves what it found in `out`.
function held(id, { before, after, found, ...options }) {
  row(id, options, async (sandbox) => {
    const tell = await hold(sandbox)
    await tell(before)
    return async (round) => assert.deepEqual(await tell(after), typeof found === 'function' ? found(round) : found)
  })
}

const kernel = { kind: Interpreter }
async function value(sandbox, code, language = 'python') {
  const { error, text, stdout } = await sandbox.run(code, language)
  assert.equal(error, undefined, error?.traceback)
  return text ?? stdout.trim()
}

describe('memory-matrix/python', parallel, () => {
  row('memory-matrix/python: a kernel that is idle', kernel, async (sandbox) => {
    await value(sandbox, 'import hashlib, os, numpy as np\ndata = os.urandom(20 << 20)\ndigest = hashlib.sha256(data).hexdigest()\ntable = np.arange(100_000)\ndef f(x): return x + len(data)')
    const digest = await value(sandbox, 'digest')
    return async (round) => {
      assert.equal(await value(sandbox, 'hashlib.sha256(data).hexdigest()'), digest)
      assert.equal(await value(sandbox, 'f(int(table.sum()))'), String(4999950000 + (20 << 20)))
      // What was not loaded before can be loaded now.
      assert.equal(await value(sandbox, round === 1 ? 'import sqlite3; sqlite3.connect(":memory:").execute("select 6 * 7").fetchone()' : 'import decimal; decimal.Decimal(42)'),
                   round === 1 ? '(42,)' : "Decimal('42')")
    }
  })

  row('memory-matrix/python: a kernel in the middle of a C loop', kernel, async (sandbox) => {
    await value(sandbox, 'import hashlib, time\nn, results = 0, []')
    // About three seconds inside one call, on any machine.
    const iterations = Number(await value(sandbox, 'a = time.perf_counter(); hashlib.pbkdf2_hmac("sha256", b"x", b"y", 100_000); int(300_000 / (time.perf_counter() - a))'))
    const busy = () => sandbox.begin(`print("in", flush=True); results.append(hashlib.pbkdf2_hmac("sha256", b"x", b"y", ${iterations})); n += 1`)
    await sandbox.printed(busy(), 'in')
    return async (round) => {
      assert.equal(await value(sandbox, 'n, len(set(results))'), `(${round}, 1)`)
      if (round < rounds) await sandbox.printed(busy(), 'in')
      else assert.equal(await value(sandbox, `results[0] == hashlib.pbkdf2_hmac("sha256", b"x", b"y", ${iterations})`), 'True')
    }
  })

  row('memory-matrix/python: a kernel with threads', kernel, async (sandbox) => {
    await value(sandbox, `
import threading, time, queue
counts, names, questions, answers = [0] * 8, [None] * 8, queue.Queue(), queue.Queue()
local = threading.local()
def count(i):
    local.name = f"thread {i}"
    while True:
        counts[i] += 1
        names[i] = local.name
        time.sleep(0.005)
threads = [threading.Thread(target=count, args=(i,), daemon=True) for i in range(8)]
def serve():
    while True: answers.put(questions.get() * 2)
threads.append(threading.Thread(target=serve, daemon=True))
for thread in threads: thread.start()
idents = [thread.native_id for thread in threads]`)
    return async () => {
      assert.equal(await value(sandbox, `
def on(): return all(b > a for a, b in zip(before, counts))
before, end = list(counts), time.time() + 10
while not on() and time.time() < end: time.sleep(0.02)
on(), names == [f"thread {i}" for i in range(8)]`), '(True, True)')
      assert.equal(await value(sandbox, 'questions.put(21); answers.get(timeout=5)'), '42')
      assert.equal(await value(sandbox, 'all(t.is_alive() for t in threads), idents == [t.native_id for t in threads]'), '(True, True)')
    }
  })

  row('memory-matrix/python: a kernel with subprocesses', kernel, async (sandbox) => {
    await value(sandbox, `
import subprocess, multiprocessing, os
shell = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def ask(line):
    shell.stdin.write(line + "\\n"); shell.stdin.flush()
    return shell.stdout.readline().strip()
first = ask("mine=kept; echo $$")
pool = multiprocessing.get_context("fork").Pool(2)
workers = sorted(pool.map(lambda_free := abs, [-1, -2]))
child = subprocess.Popen(["sh", "-c", "read line; exit $line"], stdin=subprocess.PIPE)`)
    return async (round) => {
      assert.equal(await value(sandbox, 'ask("echo $mine $$") == f"kept {first}" == f"kept {shell.pid}", pool.map(abs, [-3, -4])'), '(True, [3, 4])')
      if (round === rounds) assert.equal(await value(sandbox, 'child.stdin.write(b"7\\n"); child.stdin.close(); child.wait(10)'), '7')
    }
  })
})

// Alone: other cases want their sandboxes warm.
describe('memory-matrix/zygote', () => {
  const zygotes = () => pids().filter((pid) => Number(status(pid).PPid) === warden() && commandLine(pid).some((word) => word.endsWith('/zygote.py')))
  row('memory-matrix/zygote: a kernel whose zygote has ended', kernel, async (sandbox) => {
    assert.equal(await value(sandbox, 'import math; kept = math.factorial(20); kept'), '2432902008176640000')
    const old = zygotes()
    assert.ok(old.length > 0, 'there is no zygote')
    for (const pid of old) process.kill(pid, 'SIGKILL')
    await until('the end of the zygotes', () => !zygotes().some((pid) => old.includes(pid)))
    return async () => {
      assert.equal(await value(sandbox, 'kept'), '2432902008176640000')
      await until('other zygotes', () => zygotes().length >= old.length, 60_000)
    }
  })
})

describe('memory-matrix/programs', parallel, () => {
  row('memory-matrix/programs: Node with a keep-alive connection', {}, async (sandbox) => {
    await sandbox.upload('/home/user/server.js', `
let count = 0
require('http').createServer((request, response) => response.end(JSON.stringify({ count: ++count, port: request.socket.remotePort, pid: process.pid })))
  .listen(8100, '127.0.0.1').keepAliveTimeout = 600_000`)
    await sandbox.upload('/home/user/client.js', `
const http = require('http'), fs = require('fs')
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
const state = { ports: [], errors: [], counts: [] }
setInterval(() => http.get({ port: 8100, host: '127.0.0.1', agent }, (response) => {
  let text = ''
  response.on('data', (data) => (text += data)).on('end', () => {
    const { count, port } = JSON.parse(text)
    if (!state.ports.includes(port)) state.ports.push(port)
    if (state.last !== undefined && count !== state.last + 1) state.errors.push('jump from ' + state.last + ' to ' + count)
    state.last = count
    fs.writeFileSync('/tmp/client.new', JSON.stringify(state))
    fs.renameSync('/tmp/client.new', '/tmp/client.json')
  })
}).on('error', (error) => state.errors.push(String(error))), 50)`)
    sandbox.background('exec node server.js')
    await until('the server', async () => (await sandbox.run('curl -s -o /dev/null http://127.0.0.1:8100/ && echo up || true')).stdout === 'up\n')
    sandbox.background('exec node client.js')
    const look = async () => {
      const text = (await sandbox.run('cat /tmp/client.json 2>/dev/null || true')).stdout
      return text ? JSON.parse(text) : { last: 0 }
    }
    const first = await until('requests', async () => (await look()).last > 5 && look())
    let last = first.last
    return async () => {
      const now = await until('more requests', async () => {
        const seen = await look()
        return seen.last > last + 5 && seen
      })
      assert.deepEqual([now.errors, now.ports], [[], first.ports])
      last = now.last
    }
  })

  row('memory-matrix/programs: bash in a terminal with a job', {}, async (raw) => {
    const sandbox = await Sandbox.connect(raw.id)
    let seen = ''
    const onData = (data) => (seen += Buffer.from(data))
    const pty = await sandbox.pty.create({ cols: 97, rows: 31, timeoutMs: 0, onData })
    pty.wait().catch(() => {})
    const type = async (line, wanted) => {
      seen = ''
      await sandbox.pty.sendInput(pty.pid, Buffer.from(`${line}\n`))
      return until(`${wanted} after ${line}`, () => wanted.exec(seen))
    }
    await type('PS1="> "; MARK=remembered; cd /usr/share; sleep 4242 &', /\[1\] \d+/)
    const [, job] = await type('echo "<$!>"', /<(\d+)>/)
    // A job in the foreground that will be stopped from the keyboard afterwards.
    await type('echo begin; exec 3>&1; cat', /begin/)
    return async (round) => {
      const handle = await sandbox.pty.connect(pty.pid, { onData })
      handle.wait().catch(() => {})
      await type('through cat', /through cat[\s\S]*through cat/)
      seen = ''
      await sandbox.pty.sendInput(pty.pid, Buffer.from('\x03'))
      await until('the prompt', () => seen.includes('> '))
      await type('echo "<$MARK $PWD $(stty size) $!>"', new RegExp(`<remembered /usr/share 31 97 ${job}>`))
      await type('jobs', /\[1\][+-]?\s+Running\s+sleep 4242/)
      if (round === rounds) await type('kill %1; wait; jobs; echo "<end $?>"', /<end 0>/)
      else await type('echo begin; cat', /begin/)
    }
  })

  const tmux = (() => {
    try {
      const libraries = execFileSync('ldd', ['/usr/bin/tmux'], { encoding: 'utf8' }).matchAll(/=> (\/\S+)/g)
      return { files: ['/usr/bin/tmux', ...[...libraries].map(([, file]) => file).filter((file) => /lib(event|utempter|tinfo)/.test(file))] }
    } catch (error) {
      return { missing: `tmux is not installed here: ${error.message.split('\n')[0]}` }
    }
  })()
  row('memory-matrix/programs: tmux', { skip: tmux.missing }, async (sandbox) => {
    for (const file of tmux.files) {
      assert.equal((await sandbox.upload(`/opt/tmux/${file.split('/').at(-1)}`, fs.readFileSync(file), { Authorization: `Basic ${btoa('root:')}` })).status, 200)
    }
    await sandbox.run('chmod 755 /opt/tmux /opt/tmux/*', 'root')
    const run = async (words) => {
      const done = await sandbox.run(`LC_ALL=C.UTF-8 LD_LIBRARY_PATH=/opt/tmux /opt/tmux/tmux ${words}`)
      assert.equal(done.end.status, 'exit status 0', done.stderr)
      return done.stdout
    }
    await run('new-session -d -s work -n first -x 90 -y 25 "env -u LD_LIBRARY_PATH bash --norc"')
    await run('new-window -t work -n second "env -u LD_LIBRARY_PATH python3 -q"')
    await run("send-keys -t work:0 'MARK=kept; echo one-$MARK' Enter")
    await until('the shell', async () => (await run('capture-pane -p -t work:0')).includes('\none-kept'))
    await run('send-keys -t work:second "x = 41" Enter')
    const before = await run('list-panes -a -F "#{session_name} #{window_name} #{pane_pid} #{pane_width}x#{pane_height}"')
    return async (round) => {
      assert.equal(await run('list-panes -a -F "#{session_name} #{window_name} #{pane_pid} #{pane_width}x#{pane_height}"'), before)
      await run(`send-keys -t work:0 'echo round ${round} "<$MARK>"' Enter`)
      const screen = await until('the shell', async () => {
        const text = await run('capture-pane -p -t work:0')
        return text.includes(`\nround ${round} <kept>`) && text
      })
      assert.ok(screen.includes('\none-kept'), 'what was on the screen before')
      await run(`send-keys -t work:second "x + ${round}" Enter`)
      await until('Python', async () => (await run('capture-pane -p -t work:second')).includes(`\n${41 + round}`))
    }
  })

  row('memory-matrix/programs: R', { ...kernel, seconds: 120 }, async (sandbox) => {
    await value(sandbox, 'set.seed(1); x <- rnorm(1000); f <- function(y) sum(x) + y; first <- sum(x)', 'r')
    return async () => {
      assert.match(await value(sandbox, 'print(identical(f(1), first + 1)); print(length(x))', 'r'), /TRUE\n\[1\] 1000/)
    }
  })

  row('memory-matrix/programs: Java', { ...kernel, seconds: 120 }, async (sandbox) => {
    await value(sandbox, 'var list = new java.util.ArrayList<Integer>(); for (int i = 0; i < 1000; i++) list.add(i);', 'java')
    await value(sandbox, 'var ticks = new java.util.concurrent.atomic.AtomicLong(); var ticker = new Thread(() -> { while (true) { ticks.incrementAndGet(); try { Thread.sleep(5); } catch (InterruptedException e) { return; } } }); ticker.setDaemon(true); ticker.start();', 'java')
    return async () => {
      assert.equal(await value(sandbox, 'System.out.println(list.stream().mapToInt(i -> i).sum());', 'java'), '499500')
      assert.equal(await value(sandbox, 'long seen = ticks.get(); for (int i = 0; i < 1000 && ticks.get() <= seen; i++) Thread.sleep(10); System.out.println(ticks.get() > seen && ticker.isAlive());', 'java'), 'true')
    }
  })

  row('memory-matrix/programs: users, groups and capabilities', {}, async (sandbox) => {
    const counter = 'n=0; while :; do n=$((n+1)); echo $n > /tmp/$(id -un); sleep 0.02; done'
    sandbox.background(counter)
    sandbox.background(counter, 'root')
    sandbox.background(`sudo -u nobody bash -c '${counter}'`)
    const who = ['user', 'root', 'nobody']
    const read = async (name) => Number((await sandbox.run(`cat /tmp/${name} 2>/dev/null || true`)).stdout)
    for (const name of who) await until(`the counter of ${name}`, () => read(name))
    const look = async () => (await sandbox.run(
      'for p in /proc/[0-9]*; do case $(tr "\\0" " " < $p/cmdline) in *"n=0; while"*) echo $p; grep -E "^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp|NSpid|NSsid):" $p/status;; esac; done', 'root')).stdout
    // The look itself is a process of that kind: its own pid differs each time.
    const stable = (text) => text.split('/proc/').filter((part) => part && !part.includes('NSsid:\t0')).map((part) => part.split('\n')).filter(([pid]) => Number(pid) < 200)
    const before = stable(await look()).filter(([pid]) => pid)
    return async () => {
      const now = new Map(stable(await look()).map(([pid, ...rest]) => [pid, rest]))
      for (const name of who) {
        const since = await read(name)
        await until(`the counter of ${name} to go on`, async () => (await read(name)) > since)
      }
      let common = 0
      for (const [pid, ...rest] of before) {
        if (!now.has(pid)) continue
        assert.deepEqual(now.get(pid), rest, pid)
        common++
      }
      assert.ok(common >= 3, `${common} processes were compared`)
    }
  })
})

describe('memory-matrix/objects', parallel, () => {
  held('memory-matrix/objects: a TCP pair', {
    before: `
import socket
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
names = [client.getsockname(), client.getpeername(), server.getsockname()]
round = 0
client.sendall(b"sent before pause 1")`,
    after: `
round += 1
got = server.recv(1000).decode()
same = names == [client.getsockname(), client.getpeername(), server.getsockname()]
received = 0
for _ in range(50):
    server.sendall(b"x" * 20000)
    part = b""
    while len(part) < 20000: part += client.recv(20000)
    received += len(part)
late = socket.create_connection(listener.getsockname()); met = listener.accept()[1] == late.getsockname(); late.close()
client.sendall(f"sent before pause {round + 1}".encode())
out = [got, same, received, met]`,
    found: (round) => [`sent before pause ${round}`, true, 1_000_000, true],
  })

  held('memory-matrix/objects: UDP, IPv6 and unix sockets', {
    before: `
import socket, os
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(("127.0.0.1", 0))
peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); peer.connect(udp.getsockname())
six = socket.create_server(("::1", 0), family=socket.AF_INET6)
a, b = socket.socketpair()
path = "/tmp/holder.sock"
unix = socket.socket(socket.AF_UNIX); unix.bind(path); unix.listen()
abstract = socket.socket(socket.AF_UNIX); abstract.bind("\\0holder"); abstract.listen()
near = socket.socket(socket.AF_UNIX); near.connect(path); far, _ = unix.accept()
a.sendall(b"pending"); near.sendall(b"pending too")`,
    after: `
out = [b.recv(100).decode(), far.recv(100).decode()]
peer.send(b"datagram"); out.append(udp.recv(100).decode())
late = socket.create_connection(six.getsockname()[:2]); six.accept()[0].sendall(b"six"); out.append(late.recv(10).decode())
for name, listening in ((path, unix), ("\\0holder", abstract)):
    late = socket.socket(socket.AF_UNIX); late.connect(name); listening.accept()[0].sendall(b"new"); out.append(late.recv(10).decode())
a.sendall(b"pending"); near.sendall(b"pending too")`,
    found: ['pending', 'pending too', 'datagram', 'six', 'new', 'new'],
  })

  held('memory-matrix/objects: an open deleted file', {
    before: `
import os, hashlib
os.makedirs("/home/user/dir/deep", exist_ok=True); os.chdir("/home/user/dir/deep")
f = open("/home/user/gone.bin", "wb+"); f.write(os.urandom(1 << 20)); f.flush()
def digest(): f.seek(0); return hashlib.sha256(f.read()).hexdigest()
known = digest(); f.seek(1000); os.unlink("/home/user/gone.bin")
named = open("/home/user/linked", "w+"); named.write("two names"); named.flush(); os.link("/home/user/linked", "/home/user/other"); os.unlink("/home/user/linked")
listing = sorted(os.listdir("/home/user"))`,
    after: `
out = [f.tell(), digest() == known, os.fstat(f.fileno()).st_nlink, sorted(os.listdir("/home/user")) == listing, os.getcwd()]
f.write(b"more"); f.flush(); known = digest(); f.seek(1000)
named.seek(0); out += [named.read(), os.fstat(named.fileno()).st_ino == os.stat("/home/user/other").st_ino]`,
    found: [1000, true, 0, true, '/home/user/dir/deep', 'two names', true],
  })

  row('memory-matrix/objects: inotify watches', {}, async (sandbox) => {
    const tell = await hold(sandbox)
    await tell(`
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs("/home/user/watched", exist_ok=True)
fd = libc.inotify_init1(os.O_NONBLOCK)
wds = [libc.inotify_add_watch(fd, path, 0x100 | 0x200) for path in (b"/home/user/watched", b"/dev/shm", b"/etc")]
assert fd >= 0 and min(wds) >= 0
def events():
    try: data = os.read(fd, 65536)
    except BlockingIOError: return []
    found = []
    while data:
        wd, mask, _, size = struct.unpack("iIII", data[:16])
        found.append([wds.index(wd), mask & 0x300, data[16:16 + size].rstrip(b"\\0").decode()])
        data = data[16 + size:]
    return found`)
    // The agent's own, polled by clients.
    const made = await sandbox.call('/filesystem.Filesystem/CreateWatcher', { path: '/home/user/watched' })
    assert.equal(made.status, 200, made.text)
    const { watcherId } = made.json
    const polled = async () => (await sandbox.call('/filesystem.Filesystem/GetWatcherEvents', { watcherId })).json.events ?? []
    return async (round) => {
      const seen = await tell(`
events()
for path in ("/home/user/watched/new${round}", "/dev/shm/new${round}"): open(path, "w").close()
os.unlink("/home/user/watched/new${round}")
out = events()`)
      assert.deepEqual(seen, [[0, 0x100, `new${round}`], [1, 0x100, `new${round}`], [0, 0x200, `new${round}`]])
      await until('the event of the agent', async () => (await polled()).some(({ name }) => name === `new${round}`))
    }
  })

  held('memory-matrix/objects: locks', {
    before: `
import fcntl, os, subprocess
whole, part = open("/tmp/whole", "w+"), open("/tmp/part", "w+")
part.write("x" * 100); part.flush()
fcntl.flock(whole, fcntl.LOCK_EX); fcntl.lockf(part, fcntl.LOCK_EX, 10, 20)
def free(code): return subprocess.run(["python3", "-c", "import fcntl\\n" + code], stderr=subprocess.DEVNULL).returncode == 0
def look(): return [free("fcntl.flock(open('/tmp/whole'), 6)"), free("fcntl.lockf(open('/tmp/part', 'r+'), 6, 5, 22)"), free("fcntl.lockf(open('/tmp/part', 'r+'), 6, 5, 60)")]
assert look() == [False, False, True]`,
    after: `
out = [look()]
fcntl.flock(whole, fcntl.LOCK_UN); fcntl.lockf(part, fcntl.LOCK_UN, 10, 20)
out.append(look())
fcntl.flock(whole, fcntl.LOCK_EX); fcntl.lockf(part, fcntl.LOCK_EX, 10, 20)`,
    found: [[false, false, true], [true, true, true]],
  })

  held('memory-matrix/objects: shared memory', {
    before: `
import ctypes, hashlib, multiprocessing as mp, multiprocessing.shared_memory as shm, mmap, os, subprocess, time
libc = ctypes.CDLL(None, use_errno=True); libc.shmat.restype = ctypes.c_void_p; libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
posix = shm.SharedMemory(create=True, size=3 << 20, name="posix"); posix.buf[:] = os.urandom(3 << 20)
known = hashlib.sha256(posix.buf).hexdigest()
segment = libc.shmget(0x1234, 1 << 20, 0o1600); assert segment >= 0
address = libc.shmat(segment, None, 0); ctypes.memmove(address, b"SysV", 5)
gone = mmap.mmap(-1, 1 << 20); gone[:4] = b"anon"
context = mp.get_context("fork")
number, step, ends = context.Value("i", 0), context.Event(), context.Queue()
def child():
    while True:
        step.wait(); step.clear()
        with number.get_lock(): number.value += 1
        gone[:4] = b"wrot"; ends.put(os.getpid())
worker = context.Process(target=child, daemon=True); worker.start()
reader = "import ctypes; l = ctypes.CDLL(None); l.shmat.restype = ctypes.c_void_p; print(ctypes.string_at(l.shmat(l.shmget(0x1234, 0, 0), None, 0)).decode())"`,
    after: `
out = [hashlib.sha256(posix.buf).hexdigest() == known, hashlib.sha256(open("/dev/shm/posix", "rb").read()).hexdigest() == known,
       ctypes.string_at(address).decode(), subprocess.run(["python3", "-c", reader], capture_output=True, text=True).stdout.strip()]
step.set(); out += [ends.get(timeout=10) == worker.pid, number.value, gone[:4].decode()]
posix.buf[0] = (posix.buf[0] + 1) % 256; known = hashlib.sha256(posix.buf).hexdigest()`,
    found: (round) => [true, true, 'SysV', 'SysV', true, round, 'wrot'],
  })

  held('memory-matrix/objects: 200 descriptors', {
    before: `
import os
files, pipes = [], []
for i in range(100):
    f = os.open(f"/tmp/file{i}", os.O_RDWR | os.O_CREAT); os.write(f, bytes(range(100, 200))); os.lseek(f, i, 0); files.append(f)
for i in range(50):
    r, w = os.pipe(); os.write(w, b"%d;" % i); pipes.append((r, w))
def table(): return sorted((int(fd), os.readlink("/proc/self/fd/" + fd)) for fd in os.listdir("/proc/self/fd") if int(fd) in known)
known = {*files, *(fd for pair in pipes for fd in pair)}
paths = [path for _, path in table() if path.startswith("/")]`,
    after: `
out = [len(known), len(table()), [path for _, path in table() if path.startswith("/")] == paths,
       all(os.lseek(f, 0, 1) == i and os.pread(f, 1, i) == bytes([100 + i]) for i, f in enumerate(files)),
       all(os.read(r, 100) == b"%d;" % i and os.write(w, b"%d;" % i) for i, (r, w) in enumerate(pipes))]`,
    found: [200, 200, true, true, true],
  })

  held('memory-matrix/objects: events, timers, signals and children', {
    before: `
import os, select, signal, subprocess, threading, time, resource
event, memory = os.eventfd(5), os.memfd_create("mine"); os.write(memory, b"in a memfd")
poll = select.epoll(); r, w = os.pipe(); poll.register(r, select.EPOLLIN); poll.register(event, select.EPOLLIN)
timer = os.timerfd_create(time.CLOCK_MONOTONIC); os.timerfd_settime(timer, initial=0.01, interval=0.01)
os.mkfifo("/tmp/fifo"); fifo = os.open("/tmp/fifo", os.O_RDWR); os.write(fifo, b"in a fifo")
ticks = [0]
def tick(*_): ticks[0] += 1
signal.signal(signal.SIGALRM, tick); signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]); os.kill(os.getpid(), signal.SIGUSR2)
os.umask(0o027); resource.setrlimit(resource.RLIMIT_NOFILE, (500, 1000))
zombie = os.fork()
if zombie == 0: os._exit(9)
time.sleep(0.1); monotonic = time.monotonic()
def state(pid): return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]`,
    after: `
out = [os.eventfd_read(event), os.pread(memory, 100, 0).decode(), os.read(fifo, 100).decode(), poll.poll(0)]
os.eventfd_write(event, 5); os.write(fifo, b"in a fifo"); os.write(w, b"x"); ready = sorted(fd for fd, _ in poll.poll(1)); out.append(ready == sorted([r, event])); os.read(r, 1)
before, end = ticks[0], time.time() + 10
while ticks[0] <= before and time.time() < end: time.sleep(0.02)
out += [ticks[0] > before, len(os.read(timer, 8)), list(map(int, signal.sigpending()))]
mask = os.umask(0); os.umask(mask); out += [mask, list(resource.getrlimit(resource.RLIMIT_NOFILE)), state(zombie)]
now = time.monotonic(); out.append(0 < now - monotonic < 600); monotonic = now`,
    found: [5, 'in a memfd', 'in a fifo', [], true, true, 8, [12], 0o027, [500, 1000], 'Z', true],
  })
})

// Tried inside as user and as root: sandboxes cannot have these, so nothing of that kind can be in a dump.
const attempts = `
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(*numbers):
    if os.fork() == 0:
        ctypes.set_errno(0); failed = libc.syscall(*numbers) < 0
        os._exit(ctypes.get_errno() if failed else 0)
    code = os.waitstatus_to_exitcode(os.wait()[1]); return errno.errorcode.get(code, code) if code else "possible"
space = ctypes.create_string_buffer(256); where = ctypes.create_string_buffer(b"/tmp"); kind = ctypes.create_string_buffer(b"tmpfs")
def sock(*kind):
    try: socket.socket(*kind).close()
    except OSError as error: return errno.errorcode[error.errno]
    return "possible"
print({
  "io_uring": call(425, 4, space),
  "userfaultfd": call(323, 0),
  "perf_event": call(298, space, 0, -1, -1, 0),
  "fanotify": call(300, 0, 0),
  "bpf": call(321, 0, space, 16),
  "mounts": call(165, kind, where, kind, 0, None),
  "nested user namespaces": call(272, 0x10000000), "nested pid namespaces": call(272, 0x20000000), "nested network namespaces": call(272, 0x40000000),
  "nested mount namespaces": call(272, 0x20000), "nested time namespaces": call(272, 0x80),
  "vsock": sock(40, 1, 0), "packet sockets": sock(17, 3, 0), "MPTCP": sock(2, 1, 262),
}[sys.argv[1]])
`

describe('memory-matrix/refused', parallel, () => {
  held('memory-matrix/refused: a traced process', {
    expected: 'frozen', reason: /trac/i,
    before: `
import ctypes, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
child = subprocess.Popen(["bash", "-c", "n=0; while :; do n=$((n+1)); echo $n > /tmp/traced; sleep 0.02; done"])
def request(number): return libc.ptrace(number, child.pid, 0, 0)
while not os.path.exists("/tmp/traced"): pass
assert request(16) == 0 and os.waitpid(child.pid, 0)[0] == child.pid
def tracer(): return [line.split()[1] for line in open(f"/proc/{child.pid}/status") if line.startswith("TracerPid")] == [str(os.getpid())]`,
    after: `
import time
out = [tracer(), request(17)]
def number(): return int(open("/tmp/traced").read() or 0)
since, end = number(), time.time() + 10
while number() <= since and time.time() < end: time.sleep(0.02)
out.append(number() > since)
out += [request(16), os.waitpid(child.pid, 0)[0] == child.pid]`,
    found: [true, 0, true, 0, true],
  })

  held('memory-matrix/refused: a stopped process', {
    expected: 'frozen', reason: /stop/i,
    before: `
import signal, subprocess, time
child = subprocess.Popen(["bash", "-c", "n=0; while :; do n=$((n+1)); echo $n > /tmp/stopped; sleep 0.02; done"])
def number():
    try: return int(open("/tmp/stopped").read() or 0)
    except FileNotFoundError: return 0
def state(): return open(f"/proc/{child.pid}/stat").read().rsplit(")", 1)[1].split()[0]
def counts():
    since, end = number(), time.time() + 10
    while number() <= since and time.time() < end: time.sleep(0.02)
    return number() > since
assert counts(); child.send_signal(signal.SIGSTOP)
while state() != "T": pass`,
    after: `
out = [state()]; child.send_signal(signal.SIGCONT); out.append(counts()); child.send_signal(signal.SIGSTOP)
while state() != "T": pass`,
    found: ['T', true],
  })

  // From inside they cannot be made (see below); with the host's help the fallback is seen all the same.
  for (const [thing, reason, code] of [
    ['io_uring', /io_uring/i, 'assert libc.syscall(425, 4, ctypes.create_string_buffer(256)) >= 0'],
    ['a nested user namespace', /namespace/i, 'assert libc.unshare(0x10000000) == 0'],
    ['a nested network namespace', /namespace/i, 'assert libc.unshare(0x40000000) == 0'],
    ['a mount made inside', /mount/i, 'assert libc.mount(b"tmpfs", b"/mnt", b"tmpfs", 0, None) == 0; open("/mnt/mark", "w").write("on it")'],
  ]) {
    row(`memory-matrix/refused: ${thing}`, { expected: 'frozen', reason }, async (sandbox) => {
      intrude(sandbox, code)
      const number = async () => Number((await sandbox.run('cat /dev/shm/intruder 2>/dev/null || true')).stdout)
      await until('the intruder', number)
      return async () => {
        const since = await number()
        await until('the intruder to go on', async () => (await number()) > since)
        if (thing.startsWith('a mount')) assert.equal((await sandbox.run('cat /mnt/mark')).stdout, 'on it')
      }
    })
  }
})

// A program of the sandbox's own, started from the host in its namespaces and cgroups but without its seccomp filter and with all capabilities, as a
// child of its process 1: it runs `code`, then counts.
function intrude(sandbox, code) {
  const [first] = processesOf(sandbox)
  assert.ok(first, 'a first process')
  const program = `
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
null = os.open("/dev/null", os.O_RDWR)
for fd in (0, 1, 2): os.dup2(null, fd)
os.closerange(3, 1000)
os.chdir("/")
${code}
n = 0
while True:
    n += 1
    open("/dev/shm/intruder", "w").write(str(n))
    time.sleep(0.02)
`
  const groups = fs.readFileSync(`/proc/${first}/cgroup`, 'utf8').trim().split('\n').flatMap((line) => {
    const [, controllers, place] = line.split(':')
    return ['', '/unified', `/${controllers.replace('name=', '')}`].map((at) => `/sys/fs/cgroup${at}${place}/cgroup.procs`)
  }).filter((file) => file.includes(sandbox.id) && fs.existsSync(file))
  assert.ok(groups.length > 0, 'cgroups of the sandbox')
  execFileSync('sh', ['-c', `for group in ${groups.join(' ')}; do echo $$ > $group; done; exec nsenter -t ${first} -a -- /usr/bin/python3 -c "$PROGRAM"`],
               { env: { PATH: process.env.PATH, PROGRAM: program }, stdio: ['ignore', 'ignore', 'inherit'] })
}

describe('memory-matrix/impossible', () => {
  let sandbox
  before(async () => {
    sandbox = await Raw.create({ timeout: 300 })
    await sandbox.upload('/tmp/try.py', attempts)
  })
  after(() => sandbox?.kill())

  for (const thing of ['io_uring', 'userfaultfd', 'perf_event', 'fanotify', 'bpf', 'mounts', 'nested user namespaces', 'nested pid namespaces',
    'nested network namespaces', 'nested mount namespaces', 'nested time namespaces', 'vsock', 'packet sockets', 'MPTCP']) {
    const id = `memory-matrix/impossible: ${thing}`
    test(id, limited(60), async () => {
      const [user, root] = await Promise.all(['user', 'root'].map(async (who) => (await sandbox.run(`python3 /tmp/try.py '${thing}'`, who)).stdout.trim()))
      assert.match(`${user} ${root}`, /^E[A-Z]+ E[A-Z]+$/, `${thing} as user and as root`)
      note(id, `${thing}: impossible inside a sandbox (${user} as user, ${root} as root)`)
    })
  }
})
