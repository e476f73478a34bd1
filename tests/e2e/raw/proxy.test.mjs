// Sandbox traffic by host name: routing, refusals word for word, streams, WebSocket, tokens, waking up.
import crypto from 'node:crypto'
import { describe, test } from 'node:test'
import tls from 'node:tls'
import { createHash } from 'node:crypto'
import { api, apiKey, assert, domain, hostOf, limited, plainUrl, Raw, request, sleep, start, until, urlOf, withSandbox } from './support.mjs'

const parallel = { concurrency: 4 }
const notFound = (id) => ({ sandboxId: id, message: 'The sandbox was not found', code: 502 })
const closed = (id, port) => ({ sandboxId: id, message: 'The sandbox is running but port is not open', port, code: 502 })

// Tells what it got: method, path, headers, length and digest of the body.
const teller = (port, bind = '') => `
import hashlib, http.server, json, socket
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in "${bind}" else socket.AF_INET
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def body(self):
        digest, size = hashlib.sha256(), 0
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while True:
                length = int(self.rfile.readline().split(b";")[0], 16)
                if length:
                    data = self.rfile.read(length); digest.update(data); size += len(data)
                self.rfile.readline()
                if not length: break
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            data = self.rfile.read(min(left, 1 << 20)); digest.update(data); size += len(data); left -= len(data)
        return size, digest.hexdigest()
    def tell(self):
        size, digest = self.body()
        text = json.dumps({"method": self.command, "path": self.path, "size": size, "sha256": digest, "headers": self.headers.items()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(text)
    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = tell
    def log_message(self, *a): pass
Server(("${bind}", ${port}), Handler).serve_forever()
`
// Ten pieces, a tenth of a second apart.
const dripper = (port) => `
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(10 if self.path != "/forever" else 10000):
            piece = f"data: {i}\\n\\n".encode()
            self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(piece), piece))
            self.wfile.flush()
            time.sleep(0.1)
        self.wfile.write(b"0\\r\\n\\r\\n")
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("", ${port}), Handler).serve_forever()
`
// A WebSocket server that echoes text frames.
const echoer = (port) => `
import base64, hashlib, socket, threading
def frame(data): return bytes([0x81, len(data)]) + data
def serve(c):
    head = b""
    while b"\\r\\n\\r\\n" not in head: head += c.recv(4096)
    key = [l.split(b": ")[1] for l in head.split(b"\\r\\n") if l.lower().startswith(b"sec-websocket-key")][0]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    c.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n" + frame(b"hello"))
    while True:
        first = c.recv(2)
        if len(first) < 2: return
        n = first[1] & 127
        mask = c.recv(4)
        data = bytes(b ^ mask[i % 4] for i, b in enumerate(c.recv(n)))
        if first[0] & 15 == 8: c.sendall(b"\\x88\\x00"); c.close(); return
        c.sendall(frame(data))
s = socket.create_server(("", ${port}))
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`

describe('proxy/routing', parallel, () => {
  withSandbox('proxy/routing: hosts', async (sandbox) => {
    await sandbox.serve(3000, teller(3000))
    const seen = (await sandbox.visit(3000, '/a%2Fb?c=d&e')).json
    assert.equal(seen.path, '/a%2Fb?c=d&e')
    const headers = new Map(seen.headers.map(([name, value]) => [name.toLowerCase(), value]))
    assert.equal(headers.get('host'), hostOf(sandbox.id, 3000))
    // A legacy client id behind the sandbox id is ignored.
    assert.equal((await request('GET', '/', { base: new URL(`https://3000-${sandbox.id}-6532622b.${domain}`) })).status, 200)
    // Headers do not override the host.
    const other = await request('GET', '/', { base: urlOf(sandbox.id, 3000), headers: { 'E2b-Sandbox-Id': sandbox.id, 'E2b-Sandbox-Port': '3001' } })
    assert.equal(other.status, 200)
    // One stable host, led by headers.
    const stable = await request('GET', '/', {
      base: new URL(`https://sandbox.${domain}`), headers: { 'E2b-Sandbox-Id': sandbox.id, 'E2b-Sandbox-Port': '3000' },
    })
    assert.equal(stable.status, 200)
    // Forwarding headers of the client are dropped, hop-by-hop ones too, and none are added.
    const clean = (await sandbox.visit(3000, '/', { headers: { 'X-Forwarded-For': '1.2.3.4', Forwarded: 'for=x', 'Proxy-Connection': 'x', 'X-Mine': 'kept' } })).json
    const names = clean.headers.map(([name]) => name.toLowerCase())
    assert.ok(!names.some((name) => name.startsWith('x-forwarded') || name === 'forwarded' || name === 'proxy-connection'), `${names}`)
    assert.ok(names.includes('x-mine'))
  })

  test('proxy/routing: hosts that lead nowhere', limited(20), async () => {
    const at = async (host, headers = {}) => request('GET', '/', { base: new URL(`https://${host}`), headers })
    const refused = async (answer, text) => {
      const { status, text: body } = await answer
      assert.equal(status, 400, body)
      assert.match(body, text)
    }
    await refused(at(`nothing.${domain}`), /Invalid host/)
    await refused(at(`3000-NOT_AN_ID.${domain}`), /Invalid (sandbox ID|host)/i)
    await refused(at(`99999-${'i'.repeat(21)}.${domain}`), /Invalid (sandbox port|host)/)
    await refused(at(`sandbox.${domain}`, { 'E2b-Sandbox-Id': 'abc' }), /missing header/)
    const unknown = await at(hostOf('inosuchsandbox0000000', 3000))
    assert.equal(unknown.status, 502)
    assert.deepEqual(unknown.json, notFound('inosuchsandbox0000000'))
    assert.match(unknown.headers['content-type'], /^application\/json; charset=utf-8$/)
  })

  withSandbox('proxy/routing: servers on every kind of address', async (sandbox) => {
    await sandbox.serve(4001, teller(4001, '127.0.0.1'))
    await sandbox.serve(4002, teller(4002, '::1'), { address: '::1' })
    await sandbox.serve(4003, teller(4003, '0.0.0.0'))
    await sandbox.serve(4004, teller(4004, '::'))
    for (const port of [4001, 4002, 4003, 4004]) assert.equal((await sandbox.visit(port)).status, 200, `port ${port}`)
  })

  withSandbox('proxy/routing: closed ports and dead sandboxes', async (sandbox) => {
    const answer = await sandbox.visit(3456)
    assert.equal(answer.status, 502)
    assert.deepEqual(answer.json, closed(sandbox.id, 3456))
    await sandbox.kill()
    const dead = await sandbox.visit(3456)
    assert.equal(dead.status, 502)
    assert.deepEqual(dead.json, notFound(sandbox.id))
  })

  withSandbox('proxy/routing: HTML for people, JSON for programs', async (sandbox) => {
    const browser = 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130 Safari/537.36'
    const look = (headers) => sandbox.visit(3456, '/', { headers })
    const page = await look({ 'User-Agent': browser, Accept: 'text/html,*/*', 'Sec-Fetch-Mode': 'navigate' })
    assert.equal(page.status, 502)
    assert.match(page.headers['content-type'], /^text\/html; charset=utf-8$/)
    assert.match(page.text, /^<html[\s\S]*<\/html>\s*$/)
    assert.ok(page.text.includes(sandbox.id) && page.text.includes('3456') && /no service running on port/i.test(page.text), page.text.slice(0, 400))
    for (const headers of [
      { 'User-Agent': 'curl/8' }, { 'User-Agent': browser, Accept: 'application/json' }, { 'User-Agent': browser, 'Sec-Fetch-Mode': 'cors' },
      { 'User-Agent': browser, 'X-Requested-With': 'XMLHttpRequest' }, {},
    ]) {
      const answer = await look(headers)
      assert.match(answer.headers['content-type'], /^application\/json/, JSON.stringify(headers))
      assert.deepEqual(answer.json, closed(sandbox.id, 3456))
    }
    await sandbox.kill()
    const gone = await look({ 'User-Agent': browser, 'Sec-Fetch-Mode': 'navigate' })
    assert.match(gone.text, /Sandbox Not Found/i)
    assert.ok(gone.text.includes(sandbox.id))
  })

  withSandbox('proxy/routing: reserved routes of the agent', async (sandbox) => {
    for (const path of ['/init', '/upgrade', '/freeze', '/thaw', '/%69nit', '//init', '/x/../init', '/init/']) {
      const answer = await sandbox.request('POST', path)
      assert.equal(answer.status, 404, `${path}: ${answer.text}`)
    }
    const answer = await sandbox.request('POST', '/init')
    assert.match(answer.json.message, /reserved for the E2B control plane/)
    assert.equal(answer.json.code, 404)
  })
})

describe('proxy/streams', parallel, () => {
  withSandbox('proxy/streams: pieces arrive when they are sent', async (sandbox) => {
    await sandbox.serve(5000, dripper(5000))
    const began = Date.now()
    const pieces = await new Promise((resolve, reject) => {
      const req = start(urlOf(sandbox.id, 5000), { method: 'GET', path: '/' }, (res) => {
        const seen = []
        res.on('data', (data) => seen.push([Date.now() - began, data.toString()]))
        res.on('end', () => resolve(seen))
        res.on('error', reject)
      })
      req.on('error', reject)
      req.end()
    })
    assert.ok(pieces.length >= 8, `${pieces.length} pieces`)
    assert.ok(pieces[0][0] < pieces.at(-1)[0] - 600, JSON.stringify(pieces))
    assert.equal(pieces.map(([, text]) => text).join(''), Array.from({ length: 10 }, (_, i) => `data: ${i}\n\n`).join(''))
  })

  withSandbox('proxy/streams: the end of a sandbox breaks them', async (sandbox) => {
    await sandbox.serve(5000, dripper(5000))
    const ended = new Promise((resolve) => {
      const req = start(urlOf(sandbox.id, 5000), { method: 'GET', path: '/forever' }, (res) => {
        res.on('data', () => {})
        res.on('end', () => resolve('a clean end'))
        res.on('error', (error) => resolve(error.code))
      })
      req.on('error', (error) => resolve(error.code))
      req.end()
    })
    await sleep(500)
    const began = Date.now()
    assert.equal((await sandbox.kill()).status, 204)
    assert.notEqual(await ended, 'a clean end')
    assert.ok(Date.now() - began < 3_000)
  })

  withSandbox('proxy/streams: 50 MB up, by length and in pieces', async (sandbox) => {
    await sandbox.serve(5001, teller(5001))
    const block = crypto.randomBytes(1 << 20)
    const whole = createHash('sha256')
    for (let i = 0; i < 50; i++) whole.update(block)
    const digest = whole.digest('hex')
    async function* pieces() {
      for (let i = 0; i < 50; i++) yield block
    }
    for (const headers of [{ 'Content-Length': String(50 << 20) }, {}]) {
      const answer = await sandbox.visit(5001, '/up', { method: 'POST', headers, body: pieces() })
      assert.equal(answer.status, 200, answer.text)
      assert.deepEqual([answer.json.size, answer.json.sha256], [50 << 20, digest])
    }
  }, { seconds: 60 })

  withSandbox('proxy/streams: methods', async (sandbox) => {
    await sandbox.serve(5002, teller(5002))
    for (const method of ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']) {
      assert.equal((await sandbox.visit(5002, '/', { method })).json.method, method)
    }
    const head = await sandbox.visit(5002, '/', { method: 'HEAD' })
    assert.deepEqual([head.status, head.body.length], [200, 0])
  })

  withSandbox('proxy/streams: WebSocket', async (sandbox) => {
    await sandbox.serve(5003, echoer(5003))
    const socket = tls.connect({ host: hostOf(sandbox.id, 5003), port: 443, servername: hostOf(sandbox.id, 5003), ALPNProtocols: ['http/1.1'] })
    await new Promise((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject))
    let seen = Buffer.alloc(0)
    let over = false
    socket.on('data', (data) => (seen = Buffer.concat([seen, data])))
    socket.on('close', () => (over = true))
    socket.on('error', () => {})
    const key = crypto.randomBytes(16).toString('base64')
    socket.write(`GET /chat HTTP/1.1\r\nHost: ${hostOf(sandbox.id, 5003)}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
                 `Sec-WebSocket-Key: ${key}\r\nSec-WebSocket-Version: 13\r\n\r\n`)
    await until('the greeting', () => seen.includes('hello'))
    assert.match(seen.toString('latin1'), /^HTTP\/1\.1 101 /)
    const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')
    assert.ok(seen.includes(`Sec-WebSocket-Accept: ${accept}`) || seen.toString('latin1').toLowerCase().includes(`sec-websocket-accept: ${accept}`.toLowerCase()))
    const frame = (text, opcode = 1) => {
      const mask = crypto.randomBytes(4)
      const data = Buffer.from(text).map((byte, i) => byte ^ mask[i % 4])
      return Buffer.concat([Buffer.from([0x80 | opcode, 0x80 | data.length]), mask, data])
    }
    for (let i = 0; i < 20; i++) {
      socket.write(frame(`message ${i}`))
      await until(`the echo ${i}`, () => seen.includes(`message ${i}`))
    }
    // It is open as long as the sandbox is.
    assert.equal(over, false)
    await sandbox.kill()
    await until('the end of the connection', () => over)
  })
})

describe('proxy/tokens', parallel, () => {
  withSandbox('proxy/tokens: private traffic', async (sandbox) => {
    const token = sandbox.fields.trafficAccessToken
    assert.ok(token)
    await sandbox.serve(6000, teller(6000))
    const missing = await sandbox.visit(6000)
    assert.deepEqual([missing.status, missing.json], [403, {
      sandboxId: sandbox.id, code: 403,
      message: "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing",
    }])
    const wrong = await sandbox.visit(6000, '/', { headers: { 'e2b-traffic-access-token': 'x'.repeat(token.length) } })
    assert.equal(wrong.status, 403)
    assert.match(wrong.json.message, /Provided token in header 'e2b-traffic-access-token' is invalid$/)
    // The agent's token opens no other port, and a closed port is not told to strangers.
    assert.equal((await sandbox.visit(6000, '/', { headers: { 'e2b-traffic-access-token': sandbox.token } })).status, 403)
    assert.equal((await sandbox.visit(6001)).status, 403)
    const right = await sandbox.visit(6000, '/', { headers: { 'e2b-traffic-access-token': token } })
    assert.equal(right.status, 200)
    // The agent's port has its own.
    assert.equal((await sandbox.request('GET', '/health')).status, 204)
    assert.equal((await sandbox.run('echo in')).stdout, 'in\n')
  }, { create: { network: { allowPublicTraffic: false } } })

  withSandbox('proxy/tokens: nobody wakes a private sandbox without them', async (sandbox) => {
    const state = async () => (await sandbox.api('GET')).json.state
    await sandbox.serve(6000, teller(6000))
    assert.equal((await sandbox.api('POST', '/pause')).status, 204)
    const refusal = { sandboxId: sandbox.id, code: 403, message: "This sandbox can't be resumed with the credentials provided. Check your access token and try again." }
    for (const answer of [
      await sandbox.visit(6000), await sandbox.visit(6000, '/', { headers: { 'e2b-traffic-access-token': 'wrong' } }),
      await sandbox.visit(49983, '/health'), await sandbox.visit(49983, '/health', { headers: { 'X-Access-Token': 'wrong' } }),
      await sandbox.visit(49983, '/files?path=x&signature=v1_x'),
    ]) {
      assert.equal(answer.status, 403, answer.text)
      assert.deepEqual(answer.json, refusal)
    }
    assert.equal(await state(), 'paused')
    const woken = await sandbox.visit(6000, '/', { headers: { 'e2b-traffic-access-token': sandbox.fields.trafficAccessToken } })
    assert.equal(woken.status, 200)
    assert.equal(await state(), 'running')
    assert.equal((await sandbox.api('POST', '/pause')).status, 204)
    assert.equal((await sandbox.request('GET', '/health')).status, 204)
    assert.equal(await state(), 'running')
  }, { create: { autoPause: true, autoResume: { enabled: true }, network: { allowPublicTraffic: false } } })

  withSandbox('proxy/tokens: without memory nothing wakes by traffic', async (sandbox) => {
    await sandbox.serve(6000, teller(6000))
    assert.equal((await sandbox.api('POST', '/pause', { memory: false })).status, 204)
    const answer = await sandbox.visit(6000)
    assert.deepEqual([answer.status, answer.json], [502, notFound(sandbox.id)])
    assert.equal((await sandbox.api('GET')).json.state, 'paused')
  }, { create: { autoPause: true, autoResume: { enabled: true } } })

  withSandbox('proxy/tokens: many requests wake it once', async (sandbox) => {
    await sandbox.serve(6000, teller(6000))
    const pid = async () => (await sandbox.run('pgrep -f serve-6000.py | head -1')).stdout
    const before = await pid()
    assert.equal((await sandbox.api('POST', '/pause')).status, 204)
    const answers = await Promise.all(Array.from({ length: 20 }, () => sandbox.visit(6000)))
    assert.deepEqual(answers.map((answer) => answer.status), Array(20).fill(200))
    assert.equal(await pid(), before)
  }, { create: { autoPause: true, autoResume: { enabled: true } } })
})

describe('proxy/mask', parallel, () => {
  withSandbox('proxy/mask: other ports than the agent\'s', async (sandbox) => {
    await sandbox.serve(7000, teller(7000))
    const headers = new Map((await sandbox.visit(7000)).json.headers.map(([name, value]) => [name.toLowerCase(), value]))
    assert.equal(headers.get('host'), 'masked.example:7000')
    assert.equal(headers.get('x-forwarded-host'), hostOf(sandbox.id, 7000))
    assert.equal((await sandbox.request('GET', '/health')).status, 204)
  }, { create: { network: { maskRequestHost: 'masked.example:${PORT}' } } })
})

describe('proxy/plain', parallel, () => {
  const bare = (method, path, headers = {}, body) => request(method, path, { base: plainUrl, headers, body })

  withSandbox('proxy/plain: a token leads to its sandbox when headers are missing', async (sandbox) => {
    const answer = await bare('GET', '/files?path=/etc/hostname', { 'X-Access-Token': sandbox.token })
    assert.equal(answer.status, 200, answer.text)
    assert.notEqual((await bare('GET', '/files?path=/etc/hostname', { 'X-Access-Token': 'wrong' })).status, 200)
  })

  withSandbox('proxy/plain: a control path with a key wins over sandbox headers', async (sandbox) => {
    const headers = { 'X-API-KEY': apiKey, 'Content-Type': 'application/json', 'E2b-Sandbox-Id': sandbox.id, 'E2b-Sandbox-Port': '49983' }
    const answer = await bare('POST', `/sandboxes/${sandbox.id}/connect`, headers, '{"timeout": 60}')
    assert.equal(answer.status, 200, answer.text)
    assert.equal(answer.json.sandboxID, sandbox.id)
  })

  withSandbox('proxy/plain: by host name without TLS', async (sandbox) => {
    assert.equal((await bare('GET', '/health', { Host: hostOf(sandbox.id, 49983) })).status, 204)
    assert.equal((await bare('GET', '/v2/sandboxes', { Host: `api.${domain}`, 'X-API-KEY': apiKey })).status, 200)
  })

  test('proxy/plain: clients of other makes', limited(30), async () => {
    // The language as template, no secure flag, hosts instead of headers, processes without a shell.
    for (const [language, command] of [['python', ['python3', ['-c', 'print(6 * 7)']]], ['python3', ['python3', ['-c', 'print(6 * 7)']]],
                                       ['bash', ['bash', ['-c', 'echo $((6 * 7))']]]]) {
      const made = await api('POST', '/sandboxes', { templateID: language, timeout: 60, secure: false })
      assert.equal(made.status, 201, `${language}: ${made.text}`)
      const sandbox = new Raw(made.json)
      try {
        assert.ok(!sandbox.token)
        const answer = await request('POST', '/process.Process/Start', {
          base: urlOf(sandbox.id, 49983), headers: { 'Content-Type': 'application/connect+json', 'Connect-Protocol-Version': '1' },
          body: (() => {
            const payload = Buffer.from(JSON.stringify({ process: { cmd: command[0], args: command[1] } }))
            const head = Buffer.alloc(5)
            head.writeUInt32BE(payload.length, 1)
            return Buffer.concat([head, payload])
          })(),
        })
        assert.equal(answer.status, 200, answer.text)
        assert.ok(answer.text.includes(Buffer.from('42\n').toString('base64')), answer.text)
      } finally {
        await sandbox.kill()
      }
    }
    for (const language of ['nodejs', 'javascript']) {
      const made = await api('POST', '/sandboxes', { templateID: language, timeout: 60, secure: false })
      assert.equal(made.status, 201, `${language}: ${made.text}`)
      await api('DELETE', `/sandboxes/${made.json.sandboxID}`)
    }
  })
})
