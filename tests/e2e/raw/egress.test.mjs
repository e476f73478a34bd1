// What leaves a sandbox: names, addresses, resolver, tricks. The control of each refusal is the same request from where it
// is allowed: the machine itself, or a sandbox with other rules.
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import http from 'node:http'
import { describe, test } from 'node:test'
import { api, assert, hostOf, limited, Raw, until, withSandbox } from './support.mjs'

const parallel = { concurrency: 4 }
const worldCa = readFileSync(process.env.E2E_WORLD_CA, 'utf8')
const everything = ['0.0.0.0/0']
const address = process.env.E2E_SERVER_ADDRESS

const shell = (command) => new Promise((resolve) =>
  execFile('bash', ['-c', command], (error, stdout) => resolve({ code: error ? error.code ?? 1 : 0, stdout })))
// curl from inside: { code, status, json }. The CA of the test's internet is trusted.
const curlLine = (words) => `curl -s --connect-timeout 3 --max-time 5 -w '\\n%{http_code}' ${words}`
const parse = (stdout, code) => {
  const at = stdout.trimEnd().lastIndexOf('\n')
  const body = stdout.slice(0, Math.max(at, 0))
  let json
  try {
    json = JSON.parse(body)
  } catch {}
  return { code, status: Number(stdout.trimEnd().slice(at + 1)) || 0, body, json }
}
async function curl(sandbox, words) {
  if (!sandbox.trusts) {
    assert.equal((await sandbox.upload('/home/user/ca.pem', worldCa)).status, 200)
    sandbox.trusts = true
  }
  const { stdout } = await sandbox.run(`${curlLine(`--cacert /home/user/ca.pem ${words}`)}; echo " $?"`)
  const [, whole, code] = /^([\s\S]*) (\d+)\n$/.exec(stdout)
  return parse(whole, Number(code))
}
async function fromHost(words) {
  const { code, stdout } = await shell(curlLine(`--cacert ${process.env.E2E_WORLD_CA} ${words}`))
  return parse(stdout, code)
}
const refused = (answer, what) => assert.ok(answer.code !== 0 && answer.status === 0, `${what}: ${JSON.stringify(answer)}`)
const resolve = async (sandbox, name) =>
  (await sandbox.run(`timeout 8 getent ahostsv4 ${name} | head -1 | cut -d' ' -f1`)).stdout.trim()
const only = (...allowOut) => ({ create: { network: { allowOut, denyOut: everything } } })
const closed = { create: { network: { denyOut: everything } } }
// TCP or UDP echo on port 7 of an address.
const echo = (kind, to) => `timeout 6 python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_${kind === 'udp' ? 'DGRAM' : 'STREAM'}); s.settimeout(3)
s.connect(("${to}", 7)); s.send(b"ping"); print(s.recv(9).decode())' 2>/dev/null || echo failed`

describe('egress/names', parallel, () => {
  withSandbox('egress/names: a forged name does not open an address', async (sandbox) => {
    const good = await curl(sandbox, 'https://allowed.example.com/')
    assert.equal(good.status, 200, JSON.stringify(good))
    assert.deepEqual([good.json.address, good.json.name], ['203.0.113.20', 'allowed.example.com'])
    // The allowed name, but the address of somebody else.
    const tls = await curl(sandbox, '-k --resolve allowed.example.com:443:203.0.113.23 https://allowed.example.com/')
    assert.ok(tls.status === 0 || tls.json?.address === '203.0.113.20', `reached ${JSON.stringify(tls.json)}`)
    const plain = await curl(sandbox, '-H "Host: allowed.example.com" http://203.0.113.23/')
    assert.ok(plain.status === 0 || plain.status === 403 || plain.json?.address === '203.0.113.20', `reached ${JSON.stringify(plain.json)}`)
    // Control: without rules both get there.
    assert.equal((await fromHost('-k --resolve allowed.example.com:443:203.0.113.23 https://allowed.example.com/')).json.address, '203.0.113.23')
  }, only('allowed.example.com'))

  withSandbox('egress/names: no name, no way', async (sandbox) => {
    refused(await curl(sandbox, '-k https://203.0.113.20/'), 'the address of the allowed name, without the name')
    const plain = await curl(sandbox, 'http://203.0.113.20/')
    assert.ok(plain.status === 0 || plain.status === 403, JSON.stringify(plain))
    // Other ports need rules by address.
    assert.equal((await sandbox.run(echo('tcp', '203.0.113.20'))).stdout, 'failed\n')
  }, only('allowed.example.com'))

  withSandbox('egress/names: two names on one address', async (sandbox) => {
    assert.equal((await curl(sandbox, 'https://good.example.net/')).status, 200)
    refused(await curl(sandbox, '--resolve evil.example.net:443:203.0.113.30 https://evil.example.net/'), 'the other name of the same address')
    const plain = await curl(sandbox, '-H "Host: evil.example.net" http://good.example.net/')
    assert.ok(plain.status === 0 || plain.status === 403, JSON.stringify(plain))
    assert.equal((await fromHost('https://evil.example.net/')).status, 200)
  }, only('good.example.net'))

  withSandbox('egress/names: letters, dots and keep-alive', async (sandbox) => {
    assert.equal((await curl(sandbox, '-k https://ALLOWED.Example.com/')).status, 200)
    // A second request on an allowed connection may not name another host.
    const { stdout } = await sandbox.run(`timeout 8 python3 - <<'END'
import socket
s = socket.create_connection(("allowed.example.com", 80), 3); s.settimeout(3)
s.sendall(b"GET /one HTTP/1.1\\r\\nHost: allowed.example.com\\r\\n\\r\\n")
seen = b""
while b'"/one"' not in seen: seen += s.recv(65536)
s.sendall(b"GET /two HTTP/1.1\\r\\nHost: other.example.org\\r\\nConnection: close\\r\\n\\r\\n")
rest = b""
try:
    while data := s.recv(65536): rest += data
except OSError: pass
print("leaked" if b'"/two"' in rest and b"200 OK" in rest else "held")
END`)
    assert.equal(stdout, 'held\n')
  }, only('allowed.example.com'))

  withSandbox('egress/names: an update opens and closes', async (sandbox) => {
    const status = async () => (await curl(sandbox, 'https://other.example.org/')).status
    assert.equal(await status(), 0)
    assert.equal((await sandbox.api('PUT', '/network', { allowOut: ['other.example.org'], denyOut: everything })).status, 204)
    assert.equal(await status(), 200)
    assert.equal((await curl(sandbox, 'https://allowed.example.com/')).status, 0)
    assert.equal((await sandbox.api('PUT', '/network', { denyOut: everything })).status, 204)
    assert.equal(await status(), 0)
  }, { ...only('allowed.example.com'), seconds: 60 })
})

describe('egress/dns', parallel, () => {
  withSandbox('egress/dns: works inside', async (sandbox) => {
    assert.equal(await resolve(sandbox, 'allowed.example.com'), '203.0.113.20')
    assert.equal(await resolve(sandbox, 'no-such-name.example.com'), '')
    assert.equal(await resolve(sandbox, 'localhost'), '127.0.0.1')
    assert.equal((await sandbox.run('getent hosts $(hostname) >/dev/null && echo own')).stdout, 'own\n')
    // Over TCP as well.
    const { stdout } = await sandbox.run(`python3 - <<'END'
import socket, struct
server = [l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver")][0]
q = b"\\x12\\x34\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00" + b"".join(bytes([len(p)]) + p for p in b"allowed.example.com".split(b".")) + b"\\x00\\x00\\x01\\x00\\x01"
s = socket.create_connection((server, 53), 3); s.sendall(struct.pack(">H", len(q)) + q)
print(socket.inet_ntoa(s.recv(4096)[-4:]))
END`)
    assert.equal(stdout, '203.0.113.20\n')
  })

  withSandbox('egress/dns: denied with everything', async (sandbox) => {
    assert.equal(await resolve(sandbox, 'other.example.org'), '')
    assert.equal(await resolve(sandbox, 'secrets-in-a-name.example.com'), '')
  }, closed)

  withSandbox('egress/dns: only the names that are allowed', async (sandbox) => {
    assert.equal(await resolve(sandbox, 'allowed.example.com'), '203.0.113.20')
    assert.equal(await resolve(sandbox, 'other.example.org'), '')
  }, only('allowed.example.com'))

  withSandbox('egress/dns: names of private addresses lead nowhere', async (sandbox) => {
    for (const name of ['private.example.com', 'metadata.example.com', 'home.example.com', 'loop.example.com']) {
      refused(await curl(sandbox, `http://${name}/`), name)
    }
    for (const name of ['private.example.com', 'metadata.example.com']) assert.equal((await fromHost(`http://${name}/`)).status, 200, `${name} from the machine`)
  }, { seconds: 60 })
})

describe('egress/addresses', parallel, () => {
  const out = ['10.99.0.7', '169.254.169.254', '192.168.77.7']

  withSandbox('egress/addresses: private and metadata addresses', async (sandbox) => {
    for (const target of out) {
      assert.equal((await fromHost(`http://${target}/`)).status, 200, `${target} from the machine`)
      refused(await curl(sandbox, `http://${target}/`), target)
    }
  }, { seconds: 60 })

  withSandbox('egress/addresses: not even when they are allowed', async (sandbox) => {
    for (const target of out) refused(await curl(sandbox, `http://${target}/`), target)
  }, { ...only('10.0.0.0/8', '169.254.169.254', '192.168.0.0/16'), seconds: 60 })

  test('egress/addresses: the machine itself', limited(60), async () => {
    const server = http.createServer((_, response) => response.end('{"host": true}')).listen(9999, '0.0.0.0')
    const sandbox = await Raw.create()
    try {
      await until('the listener', () => server.listening)
      assert.equal((await fromHost(`http://${address}:9999/`)).status, 200)
      refused(await curl(sandbox, `http://${address}:9999/`), 'the address of the machine')
      const gateway = (await sandbox.run("ip route 2>/dev/null | awk '/default/ {print $3}'")).stdout.trim()
      if (gateway) refused(await curl(sandbox, `http://${gateway}:9999/`), `the gateway ${gateway}`)
      refused(await curl(sandbox, 'http://127.0.0.1:9999/'), 'loopback is the sandbox\'s own')
      const port = new URL(process.env.E2E_SERVER_URL).port
      if (gateway) refused(await curl(sandbox, `http://${gateway}:${port}/health`), 'the API at the gateway')
    } finally {
      server.close()
      await sandbox.kill()
    }
  })

  test('egress/addresses: sandbox to sandbox', limited(60), async () => {
    const [one, two] = await Promise.all([Raw.create(), Raw.create()])
    try {
      await one.serve(8123, 'import http.server\nhttp.server.ThreadingHTTPServer(("0.0.0.0", 8123), http.server.SimpleHTTPRequestHandler).serve_forever()')
      const own = (await one.run("hostname -I; ip -4 -o addr 2>/dev/null | awk '{print $4}' | cut -d/ -f1")).stdout.split(/\s+/)
        .filter((text) => /^\d+\./.test(text) && !text.startsWith('127.'))
      for (const target of new Set(own)) {
        refused(await curl(two, `http://${target}:8123/`), target)
      }
    } finally {
      await Promise.all([one.kill(), two.kill()])
    }
  })

  withSandbox('egress/addresses: no IPv6', async (sandbox) => {
    const { stdout } = await sandbox.run(`python3 - <<'END'
import socket
try:
    socket.create_connection(("2001:db8::1", 80), 2); print("connected")
except OSError as error: print("refused")
END`)
    assert.equal(stdout, 'refused\n')
  })

  withSandbox('egress/addresses: other ports and UDP', async (sandbox) => {
    assert.equal((await sandbox.run(echo('tcp', '203.0.113.20'))).stdout, 'ping\n')
    assert.equal((await sandbox.run(echo('udp', '203.0.113.20'))).stdout, 'ping\n')
    assert.equal((await sandbox.run(echo('tcp', '203.0.113.22'))).stdout, 'failed\n')
    assert.equal((await sandbox.run(echo('udp', '203.0.113.22'))).stdout, 'failed\n')
  }, { create: { network: { denyOut: ['203.0.113.22'] } } })

  withSandbox('egress/addresses: nothing when everything is denied', async (sandbox) => {
    assert.equal((await sandbox.run(echo('tcp', '203.0.113.20'))).stdout, 'failed\n')
    assert.equal((await sandbox.run(echo('udp', '203.0.113.20'))).stdout, 'failed\n')
    assert.equal((await sandbox.run('curl -s localhost:49983/health -o /dev/null -w "%{http_code}"')).stdout.length, 3)
  }, closed)
})

describe('egress/proxy', parallel, () => {
  const through = (password) => ({ create: { network: { egressProxy: { address: '203.0.113.80:1080', username: 'guest', password } } } })

  withSandbox('egress/proxy: everything leaves through it', async (sandbox) => {
    for (const url of ['http://allowed.example.com/', 'https://other.example.org/']) {
      const answer = await curl(sandbox, url)
      assert.equal(answer.status, 200, JSON.stringify(answer))
      assert.equal(answer.json.client, '203.0.113.80')
    }
  }, through('secret'))

  withSandbox('egress/proxy: fails closed', async (sandbox) => {
    for (const url of ['http://allowed.example.com/', 'https://other.example.org/']) {
      const answer = await curl(sandbox, url)
      assert.ok(answer.status === 0 || answer.status >= 500, JSON.stringify(answer))
    }
  }, through('wrong'))
})

describe('egress/transform', parallel, () => {
  const rules = { 'allowed.example.com': [{ transform: { headers: { Authorization: 'Bearer t0ken', 'X-Extra': 'one' } } }] }

  withSandbox('egress/transform: HTTPS is opened with a CA that the sandbox trusts', async (sandbox) => {
    const { stdout } = await sandbox.run('curl -sS --max-time 8 -H "X-Mine: kept" https://allowed.example.com/p?q=1')
    const seen = JSON.parse(stdout)
    const headers = seen.headers.map(([name, value]) => [name.toLowerCase(), value])
    assert.deepEqual(headers.filter(([name]) => name === 'authorization'), [['authorization', 'Bearer t0ken']])
    assert.deepEqual(new Map(headers).get('x-mine'), 'kept')
    assert.deepEqual([seen.scheme, seen.path, seen.host], ['https', '/p?q=1', 'allowed.example.com'])
    // Python and Node trust it as well.
    const python = await sandbox.run("python3 -c 'import urllib.request; print(urllib.request.urlopen(\"https://allowed.example.com/\").status)'")
    assert.equal(python.stdout, '200\n', python.stderr)
    // A body arrives whole.
    const post = await sandbox.run('head -c 300000 /dev/zero | tr "\\0" a | curl -sS --max-time 8 --data-binary @- https://allowed.example.com/')
    assert.equal(JSON.parse(post.stdout).body.length, 1000)
  }, { create: { network: { rules } } })

  withSandbox('egress/transform: other hosts keep their own certificates', async (sandbox) => {
    const other = await curl(sandbox, 'https://other.example.org/')
    assert.equal(other.status, 200)
    assert.ok(!other.json.headers.some(([name]) => name.toLowerCase() === 'authorization'))
    // The secret is nowhere inside.
    const found = await sandbox.run('sudo grep -rlI t0ken /etc /home /run /tmp /usr/local 2>/dev/null; env | grep t0ken; true')
    assert.equal(found.stdout, '')
  }, { create: { network: { rules } } })

  withSandbox('egress/transform: a rule alone allows nothing', async (sandbox) => {
    refused(await curl(sandbox, '-k https://allowed.example.com/'), 'a host with a rule but without leave')
  }, { create: { network: { rules, denyOut: everything } } })
})

describe('egress/hairpin', parallel, () => {
  test('egress/hairpin: a sandbox reaches another by its public name when it may', limited(60), async () => {
    const made = await api('POST', '/v2/sandboxes', { templateID: 'httpbin', timeout: 60 })
    assert.equal(made.status, 201, made.text)
    const bin = new Raw(made.json)
    const host = hostOf(bin.id, 8080)
    const sandbox = await Raw.create({ network: { allowOut: [host], denyOut: everything, rules: { [host]: [{ transform: { headers: { 'X-Test-Token': 'abc' } } }] } } })
    try {
      await until('httpbin', async () => (await bin.visit(8080, '/headers')).status === 200)
      const { stdout, stderr } = await sandbox.run(`curl -sS --max-time 8 https://${host}/headers`)
      assert.equal(stdout && JSON.parse(stdout).headers['X-Test-Token'], 'abc', stderr)
      refused(await curl(sandbox, `-k https://api.${process.env.E2E_DOMAIN}/health`), 'the API, which no rule allows')
    } finally {
      await Promise.all([bin.kill(), sandbox.kill()])
    }
  })
})
