// Providers: one way to run code on several backends. Servers of their own: `here` has the settings, `there` is the remote
// one; Alibaba Cloud is played by a small server that checks what the vendor published, the signatures included.
import { execFile } from 'node:child_process'
import { createHash, createHmac } from 'node:crypto'
import fs from 'node:fs'
import http from 'node:http'
import net from 'node:net'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { assert, limited, request } from './support.mjs'
import { startServer } from './own-server.mjs'

const timeScale = Number(process.env.E2E_TIME_SCALE ?? 1)
const LIGHT = ['--pool-ready', '1', '--pool-skeletons', '0', '--log-level', 'debug']
// Nothing may ever show these.
const SECRETS = []
const secret = (text) => (SECRETS.push(text), text)

let here, there
const admin = (method, target, content) => request(method, target, {
  base: here.base,
  headers: { 'X-Admin-Token': fs.readFileSync(path.join(here.home, 'keys/admin.token'), 'utf8').trim(), 'X-Team-ID': here.team,
             ...(content !== undefined && { 'Content-Type': 'application/json' }) },
  body: content === undefined ? undefined : JSON.stringify(content),
})
const said = []  // every answer, to look for secrets
async function call(who, method, target, content) {
  const answer = await (who === admin ? admin(method, target, content) : here.call(method, target, content))
  said.push(answer.text)
  return answer
}
async function set(id, config) {
  const answer = await call(admin, 'PUT', `/providers/${id}`, { config })
  assert.equal(answer.status, 200, answer.text)
  return answer.json
}
async function execute(id, content) {
  const answer = await call(here, 'POST', `/providers/${id}/execute`, content)
  assert.equal(answer.status, 200, answer.text)
  return answer.json
}
function refused(answer, status, message) {
  assert.equal(answer.status, status, answer.text)
  assert.equal(answer.json.code, status)
  assert.match(answer.json.message, message)
}
async function tested(id, config) {
  const answer = await call(admin, 'POST', `/providers/${id}/test`, config && { config })
  assert.equal(answer.status, 200, answer.text)
  return answer.json
}
const steps = (report) => report.steps.map((step) => step.step + (step.ok ? '' : `!${step.error.code}`))
const WORKS = ['validate', 'initialize', 'health_check', 'create', 'execute', 'destroy']
async function sandboxesOf(server) {
  const answer = await server.call('GET', '/v2/sandboxes?state=running,paused')
  assert.equal(answer.status, 200, answer.text)
  return answer.json.map((sandbox) => sandbox.sandboxID)
}

// What holds for every provider that starts programs in sandboxes.
async function runsCode(id) {
  const printed = await execute(id, { code: 'import sys\nprint("out")\nprint("err", file=sys.stderr)' })
  assert.equal(printed.stdout, 'out\n')
  assert.equal(printed.stderr, 'err\n')
  assert.equal(printed.exit_code, 0)
  assert.equal(printed.metadata.status, 'success')
  assert.equal(printed.metadata.provider, id)
  assert.equal(printed.metadata.language, 'python')
  assert.equal(printed.metadata.result_present, false)
  assert.ok(printed.metadata.instance_id.length > 10)
  assert.ok(printed.execution_time > 0)

  const value = { a: [1, 'é\n"', null], b: { c: 0.5 } }
  const python = await execute(id, {
    code: 'def main(a, b):\n    print("in main")\n    return {"a": a, "b": b}\n\nif __name__ == "__main__":\n    main(1, 2)\n',
    language: 'python3', arguments: value,
  })
  assert.equal(python.stdout, 'in main\n', 'once')
  assert.deepEqual(python.metadata.result_value, value)
  assert.equal(python.metadata.result_type, 'json')
  assert.ok(python.metadata.memory_used_kb > 1000)

  const node = await execute(id, {
    code: 'async function main({ a, b }) {\n  console.log("in main")\n  return { a, b }\n}\n', language: 'nodejs', arguments: value,
  })
  assert.equal(node.stdout, 'in main\n')
  assert.deepEqual(node.metadata.result_value, value)

  const failed = await execute(id, { code: 'def main():\n    return 1 / 0\n' })
  assert.equal(failed.exit_code, 1)
  assert.equal(failed.metadata.status, 'program_error')
  assert.match(failed.stderr, /main\.py", line 2, in main[\s\S]*ZeroDivisionError/)
  assert.doesNotMatch(failed.stderr, /run\.py/)
  assert.equal(failed.metadata.result_present, false)
}

// RAGFlow's marker, as code prints it itself.
const marker = (value) => '__RAGFLOW_RESULT__:' + Buffer.from(JSON.stringify({ present: true, value, type: 'json' })).toString('base64')

// --- Alibaba Cloud, as far as its publications go

const sha256 = (text) => createHash('sha256').update(text).digest('hex')
const hmac = (key, text) => createHmac('sha256', key).update(text).digest()

class Aliyun {
  constructor(keyId, keySecret) {
    Object.assign(this, { keyId, keySecret, templates: new Map(), sandboxes: new Set(), calls: [], problems: [], delay: 0 })
    this.server = http.createServer((req, res) => {
      const chunks = []
      req.on('data', (chunk) => chunks.push(chunk))
      req.on('end', () => this.answer(req, Buffer.concat(chunks).toString(), res))
    })
  }

  listen() {
    return new Promise((resolve) => this.server.listen(0, '127.0.0.1', () => resolve((this.url = `http://127.0.0.1:${this.server.address().port}`))))
  }

  close() {
    this.server.closeAllConnections()
    this.server.close()
  }

  // The signature of the request, made again from what arrived.
  check(req, body) {
    const plain = req.headers.authorization
    const value = plain ?? req.headers['agentrun-authorization'] ?? ''
    const parts = /^(\S+) Credential=([^,]+),SignedHeaders=([^,]+),Signature=([0-9a-f]{64})$/.exec(value)
    if (!parts) return 'IncompleteSignature'
    const [, algorithm, credential, names, signature] = parts
    const hash = req.headers['x-acs-content-sha256']
    const canonical = [req.method, req.url, '', names.split(';').map((name) => `${name}:${req.headers[name]}\n`).join(''), names, hash].join('\n')
    const text = `${algorithm}\n${sha256(canonical)}`
    if (Math.abs(Date.parse(req.headers['x-acs-date']) - Date.now()) > 60_000) return 'SignatureExpired'
    let key = this.keySecret
    if (plain) {
      if (algorithm !== 'ACS3-HMAC-SHA256') return 'wrong algorithm'
      if (hash !== sha256(body)) return 'wrong payload hash'
      for (const name of ['host', 'x-acs-action', 'x-acs-version', 'x-acs-date', 'x-acs-signature-nonce', 'x-acs-content-sha256', ...(body ? ['content-type'] : [])])
        if (!names.split(';').includes(name)) return `unsigned ${name}`
      if (req.headers['x-acs-version'] !== '2025-09-10') return 'wrong version'
      if (credential !== this.keyId) return 'InvalidAccessKeyId.NotFound'
    } else {
      if (algorithm !== 'AGENTRUN4-HMAC-SHA256') return 'wrong algorithm'
      if (hash !== 'UNSIGNED-PAYLOAD') return 'wrong payload hash'
      const day = req.headers['x-acs-date'].slice(0, 10).replaceAll('-', '')
      if (credential !== `${this.keyId}/${day}/cn-beijing/agentrun/aliyun_v4_request`) return 'InvalidAccessKeyId.NotFound'
      key = [day, 'cn-beijing', 'agentrun', 'aliyun_v4_request'].reduce(hmac, `aliyun_v4${this.keySecret}`)
    }
    if (createHmac('sha256', key).update(text).digest('hex') !== signature) return 'SignatureDoesNotMatch'
    return undefined
  }

  answer(req, body, res) {
    const send = (status, content) => res.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(content))
    const wrong = this.check(req, body)
    this.calls.push(`${req.method} ${req.url} ${req.headers['x-acs-action'] ?? ''}`.trim())
    if (wrong) {
      this.problems.push(`${req.method} ${req.url}: ${wrong}`)
      return send(403, { code: wrong, message: `refused: ${wrong}`, requestId: 'r' })
    }
    const given = body ? JSON.parse(body) : {}
    const action = req.headers['x-acs-action']
    const [, name] = /^\/2025-09-10\/(?:templates|sandboxes)\/([^/]+)$/.exec(req.url) ?? []
    const route = `${req.method} ${name ? req.url.replace(name, '*') : req.url}`
    const ok = (data) => send(200, { code: 'SUCCESS', requestId: 'r', data })
    if (route === 'GET /2025-09-10/templates' && action === 'ListTemplates') return ok({ items: [] })
    if (route === 'GET /2025-09-10/templates/*' && action === 'GetTemplate')
      return this.templates.has(name) ? ok({ templateName: name, status: 'READY' }) : send(404, { code: 'ERR_NOT_FOUND', message: 'no such template' })
    if (route === 'POST /2025-09-10/templates' && action === 'CreateTemplate') {
      this.templates.set(given.templateName, given)
      return ok({ templateName: given.templateName, status: 'CREATING' })
    }
    if (route === 'POST /2025-09-10/sandboxes' && action === 'CreateSandbox') {
      if (!this.templates.has(given.templateName)) return send(404, { code: 'ERR_NOT_FOUND', message: 'no such template' })
      const id = `01KSBX${this.calls.length}`
      this.sandboxes.add(id)
      return ok({ sandboxId: id, status: 'CREATING', templateName: given.templateName })
    }
    if (route === 'GET /2025-09-10/sandboxes/*' && action === 'GetSandbox') return ok({ sandboxId: name, status: 'READY' })
    if (route === 'DELETE /2025-09-10/sandboxes/*' && action === 'DeleteSandbox') {
      this.sandboxes.delete(name)
      return ok({ sandboxId: name })
    }
    const [, sandbox] = /^\/sandboxes\/([^/]+)\/contexts\/execute$/.exec(req.url) ?? []
    if (req.method === 'POST' && this.sandboxes.has(sandbox)) {
      this.given = given
      return this.run(given, (results) => setTimeout(() => send(200, { contextId: 'c', results }), this.delay).unref())
    }
    this.problems.push(`no route ${route} ${action}`)
    send(404, { code: 'ERR_NOT_FOUND', message: 'no such thing' })
  }

  // The code really runs, so that what was wrapped around it is tested too.
  run({ code, language }, done) {
    const program = language === 'python' ? ['python3', '-c', code] : [process.execPath, '-e', code]
    execFile(program[0], program.slice(1), { timeout: 20_000 }, (error, stdout, stderr) => done([
      ...(stdout ? [{ type: 'stdout', text: stdout }] : []),
      ...(stderr ? [{ type: error ? 'error' : 'stderr', text: stderr }] : []),
      { type: 'endOfExecution', status: error ? 'error' : 'ok' },
    ]))
  }
}

// A port where connections are taken and nothing is ever said.
const silent = (body) => new Promise((resolve, reject) => {
  const sockets = new Set()
  const server = net.createServer((socket) => sockets.add(socket.on('error', () => {})))
  server.listen(0, '127.0.0.1', () => body(`http://127.0.0.1:${server.address().port}`).then(resolve, reject).finally(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  }))
})

describe('providers', () => {
  before(async () => {
    ;[here, there] = await Promise.all([startServer(LIGHT), startServer([...LIGHT, '--executor-listen', '127.0.0.1:0', '--executor-timeout', '60s'])])
    here.team = (await here.call('GET', '/teams')).json[0].teamID
  }, { timeout: 180_000 })

  after(async () => {
    await Promise.all([here?.stop(), there?.stop()])
  })

  test('providers/list: schemas describe every setting', limited(30), async () => {
    const { active, providers } = (await call(here, 'GET', '/providers')).json
    assert.equal(active, null)
    assert.deepEqual(providers.map((provider) => provider.id), ['local', 'atoll', 'e2b', 'executor-manager', 'aliyun-codeinterpreter'])
    assert.deepEqual(providers.filter((provider) => provider.configured).map((provider) => provider.id), ['local'])
    for (const { id } of providers) {
      const { schema } = (await call(here, 'GET', `/providers/${id}`)).json
      for (const field of Object.values(schema)) {
        assert.ok(['string', 'integer', 'boolean'].includes(field.type))
        assert.equal(typeof field.required, 'boolean')
        assert.ok(field.label && field.description)
      }
    }
    const manager = (await call(here, 'GET', '/providers/executor-manager')).json.schema
    assert.deepEqual([manager.timeout.default, manager.timeout.min, manager.timeout.max], [30, 5, 300])
    assert.equal(manager.endpoint.default, 'http://localhost:9385')
    assert.equal(manager.max_memory.readonly, true)
    assert.equal((await call(here, 'GET', '/providers/aliyun-codeinterpreter')).json.schema.region.options.length, 5)
  })

  test('providers/settings: what is wrong is named', limited(30), async () => {
    refused(await call(here, 'GET', '/providers/nope'), 404, /there is no provider 'nope'/)
    refused(await call(admin, 'PUT', '/providers/nope', { config: {} }), 404, /there is no provider/)
    const cases = [
      ['e2b', {}, /'api_key' is required/],
      ['e2b', { api_key: 'wrong' }, /'api_key' must begin with 'e2b_'/],
      ['e2b', { api_key: 'e2b_x', timeout: 4 }, /'timeout' must be between 5 and 300/],
      ['e2b', { api_key: 'e2b_x', region: 'mars' }, /'region' must be one of us, eu/],
      ['e2b', { api_key: 'e2b_x', region: 'eu' }, /'domain' is required for the region eu/],
      ['atoll', { api_key: 'e2b_x' }, /'url' is required/],
      ['atoll', { api_key: 'e2b_x', url: 'not a url' }, /'url' must be a URL/],
      ['executor-manager', { timeout: 601 }, /'timeout' must be between 1 and 600/],
      ['executor-manager', { max_retries: 11 }, /'max_retries' must be between 0 and 10/],
      ['executor-manager', { max_memory: '8g' }, /'max_memory' is read-only/],
      ['aliyun-codeinterpreter', { access_key_id: 'AKIA' }, /'access_key_id' must begin with 'LTAI'/],
      ['aliyun-codeinterpreter', { access_key_id: 'LTAI1', access_key_secret: 's', account_id: '1', timeout: 31 }, /'timeout' must be between 1 and 30/],
      ['aliyun-codeinterpreter', { access_key_id: 'LTAI1', access_key_secret: 's', account_id: '1', region: 'us-east-1' }, /'region' must be one of/],
      ['aliyun-codeinterpreter', { access_key_id: 'LTAI1', access_key_secret: 's', account_id: '1.example.com/' }, /'account_id' may have digits only/],
      ['local', { surprise: 1 }, /there is no setting 'surprise'/],
    ]
    for (const [id, config, message] of cases) {
      refused(await call(admin, 'PUT', `/providers/${id}`, { config }), 400, message)
      assert.deepEqual(steps(await tested(id, config)), ['validate!invalid_argument'])
    }
    refused(await call(here, 'PUT', '/providers/local', { config: {} }), 403, /admin token/)
    refused(await call(here, 'POST', '/providers/local/test', {}), 403, /admin token/)
    refused(await call(here, 'POST', '/providers/execute', { code: '1' }), 409, /provider type not configured/)
    refused(await call(here, 'POST', '/providers/e2b/execute', { code: '1' }), 409, /provider type not configured/)
    refused(await call(admin, 'PUT', '/providers', { active: 'e2b' }), 409, /provider type not configured/)
  })

  test('providers/local: runs code', limited(120), async () => {
    await runsCode('local')
    const bash = await execute('local', { code: 'echo $((6 * 7)); exit 3', language: 'bash' })
    assert.deepEqual([bash.stdout, bash.exit_code, bash.metadata.status], ['42\n', 3, 'program_error'])
    assert.deepEqual((await tested('local')).ok, true)
  })

  test('providers/local: values and their limits', limited(120), async () => {
    const result = async (language, code) => {
      const { exit_code, stderr, metadata } = await execute('local', { code, language })
      return exit_code === 0 ? metadata.result_value : stderr
    }
    assert.match(await result('python', 'def main():\n    return {1, 2}'), /main\(\) must return a value that JSON can express/)
    assert.match(await result('python', 'def main():\n    return float("nan")'), /JSON can express/)
    assert.match(await result('nodejs', 'const main = () => undefined'), /main\(\) returned undefined; return null/)
    assert.match(await result('nodejs', 'const main = () => 1n'), /JSON can express/)
    assert.equal(await result('nodejs', 'module.exports = { main: async () => null }'), null)
    assert.deepEqual(await result('nodejs', "import path from 'node:path'\nexport const main = () => [path.basename('/a/b')]"), ['b'])
    assert.equal(await result('python', 'async def main():\n    return 7'), 7)
    const missing = await execute('local', { code: 'x = 1', arguments: { a: 1 } })
    assert.match(missing.stderr, /the code defines no main\(\)/)
    const own = await execute('local', { code: `print("before")\nprint("${marker({ own: true })}")\nprint("__RAGFLOW_RESULT__:nonsense")` })
    assert.equal(own.stdout, 'before\n__RAGFLOW_RESULT__:nonsense\n')
    assert.deepEqual(own.metadata.result_value, { own: true })
    refused(await call(here, 'POST', '/providers/local/execute', { code: 'echo', language: 'bash', arguments: { a: 1 } }), 400, /not for bash/)
  })

  test('providers/local: artifacts', limited(60), async () => {
    const code = `import os
open("artifacts/chart.png", "wb").write(bytes(range(256)))
open("artifacts/data.csv", "w").write("a,b\\n")
open("artifacts/.hidden.csv", "w").write("x")
open("artifacts/empty.json", "w").close()
open("artifacts/program.sh", "w").write("x")
os.mkdir("artifacts/folder.png")
`
    const { artifacts } = (await execute('local', { code })).metadata
    assert.deepEqual(artifacts.map(({ name, mime_type, size }) => [name, mime_type, size]),
                     [['chart.png', 'image/png', 256], ['data.csv', 'text/csv', 4]])
    assert.deepEqual(Buffer.from(artifacts[0].content_b64, 'base64'), Buffer.from(Array.from({ length: 256 }, (_, i) => i)))
  })

  test('providers/local: a timeout is an error and ends the code', limited(120), async () => {
    const began = Date.now()
    refused(await call(here, 'POST', '/providers/local/execute', { code: 'while True: pass', timeout: 2 }), 504, /did not end within 2 s/)
    assert.ok(Date.now() - began < 60_000 * timeScale, `${Date.now() - began} ms`)
    refused(await call(here, 'POST', '/providers/local/execute', { code: '1', timeout: 31 }), 400, /'timeout' must be between 1 and 30/)
    assert.deepEqual(await sandboxesOf(here), [])
  })

  test('providers/atoll: another server', limited(180), async () => {
    await set('atoll', { url: there.url, api_key: secret(there.key), template: 'code-interpreter-v1' })
    const report = await tested('atoll')
    assert.deepEqual(steps(report), WORKS)
    assert.ok(report.steps.every((step) => Number.isInteger(step.ms)))
    await runsCode('atoll')
    refused(await call(here, 'POST', '/providers/atoll/execute', { code: 'import time; time.sleep(60)', timeout: 2 }), 504, /did not end/)
    refused(await call(here, 'POST', '/providers/atoll/execute', { code: '1', template: 'no-such-template' }), 404, /provider 'atoll'.*no-such-template/)
    assert.deepEqual(await sandboxesOf(there), [], 'destroyed')
  })

  test('providers/e2b: the same API by its own name', limited(180), async () => {
    await set('e2b', { api_url: there.url, api_key: there.key, timeout: 20 })
    assert.deepEqual(steps(await tested('e2b')), WORKS)
    await runsCode('e2b')
    assert.deepEqual(await sandboxesOf(there), [], 'destroyed')
    // What is set applies at once: the key is another one now, which that server refuses.
    const wrong = secret(`e2b_${'0'.repeat(40)}`)
    await set('e2b', { api_url: there.url, api_key: wrong })
    refused(await call(here, 'POST', '/providers/e2b/execute', { code: '1' }), 409, /provider 'e2b': .*Invalid API key/)
  })

  test('providers/executor-manager: the executor of a server', limited(180), async () => {
    await set('executor-manager', { endpoint: there.facts.executor, timeout: 25 })
    assert.deepEqual(steps(await tested('executor-manager')), WORKS)
    const printed = await execute('executor-manager', { code: 'print("plain")', timeout: 25 })
    assert.deepEqual([printed.stdout, printed.exit_code, printed.metadata.result_present], ['plain\n', 0, false])
    const python = await execute('executor-manager', { code: 'def main(a):\n    return {"twice": 2 * a}', arguments: { a: 21 }, timeout: 25 })
    assert.deepEqual(python.metadata.result_value, { twice: 42 })
    assert.ok(python.metadata.time_used_ms >= 0)
    const node = await execute('executor-manager', { code: 'async function main(args) { return args }\nmodule.exports = { main }', language: 'javascript', arguments: { é: [null] }, timeout: 25 })
    assert.deepEqual(node.metadata.result_value, { é: [null] })
    const failed = await execute('executor-manager', { code: 'def main():\n    raise ValueError("no")', timeout: 25 })
    assert.equal(failed.metadata.status, 'program_error')
    assert.match(failed.stderr, /ValueError: no/)
    refused(await call(here, 'POST', '/providers/executor-manager/execute', { code: 'def main():\n    while True: pass', timeout: 2 }), 504, /did not end/)
    refused(await call(here, 'POST', '/providers/executor-manager/execute', { code: 'echo', language: 'bash' }), 400, /does not run bash/)
  })

  test('providers/aliyun: signatures, fields and results', limited(120), async () => {
    const keySecret = secret('aliyun-secret-5up3r')
    const cloud = new Aliyun('LTAI5tTest', keySecret)
    await cloud.listen()
    const config = { access_key_id: 'LTAI5tTest', access_key_secret: keySecret, account_id: '1234567890', region: 'cn-beijing',
                     control_endpoint: cloud.url, data_endpoint: cloud.url }
    try {
      await set('aliyun-codeinterpreter', config)
      assert.deepEqual(steps(await tested('aliyun-codeinterpreter')), WORKS, cloud.problems.join('\n'))
      assert.deepEqual(cloud.problems, [])
      assert.deepEqual(cloud.calls.slice(0, 5), [
        'GET /2025-09-10/templates ListTemplates', 'GET /2025-09-10/templates/atoll-code-interpreter GetTemplate', 'POST /2025-09-10/templates CreateTemplate',
        'GET /2025-09-10/templates/atoll-code-interpreter GetTemplate', 'POST /2025-09-10/sandboxes CreateSandbox'])
      assert.equal(cloud.templates.get('atoll-code-interpreter').templateType, 'CodeInterpreter')
      assert.equal(cloud.sandboxes.size, 0, 'destroyed')

      const python = await execute('aliyun-codeinterpreter', { code: 'def main(a):\n    print("in main", end="")\n    return {"got": a}', arguments: { a: 'é' }, timeout: 7 })
      assert.deepEqual([cloud.given.language, cloud.given.timeout], ['python', 7])
      assert.equal(python.stdout, 'in main')
      assert.deepEqual(python.metadata.result_value, { got: 'é' })
      const node = await execute('aliyun-codeinterpreter', { code: 'const main = async ({ a }) => [a]', language: 'nodejs', arguments: { a: 1 } })
      assert.equal(cloud.given.language, 'javascript')
      assert.deepEqual(node.metadata.result_value, [1])
      const failed = await execute('aliyun-codeinterpreter', { code: 'raise ValueError("no")' })
      assert.equal(failed.exit_code, 1)
      assert.match(failed.stderr, /ValueError/)
      assert.equal((await execute('aliyun-codeinterpreter', { code: 'import sys; print("w", file=sys.stderr)' })).exit_code, 0)
      cloud.delay = 20_000
      refused(await call(here, 'POST', '/providers/aliyun-codeinterpreter/execute', { code: 'print(1)', timeout: 1 }), 504, /did not end within 1 s/)
      cloud.delay = 0
      assert.equal(cloud.sandboxes.size, 0, 'destroyed after the timeout too')
      // Another secret: the signature is not the one that the other side makes.
      const other = secret('another-secret-5up3r')
      const report = await tested('aliyun-codeinterpreter', { ...config, access_key_secret: other })
      assert.deepEqual(steps(report).slice(1), ['initialize', 'health_check!unauthenticated'])
      assert.match(report.error.message, /SignatureDoesNotMatch/)
      // A template that the account does not have is not made.
      refused(await call(here, 'POST', '/providers/aliyun-codeinterpreter/execute', { code: '1', template: 'missing' }), 404, /no such template/)
    } finally {
      cloud.close()
    }
  })

  test('providers/test: each step can fail', limited(120), async () => {
    const key = there.key
    const fails = async (id, config) => steps(await tested(id, config)).at(-1)
    assert.equal(await fails('atoll', { url: 'http://127.0.0.1:1', api_key: key }), 'health_check!unavailable')
    assert.equal(await fails('atoll', { url: there.url, api_key: `e2b_${'1'.repeat(40)}` }), 'health_check!unauthenticated')
    assert.equal(await fails('atoll', { url: there.url, api_key: key, template: 'no-such-template' }), 'create!not_found')
    assert.equal(await fails('executor-manager', { endpoint: there.url }), 'health_check!unavailable')
    await silent(async (url) => {
      assert.equal(await fails('executor-manager', { endpoint: url }), 'health_check!deadline_exceeded')
    })
    // Of a sandbox without Python the print does not come back, and it is destroyed all the same.
    const odd = await new Promise((resolve) => {
      const server = http.createServer((req, res) => res.end(req.url === '/healthz' ? '{"status":"ok"}' : '{"status":"success","stdout":"other","exit_code":0}'))
      server.listen(0, '127.0.0.1', () => resolve(server))
    })
    const report = await tested('executor-manager', { endpoint: `http://127.0.0.1:${odd.address().port}` })
    odd.closeAllConnections()
    odd.close()
    assert.deepEqual(steps(report), [...WORKS.slice(0, 4), 'execute!unavailable', 'destroy'])
    assert.deepEqual([report.ok, report.error.step], [false, 'execute'])
    assert.deepEqual(await sandboxesOf(there), [])
  })

  test('providers/cli: verbs', limited(120), async () => {
    const atoll = (args, { input = '', env = {} } = {}) => new Promise((resolve) => {
      const child = execFile(process.env.ATOLL_E2E_ATOLL, ['provider', ...args, '--home', here.home], { env: { ...process.env, E2B_API_KEY: '', ...env } },
                             (error, stdout, stderr) => {
                               said.push(stdout, stderr)
                               resolve({ code: error ? error.code : 0, stdout, stderr })
                             })
      child.stdin.end(input)
    })
    assert.match((await atoll(['ls'])).stdout, /^local\tyes\tno/m)
    const typed = await atoll(['set', 'atoll', `url=${there.url}`, `api_key=${there.key}`])
    assert.equal(typed.code, 1)
    assert.match(typed.stderr, /is a secret/)
    const done = await atoll(['set', 'atoll', `url=${there.url}`, 'timeout=15', '--secret', 'api_key'], { input: `${there.key}\n` })
    assert.equal(done.code, 0, done.stderr)
    const shown = JSON.parse((await atoll(['show', 'atoll', '--json'])).stdout)
    assert.deepEqual([shown.config.api_key, shown.config.timeout], ['********', 15])
    assert.equal((await atoll(['set', 'atoll', 'timeout=16'])).code, 0, 'the others stay')
    assert.equal((await atoll(['set', 'atoll', 'timeout=0'])).code, 1)
    const report = await atoll(['test', 'atoll'])
    assert.equal(report.code, 0, report.stdout + report.stderr)
    assert.match(report.stdout, /^destroy\tok\t\d+/m)
    const bad = await atoll(['test', 'atoll', '--secret-env', 'api_key=WRONG'], { env: { WRONG: `e2b_${'2'.repeat(40)}` } })
    assert.equal(bad.code, 1)
    assert.match(bad.stdout, /health_check\tfailed\t\d+\tunauthenticated/)
    assert.equal((await atoll(['use', 'atoll'])).code, 0)
    const ran = await atoll(['exec', 'import sys\ndef main(a):\n    print("hi")\n    return a\n', '--arguments', '{"a": [1]}'])
    assert.deepEqual([ran.code, ran.stdout], [0, 'hi\n[1]\n'], ran.stderr)
    assert.equal((await atoll(['exec', '-p', 'local', '-l', 'bash', '-'], { input: 'exit 4' })).code, 4)
    assert.equal((await atoll(['unset', 'atoll'])).code, 0)
    assert.match((await atoll(['exec', 'print(1)'])).stderr, /provider type not configured/)
    assert.equal((await call(here, 'GET', '/providers')).json.active, null)
  })

  test('providers/secrets: nowhere in clear, and of no use without their key', limited(120), async () => {
    await set('e2b', { api_url: there.url, api_key: secret('e2b_4d1s71nc75ecre7') })
    await set('atoll', { url: there.url, api_key: there.key })
    assert.equal((await call(here, 'GET', '/providers/e2b')).json.config.api_key, '********')
    await set('e2b', { api_url: there.url, api_key: '********', timeout: 77 })
    await set('e2b', { api_url: there.url, timeout: 78 })
    assert.equal((await call(here, 'GET', '/providers/e2b')).json.config.api_key, '********')
    refused(await call(admin, 'PUT', '/providers/e2b', { config: { api_url: 'http://127.0.0.1:1' } }), 400, /'api_key' must be given again/)
    refused(await call(admin, 'POST', '/providers/e2b/execute', { code: '1' }), 409, /Invalid API key/)
    const stateDir = path.join(here.home, 'state')
    const written = fs.readdirSync(stateDir).map((name) => path.join(stateDir, name)).filter((name) => fs.statSync(name).isFile())
    assert.ok(written.some((name) => name.endsWith('state.db')))
    for (const text of SECRETS) {
      for (const name of written) assert.ok(!fs.readFileSync(name).includes(text), `${name} has a secret`)
      assert.ok(!here.log().includes(text), 'the log has a secret')
      assert.ok(!said.some((answer) => answer.includes(text)), 'an answer has a secret')
    }
    const keyFile = path.join(here.home, 'keys/providers.key')
    assert.equal(fs.statSync(keyFile).mode & 0o777, 0o600)
    // The audit log knows who changed what.
    const audit = await new Promise((resolve) => execFile(process.env.ATOLL_E2E_ATOLL, ['audit', 'e2b', '--home', here.home, '--json'], (_, stdout) => resolve(stdout)))
    assert.match(audit, /provider\.set/)
  })

  test('providers/destroy: nothing is left', limited(30), async () => {
    assert.deepEqual(await sandboxesOf(here), [])
    assert.deepEqual(await sandboxesOf(there), [])
  })
})
