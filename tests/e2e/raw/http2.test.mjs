// Both versions of HTTP over TLS, with curl and with node:http2.
import { execFile } from 'node:child_process'
import fs from 'node:fs'
import http2 from 'node:http2'
import os from 'node:os'
import path from 'node:path'
import { describe, test } from 'node:test'
import { apiKey, assert, domain, envelope, hostOf, jsonCodec, limited, Raw, readEnvelopes, urlOf, withSandbox } from './support.mjs'

const ca = process.env.SSL_CERT_FILE

const curl = (words) => new Promise((resolve) =>
  execFile('curl', ['-sS', '--cacert', ca, '--max-time', '60', ...words], { maxBuffer: 64 << 20, encoding: 'buffer' },
           (error, stdout, stderr) => resolve({ code: error ? error.code : 0, stdout, stderr: stderr.toString() })))

// Status, version and seconds of a request.
async function ask(version, words) {
  const { code, stdout, stderr } = await curl([`--http${version}`, '-o', '/dev/null', '-w', '%{http_code} %{http_version} %{time_starttransfer} %{time_total}', ...words])
  assert.equal(code, 0, stderr)
  const [status, spoken, first, total] = stdout.toString().split(' ').map(Number)
  return { status, spoken, first, total }
}

const versions = [['1.1', 1.1], ['2', 2]]
const server = 'import http.server\nclass H(http.server.BaseHTTPRequestHandler):\n    protocol_version = "HTTP/1.1"\n' +
  '    def do_POST(self):\n        n = int(self.headers.get("Content-Length") or 0); got = 0\n        if not n and "chunked" in self.headers.get("Transfer-Encoding", ""):\n' +
  '            while size := int(self.rfile.readline().split(b";")[0], 16):\n                got += len(self.rfile.read(size)); self.rfile.readline()\n            self.rfile.readline()\n' +
  '        while got < n: got += len(self.rfile.read(min(1 << 20, n - got)))\n' +
  '        b = str(got).encode(); self.send_response(200); self.send_header("Content-Length", str(len(b))); self.end_headers(); self.wfile.write(b)\n' +
  '    def do_GET(self):\n        import time\n        self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()\n' +
  '        for i in range(5):\n            self.wfile.write(b"5\\r\\ntick\\n\\r\\n"); self.wfile.flush(); time.sleep(0.2)\n        self.wfile.write(b"0\\r\\n\\r\\n")\n' +
  '    def log_message(self, *a): pass\nhttp.server.ThreadingHTTPServer(("", 8000), H).serve_forever()\n'

describe('http2/curl', { concurrency: 2 }, () => {
  test('http2/curl: the API speaks both', limited(30), async () => {
    for (const [version, spoken] of versions) {
      const health = await ask(version, [`https://api.${domain}/health`])
      assert.ok([200, 204].includes(health.status), `${health.status}`)
      assert.equal(health.spoken, spoken)
      assert.equal((await ask(version, ['-H', `X-API-Key: ${apiKey}`, `https://api.${domain}/v2/sandboxes`])).status, 200)
      assert.equal((await ask(version, [`https://api.${domain}/v2/sandboxes`])).status, 401)
    }
  })

  withSandbox('http2/curl: sandbox hosts speak both', async (sandbox) => {
    await sandbox.serve(8000, server)
    for (const [version, spoken] of versions) {
      const answer = await ask(version, [`https://${hostOf(sandbox.id, 8000)}/`])
      assert.deepEqual([answer.status, answer.spoken], [200, spoken])
      // The first piece comes before the last.
      assert.ok(answer.first < answer.total - 0.5, JSON.stringify(answer))
      const closed = await ask(version, [`https://${hostOf(sandbox.id, 8001)}/`])
      assert.deepEqual([closed.status, closed.spoken], [502, spoken])
      const agent = await ask(version, ['-H', `X-Access-Token: ${sandbox.token}`, `https://${hostOf(sandbox.id, 49983)}/health`])
      assert.deepEqual([agent.status, agent.spoken], [204, spoken])
    }
  })

  withSandbox('http2/curl: 50 MB up and down', async (sandbox) => {
    await sandbox.serve(8000, server)
    const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'atoll-http2-'))
    try {
      const file = path.join(directory, 'big')
      fs.writeFileSync(file, Buffer.alloc(50 << 20, 'atoll'))
      for (const [version] of versions) {
        const up = await curl([`--http${version}`, '-H', 'Expect:', '--data-binary', `@${file}`, `https://${hostOf(sandbox.id, 8000)}/`])
        assert.equal(up.stdout.toString(), String(50 << 20), up.stderr)
        const agent = await curl([`--http${version}`, '-H', `X-Access-Token: ${sandbox.token}`, '-H', 'Content-Type: application/octet-stream', '-H', 'Expect:',
                                  '--data-binary', `@${file}`, `https://${hostOf(sandbox.id, 49983)}/files?path=/home/user/big`])
        assert.match(agent.stdout.toString(), /"big"/, agent.stderr)
        const back = path.join(directory, 'back')
        const down = await curl([`--http${version}`, '-H', `X-Access-Token: ${sandbox.token}`, '-o', back,
                                 `https://${hostOf(sandbox.id, 49983)}/files?path=/home/user/big`])
        assert.equal(down.code, 0, down.stderr)
        assert.ok(fs.readFileSync(back).equals(fs.readFileSync(file)), `what came back over HTTP/${version} differs`)
      }
    } finally {
      fs.rmSync(directory, { recursive: true, force: true })
    }
  }, { seconds: 90 })
})

// A session and requests on it.
function connect(url) {
  const session = http2.connect(url)
  session.on('error', () => {})
  const send = (headers, body) => new Promise((resolve, reject) => {
    const stream = session.request(headers)
    const chunks = []
    let status
    stream.on('response', (head) => (status = head[':status']))
    stream.on('data', (data) => chunks.push(data))
    stream.on('end', () => resolve({ status, body: Buffer.concat(chunks) }))
    stream.on('error', reject)
    stream.end(body)
  })
  return { session, send }
}

describe('http2/session', { concurrency: 2 }, () => {
  test('http2/session: many requests on one connection', limited(30), async () => {
    const { session, send } = connect(`https://api.${domain}`)
    try {
      const answers = await Promise.all(Array.from({ length: 60 }, () => send({ ':path': '/v2/sandboxes', 'x-api-key': apiKey })))
      assert.ok(answers.every((answer) => answer.status === 200))
      assert.equal(session.destroyed, false)
    } finally {
      session.close()
    }
  })

  withSandbox('http2/session: streams side by side do not wait for each other', async (sandbox) => {
    const { session, send } = connect(urlOf(sandbox.id, 49983))
    const headers = {
      ':method': 'POST', ':path': '/process.Process/Start', 'content-type': 'application/connect+json', 'connect-protocol-version': '1',
      'x-access-token': sandbox.token,
    }
    const command = (text) => envelope(jsonCodec.encode({ process: { cmd: '/bin/bash', args: ['-c', text] } }))
    try {
      const began = Date.now()
      const slow = send(headers, command('sleep 3; echo slow'))
      const quick = await Promise.all(Array.from({ length: 5 }, () => send(headers, command('echo quick'))))
      assert.ok(Date.now() - began < 2_500, `${Date.now() - began} ms`)
      for (const answer of quick) assert.deepEqual(readEnvelopes(answer.body).end, {})
      assert.deepEqual(readEnvelopes((await slow).body).end, {})
    } finally {
      session.close()
    }
  })

  withSandbox('http2/session: the end of a sandbox resets its streams only', async (sandbox) => {
    const other = await Raw.create()
    const { session } = connect(urlOf(sandbox.id, 49983))
    try {
      const stream = session.request({
        ':method': 'POST', ':path': '/process.Process/Start', 'content-type': 'application/connect+json', 'connect-protocol-version': '1',
        'x-access-token': sandbox.token,
      })
      const ended = new Promise((resolve) => {
        stream.on('error', (error) => resolve(error.code))
        stream.on('close', () => resolve(`closed with ${stream.rstCode}`))
      })
      const began = new Promise((resolve) => stream.once('data', resolve))
      stream.end(envelope(jsonCodec.encode({ process: { cmd: 'sleep', args: ['60'] } })))
      await began
      assert.equal((await sandbox.kill()).status, 204)
      assert.notEqual(await ended, 'closed with 0')
      assert.equal(await other.alive(), true)
    } finally {
      session.destroy()
      await other.kill()
    }
  })
})
