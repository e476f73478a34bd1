// Port 49999 by hand: routes, errors, the stream, queues, interrupts, contexts, variables, arguments.
import { readFileSync } from 'node:fs'
import { describe } from 'node:test'
import { assert, plainUrl, request, sleep, until, urlOf } from './support.mjs'
import { Interpreter, PORT, withInterpreter } from './kernel.mjs'

const parallel = { concurrency: Number(process.env.E2E_JOBS ?? 3) }
const cells = JSON.parse(readFileSync(new URL('../cells/languages.json', import.meta.url), 'utf8'))
const LANGUAGES = Object.keys(cells).filter((name) => name !== 'comment')
const detail = (answer) => answer.json.detail

describe('interpreter/routes', parallel, () => {
  withInterpreter('interpreter/routes: health, contexts, null bodies', async (sandbox) => {
    const health = await sandbox.ask('GET', '/health')
    assert.deepEqual([health.status, health.text], [200, '"OK"'])
    assert.match(health.headers['content-type'], /^application\/json/)
    const first = (await sandbox.ask('GET', '/contexts')).json
    assert.deepEqual(first.map(({ language, cwd }) => [language, cwd]), [['python', '/home/user'], ['javascript', '/home/user']])
    const made = await sandbox.ask('POST', '/contexts?source=test', {})
    assert.equal(made.status, 200)
    assert.deepEqual([made.json.language, made.json.cwd, Object.keys(made.json).length], ['python', '/home/user', 3])
    for (const body of [{ cwd: null, language: null }, { cwd: '', language: '' }]) {
      const { json } = await sandbox.ask('POST', '/contexts', body)
      assert.deepEqual([json.language, json.cwd], ['python', '/home/user'])
    }
    for (const [method, path] of [['POST', `/contexts/${made.json.id}/restart`], ['DELETE', `/contexts/${made.json.id}`]]) {
      const done = await sandbox.ask(method, path, undefined, { 'Content-Type': 'application/json' })
      assert.deepEqual([done.status, done.text], [200, 'null'])
    }
    const left = (await sandbox.ask('GET', '/contexts')).json
    assert.deepEqual(left.slice(0, 2), first)
    assert.equal(left.length, 4)
  })

  withInterpreter('interpreter/routes: unknown paths and methods', async (sandbox) => {
    for (const path of ['/', '/nothing', '/contexts/x/y', '/execute/']) {
      const lost = await sandbox.ask('GET', path)
      assert.deepEqual([lost.status, lost.text], [404, '{"detail":"Not Found"}'], path)
    }
    for (const [method, path] of [['GET', '/execute'], ['PUT', '/contexts'], ['POST', '/health'], ['GET', '/contexts/x/restart'], ['GET', '/contexts/x']]) {
      const wrong = await sandbox.ask(method, path)
      assert.deepEqual([wrong.status, wrong.text], [405, '{"detail":"Method Not Allowed"}'], `${method} ${path}`)
    }
  })

  withInterpreter('interpreter/routes: bodies that are not what they should be', async (sandbox) => {
    const missing = await sandbox.ask('POST', '/execute', {})
    assert.equal(missing.status, 422)
    assert.deepEqual(missing.json, { detail: [{ type: 'missing', loc: ['body', 'code'], msg: 'Field required', input: {} }] })
    const string = (loc) => ({ type: 'string_type', loc: ['body', ...loc], msg: 'Input should be a valid string' })
    for (const [body, loc] of [[{ code: 1 }, ['code']], [{ code: {} }, ['code']], [{ code: null }, ['code']],
                               [{ code: '1', env_vars: { A: 1 } }, ['env_vars', 'A']], [{ code: '1', language: 5 }, ['language']]]) {
      const refused = await sandbox.ask('POST', '/execute', body)
      assert.equal(refused.status, 422, refused.text)
      const { input, ...rest } = detail(refused)[0]
      assert.deepEqual(rest, string(loc), JSON.stringify(body))
    }
    for (const body of ['', '{', '[]', '"code"', 'null', '{"code":"1"} x']) {
      const refused = await sandbox.ask('POST', '/execute', body)
      assert.equal(refused.status, 422, `${body}: ${refused.text}`)
      assert.ok(Array.isArray(detail(refused)), refused.text)
    }
    await sandbox.usable()
  })

  withInterpreter('interpreter/routes: contexts and languages that are not there', async (sandbox) => {
    const [{ id }] = (await sandbox.ask('GET', '/contexts')).json
    const both = await sandbox.ask('POST', '/execute', { code: '1', context_id: id, language: 'python' })
    assert.deepEqual([both.status, both.text], [400, 'Only one of context_id or language can be provided'])
    assert.match(both.headers['content-type'], /^text\/plain/)
    const nowhere = '11111111-2222-3333-4444-555555555555'
    for (const [method, path, body] of [['POST', '/execute', { code: '1', context_id: nowhere }], ['POST', `/contexts/${nowhere}/restart`], ['DELETE', `/contexts/${nowhere}`]]) {
      const lost = await sandbox.ask(method, path, body)
      assert.deepEqual([lost.status, lost.text], [404, `Context ${nowhere} not found`])
    }
    for (const [path, body] of [['/contexts', { language: 'cobol' }], ['/execute', { code: '1', language: 'cobol' }]]) {
      const unknown = await sandbox.ask('POST', path, body)
      assert.equal(unknown.status, 500)
      assert.match(unknown.text, /^Failed to create context: ./)
    }
    assert.equal((await sandbox.run({ code: '1', context_id: null, language: null, env_vars: null })).text, '1')
    assert.equal((await sandbox.run({ code: '1', context_id: '', language: 'python' })).text, '1')
  })

  withInterpreter('interpreter/routes: names of languages', async (sandbox) => {
    for (const [name, code, text] of [['python3', '6 * 7', '42'], [' Python ', '6 * 7', '42'], ['JS', '6 * 7', '42'], ['node', '6 * 7', '42'],
                                      ['nodejs', '6 * 7', '42'], ['ts', 'const n: number = 42; n', '42'], ['', '6 * 7', '42']]) {
      assert.equal((await sandbox.run(code, name)).text, text, name)
    }
    const listed = (await sandbox.ask('GET', '/contexts')).json.map(({ language }) => language)
    assert.deepEqual(listed, ['python', 'javascript', 'typescript'])
  })

  withInterpreter('interpreter/routes: browsers may call', async (sandbox) => {
    const preflight = await sandbox.ask('OPTIONS', '/execute', undefined, {
      Origin: 'https://app.example.com', 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'content-type,x-anything' })
    assert.deepEqual([preflight.status, preflight.text], [200, 'OK'])
    assert.equal(preflight.headers['access-control-allow-origin'], '*')
    assert.match(preflight.headers['access-control-allow-methods'], /POST/)
    assert.match(preflight.headers['access-control-allow-headers'], /x-anything/i)
    assert.equal(preflight.headers['access-control-max-age'], '600')
    const health = await sandbox.ask('GET', '/health', undefined, { Origin: 'https://app.example.com' })
    assert.equal(health.headers['access-control-allow-origin'], '*')
    const run = await sandbox.begin('1', {}, { route: { ...sandbox.where, headers: { ...sandbox.where.headers, Origin: 'https://x.example' } } }).ended
    assert.equal(run.headers['access-control-allow-origin'], '*')
  })
})

describe('interpreter/stream', parallel, () => {
  withInterpreter('interpreter/stream: order, ASCII and the last line', async (sandbox) => {
    const run = await sandbox.begin('print("žluťoučký 🐎 \\u2028 \\x85")\nimport sys\nprint("err", file=sys.stderr)\ndisplay(1)\n"ž"').ended
    assert.ok(run.ascii && run.whole && run.rest === '', run.rest)
    assert.deepEqual(run.lines.map(({ type }) => type), ['number_of_executions', 'stdout', 'stderr', 'result', 'result', 'end_of_execution'])
    assert.equal(run.lines[1].text, 'žluťoučký 🐎 \u2028 \x85\n')
    assert.match(run.lines[1].timestamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$/)
    assert.deepEqual(run.lines.slice(3, 5).map(({ text, is_main_result: main, extra }) => [text, main, extra]), [['1', false, {}], ['ž', true, {}]])
    assert.equal(run.headers['transfer-encoding'], 'chunked')
  })

  withInterpreter('interpreter/stream: an error has all its fields', async (sandbox) => {
    const { run, error } = await sandbox.run('print("before")\nxyz\nprint("never")')
    assert.deepEqual(run.lines.map(({ type }) => type), ['number_of_executions', 'stdout', 'error', 'end_of_execution'])
    assert.deepEqual([error.name, error.value], ['NameError', "name 'xyz' is not defined"])
    assert.match(error.traceback, /^-{75}NameError {2,}Traceback \(most recent call last\)Cell In\[1\], line 2\n/)
    assert.doesNotMatch(error.traceback, /\x1b/)
  })

  withInterpreter('interpreter/stream: numbers keep their kind', async (sandbox) => {
    const { base, headers } = sandbox.where
    const answer = await request('POST', '/execute', { base, headers: { ...headers, 'Content-Type': 'application/json' },
      body: JSON.stringify({ code: '[1.0, 2, float("nan"), float("inf"), 1e300]' }) })
    assert.doesNotMatch(answer.text, /NaN|Infinity/)
    assert.match(answer.text, /"json": ?\[1\.0, ?2, ?null, ?null, ?1e\+?300\]/)
  })

  withInterpreter('interpreter/stream: the header comes at once, silence is filled', async (sandbox) => {
    const run = sandbox.begin('import time\ntime.sleep(11.5)\nprint("done")')
    assert.equal(await run.answered, 200)
    assert.equal(run.of('end_of_execution').length, 0)
    await run.ended
    assert.ok(run.of('keepalive').length >= 1 && run.of('keepalive').length <= 3, JSON.stringify(run.lines))
    assert.equal(run.lines.at(-1).type, 'end_of_execution')
  })

  withInterpreter('interpreter/stream: a client that does not read stops the cell, not the memory', async (sandbox) => {
    const { base, headers } = sandbox.where
    const body = JSON.stringify({ code: 'import sys\nfor i in range(300):\n    sys.stdout.write("x" * 99999 + "\\n"); sys.stdout.flush()\n    open("/tmp/at", "w").write(str(i))' })
    const { start } = await import('./support.mjs')
    const req = start(base, { method: 'POST', path: '/execute', headers: { ...headers, 'Content-Type': 'application/json' } })
    const response = await new Promise((resolve, reject) => {
      req.on('error', reject)
      req.on('response', resolve)
      req.end(body)
    })
    response.pause()
    await sleep(1500)
    let total = 0
    response.on('data', (chunk) => (total += chunk.length))
    response.resume()
    await new Promise((resolve, reject) => response.on('end', resolve).on('error', reject))
    assert.ok(total > 300 * 99_999, `${total}`)
    await sandbox.usable()
  })

  withInterpreter('interpreter/stream: a killed sandbox breaks the body', async (sandbox) => {
    const run = sandbox.begin('print("on", flush=True)\nimport time\ntime.sleep(300)')
    await sandbox.printed(run, 'on')
    await sandbox.kill()
    await assert.rejects(run.ended)
    assert.equal(run.whole, false)
  })
})

describe('interpreter/queue', parallel, () => {
  withInterpreter('interpreter/queue: one after the other, in order of arrival', async (sandbox) => {
    await sandbox.run('seen = []')
    const first = sandbox.begin('import time; seen.append(0); print("first", flush=True); time.sleep(1.5)')
    await sandbox.printed(first, 'first')
    const others = []
    for (let i = 1; i <= 4; i++) {
      others.push(sandbox.begin(`seen.append(${i})`))
      assert.equal(await others.at(-1).answered, 200)
    }
    assert.equal(others[0].of('number_of_executions').length, 0)
    await Promise.all([first, ...others].map((run) => run.ended))
    assert.equal((await sandbox.run('seen')).text, '[0, 1, 2, 3, 4]')
  })

  withInterpreter('interpreter/queue: who leaves the line is not served', async (sandbox) => {
    await sandbox.run('seen = []')
    const first = sandbox.begin('import time; print("first", flush=True); time.sleep(2)')
    await sandbox.printed(first, 'first')
    const leaving = sandbox.begin('seen.append("never")')
    await leaving.answered
    leaving.close()
    await first.ended
    assert.equal((await sandbox.run('seen')).text, '[]')
  })

  withInterpreter('interpreter/queue: contexts do not wait for each other', async (sandbox) => {
    const context_id = (await sandbox.ask('POST', '/contexts', {})).json.id
    const slow = sandbox.begin('import time, os\nprint("slow", flush=True)\nwhile not os.path.exists("/tmp/go"): time.sleep(0.02)')
    await sandbox.printed(slow, 'slow')
    assert.equal((await sandbox.run('open("/tmp/go", "w").close(); "quick"', { context_id })).text, 'quick')
    assert.equal((await sandbox.run('40 + 2', 'js')).text, '42')
    await slow.ended
  })
})

describe('interpreter/interrupt', parallel, () => {
  const loops = {
    python: ['kept = 5', 'print("on", flush=True)\nwhile True: pass', 'print(kept)'],
    bash: ['kept=5', 'echo on; while :; do sleep 1; done', 'echo $kept'],
    javascript: ['kept = 5', 'console.log("on"); while (true) {}', 'console.log(kept)'],
    r: ['kept <- 5', 'file.create("/tmp/on"); repeat {}', 'cat(kept, "\\n", sep = "")'],
    java: ['int kept = 5;', 'System.out.println("on"); while (true) { Thread.sleep(10); }', 'System.out.println(kept)'],
  }
  for (const [language, [set, loop, get]] of Object.entries(loops)) {
    withInterpreter(`interpreter/interrupt: a client that leaves, in ${language}`, async (sandbox) => {
      assert.equal((await sandbox.run(set, language)).error, undefined)
      const run = sandbox.begin(loop, { language })
      if (language === 'r') await until('the loop', async () => (await sandbox.command('ls /tmp/on 2>/dev/null || true')).stdout !== '')
      else await sandbox.printed(run, 'on')
      run.close()
      const after = await sandbox.run(get, language)
      assert.match(after.stdout, /^5/, `${JSON.stringify(after.error)} ${after.stderr}`)
    })
  }
})

describe('interpreter/contexts', parallel, () => {
  withInterpreter('interpreter/contexts: restart under a run', async (sandbox) => {
    const { id } = (await sandbox.ask('POST', '/contexts', { cwd: '/tmp' })).json
    await sandbox.run('x = 1', { context_id: id })
    const run = sandbox.begin('print("on", flush=True)\nimport time\ntime.sleep(300)', { context_id: id })
    await sandbox.printed(run, 'on')
    assert.equal((await sandbox.ask('POST', `/contexts/${id}/restart`)).text, 'null')
    const { error } = summaryOf(await run.ended)
    assert.deepEqual([error.name, error.value, error.traceback],
                     ['UnexpectedEndOfExecution', 'Connection to the execution was closed before the execution was finished', ''])
    const after = await sandbox.run('import os; (os.getcwd(), "x" in globals())', { context_id: id })
    assert.deepEqual([after.text, after.count], ["('/tmp', False)", 1])
  })

  withInterpreter('interpreter/contexts: delete under a run', async (sandbox) => {
    const { id } = (await sandbox.ask('POST', '/contexts', {})).json
    const run = sandbox.begin('print("on", flush=True)\nimport time\ntime.sleep(300)', { context_id: id })
    await sandbox.printed(run, 'on')
    const queued = sandbox.begin('1', { context_id: id })
    await queued.answered
    assert.equal((await sandbox.ask('DELETE', `/contexts/${id}`)).status, 200)
    for (const ended of [run, queued]) assert.equal(summaryOf(await ended.ended).error.name, 'UnexpectedEndOfExecution')
    assert.equal((await sandbox.ask('POST', '/execute', { code: '1', context_id: id })).status, 404)
  })

  withInterpreter('interpreter/contexts: a default that was deleted comes back', async (sandbox) => {
    const [python, javascript] = (await sandbox.ask('GET', '/contexts')).json
    await sandbox.run('x = 1')
    for (const { id } of [python, javascript]) assert.equal((await sandbox.ask('DELETE', `/contexts/${id}`)).status, 200)
    assert.equal((await sandbox.run('"x" in globals()')).text, 'False')
    assert.equal((await sandbox.run('typeof x', 'js')).text, 'undefined')
  })

  withInterpreter('interpreter/contexts: directories', async (sandbox) => {
    for (const [language, code] of [['python', 'import os; print(os.getcwd())'], ['bash', 'pwd'], ['js', 'console.log(process.cwd())']]) {
      const { id, cwd } = (await sandbox.ask('POST', '/contexts', { language, cwd: '/usr/share' })).json
      assert.equal(cwd, '/usr/share')
      assert.equal((await sandbox.run(code, { context_id: id })).stdout, '/usr/share\n')
    }
    const nowhere = await sandbox.ask('POST', '/contexts', { cwd: '/no/such/place' })
    assert.deepEqual([nowhere.status, nowhere.json.cwd], [200, '/no/such/place'])
    assert.equal((await sandbox.run('1', { context_id: nowhere.json.id })).text, '1')
  })

  withInterpreter('interpreter/contexts: a kernel that dies is replaced', async (sandbox) => {
    await sandbox.run('x = 1')
    const { error } = await sandbox.run('import os, signal; os.kill(os.getpid(), signal.SIGKILL)')
    assert.deepEqual([error.name, error.value, error.traceback], ['ContextRestarting', 'Context was restarted', ''])
    const after = await sandbox.run('import os; (os.environ["GIVEN"], os.getcwd(), "x" in globals())')
    assert.deepEqual([after.text, after.count], ["('kept', '/home/user', False)", 1])
  }, { create: { envVars: { GIVEN: 'kept' } } })

  withInterpreter('interpreter/contexts: state outlives a pause', async (sandbox) => {
    await sandbox.run('x = 41')
    await sandbox.run('y=41', 'bash')
    assert.equal((await sandbox.api('POST', '/pause')).status, 204)
    assert.ok([200, 201].includes((await sandbox.api('POST', '/connect', { timeout: 120 })).status))
    assert.equal((await sandbox.run('x + 1')).text, '42')
    assert.equal((await sandbox.run('echo $((y + 1))', 'bash')).stdout, '42\n')
  }, { seconds: 90 })
})

describe('interpreter/env', parallel, () => {
  const odd = 'single \' double " dollar $HOME back \\ tick `id` \n line; ž 🐎 %s {x} ${y} \t end'
  const show = {
    python: 'import os; print(os.environ["ODD"], end="")',
    javascript: 'process.stdout.write(process.env.ODD)',
    typescript: 'process.stdout.write(process.env.ODD as string)',
    bash: 'printf %s "$ODD"',
    r: 'cat(Sys.getenv("ODD"))',
    java: 'System.out.print(System.getProperty("ODD"))',
  }
  for (const language of LANGUAGES) {
    withInterpreter(`interpreter/env: odd characters in ${language}`, async (sandbox) => {
      const value = (run) => run.stdout.replace(/\n$/, '')
      assert.equal(value(await sandbox.run(show[language], { language, env_vars: { ODD: odd + '!' } })), odd + '!')
      assert.equal(value(await sandbox.run(show[language], { language })), odd)
    }, { create: { envVars: { ODD: odd } } })
  }

  withInterpreter('interpreter/env: given back after an error and after a client that left', async (sandbox) => {
    const value = async () => (await sandbox.run('import os; os.environ.get("FOO", "default")')).text
    await sandbox.run('1 / 0', { env_vars: { FOO: 'bar' } })
    assert.equal(await value(), 'default')
    const run = sandbox.begin('print("on", flush=True)\nimport time\ntime.sleep(300)', { env_vars: { FOO: 'bar' } })
    await sandbox.printed(run, 'on')
    run.close()
    assert.equal(await value(), 'default')
  })
})

describe('interpreter/arguments', parallel, () => {
  const call = (sandbox, code, args, language = 'python') => sandbox.run({ code, language, arguments: args })
  const code = { python: 'def main(a, b=2, **rest):\n    return {"sum": a + b, "rest": rest, "half": 0.5, "none": None}\n"no result"',
                 javascript: 'function main({ a, b = 2, ...rest }) { return { sum: a + b, rest, half: 0.5, none: null } }\n"no result"',
                 typescript: 'async function main({ a, b = 2, ...rest }: any) { return { sum: a + b, rest, half: 0.5, none: null } }' }

  for (const language of Object.keys(code)) {
    withInterpreter(`interpreter/arguments: a value comes back, in ${language}`, async (sandbox) => {
      const { results, error } = await call(sandbox, code[language], { a: 40, text: 'ž "quoted"' }, language)
      assert.equal(error, undefined)
      assert.equal(results.length, 1)
      assert.equal(results[0].is_main_result, true)
      const wanted = { sum: 42, rest: { text: 'ž "quoted"' }, half: 0.5, none: null }
      assert.deepEqual(results[0].json, wanted)
      assert.deepEqual(JSON.parse(results[0].text), wanted)
    })
  }

  withInterpreter('interpreter/arguments: typed errors', async (sandbox) => {
    const name = async (...words) => (await call(sandbox, ...words)).error?.name
    assert.equal(await name('x = 1', {}), 'MissingMain')
    assert.equal(await name('const x = 1', {}, 'javascript'), 'MissingMain')
    assert.equal(await name('def main(a): return a', { b: 1 }), 'InvalidArguments')
    assert.equal(await name('def main(): return {1, 2}', {}), 'UnserializableResult')
    assert.equal(await name('def main(): return float("nan")', {}), 'UnserializableResult')
    assert.equal(await name('function main() { return () => 1 }', {}, 'javascript'), 'UnserializableResult')
    assert.equal(await name('def main(): raise KeyError("own")', {}), 'KeyError')
    assert.equal(await name('def main(:', {}), 'SyntaxError')
    for (const wrong of [[1], 'text', 5]) {
      const refused = await sandbox.ask('POST', '/execute', { code: 'def main(): pass', arguments: wrong })
      assert.equal(refused.status, 422, refused.text)
    }
    const elsewhere = await sandbox.ask('POST', '/execute', { code: 'true', language: 'bash', arguments: {} })
    assert.ok(elsewhere.status === 422 || elsewhere.status === 400 || /"type": ?"error"/.test(elsewhere.text), elsewhere.text)
  })
})

describe('interpreter/access', parallel, () => {
  withInterpreter('interpreter/access: private traffic needs the token', async (sandbox) => {
    const base = urlOf(sandbox.id, PORT)
    assert.ok(sandbox.fields.trafficAccessToken)
    for (const [method, path, body] of [['GET', '/health'], ['GET', '/contexts'], ['POST', '/contexts', '{}'], ['POST', '/execute', '{"code":"1"}']]) {
      assert.equal((await request(method, path, { base, body })).status, 403, path)
      assert.equal((await request(method, path, { base, body, headers: { 'E2B-Traffic-Access-Token': 'wrong' } })).status, 403, path)
      assert.equal((await sandbox.ask(method, path, body && JSON.parse(body))).status, 200, path)
    }
  }, { create: { secure: true, network: { allowPublicTraffic: false } } })

  withInterpreter('interpreter/access: by host name alone, and by headers alone', async (sandbox) => {
    const body = '{"code": "6 * 7", "context_id": null, "language": null, "env_vars": null}'
    const named = await request('POST', '/execute', { base: urlOf(sandbox.id, PORT), body, headers: { 'Content-Type': 'application/json' } })
    const led = await request('POST', '/execute?source=x', { base: plainUrl, body,
      headers: { 'Content-Type': 'application/json', 'E2b-Sandbox-Id': sandbox.id, 'E2b-Sandbox-Port': String(PORT) } })
    for (const answer of [named, led]) {
      assert.equal(answer.status, 200, answer.text)
      assert.match(answer.text, /"text": ?"42"/)
    }
  })

  withInterpreter('interpreter/access: siblings are strangers', async (sandbox) => {
    const code = 'import random, uuid, secrets, ssl, os, numpy; print(random.random(), numpy.random.rand(), uuid.uuid4(), secrets.token_hex(8), ssl.RAND_bytes(8).hex(), os.urandom(8).hex())'
    const other = await Interpreter.create()
    try {
      const { id: context_id } = (await sandbox.ask('POST', '/contexts', {})).json
      const all = [await sandbox.run(code), await sandbox.run(code, { context_id }), await other.run(code)].map(({ stdout }) => stdout.trim().split(' '))
      for (let i = 0; i < 6; i++) assert.equal(new Set(all.map((values) => values[i])).size, 3, `${i}: ${JSON.stringify(all)}`)
    } finally {
      await other.kill()
    }
  })

  withInterpreter('interpreter/access: kernels are the sandbox user and see nothing of the engine', async (sandbox) => {
    const { stdout } = await sandbox.run('import os, getpass\nprint(getpass.getuser(), os.getuid(), os.environ["HOME"])\nprint(sorted(os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")))\nprint([k for k in os.environ if "ATOLL" in k])')
    const [who, open, foreign] = stdout.split('\n')
    assert.equal(who, 'user 1000 /home/user')
    const files = open.match(/\/[^']*/g) ?? []
    assert.deepEqual(files.filter((file) => !/^\/(dev\/(null|pts|ptmx|urandom)|proc\/|memfd|home\/user)/.test(file)), [])
    assert.equal(foreign, '[]')
    const environ = await sandbox.command('tr "\\0" "\\n" < /proc/1/environ | grep -ci atoll || true', 'root')
    assert.equal(environ.stdout.trim(), '0')
  })
})

function summaryOf(run) {
  return { error: run.of('error').at(-1) }
}
