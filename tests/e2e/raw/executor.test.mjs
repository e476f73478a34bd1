// RAGFlow's executor_manager API, every row of its wire table, on servers of its own.
import net from 'node:net'
import { after, before, describe, test } from 'node:test'
import { assert, limited, request, sleep, until } from './support.mjs'
import { startServer, withServer } from './own-server.mjs'

const template = process.env.E2E_CODE_TEMPLATE ?? 'code-interpreter-v1'
const options = (...more) => ['--executor-listen', '127.0.0.1:0', '--executor-template', template, ...more]

const b64 = (text) => Buffer.from(text).toString('base64')
const unb64 = (text) => Buffer.from(text, 'base64').toString()
const MARKER = '__RAGFLOW_RESULT__:'

// Calls to the executor of a server.
function client(server) {
  const base = new URL(server.facts.executor)
  const post = (body, headers = {}) => request('POST', '/run', {
    base, headers: { 'Content-Type': 'application/json', ...headers }, body: typeof body === 'string' ? body : JSON.stringify(body),
  })
  // A well-formed request: always 200, with every field of the body.
  const run = async (language, code, args, headers) => {
    const answer = await post({ code_b64: b64(code), language, ...(args !== undefined && { arguments: args }) }, headers)
    assert.equal(answer.status, 200, answer.text)
    assert.match(answer.headers['content-type'], /^application\/json/)
    assert.deepEqual(Object.keys(answer.json).sort(), ['artifacts', 'detail', 'exit_code', 'memory_used_kb', 'resource_limit_type', 'result',
      'runtime_error_type', 'status', 'stderr', 'stdout', 'time_used_ms', 'unauthorized_access_type'])
    return { ...answer.json, text: answer.text }
  }
  return { base, post, run, py: (code, args) => run('python', code, args), js: (code, args) => run('nodejs', code, args) }
}

const sandboxes = async (server) => (await server.call('GET', '/v2/sandboxes')).json
const count = (what, server, wanted) => until(what, async () => (await sandboxes(server)).length === wanted, 60_000)

function succeeded(answer, value) {
  assert.equal(answer.status, 'success', `${answer.stderr}\n${answer.stdout}`)
  assert.equal(answer.exit_code, 0)
  for (const field of ['detail', 'resource_limit_type', 'unauthorized_access_type', 'runtime_error_type']) assert.equal(answer[field], null)
  assert.deepEqual(answer.result, { present: true, value, type: 'json' })
  assert.ok(answer.time_used_ms >= 0 && answer.time_used_ms < 60_000)
  assert.ok(answer.memory_used_kb > 1_000 && answer.memory_used_kb < 300_000, `${answer.memory_used_kb} kB`)
}

function failed(answer, exitCode, stderr) {
  assert.equal(answer.status, 'program_error', `${answer.status}: ${answer.stderr}`)
  assert.equal(answer.exit_code, exitCode)
  assert.equal(answer.runtime_error_type, 'nonzero_exit')
  assert.equal(answer.result, null)
  assert.deepEqual(answer.artifacts, [])
  if (stderr) assert.match(answer.stderr, stderr)
}

function timedOut(answer) {
  assert.equal(answer.status, 'resource_limit_exceeded', answer.stderr)
  assert.equal(answer.exit_code, -124)
  assert.equal(answer.stderr, 'Execution timeout')
  assert.equal(answer.resource_limit_type, 'time')
  assert.equal(answer.result, null)
}

describe('executor', () => {
  let server, executor
  before(async () => {
    server = await startServer(options('--executor-timeout', '40s', '--executor-pool', '2'))
    executor = client(server)
  }, limited(90))
  after(() => server.stop())

  test('executor/health: root and healthz', limited(30), async () => {
    for (const path of ['/', '/healthz']) {
      const answer = await request('GET', path, { base: executor.base })
      assert.equal(answer.status, 200)
      assert.deepEqual(answer.json, { status: 'ok' })
    }
    const wrong = async (method, path) => (await request(method, path, { base: executor.base })).status
    assert.deepEqual([await wrong('GET', '/run'), await wrong('POST', '/healthz'), await wrong('GET', '/sandboxes')], [405, 405, 404])
  })

  test('executor/health: off unless it is asked for', limited(60), () => withServer([], async ({ facts }) => {
    assert.equal(facts.executor, undefined)
  }))

  test('executor/request: what is not well-formed', limited(30), async () => {
    const refused = async (body, field) => {
      const answer = await executor.post(body)
      assert.equal(answer.status, 422, `${JSON.stringify(body)}: ${answer.text}`)
      assert.deepEqual(answer.json.detail[0].loc, field ? ['body', field] : ['body'])
      assert.equal(answer.json.code, 422)
      assert.ok(answer.json.message)
    }
    const good = b64('def main(): return 1')
    for (const bad of ['%%%%', 'YQ', 'YQ=', 'YWJj\n', ' YWJj', 'YW-_', 'Y=Q=', b64('x') + b64('y'), good + '=']) await refused({ code_b64: bad }, 'code_b64')
    for (const bytes of [[0xff], [0xc3], [0xed, 0xa0, 0x80], [0x61, 0x80]]) await refused({ code_b64: Buffer.from(bytes).toString('base64') }, 'code_b64')
    for (const bad of [undefined, null, 5, ['YQ==']]) await refused({ code_b64: bad }, 'code_b64')
    for (const language of ['ruby', 'Python', 'javascript', 'node', '', null, 3]) await refused({ code_b64: good, language }, 'language')
    for (const value of [[], 'x', 5, true]) await refused({ code_b64: good, arguments: value }, 'arguments')
    for (const body of ['', '{', '[]', '"x"', 'null', '{"code_b64":"YQ=="} x']) await refused(body)
    const large = await executor.post({ code_b64: good, arguments: { x: 'y'.repeat(33 << 20) } })
    assert.equal(large.status, 413)
  })

  test('executor/python: success', limited(60), async () => {
    const answer = await executor.py('import sys\ndef main(a, b):\n    print("out")\n    print("err", file=sys.stderr)\n    return {"sum": a + b}', { a: 1, b: 2 })
    succeeded(answer, { sum: 3 })
    assert.equal(answer.stdout, 'out\n')
    assert.equal(answer.stderr, 'err\n')
    assert.deepEqual(answer.artifacts, [])
    // Python is the default, and nothing the default argument.
    const plain = await executor.post({ code_b64: b64('def main(): return None') })
    succeeded(plain.json, null)
    succeeded(await executor.run('python', 'def main(**all): return all', null), {})
    succeeded(await executor.py('async def main():\n    import asyncio\n    await asyncio.sleep(0.01)\n    return "awaited"'), 'awaited')
    succeeded(await executor.py('if __name__ == "__main__":\n    raise SystemExit(9)\ndef main(): return __name__'), 'main')
  })

  test('executor/nodejs: success', limited(60), async () => {
    const answer = await executor.js('function main(args) { console.log("out"); console.error("err"); return { sum: args.a + args.b } }', { a: 1, b: 2 })
    succeeded(answer, { sum: 3 })
    assert.equal(answer.stdout, 'out\n')
    assert.equal(answer.stderr, 'err\n')
    succeeded(await executor.js('const main = async (args) => { await new Promise((r) => setTimeout(r, 20)); return Object.keys(args) }'), [])
    succeeded(await executor.js('async function main() { return null }\nmodule.exports = { main }'), null)
    succeeded(await executor.js('exports.main = () => [1, 2]'), [1, 2])
    succeeded(await executor.js('module.exports = () => "alone"'), 'alone')
    succeeded(await executor.js('import os from "node:os"\nexport default async (args) => typeof os.cpus'), 'function')
    succeeded(await executor.js('import fs from "node:fs"\nexport function main() { return typeof fs.statSync }'), 'function')
  })

  test('executor/arguments: unicode, nested, large, odd', limited(60), async () => {
    const value = { text: 'é€🐍\u0000"\\\n', nested: { a: [1, [2, [3, { b: null }]]], '': true }, numbers: [0, -1.5, 1e300, 9007199254740991], empty: {} }
    succeeded(await executor.py('def main(**x): return x', value), value)
    succeeded(await executor.js('function main(x) { return x }', value), value)
    const large = { rows: Array.from({ length: 50_000 }, (_, i) => ({ i, name: `row ${i}` })) }
    succeeded(await executor.py('def main(rows): return rows', large), large.rows)
    succeeded(await executor.js('function main(x) { return x.rows }', large), large.rows)
    // No number changes on its way.
    const exact = await executor.post(`{"code_b64":"${b64('def main(n): return [n, n + 1]')}","arguments":{"n":123456789012345678901234567890}}`)
    assert.ok(exact.text.includes('[123456789012345678901234567890, 123456789012345678901234567891]'), exact.text)
    failed(await executor.py('def main(a): return a', { b: 1 }), 1, /unexpected keyword argument 'b'/)
  })

  test('executor/python: program errors', limited(90), async () => {
    failed(await executor.py('x = 1'), 1, /must define a function main/)
    failed(await executor.py('def main(:\n    pass'), 1, /File ".*main\.py", line 1\n.*\n.*\nSyntaxError/)
    const raised = await executor.py('def main():\n    print("before")\n    raise ValueError("why")')
    failed(raised, 1, /^Traceback .*\n {2}File "[^"]*main\.py", line 3, in main\n.*\n(.*\n)?ValueError: why\n$/)
    assert.equal(raised.stdout, 'before\n', 'what was said before is kept')
    failed(await executor.py('raise KeyError("at import")'), 1, /KeyError/)
    failed(await executor.py('import sys\ndef main(): sys.exit(3)'), 3)
    failed(await executor.py('import os\ndef main(): os._exit(7)'), 7)
    failed(await executor.py('import os\ndef main(): os.kill(os.getpid(), 9)'), 137)
    failed(await executor.py('import os\ndef main(): os.abort()'), 134)
    failed(await executor.py('def main(): return {1, 2}'), 1, /JSON/)
    failed(await executor.py('def main(): return float("nan")'), 1, /JSON/)
    failed(await executor.py('def main(): return "\\ud800"'), 1, /JSON/)
    failed(await executor.py('def main():\n    a = []\n    a.append(a)\n    return a'), 1, /JSON/)
    // An end without a value is no error.
    const quiet = await executor.py('import sys\ndef main(): sys.exit(0)')
    assert.deepEqual([quiet.status, quiet.exit_code, quiet.result], ['success', 0, null])
  })

  test('executor/nodejs: program errors', limited(90), async () => {
    failed(await executor.js('const x = 1'), 1, /must define a function main/)
    failed(await executor.js('function main( {'), 1, /main\.js:1\n(.*\n)*SyntaxError/)
    failed(await executor.js('export function main( {'), 1, /SyntaxError/)
    const thrown = await executor.js('function main() {\n  console.log("before")\n  throw new TypeError("why")\n}')
    failed(thrown, 1, /^TypeError: why\n {4}at main \(.*main\.js:3:9\)/)
    assert.equal(thrown.stdout, 'before\n')
    failed(await executor.js('async function main() { throw new Error("later") }'), 1, /Error: later/)
    failed(await executor.js('function main() { process.exit(4) }'), 4)
    failed(await executor.js('function main() { process.kill(process.pid, "SIGKILL"); for (;;); }'), 137)
    failed(await executor.js('function main() {}'), 1, /use null/)
    failed(await executor.js('async function main() { return undefined }'), 1, /use null/)
    for (const value of ['() => 1', 'Symbol("x")', '10n', 'NaN', '{ a: Infinity }', '"\\ud800"']) {
      failed(await executor.js(`function main() { return ${value.startsWith('{') ? `(${value})` : value} }`), 1, /JSON/)
    }
    failed(await executor.js('function main() { const a = {}; a.a = a; return a }'), 1, /JSON/)
    failed(await executor.js('function main() { return new Promise(() => {}) }'), 1, /never finished/)
  })

  test('executor/limits: time', limited(180), () => withServer(options('--executor-timeout', '12s'), async (own) => {
    const { py, js } = client(own)
    const [slow, ...others] = await Promise.all([
      py('import time\ndef main():\n    print("said", flush=True)\n    time.sleep(600)'),
      py('import signal, time\ndef main():\n    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\n    while True:\n        try: time.sleep(1)\n        except BaseException: pass'),
      py('def main(): return sum(range(10 ** 13))'),  // a loop in C that never looks at signals
      py('import threading, time\ndef main():\n    threading.Thread(target=lambda: time.sleep(600)).start()\n    return 1'),
    ])
    assert.equal(slow.stdout, 'said\n')
    assert.ok(slow.time_used_ms >= 11_900, `${slow.time_used_ms} ms`)
    others.push(slow, ...await Promise.all([
      js('function main() { for (;;); }'),
      js('function main() { process.on("SIGTERM", () => {}); process.on("SIGINT", () => {}); return new Promise((r) => setTimeout(r, 600000)) }'),
      js('function main() { setInterval(() => {}, 10); return 1 }'),
    ]))
    for (const answer of others) timedOut(answer)
  }))

  test('executor/limits: time, with processes that get away from their parents', limited(120), () => withServer(options('--executor-timeout', '12s'), async (own) => {
    const { py } = client(own)
    timedOut(await py('import os, time\ndef main():\n    for _ in range(5):\n        if os.fork() == 0:\n            os.setsid()\n            while True: time.sleep(1)\n    time.sleep(600)'))
    // And one that leaves some behind and returns: they end with its sandbox.
    succeeded(await py('import subprocess\ndef main():\n    subprocess.Popen(["sleep", "600"], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)\n    return 1'), 1)
    await count('their sandboxes to go', own, 0)
  }))

  test('executor/limits: memory', limited(90), async () => {
    const outOfMemory = (answer) => {
      assert.equal(answer.status, 'resource_limit_exceeded', `${answer.status} ${answer.exit_code} ${answer.stderr}`)
      assert.equal(answer.exit_code, -137)
      assert.equal(answer.stderr, 'Memory limit exceeded (killed by OOM)')
      assert.equal(answer.resource_limit_type, 'memory')
      assert.equal(answer.result, null)
    }
    outOfMemory(await executor.py('def main():\n    x = bytearray(400 << 20)\n    x[::4096] = b"x" * len(x[::4096])\n    return len(x)'))
    outOfMemory(await executor.js('function main() { const all = []; for (;;) all.push(Buffer.alloc(8 << 20, 1)) }'))
    // An exception of the code has its own exit code and words.
    const refused = await executor.py('def main(): return bytearray(1 << 50)')
    assert.deepEqual([refused.status, refused.exit_code, refused.resource_limit_type, refused.runtime_error_type, refused.result],
                     ['resource_limit_exceeded', 1, 'memory', null, null])
    assert.match(refused.stderr, /\nMemoryError\n$/)
    // 256 MB are for the code: 150 fit.
    const fits = await executor.py('def main():\n    x = bytearray(150 << 20)\n    x[::4096] = b"x" * len(x[::4096])\n    return len(x)')
    succeeded(fits, 150 << 20)
    assert.ok(fits.memory_used_kb > 150 << 10, `${fits.memory_used_kb} kB`)
  })

  test('executor/status: unauthorized access', limited(60), async () => {
    const unauthorized = (answer, type, exitCode = 1) => {
      assert.equal(answer.status, 'unauthorized_access', answer.stderr)
      assert.equal(answer.unauthorized_access_type, type)
      assert.equal(answer.exit_code, exitCode)
    }
    unauthorized(await executor.py('def main(): return open("/etc/shadow").read()'), 'file_access')
    unauthorized(await executor.py('import os\ndef main(): os.chown("/etc/passwd", 0, 0)'), 'disallowed_syscall')
    unauthorized(await executor.py('import sys\ndef main():\n    print("Permission denied", file=sys.stderr)\n    sys.exit(5)'), 'file_access', 5)
    // Code that copes with it is successful.
    succeeded(await executor.py('import sys\ndef main():\n    print("Permission denied", file=sys.stderr)\n    return 1'), 1)
  })

  test('executor/artifacts: what goes with the answer', limited(60), async () => {
    const answer = await executor.py(`
import os, base64
def main():
    assert os.listdir("artifacts") == []
    for name in ("plot.png", "a.jpg", "b.jpeg", "c.svg", "d.pdf", "e.csv", "f.json", "G.HTML"):
        with open("artifacts/" + name, "wb") as f: f.write(b"\\x00\\xff" + name.encode())
    for name in ("none.txt", "script.py", "png", ".hidden.png", "..png"):
        with open("artifacts/" + name, "w") as f: f.write("x")
    open("artifacts/empty.csv", "w").close()
    os.mkdir("artifacts/folder.png")
    os.mkdir("artifacts/deep")
    with open("artifacts/deep/inner.png", "w") as f: f.write("x")
    os.symlink("/etc/passwd", "artifacts/link.csv")
    with open("artifacts/large.json", "wb") as f: f.truncate((10 << 20) + 1)
    with open("outside.csv", "w") as f: f.write("x")
    return os.getcwd()
`)
    assert.equal(answer.status, 'success', answer.stderr)
    const names = { 'plot.png': 'image/png', 'a.jpg': 'image/jpeg', 'b.jpeg': 'image/jpeg', 'c.svg': 'image/svg+xml', 'd.pdf': 'application/pdf',
      'e.csv': 'text/csv', 'f.json': 'application/json', 'G.HTML': 'text/html' }
    assert.deepEqual(answer.artifacts.map((one) => one.name).sort(), Object.keys(names).sort())
    for (const one of answer.artifacts) {
      assert.deepEqual(Object.keys(one).sort(), ['content_b64', 'mime_type', 'name', 'size'])
      assert.equal(one.mime_type, names[one.name])
      const content = Buffer.from(one.content_b64, 'base64')
      assert.ok(content.equals(Buffer.concat([Buffer.from([0, 0xff]), Buffer.from(one.name)])))
      assert.equal(one.size, content.length)
    }
    const many = await executor.js('const fs = require("fs"); function main() { for (let i = 10; i < 35; i++) fs.writeFileSync(`artifacts/${i}.csv`, "x"); return 1 }')
    succeeded({ ...many }, 1)
    assert.equal(many.artifacts.length, 10)
    const largest = await executor.py('def main():\n    with open("artifacts/x.json", "wb") as f: f.write(b"y" * (10 << 20))\n    return 1')
    assert.deepEqual(largest.artifacts.map((one) => [one.name, one.size]), [['x.json', 10 << 20]])
    // None of a run that failed, and none where the directory is not what it was.
    failed(await executor.py('def main():\n    open("artifacts/a.csv", "w").write("x")\n    raise SystemExit(2)'), 2)
    const gone = await executor.py('import shutil\ndef main():\n    shutil.rmtree("artifacts")\n    open("artifacts", "w").write("x")\n    return 1')
    succeeded(gone, 1)
    assert.deepEqual(gone.artifacts, [])
  })

  test('executor/artifacts: a chart', limited(60), async () => {
    const answer = await executor.py(`
import matplotlib.pyplot as plt
import pandas as pd
def main():
    frame = pd.DataFrame({"x": [1, 2, 3], "y": [1, 4, 9]})
    frame.plot(x="x", y="y")
    plt.savefig("artifacts/chart.png")
    frame.to_csv("artifacts/data.csv", index=False)
    return int(frame.y.sum())`)
    assert.equal(answer.status, 'success', answer.stderr)
    assert.equal(answer.result.value, 14)
    assert.deepEqual(answer.artifacts.map((one) => one.name), ['chart.png', 'data.csv'])
    assert.equal(Buffer.from(answer.artifacts[0].content_b64, 'base64').subarray(1, 4).toString(), 'PNG')
    assert.equal(unb64(answer.artifacts[1].content_b64), 'x,y\n1,1\n2,4\n3,9\n')
  })

  test('executor/result: a marker that the code printed itself', limited(60), async () => {
    const marked = (value) => MARKER + b64(JSON.stringify({ present: true, value, type: 'json' }))
    const own = await executor.py(`def main():\n    print("a")\n    print("${marked({ from: 'marker' })}")\n    print("b")`)
    succeeded(own, { from: 'marker' })
    assert.equal(own.stdout, 'a\nb\n')
    const js = await executor.js(`function main() { console.log("${marked(7)}"); return null }`)
    succeeded(js, 7)
    assert.equal(js.stdout, '')
    // main() has the last word.
    const both = await executor.py(`def main():\n    print("${marked(1)}")\n    return 2`)
    succeeded(both, 2)
    assert.equal(both.stdout, '')
    // What does not decode stays.
    const broken = await executor.py(`def main():\n    print("${MARKER}!!!")\n    print("${MARKER}${b64('[]')}")\n    return 3`)
    succeeded(broken, 3)
    assert.equal(broken.stdout, `${MARKER}!!!\n${MARKER}${b64('[]')}\n`)
  })

  test('executor/output: bytes that are no text, and very much of it', limited(60), async () => {
    const bytes = await executor.py('import sys\ndef main():\n    sys.stdout.buffer.write(b"a\\xff\\xc3b\\n")\n    return 1')
    assert.equal(bytes.stdout, 'a\ufffd\ufffdb\n')
    const much = await executor.py('def main():\n    for i in range(2000): print("x" * 9999)\n    return 1')
    assert.equal(much.status, 'success')
    assert.ok(much.stdout.length < 9 << 20 && much.stdout.length > 1 << 20, `${much.stdout.length}`)
  })

  test('executor/isolation: nothing is left for the next', limited(120), async () => {
    const leave = await executor.py('import os, builtins\ndef main():\n    builtins.left = 1\n    for name in ("left.txt", "/tmp/left.txt", os.path.expanduser("~/left.txt")): open(name, "w").write("x")\n    os.environ["LEFT"] = "1"\n    return open("/proc/sys/kernel/random/boot_id").read()')
    assert.equal(leave.status, 'success', leave.stderr)
    const look = await executor.py('import os, builtins\ndef main():\n    return [hasattr(builtins, "left"), os.path.exists("/tmp/left.txt"), os.path.exists(os.path.expanduser("~/left.txt")), "LEFT" in os.environ, sorted(os.listdir(".")), open("/proc/sys/kernel/random/boot_id").read()]')
    assert.deepEqual(look.result.value.slice(0, 5), [false, false, false, false, ['artifacts', 'main.py']])
    assert.notEqual(look.result.value[5], leave.result.value)
    // Harmless modules are not refused; what they could do ends at the sandbox.
    succeeded(await executor.py('import os, sys, subprocess, socket, threading\ndef main(): return subprocess.run(["echo", "fine"], capture_output=True, text=True).stdout'), 'fine\n')
  })

  test('executor/isolation: many runs leave no sandbox', limited(180), async () => {
    const one = async (i) => {
      const answer = await executor.run(i % 4 === 3 ? 'nodejs' : 'python', i % 4 === 3 ? 'function main(x) { return x.i }' : 'def main(i): return i', { i })
      succeeded(answer, i)
    }
    for (let i = 0; i < 40; i += 2) await Promise.all([one(i), one(i + 1)])
    await count('their sandboxes to go', server, 0)
  })

  test('executor/pool: runs at once are bounded and wait in line', limited(90), async () => {
    await count('an empty server', server, 0)
    let most = 0
    let watching = true
    const watch = (async () => {
      while (watching) {
        const now = await sandboxes(server)
        assert.ok(now.every((one) => one.metadata['atoll.executor'] === 'python'))
        most = Math.max(most, now.length)
        await sleep(30)
      }
    })()
    const answers = await Promise.all(Array.from({ length: 5 }, (_, i) => executor.py('import time\ndef main(i):\n    time.sleep(1)\n    return i', { i })))
      .finally(() => (watching = false))
    await watch
    answers.forEach((answer, i) => succeeded(answer, i))
    assert.equal(most, 2, `${most} sandboxes at once`)
  })

  test('executor/pool: a client that goes away frees its place', limited(180), async () => {
    await count('an empty server', server, 0)
    const body = JSON.stringify({ code_b64: b64('import time\ndef main(): time.sleep(60)') })
    const gone = Array.from({ length: 2 }, () => {
      const socket = net.connect(Number(executor.base.port), executor.base.hostname)
      socket.write(`POST /run HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
      return socket
    })
    await count('their sandboxes', server, 2)
    for (const socket of gone) socket.destroy()
    await until('their end', async () => (await sandboxes(server)).length === 0, 25_000)
    succeeded(await executor.py('def main(): return 1'), 1)
  })

  test('executor/pool: busy', limited(120), () => withServer(options('--executor-pool', '1', '--executor-timeout', '30s'), async (own) => {
    const { py, js } = client(own)
    const long = py('import time\ndef main():\n    time.sleep(14)\n    return "long"')
    await count('the first', own, 1)
    const answer = await py('def main(): return 1')
    assert.equal(answer.status, 'program_runner_error')
    assert.equal(answer.exit_code, -10)
    assert.equal(answer.stderr, 'Container pool is busy')
    assert.equal(answer.detail, 'no_available_container')
    // Another language has places of its own.
    succeeded(await js('function main() { return 1 }'), 1)
    succeeded(await long, 'long')
    succeeded(await py('def main(): return 2'), 2)
  }))

  test('executor/rate: too many of one client', limited(90), () => withServer(options('--executor-rate', '2/m'), async (own) => {
    const { py, post } = client(own)
    const answers = await Promise.all([1, 2, 3].map(() => py('def main(): return 1')))
    const [answer, ...more] = answers.filter((one) => one.exit_code === -429)
    assert.deepEqual(more, [])
    for (const one of answers.filter((one) => one !== answer)) succeeded(one, 1)
    assert.equal(answer.status, 'program_runner_error')
    assert.equal(answer.stderr, 'Too many requests, please try again later')
    assert.equal((await post({})).status, 422)
  }))

  test('executor/key: asked for when there is one', limited(90), async () => {
    const own = await startServer(options(), { ATOLL_EXECUTOR_KEY: 'secret-of-the-test' })
    try {
      const { post, run, base } = client(own)
      const body = { code_b64: b64('def main(): return 1') }
      for (const headers of [{}, { Authorization: 'Bearer wrong' }, { Authorization: 'secret-of-the-test' }, { 'X-API-Key': 'secret-of-the-tes' }, { 'X-API-Key': '' }]) {
        const answer = await post(body, headers)
        assert.equal(answer.status, 401, answer.text)
        assert.equal(answer.json.code, 401)
      }
      for (const headers of [{ Authorization: 'Bearer secret-of-the-test' }, { 'X-API-Key': 'secret-of-the-test' }]) {
        succeeded(await run('python', 'def main(): return 1', {}, headers), 1)
      }
      assert.equal((await request('GET', '/healthz', { base })).status, 200)
      assert.ok(!own.log().includes('secret-of-the-test'))
    } finally {
      await own.stop()
    }
  })

  test('executor/check: refused where it is asked for', limited(120), () => withServer(options('--executor-static-check'), async (own) => {
    const { py, js } = client(own)
    const unsafe = (answer, stderr) => {
      assert.equal(answer.status, 'program_runner_error')
      assert.equal(answer.exit_code, -999)
      assert.equal(answer.detail, 'Code is unsafe')
      assert.equal(answer.stderr, stderr)
    }
    unsafe(await py('x = 1\nimport os\nfrom subprocess import run\ndef main():\n    return eval("1")'),
           'Line 2: import of os\nLine 3: import from subprocess\nLine 5: call of eval')
    unsafe(await js('const fs = require("fs")\nfunction main() {\n  return eval("1")\n}'), 'Line 1: require of fs\nLine 3: call of eval')
    unsafe(await js('import { exec } from "node:child_process"\nexport const main = () => 1'), 'Line 1: import of child_process')
    succeeded(await py('import json, math\ndef main():\n    """import os"""\n    return math.floor(1.5)  # eval("x")'), 1)
    succeeded(await js('// require("fs")\nfunction main() { return "require(\'fs\')".length }'), 13)
    failed(await py('def main(:'), 1, /SyntaxError/)
    failed(await js('function main( {'), 1, /SyntaxError/)
  }))

  test('executor/offline: runs without a network', limited(90), () => withServer(options('--executor-offline'), async (own) => {
    const { py } = client(own)
    const answer = await py('import socket\ndef main():\n    s = socket.socket()\n    s.settimeout(2)\n    try:\n        s.connect(("1.1.1.1", 80))\n        return "connected"\n    except OSError as e:\n        return "refused"')
    succeeded(answer, 'refused')
  }))

  test('executor/settings: what is wrong is named', limited(60), async () => {
    for (const [option, value] of [['timeout', 'soon'], ['timeout', '2h'], ['memory', '1m'], ['memory', 'much'], ['rate', '5'], ['pool', '0'], ['listen', 'here']]) {
      await assert.rejects(startServer(options().filter((word) => option !== 'listen' || !/executor-listen|127\.0\.0\.1:0/.test(word)).concat(`--executor-${option}`, value)),
                           (error) => error.message.includes(option === 'listen' ? 'here' : `--executor-${option}`))
    }
  })

  test('executor/settings: memory and time of a run', limited(90), () => withServer(options('--executor-memory', '512m', '--executor-timeout', '1m30s'), async (own) => {
    const { py } = client(own)
    succeeded(await py('def main():\n    x = bytearray(280 << 20)\n    return len(x)'), 280 << 20)
    succeeded(await py('import time\ndef main():\n    time.sleep(11)\n    return 1'), 1)
  }))

  test('executor/restart: a server that dies leaves no run behind', limited(180), async () => {
    const own = await startServer(options('--executor-timeout', '1h'))
    try {
      const { base, post, py } = client(own)
      const broken = post({ code_b64: b64('import time\ndef main(): time.sleep(3000)') }).catch((failure) => failure)
      await count('it', own, 1)
      const other = (await own.call('POST', '/v2/sandboxes', { templateID: 'base', timeout: 600 })).json.sandboxID
      process.kill(own.facts.pid, 'SIGKILL')
      assert.ok((await broken) instanceof Error)
      // The port is the same, kept by the supervisor; the run is gone, what is not the executor's goes on.
      assert.equal((await request('GET', '/healthz', { base })).status, 200)
      await until('its end', async () => (await sandboxes(own)).every((one) => one.sandboxID === other), 60_000)
      assert.equal((await sandboxes(own)).length, 1)
      succeeded(await py('def main(): return 1'), 1)
    } finally {
      await own.stop()
    }
  })

  test('executor/shutdown: runs under way end with the server', limited(180), async () => {
    const own = await startServer(options('--executor-timeout', '5m'))
    const { post } = client(own)
    const ended = post({ code_b64: b64('import time\ndef main(): time.sleep(250)') }).then((answer) => answer.json.exit_code, () => 'broken')
    await count('it', own, 1)
    const begun = Date.now()
    await own.stop()
    assert.ok([-3, 'broken'].includes(await ended))
    assert.ok(Date.now() - begun < 45_000, `${Date.now() - begun} ms`)
  })
})
