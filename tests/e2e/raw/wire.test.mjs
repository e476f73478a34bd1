// The agent's protocol beyond what the SDKs use: both codecs, streams, files over plain HTTP.
import { describe } from 'node:test'
import zlib from 'node:zlib'
import { plainUrl, assert, envelope, proto, protoCodec, Raw, readEnvelopes, request, sleep, unproto, unique, until, withSandbox } from './support.mjs'

const bash = (command, more = {}) => ({ process: { cmd: '/bin/bash', args: ['-c', command] }, ...more })
const start = '/process.Process/Start'
const text = (messages, kind) =>
  Buffer.concat(messages.map((m) => Buffer.from(m.event?.data?.[kind] ?? '', 'base64'))).toString()

describe('wire/codec', () => {
  withSandbox('wire/codec: unary calls in JSON', async (sandbox) => {
    const made = await sandbox.call('/filesystem.Filesystem/MakeDir', { path: 'made' })
    assert.equal(made.status, 200)
    assert.match(made.headers['content-type'], /^application\/json/)
    const { entry } = made.json
    assert.deepEqual([entry.name, entry.path, entry.type], ['made', '/home/user/made', 'FILE_TYPE_DIRECTORY'])
    assert.equal(typeof entry.size, 'string')
    assert.match(entry.modifiedTime, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/)

    const listed = await sandbox.call('/process.Process/List', {})
    assert.equal(listed.status, 200)
    const again = await sandbox.call('/filesystem.Filesystem/MakeDir', { path: 'made', unknown_field: [1, 2] })
    assert.equal(again.status, 409)
    assert.equal(again.json.code, 'already_exists')
  })

  withSandbox('wire/codec: unary calls in binary protobuf', async (sandbox) => {
    const call = (procedure, message) => sandbox.call(procedure, message, { 'Content-Type': 'application/proto' })
    const made = await call('/filesystem.Filesystem/MakeDir', proto([1, 'binary']))
    assert.equal(made.status, 200, made.text)
    assert.equal(made.headers['content-type'], 'application/proto')
    const entry = unproto(unproto(made.body).get(1)[0])
    assert.deepEqual([entry.get(1)[0].toString(), entry.get(2)[0], entry.get(3)[0].toString()],
                     ['binary', 2, '/home/user/binary'])
    assert.equal(entry.get(7)[0].toString(), 'user')

    const missing = await call('/filesystem.Filesystem/Stat', proto([1, 'absent']))
    assert.equal(missing.status, 404)
    assert.match(missing.headers['content-type'], /^application\/json/)
    assert.equal(missing.json.code, 'not_found')

    const broken = await call('/filesystem.Filesystem/Stat', Buffer.from([0x0a, 0xff, 0xff]))
    assert.equal(broken.status, 400)
    assert.equal(broken.json.code, 'invalid_argument')
  })

  withSandbox('wire/codec: streams in binary protobuf', async (sandbox) => {
    const config = [[1, '/bin/bash'], [2, '-c'], [2, 'printf hello; printf oops >&2; exit 3'], [3, [[1, 'A'], [2, 'b']]]]
    const answer = await sandbox.stream(start, proto([1, config], [4, false]), { codec: protoCodec })
    assert.equal(answer.status, 200)
    assert.equal(answer.headers['content-type'], 'application/connect+proto')
    assert.deepEqual(answer.end, {})
    const events = answer.messages.map((message) => unproto(message.get(1)[0]))
    assert.ok(unproto(events[0].get(1)[0]).get(1)[0] > 0, 'the first event names the pid')
    const data = (field) =>
      Buffer.concat(events.flatMap((event) => (event.get(2) ?? []).flatMap((d) => unproto(d).get(field) ?? []))).toString()
    assert.equal(data(1), 'hello')
    assert.equal(data(2), 'oops')
    const end = unproto(events.at(-1).get(3)[0])
    assert.equal(end.get(1)[0], 6, 'exit code 3 in zigzag')
    assert.equal(end.get(2)[0], 1)
    assert.equal(end.get(3)[0].toString(), 'exit status 3')

    const failed = await sandbox.stream('/process.Process/Connect', proto([1, [[1, 999999]]]), { codec: protoCodec })
    assert.equal(failed.status, 200)
    assert.equal(failed.end.error.code, 'not_found')
  })
})

describe('wire/process', () => {
  withSandbox('wire/process: how processes end', async (sandbox) => {
    const end = async (command) => (await sandbox.stream(start, bash(command))).messages.at(-1).event.end
    assert.deepEqual(await end('exit 0'), { exited: true, status: 'exit status 0' })
    assert.deepEqual(await end('exit 7'), { exitCode: 7, exited: true, status: 'exit status 7', error: 'exit status 7' })
    assert.deepEqual(await end('kill -TERM $$'), { exitCode: -1, status: 'signal: terminated', error: 'signal: terminated' })
    const missing = await sandbox.stream(start, { process: { cmd: 'no-such-program' } })
    assert.equal(missing.messages.at(-1).event.end.exitCode, 127)
    assert.match(text(missing.messages, 'stderr'), /no-such-program/)
  })

  withSandbox('wire/process: bad starts', async (sandbox) => {
    const code = async (message, headers) => (await sandbox.stream(start, message, { headers })).end.error.code
    assert.equal(await code({ process: { cmd: 'pwd', cwd: '/no/such/place' } }), 'invalid_argument')
    assert.equal(await code({ process: { cmd: 'pwd', cwd: '/root' } }), 'invalid_argument')
    const ghost = { Authorization: `Basic ${Buffer.from('ghost:').toString('base64')}` }
    assert.equal(await code({ process: { cmd: 'pwd' } }, ghost), 'unauthenticated')
  })

  withSandbox('wire/process: a timeout kills the process and ends the stream', async (sandbox) => {
    const answer = await sandbox.stream(start, bash('exec sleep 4242'), { headers: { 'Connect-Timeout-Ms': '500' } })
    assert.equal(answer.end.error.code, 'deadline_exceeded')
    await until('the process to be killed', async () => (await sandbox.run('pgrep -f "sleep 424[2]" || true')).stdout === '')
  })

  withSandbox('wire/process: keepalives fill silence', async (sandbox) => {
    const stream = sandbox.open(start, bash('sleep 3'), { headers: { 'Keepalive-Ping-Interval': '1' } })
    assert.deepEqual(await stream.ended, {})
    assert.ok(stream.messages[0].event.start, 'start comes first')
    const pings = stream.messages.filter((message) => message.event.keepalive).length
    assert.ok(pings >= 2 && pings <= 3, `${pings} keepalives in 3 s`)
  })

  withSandbox('wire/process: tags, fan-out and retained ends', async (sandbox) => {
    const tag = unique('tag')
    const first = sandbox.open(start, bash('read line; echo "got $line"; exit 5', { tag, stdin: true }))
    const pid = (await until('start', () => first.messages[0])).event.start.pid
    const listed = (await sandbox.call('/process.Process/List', {})).json.processes
    assert.deepEqual(listed.map((entry) => [entry.pid, entry.tag]), [[pid, tag]])

    const second = sandbox.open('/process.Process/Connect', { process: { tag } })
    assert.equal((await until('start', () => second.messages[0])).event.start.pid, pid)
    const input = { process: { tag }, input: { stdin: Buffer.from('it\n').toString('base64') } }
    assert.equal((await sandbox.call('/process.Process/SendInput', input)).status, 200)
    for (const stream of [first, second]) {
      assert.deepEqual(await stream.ended, {})
      assert.equal(text(stream.messages, 'stdout'), 'got it\n')
      assert.equal(stream.messages.at(-1).event.end.exitCode, 5)
    }
    const late = await sandbox.stream('/process.Process/Connect', { process: { pid } })
    assert.deepEqual(late.end, {})
    assert.equal(late.messages[0].event.start.pid, pid)
    assert.equal(late.messages.at(-1).event.end.exitCode, 5)
    assert.equal((await sandbox.call('/process.Process/SendSignal', { process: { pid }, signal: 'SIGNAL_SIGKILL' })).status, 404)
  })

  withSandbox('wire/process: input in one client stream', async (sandbox) => {
    const cat = sandbox.open(start, bash('cat', { stdin: true }))
    const pid = (await until('start', () => cat.messages[0])).event.start.pid
    const frame = (message) => envelope(Buffer.from(JSON.stringify(message)))
    const data = (part) => frame({ data: { input: { stdin: Buffer.from(part).toString('base64') } } })
    async function* frames() {
      yield frame({ start: { process: { pid } } })
      for (const part of ['one ', 'two ', 'three']) {
        yield data(part)
        await sleep(20)
      }
      yield frame({ keepalive: {} })
    }
    const headers = { 'Content-Type': 'application/connect+json', 'Connect-Protocol-Version': '1' }
    const answer = await sandbox.request('POST', '/process.Process/StreamInput', { headers, body: frames() })
    assert.equal(answer.status, 200)
    assert.deepEqual(readEnvelopes(answer.body), { messages: [{}], end: {} })
    assert.equal((await sandbox.call('/process.Process/CloseStdin', { process: { pid } })).status, 200)
    assert.deepEqual(await cat.ended, {})
    assert.equal(text(cat.messages, 'stdout'), 'one two three')
  })

  withSandbox('wire/process: input and resize of the wrong kind', async (sandbox) => {
    const quiet = sandbox.open(start, bash('sleep 20', { stdin: false }))
    const pid = (await until('start', () => quiet.messages[0])).event.start.pid
    const process = { pid }
    const code = async (procedure, message) => (await sandbox.call(`/process.Process/${procedure}`, message)).json.code
    assert.equal(await code('SendInput', { process, input: { stdin: 'aGk=' } }), 'internal')
    assert.equal(await code('SendInput', { process, input: { pty: 'aGk=' } }), 'internal')
    assert.equal(await code('SendInput', { process }), 'unimplemented')
    assert.equal(await code('Update', { process, pty: { size: { cols: 1, rows: 1 } } }), 'internal')
    assert.equal(await code('SendSignal', { process, signal: 'SIGNAL_UNSPECIFIED' }), 'unimplemented')
    assert.equal(await code('SendSignal', { signal: 'SIGNAL_SIGKILL' }), 'unimplemented')
    assert.equal((await sandbox.call('/process.Process/CloseStdin', { process })).status, 200)
    assert.equal((await sandbox.call('/process.Process/SendSignal', { process, signal: 'SIGNAL_SIGTERM' })).status, 200)
    assert.deepEqual(await quiet.ended, {})
    assert.equal(quiet.messages.at(-1).event.end.status, 'signal: terminated')
  })
})

describe('wire/files', () => {
  withSandbox('wire/files: procfs content without a size', async (sandbox) => {
    for (const encoding of ['identity', 'gzip']) {
      const answer = await sandbox.download('/proc/sys/kernel/random/boot_id', { 'Accept-Encoding': encoding })
      const content = answer.headers['content-encoding'] === 'gzip' ? zlib.gunzipSync(answer.body) : answer.body
      assert.match(content.toString(), /^[0-9a-f-]{36}\n$/, encoding)
    }
  })

  withSandbox('wire/files: ranges, conditions and encodings', async (sandbox) => {
    assert.equal((await sandbox.upload('digits.txt', '0123456789')).status, 200)
    const get = (headers) => sandbox.download('digits.txt', headers)
    const whole = await get({})
    assert.deepEqual([whole.status, whole.text, whole.headers['accept-ranges']], [200, '0123456789', 'bytes'])
    assert.match(whole.headers['content-disposition'], /^inline; filename=/)
    const part = await get({ Range: 'bytes=2-4' })
    assert.deepEqual([part.status, part.text, part.headers['content-range']], [206, '234', 'bytes 2-4/10'])
    assert.equal((await get({ Range: 'bytes=50-' })).status, 416)
    assert.equal((await get({ 'If-Modified-Since': whole.headers['last-modified'] })).status, 304)
    const packed = await get({ 'Accept-Encoding': 'gzip' })
    assert.equal(packed.headers['content-encoding'], 'gzip')
    assert.equal(zlib.gunzipSync(packed.body).toString(), '0123456789')
    const refused = await get({ 'Accept-Encoding': 'br, identity;q=0' })
    assert.equal(refused.status, 406)
    assert.equal(refused.json.code, 406)
  })

  withSandbox('wire/files: compose', async (sandbox) => {
    for (const [name, content] of [['a.part', 'first '], ['b.part', 'second']]) await sandbox.upload(name, content)
    const compose = (body) => sandbox.request('POST', '/files/compose', {
      headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
    })
    const made = await compose({ source_paths: ['a.part', 'b.part'], destination: 'deep/whole.txt' })
    assert.equal(made.status, 200, made.text)
    assert.deepEqual(made.json, { path: '/home/user/deep/whole.txt', name: 'whole.txt', type: 'file' })
    assert.equal((await sandbox.download('deep/whole.txt')).text, 'first second')
    assert.equal((await sandbox.download('a.part')).status, 404)
    assert.equal((await compose({ source_paths: ['gone'], destination: 'x' })).status, 404)
    assert.equal((await compose({ source_paths: [], destination: 'x' })).status, 400)
    assert.equal((await compose({ source_paths: ['deep/whole.txt'], destination: 'deep/whole.txt' })).status, 400)
  })

  withSandbox('wire/files: a large body streams both ways', async (sandbox) => {
    const block = Buffer.alloc(1 << 20, 'atoll ')
    async function* blocks() {
      for (let i = 0; i < 64; i++) yield block
    }
    assert.equal((await sandbox.upload('large.bin', blocks())).status, 200)
    const back = await sandbox.download('large.bin')
    assert.equal(back.body.length, 64 << 20)
    assert.ok(back.body.subarray(0, block.length).equals(block) && back.body.subarray(-block.length).equals(block))
  }, { seconds: 60 })
})

describe('wire/plain', () => {
  withSandbox('wire/plain: health, metrics, variables', async (sandbox) => {
    const health = await request('GET', '/health', { headers: { 'E2b-Sandbox-Id': sandbox.id, 'E2b-Sandbox-Port': '49983' } })
    assert.deepEqual([health.status, health.text], [204, ''])
    const metrics = await sandbox.request('GET', '/metrics')
    assert.equal(metrics.status, 200)
    for (const field of ['ts', 'cpu_count', 'cpu_used_pct', 'mem_total', 'mem_used', 'mem_cache', 'disk_used', 'disk_total']) {
      assert.equal(typeof metrics.json[field], 'number', field)
    }
    assert.ok(metrics.json.mem_total > 0 && metrics.json.disk_total > 0)
    const variables = (await sandbox.request('GET', '/envs')).json
    assert.equal(variables.E2B_SANDBOX, 'true')
    assert.equal(variables.E2B_SANDBOX_ID, sandbox.id)
    assert.equal(variables.MINE, 'yes')
  }, { create: { envVars: { MINE: 'yes' } } })

  withSandbox('wire/plain: preflight needs no token', async (sandbox) => {
    const answer = await request('OPTIONS', '/files', {
      headers: {
        'E2b-Sandbox-Id': sandbox.id, 'E2b-Sandbox-Port': '49983', Origin: 'https://example.com',
        'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'x-access-token',
      },
    })
    assert.equal(answer.status, 204)
    assert.equal(answer.headers['access-control-allow-origin'], '*')
  })

  withSandbox('wire/plain: both generations of create', async (sandbox) => {
    assert.ok(sandbox.token, 'the second generation is always secured')
    const old = await request('POST', '/sandboxes', {
      headers: { 'X-API-KEY': process.env.E2B_API_KEY, 'Content-Type': 'application/json' },
      body: JSON.stringify({ templateID: 'base', timeout: 30 }),
    })
    assert.equal(old.status, 201, old.text)
    const open = new Raw(old.json)
    assert.equal(open.token, undefined, 'the first one only on request')
    const bare = { 'E2b-Sandbox-Id': open.id, 'E2b-Sandbox-Port': '49983', 'Content-Type': 'application/json' }
    assert.equal((await request('POST', '/process.Process/List', { headers: bare, body: '{}' })).status, 200)
    await open.kill()
  })

  withSandbox('wire/plain: sandbox traffic by host name', async (sandbox) => {
    const answer = await request('GET', '/health', { base: plainUrl, headers: { Host: `49983-${sandbox.id}.sandbox.test:${plainUrl.port}` } })
    assert.equal(answer.status, 204)
  })
})

describe('wire/slow', () => {
  withSandbox('wire/slow: a slow reader stops nobody else', async (sandbox) => {
    const flood = sandbox.open(start, bash('head -c 30000000 /dev/zero | tr "\\0" x'))
    await until('output', () => flood.messages.length > 2)
    flood.response.pause()
    await sleep(300)
    const began = Date.now()
    for (let i = 0; i < 5; i++) assert.equal((await sandbox.run('echo quick')).stdout, 'quick\n')
    assert.ok(Date.now() - began < 5_000)
    flood.response.resume()
    assert.deepEqual(await flood.ended, {})
    const size = flood.messages.reduce((sum, m) => sum + Buffer.from(m.event.data?.stdout ?? '', 'base64').length, 0)
    assert.equal(size, 30_000_000)
  }, { seconds: 60 })

  withSandbox('wire/slow: a slow upload arrives whole', async (sandbox) => {
    async function* trickle() {
      for (let i = 0; i < 20; i++) {
        yield `${i} `
        await sleep(50)
      }
    }
    assert.equal((await sandbox.upload('slow.txt', trickle())).status, 200)
    assert.equal((await sandbox.download('slow.txt')).text, Array.from({ length: 20 }, (_, i) => `${i} `).join(''))
  })
})
