// Bad input gets the documented, typed error, and the server keeps serving.
import net from 'node:net'
import { after, describe, test } from 'node:test'
import { api, apiKey, apiUrl, assert, envelope, exchange, limited, Raw, request, sleep, statusOf, unique, until, withSandbox } from './support.mjs'

const start = '/process.Process/Start'
const stat = '/filesystem.Filesystem/Stat'

function refused(answer, status, pattern) {
  assert.equal(answer.status, status, answer.text)
  assert.match(answer.headers['content-type'] ?? '', /^application\/json/)
  assert.equal(answer.json.code, status)
  assert.equal(typeof answer.json.message, 'string')
  if (pattern) assert.match(answer.json.message, pattern)
}

after(async () => {
  // Whatever came before: a sandbox can still be made and used.
  const sandbox = await Raw.create()
  assert.equal((await sandbox.run('echo fine')).stdout, 'fine\n')
  await sandbox.kill()
})

describe('bad-input/api', () => {
  const create = (body, headers) => api('POST', '/v2/sandboxes', body, headers)

  test('bad-input/api: malformed JSON', limited(30), async () => {
    for (const body of ['{', '{"templateID": "base"', '[]', '"base"', '42', '{"templateID":"base"} trailing', '', 'nul\0']) {
      refused(await create(body), 400)
    }
    refused(await create(Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d])), 400)
    refused(await create('['.repeat(100_000)), 400)
  })

  test('bad-input/api: wrong types', limited(30), async () => {
    const bodies = [
      {}, { templateID: 7 }, { templateID: null }, { templateID: ['base'] },
      { templateID: 'base', timeout: 'soon' }, { templateID: 'base', timeout: 1.5 }, { templateID: 'base', timeout: 1e30 },
      { templateID: 'base', metadata: ['a'] }, { templateID: 'base', metadata: { a: 1 } },
      { templateID: 'base', envVars: 'A=b' }, { templateID: 'base', envVars: { A: null } },
      { templateID: 'base', autoPause: 'yes' },
    ]
    for (const body of bodies) {
      const answer = await create(body)
      if (answer.status === 201) await new Raw(answer.json).kill()
      refused(answer, 400)
    }
  })

  test('bad-input/api: timeouts out of range', limited(30), async () => {
    refused(await create({ templateID: 'base', timeout: 0 }), 400, /Timeout must be greater than 0/)
    refused(await create({ templateID: 'base', timeout: -5 }), 400)
    refused(await create({ templateID: 'base', timeout: 10_000_000 }), 400, /Timeout cannot be greater than/)
  })

  test('bad-input/api: unknown and unparsable templates', limited(30), async () => {
    refused(await create({ templateID: 'no-such-template' }), 404, /no-such-template/)
    for (const templateID of ['', 'a b', '../base', 'base/../../etc', 'x'.repeat(10_000), 'base:tag:tag', 'böse']) {
      const answer = await create({ templateID })
      assert.ok([400, 404].includes(answer.status), `${templateID.slice(0, 20)}: ${answer.text}`)
      refused(answer, answer.status)
    }
  })

  test('bad-input/api: unknown routes and methods', limited(30), async () => {
    refused(await api('GET', '/no/such/route'), 404)
    refused(await api('GET', '/v2/sandboxes/../../etc/passwd'), 404)
    for (const [method, path] of [['PUT', '/v2/sandboxes'], ['PATCH', '/sandboxes'], ['BREW', '/sandboxes']]) {
      const answer = await api(method, path)
      assert.ok([404, 405].includes(answer.status), `${method} ${path}: ${answer.status}`)
    }
  })

  test('bad-input/api: missing and wrong keys', limited(30), async () => {
    const answers = [
      await request('GET', '/v2/sandboxes'),
      await request('DELETE', '/sandboxes/NOT-AN-ID-AT-ALL'),
      await request('POST', '/v2/sandboxes', { body: '{', headers: { 'Content-Type': 'application/json' } }),
    ]
    for (const key of ['', 'e2b_', 'wrong', `e2b_${'0'.repeat(40)}`, `${apiKey}0`, apiKey.slice(0, -1), apiKey.toUpperCase(), 'k'.repeat(20_000)]) {
      answers.push(await request('GET', '/v2/sandboxes', { headers: { 'X-API-KEY': key } }))
    }
    for (const answer of answers) refused(answer, 401)
  })

  test('bad-input/api: sandbox ids', limited(30), async () => {
    refused(await api('GET', '/sandboxes/nonexistingsandbox'), 404)
    refused(await api('DELETE', '/sandboxes/nonexistingsandbox'), 404)
    refused(await api('POST', '/sandboxes/nonexistingsandbox/timeout', { timeout: 5 }), 404)
    refused(await api('POST', '/v2/sandboxes/nonexistingsandbox/connect', { timeout: 5 }), 404)
    for (const id of ['UPPER', 'a-b-c', '..', '%2e%2e', 'a%2Fb', '%00', '%ff', 'ü', 'a'.repeat(3000)]) {
      const answer = await api('GET', `/sandboxes/${id === 'ü' ? encodeURIComponent(id) : id}`)
      assert.ok([400, 404].includes(answer.status), `${id.slice(0, 10)}: ${answer.text}`)
      refused(answer, answer.status)
    }
  })

  test('bad-input/api: list queries', limited(30), async () => {
    const queries = ['limit=0', 'limit=101', 'limit=-1', 'limit=many', 'limit=99999999999999999999', 'nextToken=garbage',
                     'nextToken=%FF', 'state=asleep', 'order=sideways', 'startedAfter=yesterday', 'metadata=a']
    for (const query of queries) refused(await api('GET', `/v2/sandboxes?${query}`), 400)
  })

  test('bad-input/api: timeouts of a running sandbox', limited(30), async () => {
    const sandbox = await Raw.create()
    for (const body of ['{', '{}', { timeout: 'x' }, { timeout: -1 }, { timeout: 1e18 }]) {
      const answer = await api('POST', `/sandboxes/${sandbox.id}/timeout`, body)
      if (body.timeout === -1 && answer.status === 204) continue // a negative timeout may count as zero
      refused(answer, 400)
    }
    await sandbox.kill()
  })

  test('bad-input/api: oversize body', limited(30), async () => {
    const answer = await create(`{"templateID":"base","metadata":{"a":"${'x'.repeat(16 << 20)}"}}`).catch((error) => error)
    // The refusal may come before the whole body was sent; then the connection breaks under the writer.
    if (answer instanceof Error) assert.match(answer.code ?? '', /EPIPE|ECONNRESET/)
    else refused(answer, 413)
  })
})

describe('bad-input/http', () => {
  const host = `Host: ${apiUrl.host}\r\n`

  test('bad-input/http: huge headers', limited(60), async () => {
    const one = await exchange(`GET /v2/sandboxes HTTP/1.1\r\n${host}X-Big: ${'b'.repeat(1 << 20)}\r\n\r\n`)
    assert.ok(one.closed, 'the connection is closed')
    assert.ok([0, 400, 431].includes(statusOf(one.text)), one.text.slice(0, 100))
    const many = await exchange(`GET /v2/sandboxes HTTP/1.1\r\n${host}${'X-Many: yes\r\n'.repeat(50_000)}\r\n`)
    assert.ok(many.closed)
    assert.ok([0, 400, 431].includes(statusOf(many.text)), many.text.slice(0, 100))
    const fits = await request('GET', '/v2/sandboxes', { headers: { 'X-API-KEY': apiKey, 'X-Some': 'b'.repeat(10_000) } })
    assert.equal(fits.status, 200)
  })

  test('bad-input/http: long target', limited(30), async () => {
    const answer = await exchange(`GET /${'a'.repeat(1 << 20)} HTTP/1.1\r\n${host}\r\n`)
    assert.ok(answer.closed)
    assert.ok([0, 400, 414, 431].includes(statusOf(answer.text)), answer.text.slice(0, 100))
  })

  test('bad-input/http: not HTTP at all', limited(60), async () => {
    const garbage = ['\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'GET\r\n\r\n', '\0\0\0\0\r\n\r\n',
                     'GET / HTTP/9.9\r\n\r\n', `GET / HTTP/1.1\r\n${host}Bad Header: x\r\n\r\n`, `GET / HTTP/1.1\r\n${host}: x\r\n\r\n`]
    for (const bytes of garbage) {
      const answer = await exchange(Buffer.from(bytes, 'latin1'), { waitMs: 2_000 })
      const status = statusOf(answer.text)
      assert.ok(status === 0 || status >= 400, `${JSON.stringify(bytes.slice(0, 20))}: ${answer.text.slice(0, 60)}`)
    }
    assert.equal((await api('GET', '/v2/sandboxes')).status, 200)
  })

  test('bad-input/http: ambiguous framing', limited(60), async () => {
    const key = `X-API-KEY: ${apiKey}\r\n`
    const smuggled = `GET /v2/sandboxes HTTP/1.1\r\n${host}${key}\r\n`
    const cases = [
      `POST /v2/sandboxes HTTP/1.1\r\n${host}${key}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${smuggled}`,
      `POST /v2/sandboxes HTTP/1.1\r\n${host}${key}Content-Length: 0\r\nContent-Length: 40\r\n\r\n${smuggled}`,
      `POST /v2/sandboxes HTTP/1.1\r\n${host}${key}Content-Length: -1\r\n\r\n${smuggled}`,
      `POST /v2/sandboxes HTTP/1.1\r\n${host}${key}Transfer-Encoding: chunked\r\n\r\nzz\r\n${smuggled}`,
    ]
    for (const bytes of cases) {
      const answer = await exchange(bytes, { waitMs: 2_000 })
      assert.doesNotMatch(answer.text, /HTTP\/1\.1 200/, 'nothing hidden in a body is answered')
    }
  })

  test('bad-input/http: half a request holds up nobody', limited(60), async () => {
    const sockets = Array.from({ length: 50 }, () => {
      const socket = net.connect(Number(apiUrl.port), apiUrl.hostname)
      socket.on('error', () => {})
      socket.write(`GET /v2/sandboxes HTTP/1.1\r\n${host}X-Slow: `)
      return socket
    })
    await sleep(200)
    const began = Date.now()
    assert.equal((await api('GET', '/v2/sandboxes')).status, 200)
    assert.ok(Date.now() - began < 3_000)
    for (const socket of sockets) socket.destroy()
  })

  test('bad-input/http: an early answer says whether the connection goes on', limited(30), async () => {
    // Refused before its body was looked at. Either the connection serves the next request or the answer says that it
    // does not: a client that keeps connections must be able to tell.
    const agents = await Raw.create({ timeout: 60 })
    const routed = Object.entries({ ...agents.headers(), 'X-Access-Token': 'wrong' }).map(([name, value]) => `${name}: ${value}\r\n`).join('')
    for (const [target, headers] of [['/v2/sandboxes', ''], ['/process.Process/List', routed], ['/no/such/route', routed]]) {
      const post = `POST ${target} HTTP/1.1\r\n${host}${headers}Content-Type: application/json\r\nContent-Length: 2000\r\n\r\n${'{}'.padEnd(2000)}`
      const socket = net.connect(Number(apiUrl.port), apiUrl.hostname)
      let text = ''
      let closed = false
      socket.on('data', (data) => (text += data.toString('latin1')))
      socket.on('close', () => (closed = true))
      socket.on('error', () => (closed = true))
      const answers = () => text.split(/HTTP\/1\.1 \d{3} /).length - 1
      try {
        socket.write(post)
        await until('the first answer', () => answers() >= 1)
        if (/^Connection: close\r$/im.test(text)) continue
        socket.write(post)
        await until(`the second answer of ${target}, or at least an end`, () => answers() >= 2 || closed)
        assert.equal(answers(), 2, `${target}: the connection was promised and closed`)
      } finally {
        socket.destroy()
      }
    }
    await agents.kill()
  })

  test('bad-input/http: half a request is closed in the end', limited(60), async () => {
    const began = Date.now()
    const answer = await exchange(`GET /v2/sandboxes HTTP/1.1\r\n${host}X-Slow: `, { waitMs: 45_000 })
    assert.ok(answer.closed, 'the server ends it')
    assert.ok(Date.now() - began > 1_000, 'but not at once')
  })
})

describe('bad-input/proxy', () => {
  test('bad-input/proxy: routing headers', limited(30), async () => {
    const get = (headers, path = '/health') => request('GET', path, { headers })
    assert.equal((await get({ 'E2b-Sandbox-Id': 'abc' })).status, 400)
    assert.equal((await get({ 'E2b-Sandbox-Port': '49983' })).status, 400)
    assert.equal((await get({ 'E2b-Sandbox-Id': 'abc', 'E2b-Sandbox-Port': 'http' })).status, 400)
    assert.equal((await get({ 'E2b-Sandbox-Id': 'abc', 'E2b-Sandbox-Port': '99999' })).status, 400)
    assert.equal((await get({ 'E2b-Sandbox-Id': 'A/../B', 'E2b-Sandbox-Port': '49983' })).status, 400)
    refused(await get({ 'E2b-Sandbox-Id': 'unknownsandbox', 'E2b-Sandbox-Port': '49983' }), 502, /The sandbox was not found/)
  })

  withSandbox('bad-input/proxy: control-plane routes stay closed', async (sandbox) => {
    for (const path of ['/init', '/freeze', '//init', '/%69nit', '/x/../init', '/init/', '/init?x=1', '/./upgrade']) {
      for (const method of ['GET', 'POST']) {
        const answer = await sandbox.request(method, path, { headers: { 'Content-Type': 'application/json' }, body: method === 'POST' ? '{}' : undefined })
        assert.equal(answer.status, 404, `${method} ${path}: ${answer.text}`)
      }
    }
    // The token still holds: nothing was re-initialised.
    assert.equal((await sandbox.run('echo same')).stdout, 'same\n')
  })
})

describe('bad-input/agent', () => {
  withSandbox('bad-input/agent: access tokens', async (sandbox) => {
    const route = { 'E2b-Sandbox-Id': sandbox.id, 'E2b-Sandbox-Port': '49983', 'Content-Type': 'application/json' }
    for (const token of [undefined, '', 'wrong', `${sandbox.token}0`, sandbox.token.slice(1)]) {
      const headers = token === undefined ? route : { ...route, 'X-Access-Token': token }
      refused(await request('POST', '/process.Process/List', { headers, body: '{}' }), 401)
      refused(await request('POST', start, { headers: { ...headers, 'Content-Type': 'application/connect+json' }, body: envelope(Buffer.from('{}')) }), 401)
      refused(await request('GET', '/files?path=/etc/hostname', { headers }), 401)
    }
  })

  withSandbox('bad-input/agent: unknown users', async (sandbox) => {
    const ghost = { Authorization: `Basic ${Buffer.from('ghost:').toString('base64')}` }
    const unary = await sandbox.call(stat, { path: '/' }, ghost)
    assert.equal(unary.status, 401)
    assert.deepEqual(unary.json, { code: 'unauthenticated', message: "invalid username: 'ghost'" })
    const stream = await sandbox.stream(start, { process: { cmd: 'id' } }, { headers: ghost })
    assert.equal(stream.status, 200)
    assert.deepEqual(stream.end, { error: { code: 'unauthenticated', message: "invalid username: 'ghost'" } })
    refused(await sandbox.request('GET', '/files?path=x&username=ghost'), 401, /ghost/)
    for (const name of ['', '../root', 'a'.repeat(5_000), 'user\0']) {
      const headers = { Authorization: `Basic ${Buffer.from(`${name}:`).toString('base64')}` }
      const answer = await sandbox.call(stat, { path: '/' }, headers)
      assert.ok(name === '' ? [200, 401].includes(answer.status) : answer.status === 401, `${name.slice(0, 9)}: ${answer.text}`)
    }
    const odd = await sandbox.call(stat, { path: '/' }, { Authorization: 'Basic %%%' })
    assert.ok([200, 401].includes(odd.status))
  })

  withSandbox('bad-input/agent: malformed calls', async (sandbox) => {
    for (const body of ['', '{', '[]', '{"path": 5}', '{"path": "a"} x', Buffer.from([0x7b, 0x22, 0x70, 0x22, 0xff])]) {
      const answer = await sandbox.call(stat, body)
      assert.equal(answer.status, 400, `${body}: ${answer.text}`)
      assert.equal(answer.json.code, 'invalid_argument')
    }
    const deep = await sandbox.call(stat, `{"x":${'['.repeat(50_000)}`)
    assert.equal(deep.status, 400)
    assert.equal((await sandbox.call('/process.Process/SendSignal', { process: { pid: -1 }, signal: 'SIGNAL_SIGKILL' })).json.code, 'invalid_argument')
    const sleeper = sandbox.open(start, { process: { cmd: 'sleep', args: ['20'] } })
    const process = { pid: (await until('start', () => sleeper.messages[0])).event.start.pid }
    for (const signal of ['SIGNAL_NONE', 1, 64, -9]) {
      const answer = await sandbox.call('/process.Process/SendSignal', { process, signal })
      assert.ok(['invalid_argument', 'unimplemented'].includes(answer.json.code), `${signal}: ${answer.text}`)
    }
    assert.deepEqual((await sandbox.call('/process.Process/List', {})).json.processes.map((entry) => entry.pid), [process.pid])
    sleeper.close()
    assert.equal((await sandbox.call('/process.Process/SendInput', { process: { pid: 1 }, input: { stdin: '***' } })).json.code, 'invalid_argument')
    assert.equal((await sandbox.call(stat, { path: '/' }, { 'Connect-Protocol-Version': '2' })).json.code, 'invalid_argument')
    assert.equal((await sandbox.call(stat, { path: '/' }, { 'Content-Encoding': 'br' })).json.code, 'unimplemented')
  })

  withSandbox('bad-input/agent: wrong method, type and procedure', async (sandbox) => {
    const get = await sandbox.request('GET', stat)
    assert.equal(get.status, 405)
    assert.equal(get.headers.allow, 'POST')
    const typed = await sandbox.call(stat, '<x/>', { 'Content-Type': 'text/xml' })
    assert.equal(typed.status, 415)
    assert.ok(typed.headers['accept-post'])
    assert.equal((await sandbox.call('/filesystem.Filesystem/Format', {})).status, 404)
    assert.equal((await sandbox.request('GET', '/no/such/route')).status, 404)
  })

  withSandbox('bad-input/agent: broken envelopes and deadlines', async (sandbox) => {
    const message = Buffer.from(JSON.stringify({ process: { cmd: 'true' } }))
    const code = async (framed, headers) => (await sandbox.stream(start, undefined, { framed, headers })).end?.error?.code
    assert.equal(await code(Buffer.alloc(0)), 'unimplemented')
    assert.equal(await code(envelope(message).subarray(0, 9)), 'invalid_argument')
    assert.equal(await code(Buffer.concat([envelope(message), envelope(message)])), 'unimplemented')
    assert.ok(['invalid_argument', 'internal', 'unimplemented'].includes(await code(envelope(message, 1))), 'compressed without an encoding')
    assert.equal(await code(envelope(Buffer.from('{')), undefined), 'invalid_argument')
    const endless = Buffer.from([0, 0xff, 0xff, 0xff, 0xff, 0x7b])
    assert.ok(['invalid_argument', 'resource_exhausted'].includes(await code(endless)))
    for (const value of ['soon', '-1', '12345678901', '1.5']) {
      assert.equal(await code(envelope(message), { 'Connect-Timeout-Ms': value }), 'invalid_argument', value)
    }
    for (const value of ['0', '-3', 'often', '99999999999999999999']) {
      assert.equal(await code(envelope(message), { 'Keepalive-Ping-Interval': value }), undefined, value)
    }
  })

  withSandbox('bad-input/agent: paths', async (sandbox) => {
    const paths = { '%FF%FE': 'not UTF-8', 'a%00b': 'a zero byte', '~ghost/x': 'the home of somebody', [`${'d/'.repeat(5000)}x`]: 'too long', ['n'.repeat(300)]: 'a long name' }
    for (const [path, what] of Object.entries(paths)) {
      const read = await sandbox.request('GET', `/files?path=${path}`)
      assert.ok([400, 404, 500].includes(read.status), `read, ${what}: ${read.status} ${read.text}`)
      refused(read, read.status)
      const write = await sandbox.request('POST', `/files?path=${path}`, { headers: { 'Content-Type': 'application/octet-stream' }, body: 'x' })
      assert.ok(write.status >= 400 && write.status < 600, `write, ${what}: ${write.status} ${write.text}`)
      refused(write, write.status)
    }
    const stated = await sandbox.call(stat, { path: '~ghost/x' })
    assert.equal(stated.json.code, 'invalid_argument')
    assert.equal((await sandbox.call(stat, { path: 'a\0b' })).json.code, 'invalid_argument')
    assert.equal((await sandbox.call(stat, { path: `${'d/'.repeat(5000)}x` })).status >= 400, true)
    const binary = await sandbox.call(stat, Buffer.from([0x0a, 0x02, 0xff, 0xfe]), { 'Content-Type': 'application/proto' })
    assert.equal(binary.json.code, 'invalid_argument')
  })

  withSandbox('bad-input/agent: uploads', async (sandbox) => {
    const post = (query, body, headers) => sandbox.request('POST', `/files${query}`, { body, headers })
    refused(await post('?path=a', 'x', { 'Content-Type': 'text/plain' }), 400, /unsupported content type/)
    refused(await post('', 'x', { 'Content-Type': 'application/octet-stream' }), 400, /path query parameter is required/)
    refused(await post('?path=/home', 'x', { 'Content-Type': 'application/octet-stream' }), 400, /is a directory/)
    refused(await post('?path=/etc/hostname/x', 'x', { 'Content-Type': 'application/octet-stream' }), 500, /path is a file/)
    refused(await post('?path=a', 'x', { 'Content-Type': 'application/octet-stream', 'Content-Encoding': 'zstd' }), 400, /unsupported Content-Encoding/)
    const notGzip = await post('?path=a', 'plain', { 'Content-Type': 'application/octet-stream', 'Content-Encoding': 'gzip' })
    assert.ok(notGzip.status >= 400, notGzip.text)

    const part = (name, content) => `--edge\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\n\r\n${content}\r\n`
    const multipart = { 'Content-Type': 'multipart/form-data; boundary=edge' }
    refused(await post('', `${part('twice', '1')}${part('twice', '2')}--edge--\r\n`, multipart), 400, /same path/)
    for (const body of ['no boundary at all', part('half', 'x'), '--edge\r\nContent-Disposition: form-data\r\n']) {
      const answer = await post('', body, multipart)
      assert.ok([400, 500].includes(answer.status), answer.text)
      refused(answer, answer.status)
    }
    refused(await post('?path=m', 'x', { 'Content-Type': 'application/octet-stream', 'X-Metadata-Big': 'v'.repeat(5000) }), 400, /invalid metadata/)
    assert.equal((await sandbox.download('m')).status, 404, 'refused metadata leaves no file')
  })

  withSandbox('bad-input/agent: aborted upload', async (sandbox) => {
    const headers = Object.entries({ ...sandbox.headers(), Host: apiUrl.host, 'Content-Type': 'application/octet-stream', 'Content-Length': String(1 << 30) })
    const socket = net.connect(Number(apiUrl.port), apiUrl.hostname)
    socket.on('error', () => {})
    socket.write(`POST /files?path=half.bin HTTP/1.1\r\n${headers.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`)
    socket.write(Buffer.alloc(1 << 20))
    await until('the file to appear', async () => (await sandbox.call(stat, { path: 'half.bin' })).status === 200)
    socket.destroy()
    await sleep(200)
    assert.ok(Number((await sandbox.call(stat, { path: 'half.bin' })).json.entry.size) <= 1 << 20)
    assert.equal((await sandbox.upload('half.bin', 'whole')).status, 200)
    assert.equal((await sandbox.download('half.bin')).text, 'whole')
    assert.equal(await sandbox.alive(), true)
  })

  withSandbox('bad-input/agent: disk full', async (sandbox) => {
    // Take all but 8 MiB, then ask for more.
    const fill = await sandbox.run(
      'free=$(df --output=avail -B1 /home/user | tail -1); fallocate -l $((free - 8388608)) /home/user/filler && echo "$free"', 'root')
    assert.equal(fill.end.exitCode ?? 0, 0, fill.stderr)
    const block = Buffer.alloc(1 << 20, 7)
    async function* blocks() {
      for (let i = 0; i < 64; i++) yield block
    }
    const answer = await sandbox.upload('more.bin', blocks()).catch((error) => error)
    if (answer instanceof Error) assert.fail(`no answer: ${answer}`)
    refused(answer, 507, /not enough disk space available/)
    assert.equal((await sandbox.run('rm -f /home/user/filler /home/user/more.bin', 'root')).end.exitCode ?? 0, 0)
    assert.equal((await sandbox.upload(unique('fits'), block)).status, 200)
  }, { seconds: 60 })
})
