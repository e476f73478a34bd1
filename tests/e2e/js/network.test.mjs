// What a sandbox reaches, and who reaches it. The internet is the one of harness/world.py: 1.1.1.1 answers 301, 8.8.8.8
// answers 302, hosts by name answer what they were asked.
import { readFileSync } from 'node:fs'
import { describe } from 'node:test'
import { Sandbox } from 'e2b'
import { assert, parallel, row, until, visit } from './support.mjs'

const worldCa = process.env.E2E_WORLD_CA ? readFileSync(process.env.E2E_WORLD_CA, 'utf8') : ''

// The status of a request from inside; 0 when the connection fails.
async function status(sandbox, url, options = '') {
  if (!(await sandbox.files.exists('/home/user/ca.pem'))) await sandbox.files.write('/home/user/ca.pem', worldCa)
  const result = await sandbox.commands.run(
    `curl -s -o /dev/null -w '%{http_code}' --connect-timeout 3 --max-time 5 --cacert /home/user/ca.pem ${options} ${url} || true`)
  return Number(result.stdout)
}

const reaches = async (sandbox, expected) => {
  for (const [url, code] of Object.entries(expected)) {
    assert.equal(await status(sandbox, url), code, `${url} from sandbox ${sandbox.sandboxId}`)
  }
}

async function serve(sandbox, port) {
  // Tells the Host header that it got.
  await sandbox.files.write('server.py', [
    'import http.server, sys',
    'class Handler(http.server.BaseHTTPRequestHandler):',
    '    def do_GET(self):',
    '        body = "".join(f"{k}: {v}\\n" for k, v in self.headers.items()).encode()',
    '        self.send_response(200)',
    '        self.send_header("Content-Length", str(len(body)))',
    '        self.end_headers()',
    '        self.wfile.write(body)',
    'http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Handler).serve_forever()',
  ].join('\n'))
  const server = await sandbox.commands.run(`python3 server.py ${port}`, { background: true, timeoutMs: 0 })
  server.wait().catch(() => {})
  await until('the server', async () => (await sandbox.commands.run(`curl -s localhost:${port} >/dev/null && echo up || true`)).stdout)
}

describe('network/out', parallel, () => {
  row('network/out: internet access by default', {}, async ({ sandbox }) => {
    assert.equal(await status(sandbox, 'https://connectivitycheck.gstatic.com/generate_204'), 204)
    await reaches(sandbox, { 'https://1.1.1.1': 301, 'https://8.8.8.8': 302, 'http://other.example.org/': 200 })
  })

  row('network/out: internet access enabled', { create: { allowInternetAccess: true } }, async ({ sandbox }) => {
    assert.equal(await status(sandbox, 'https://connectivitycheck.gstatic.com/generate_204'), 204)
  })

  row('network/out: internet access disabled', { create: { allowInternetAccess: false } }, async ({ sandbox }) => {
    await reaches(sandbox, {
      'https://connectivitycheck.gstatic.com/generate_204': 0, 'https://1.1.1.1': 0, 'http://203.0.113.20/': 0,
    })
    // The agent is reached all the same.
    assert.equal((await sandbox.commands.run('echo inside')).stdout, 'inside\n')
  })

  row('network/out: allow one address, deny the rest', {
    create: { network: { denyOut: ({ allTraffic }) => [allTraffic], allowOut: ['1.1.1.1'] } },
  }, ({ sandbox }) => reaches(sandbox, { 'https://1.1.1.1': 301, 'https://8.8.8.8': 0 }))

  row('network/out: deny one address', { create: { network: { denyOut: ['8.8.8.8'] } } },
      ({ sandbox }) => reaches(sandbox, { 'https://8.8.8.8': 0, 'https://1.1.1.1': 301 }))

  row('network/out: deny a block', { create: { network: { denyOut: ['203.0.113.0/28'] } } },
      ({ sandbox }) => reaches(sandbox, { 'http://203.0.113.4/generate_204': 0, 'http://203.0.113.20/': 200 }))

  row('network/out: deny all traffic', { create: { network: { denyOut: ({ allTraffic }) => [allTraffic] } } },
      async ({ sandbox }) => {
        await reaches(sandbox, { 'https://1.1.1.1': 0, 'https://8.8.8.8': 0 })
        assert.equal(await sandbox.isRunning(), true)
      })

  row('network/out: allow beats deny', {
    create: { network: { denyOut: ({ allTraffic }) => [allTraffic], allowOut: ['1.1.1.1', '8.8.8.8'] } },
  }, ({ sandbox }) => reaches(sandbox, { 'https://1.1.1.1': 301, 'https://8.8.8.8': 302, 'http://203.0.113.20/': 0 }))

  row('network/out: an update denies what was reachable', {}, async ({ sandbox }) => {
    await reaches(sandbox, { 'https://8.8.8.8': 302 })
    await sandbox.updateNetwork({ denyOut: ['8.8.8.8'] })
    await reaches(sandbox, { 'https://8.8.8.8': 0, 'https://1.1.1.1': 301 })
  })

  row('network/out: an update replaces all rules', { create: { network: { denyOut: ['8.8.8.8'] } } }, async ({ sandbox }) => {
    await reaches(sandbox, { 'https://8.8.8.8': 0 })
    await sandbox.updateNetwork({})
    await reaches(sandbox, { 'https://8.8.8.8': 302, 'https://1.1.1.1': 301 })
    await Sandbox.updateNetwork(sandbox.sandboxId, { allowInternetAccess: false })
    await reaches(sandbox, { 'https://8.8.8.8': 0, 'https://1.1.1.1': 0 })
  })

  row('network/out: rules outlive a pause', { create: { network: { denyOut: ['8.8.8.8'] } } }, async ({ sandbox }) => {
    await sandbox.pause()
    await sandbox.connect()
    await reaches(sandbox, { 'https://8.8.8.8': 0, 'https://1.1.1.1': 301 })
    await sandbox.pause({ keepMemory: false })
    await sandbox.connect()
    await reaches(sandbox, { 'https://8.8.8.8': 0, 'https://1.1.1.1': 301 })
  })
})

describe('network/names', parallel, () => {
  const only = (...allowOut) => ({ create: { network: { allowOut, denyOut: ({ allTraffic }) => [allTraffic] } } })

  row('network/names: only one name', only('allowed.example.com'), async ({ sandbox }) => {
    await reaches(sandbox, {
      'https://allowed.example.com/': 200, 'http://allowed.example.com/': 200,
      'https://other.example.org/': 0, 'https://1.1.1.1': 0,
    })
  })

  row('network/names: wildcard', only('*.example.com'), async ({ sandbox }) => {
    await reaches(sandbox, {
      'https://allowed.example.com/': 200, 'https://deep.below.example.com/': 200,
      'https://example.com/': 0, 'https://other.example.org/': 0,
    })
  })

  row('network/names: names and addresses together', only('allowed.example.com', '8.8.8.8'), ({ sandbox }) =>
    reaches(sandbox, { 'https://allowed.example.com/': 200, 'https://8.8.8.8': 302, 'https://1.1.1.1': 0 }))
})

describe('network/transform', parallel, () => {
  row('network/transform: a header is injected', { sandbox: false, limitMs: 60_000 }, async ({ defer }) => {
    const sidecar = await Sandbox.create('httpbin', { timeoutMs: 60_000 })
    defer(() => sidecar.kill())
    await until('httpbin', async () => (await visit(sidecar, 8080, { path: '/headers' })).status === 200)
    const host = sidecar.getHost(8080)
    const token = 'a-secret-of-the-test'
    const sandbox = await Sandbox.create('base', {
      network: {
        allowOut: ({ rules }) => [...rules.keys()],
        denyOut: ({ allTraffic }) => [allTraffic],
        rules: { [host]: [{ transform: { headers: { 'X-Test-Token': token } } }] },
      },
    })
    defer(() => sandbox.kill())
    const seen = async (options = '') => {
      const result = await sandbox.commands.run(`curl -sS --max-time 10 ${options} https://${host}/headers`)
      return JSON.parse(result.stdout).headers
    }
    assert.equal((await seen())['X-Test-Token'], token)
    // What the sandbox sends itself is replaced, not joined.
    assert.equal((await seen('-H "X-Test-Token: forged" -H "x-other: kept"'))['X-Test-Token'], token)
    // It never enters the sandbox.
    const found = await sandbox.commands.run(`sudo grep -rl ${token} /home /tmp /etc /run 2>/dev/null || true`)
    assert.equal(found.stdout, '')
  })

  row('network/transform: over plain HTTP and to one host only', {
    create: { network: { rules: { 'allowed.example.com': [{ transform: { headers: { Authorization: 'Bearer t0ken' } } }] } } },
  }, async ({ sandbox }) => {
    const headers = async (host) =>
      new Map(JSON.parse((await sandbox.commands.run(`curl -sS --max-time 10 http://${host}/`)).stdout).headers
        .map(([name, value]) => [name.toLowerCase(), value]))
    assert.equal((await headers('allowed.example.com')).get('authorization'), 'Bearer t0ken')
    assert.equal((await headers('other.example.org')).get('authorization'), undefined)
  })
})

describe('network/in', parallel, () => {
  row('network/in: private traffic needs the token', { create: { network: { allowPublicTraffic: false } } }, async ({ sandbox }) => {
    await serve(sandbox, 8080)
    assert.ok(sandbox.trafficAccessToken, 'the token is in the answer')
    const missing = await visit(sandbox, 8080)
    assert.equal(missing.status, 403)
    assert.match((await missing.json()).message, /Token header 'e2b-traffic-access-token' is missing/)
    const wrong = await visit(sandbox, 8080, { headers: { 'e2b-traffic-access-token': 'wrong' } })
    assert.equal(wrong.status, 403)
    assert.match((await wrong.json()).message, /is invalid/)
    const right = await visit(sandbox, 8080, { headers: { 'e2b-traffic-access-token': sandbox.trafficAccessToken } })
    assert.equal(right.status, 200)
    // A second handle gets the same one.
    assert.equal((await Sandbox.connect(sandbox.sandboxId)).trafficAccessToken, sandbox.trafficAccessToken)
  })

  row('network/in: public traffic needs no token', { create: { network: { allowPublicTraffic: true } } }, async ({ sandbox }) => {
    await serve(sandbox, 8080)
    assert.equal(sandbox.trafficAccessToken, undefined)
    assert.equal((await visit(sandbox, 8080)).status, 200)
  })

  row('network/in: the host is masked', {
    create: { network: { maskRequestHost: 'custom-host.example.com:${PORT}' } },
  }, async ({ sandbox }) => {
    await serve(sandbox, 8080)
    const text = await (await visit(sandbox, 8080)).text()
    assert.match(text, /^Host: custom-host\.example\.com:8080$/m)
    assert.ok(text.toLowerCase().includes(`x-forwarded-host: ${sandbox.getHost(8080)}`), text)
  })

  row('network/in: the host is kept without a mask', {}, async ({ sandbox }) => {
    await serve(sandbox, 8080)
    const text = await (await visit(sandbox, 8080)).text()
    assert.ok(text.toLowerCase().includes(`host: ${sandbox.getHost(8080)}\n`), text)
    assert.doesNotMatch(text, /X-Forwarded/i)
  })
})
