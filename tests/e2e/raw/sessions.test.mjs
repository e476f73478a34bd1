// Sessions: one sandbox per conversation, whoever asks, through whichever server. Servers of their own, and a real redis-server.
import { execFile, spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { assert, limited, sleep, start, unique, until } from './support.mjs'
import { Interpreter, template } from './kernel.mjs'
import { startServer } from './own-server.mjs'
import { Sandbox } from '../js/sdk.mjs'

const light = { ATOLL_POOL_READY: '1', ATOLL_POOL_SKELETONS: '0' }
const missing = spawnSync('redis-server', ['--version']).error ? 'redis-server is not installed' : false

// The sandbox of a session, through one server.
class Inside extends Interpreter {
  constructor(fields, server) {
    super(fields)
    this.at = server.base
  }

  get base() {
    return this.at
  }

  get where() {
    return { base: this.at, headers: { 'E2b-Sandbox-Id': this.id, 'E2b-Sandbox-Port': '49999' } }
  }
}

const at = (key) => `/sessions/${encodeURIComponent(key)}`
const put = (server, key, options) => server.call('PUT', at(key), options)

async function acquire(server, key, came, options = { templateID: template }) {
  const answer = await put(server, key, options)
  assert.equal(answer.status, came === 'created' ? 201 : 200, answer.text)
  assert.equal(answer.json.came, came)
  assert.equal(answer.json.created, came === 'created')
  assert.equal(answer.json.state, 'running')
  return new Inside(answer.json, server)
}

// Variables, and a process that nobody waits for.
async function fill(sandbox) {
  assert.equal((await sandbox.run('kept = {"answer": 42}\nimport os; os.getpid()')).error, undefined)
  const { stdout } = await sandbox.command('nohup sleep 86400 >/dev/null 2>&1 & echo $!')
  return Number(stdout)
}

async function holds(sandbox, pid) {
  const run = await sandbox.run('kept["answer"]')
  assert.equal(run.text, '42', JSON.stringify(run.run.lines))
  assert.equal((await sandbox.command(`cat /proc/${pid}/comm`)).stdout, 'sleep\n')
}

// A service that leaves HTTP and says everything louder.
const upgrader = `
import socket, threading
def serve():
    listener = socket.create_server(("127.0.0.1", 8000))
    while True:
        client, _ = listener.accept()
        client.recv(65536)
        client.sendall(b"HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: echo\\r\\n\\r\\n")
        while data := client.recv(65536):
            client.sendall(data.upper())
        client.close()
threading.Thread(target=serve, daemon=True).start()`

const factsOf = (home) => JSON.parse(fs.readFileSync(path.join(home, 'state', 'server.json'), 'utf8'))
const sandboxesOf = async (...servers) => {
  const lists = await Promise.all(servers.map((server) => server.call('GET', '/v2/sandboxes')))
  return lists.flatMap((list) => list.json.map((each) => each.sandboxID))
}

function freePort() {
  return new Promise((resolve) => {
    const probe = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = probe.address()
      probe.close(() => resolve(port))
    })
  })
}

class Redis {
  static async start() {
    const redis = new Redis()
    redis.dir = fs.mkdtempSync(path.join(os.tmpdir(), 'atoll-redis-'))
    redis.port = await freePort()
    await redis.begin()
    return redis
  }

  async begin() {
    this.child = spawn('redis-server', ['--bind', '127.0.0.1', '--port', String(this.port), '--dir', this.dir, '--appendonly', 'yes', '--save', '',
      '--requirepass', 'geheim', '--logfile', 'log'], { stdio: 'ignore', cwd: this.dir })
    this.ended = new Promise((resolve) => this.child.on('close', resolve))
    // It listens before it has read its files.
    await until('Redis', () => new Promise((resolve) => {
      let said = ''
      const socket = net.connect(this.port, '127.0.0.1', () => socket.end('AUTH geheim\r\nPING\r\n'))
      socket.on('data', (data) => (said += data))
      socket.on('error', () => resolve(false))
      socket.on('close', () => resolve(said.includes('+PONG')))
    }))
  }

  get url() {
    return `redis://:geheim@127.0.0.1:${this.port}`
  }

  async stop() {
    this.child.kill('SIGTERM')
    await this.ended
  }

  async remove() {
    await this.stop()
    fs.rmSync(this.dir, { recursive: true, force: true })
  }
}

describe('sessions', () => {
  let server
  before(async () => {
    server = await startServer([], light)
  })
  after(async () => {
    if (server) await server.stop()
  })

  test('sessions/turns: pause and resume keep variables and processes', limited(120), async () => {
    const key = unique('chat')
    let sandbox = await acquire(server, key, 'created')
    const pid = await fill(sandbox)
    const { id } = sandbox
    for (let turn = 0; turn < 3; turn++) {
      const began = Date.now()
      const paused = await server.call('POST', `${at(key)}/pause`)
      assert.equal(paused.status, 200, paused.text)
      assert.equal(paused.json.state, 'paused')
      assert.ok(Date.now() - began < 30_000, `a pause took ${Date.now() - began} ms`)
      assert.equal((await server.call('POST', `${at(key)}/pause`)).status, 200, 'again')
      sandbox = await acquire(server, key, 'resumed')
      assert.equal(sandbox.id, id)
      await holds(sandbox, pid)
    }
    assert.equal((await acquire(server, key, 'reused')).id, id)
    assert.equal((await server.call('DELETE', at(key))).status, 204)
    assert.equal((await server.call('GET', `/sandboxes/${id}`)).status, 404)
  })

  test('sessions/turns: the official SDK goes on from the answer', limited(90), async () => {
    const key = unique('chat')
    const made = await acquire(server, key, 'created', { metadata: { user: 'u1' }, envVars: { NAME: 'kept' } })
    const sandbox = await Sandbox.connect(made.id, { ...server.sdk, timeoutMs: 60_000 })
    assert.equal((await sandbox.commands.run('echo $NAME')).stdout, 'kept\n')
    const info = await sandbox.getInfo()
    assert.equal(info.metadata['atoll.session'], key)
    assert.equal(info.metadata.user, 'u1')
    // Traffic wakes it, as any sandbox that may be woken.
    assert.equal((await server.call('POST', `${at(key)}/pause`)).status, 200)
    assert.equal((await sandbox.commands.run('echo awake')).stdout, 'awake\n')
    assert.equal((await server.call('DELETE', at(key))).status, 204)
  })

  test('sessions/answer: every field', limited(60), async () => {
    const key = `${unique('user')}/ä b`
    const made = (await put(server, key, { templateID: 'base', timeout: 120, pauseAfter: 30, ttl: 3600, metadata: { a: 'b' }, workspace: 'w' })).json
    assert.deepEqual([made.key, made.timeout, made.pauseAfter, made.ttl, made.metadata, made.workspace, made.alias],
      [key, 120, 30, 3600, { a: 'b' }, 'w', 'base'])
    for (const field of ['sandboxID', 'templateID', 'clientID', 'envdVersion', 'envdAccessToken', 'createdAt', 'usedAt', 'expiresAt', 'endAt', 'node'])
      assert.equal(typeof made[field], 'string', field)
    assert.equal(made.trafficAccessToken, null)
    // What is named changes, the rest stays.
    const changed = (await put(server, key, { pauseAfter: 60, templateID: template })).json
    assert.deepEqual([changed.sandboxID, changed.pauseAfter, changed.ttl, changed.alias], [made.sandboxID, 60, 3600, 'base'])
    const shown = (await server.call('GET', at(key))).json
    assert.deepEqual([shown.key, shown.state, shown.pauseAfter], [key, 'running', 60])
    assert.equal(shown.envdAccessToken, undefined)
    assert.ok((await server.call('GET', '/sessions')).json.some((each) => each.key === key))
    assert.equal((await server.call('DELETE', at(key))).status, 204)
  })

  test('sessions/dead: a new sandbox, and the caller is told', limited(60), async () => {
    const key = unique('chat')
    const first = await acquire(server, key, 'created', { templateID: 'base' })
    assert.equal((await server.call('DELETE', `/sandboxes/${first.id}`)).status, 204)
    assert.equal((await server.call('GET', at(key))).json.state, 'gone')
    const second = await acquire(server, key, 'created', { templateID: 'base' })
    assert.notEqual(second.id, first.id)
    assert.equal((await server.call('DELETE', at(key))).status, 204)
    assert.equal((await server.call('DELETE', at(key))).status, 204)
    assert.equal((await server.call('GET', at(key))).status, 404)
  })

  test('sessions/time: idle is paused, unused is forgotten', limited(240), async () => {
    const key = unique('idle')
    const sandbox = await acquire(server, key, 'created', { templateID: 'base', pauseAfter: 10, ttl: 3600 })
    // A command that runs is use.
    const running = sandbox.command('sleep 15')
    await sleep(12_000)
    assert.equal((await server.call('GET', at(key))).json.state, 'running')
    await running
    await until('the pause', async () => (await server.call('GET', at(key))).json.state === 'paused', 90_000)
    await acquire(server, key, 'resumed', { ttl: 3 })
    await until('the end', async () => (await server.call('GET', at(key))).status === 404, 90_000)
    assert.equal((await server.call('GET', `/sandboxes/${sandbox.id}`)).status, 404)
  })

  test('sessions/refused: keys and options', limited(60), async () => {
    for (const key of ['a'.repeat(257), 'a\nb', '\u0000']) {
      const answer = await put(server, key, {})
      assert.equal(answer.status, 400, answer.text)
      assert.equal(answer.json.code, 400)
    }
    for (const options of [{ timeout: 0 }, { timeout: 'x' }, { ttl: -1 }, { pauseAfter: -1 }, { metadata: { a: 1 } }, { metadata: { 'atoll.x': 'y' } },
      { envVars: [] }, { network: 7 }, { workspace: 'a/b' }, { workspace: 'a b' }, { templateID: 7 }]) {
      const answer = await put(server, 'refused', options)
      assert.equal(answer.status, 400, `${JSON.stringify(options)}: ${answer.text}`)
      assert.match(answer.json.message, /./)
    }
    assert.equal((await put(server, 'refused', { templateID: 'no-such-template' })).status, 404)
    assert.equal((await server.call('PUT', at('refused'), {}, 'e2b_0000')).status, 401)
    assert.equal((await server.call('GET', at('refused'))).status, 404)
    assert.equal((await server.call('POST', `${at('refused')}/pause`)).status, 404)
  })

  test('sessions/cli: get, ls, info, pause, rm', limited(60), async () => {
    const key = unique('cli')
    const atoll = (...words) => promisify(execFile)(process.env.ATOLL_E2E_ATOLL, ['session', ...words, '--home', server.home])
    const [id, came] = (await atoll('get', key, '--template', 'base', '--pause-after', '1h')).stdout.trim().split('\t')
    assert.equal(came, 'created')
    assert.equal(JSON.parse((await atoll('get', key, '--json')).stdout).sandboxID, id)
    await atoll('pause', key)
    assert.ok((await atoll('ls')).stdout.split('\n').some((line) => line.startsWith(`${key}\tpaused\t${id}\t`)))
    assert.match((await atoll('info', key)).stdout, /pauseAfter +3600\n/)
    await atoll('rm', key)
    await assert.rejects(atoll('info', key), /there is no session/)
  })
})

describe('sessions of several servers', { skip: missing }, () => {
  let redis
  let a
  let b
  before(async () => {
    redis = await Redis.start()
    a = await startServer(['--store', redis.url], light)
    b = await startServer(['--store', redis.url], light)
  })
  after(async () => {
    for (const each of [a, b]) if (each) await each.stop()
    await redis?.remove()
  })

  // The server that has the session's sandbox, and the other one.
  const owners = async (id) => ((await sandboxesOf(a)).includes(id) ? [a, b] : [b, a])

  test('sessions/race: ten at once through two servers make one sandbox', limited(120), async () => {
    const key = unique('race')
    const before = (await sandboxesOf(a, b)).length
    const answers = await Promise.all(Array.from({ length: 10 }, (_, i) => put(i % 2 ? a : b, key, { templateID: template })))
    for (const answer of answers) assert.ok([200, 201].includes(answer.status), answer.text)
    assert.equal(new Set(answers.map((answer) => answer.json.sandboxID)).size, 1)
    assert.equal(answers.filter((answer) => answer.json.created).length, 1)
    assert.equal((await sandboxesOf(a, b)).length, before + 1)
    assert.equal((await b.call('DELETE', at(key))).status, 204)
    assert.equal((await sandboxesOf(a, b)).length, before)
  })

  test('sessions/nodes: one server is enough for a client', limited(120), async () => {
    const key = unique('chat')
    const made = await acquire(a, key, 'created')
    const there = await acquire(b, key, 'reused')
    assert.equal(there.id, made.id)
    const pid = await fill(made)
    await holds(there, pid)
    // The SDK, with nothing but the other server's address and key.
    const sandbox = await Sandbox.connect(made.id, { ...b.sdk, timeoutMs: 120_000 })
    const text = 'x'.repeat(3_000_000)
    await sandbox.files.write('big.txt', text)
    assert.equal((await sandbox.files.read('big.txt')).length, text.length)
    let seen = ''
    const command = await sandbox.commands.run('for i in 1 2 3; do echo $i; sleep 0.2; done', { onStdout: (data) => (seen += data) })
    assert.equal(command.exitCode, 0)
    assert.equal(seen, '1\n2\n3\n')
    assert.equal((await sandbox.getInfo()).sandboxId, made.id)
    // What leaves HTTP, to a service of its own.
    assert.equal((await there.run(upgrader)).error, undefined)
    const socket = await new Promise((resolve, reject) => {
      const req = start(b.base, { method: 'GET', path: '/', headers: {
        'E2b-Sandbox-Id': made.id, 'E2b-Sandbox-Port': '8000', Connection: 'Upgrade', Upgrade: 'echo' } })
      req.on('upgrade', (_, upgraded) => resolve(upgraded))
      req.on('response', (res) => reject(new Error(`answered ${res.statusCode}`)))
      req.on('error', reject)
      req.end()
    })
    let echoed = ''
    socket.on('data', (data) => (echoed += data))
    socket.write('hello')
    await until('the echo', () => echoed === 'HELLO')
    socket.end()
    await until('its end', () => socket.destroyed || socket.readableEnded)
    // A turn ends here and the next begins there.
    assert.equal((await b.call('POST', `${at(key)}/pause`)).json.state, 'paused')
    assert.equal((await a.call('GET', at(key))).json.state, 'paused')
    assert.equal((await b.call('GET', '/sessions')).json.find((each) => each.key === key).state, 'paused')
    await holds(await acquire(b, key, 'resumed'), pid)
    assert.equal((await b.call('DELETE', at(key))).status, 204)
    assert.equal((await a.call('GET', `/sandboxes/${made.id}`)).status, 404)
  })

  for (const which of ['has it', 'does not have it']) {
    test(`sessions/nodes: kill -9 of the server that ${which}`, limited(240), async () => {
      const key = unique('crash')
      const first = await acquire(a, key, 'created')
      const pid = await fill(first)
      const [owner, other] = await owners(first.id)
      const victim = which === 'has it' ? owner : other
      process.kill(factsOf(victim.home).pid, 'SIGKILL')
      // Whoever is asked has the same sandbox or says that it cannot be had now: never another one.
      const same = async (through) => {
        const answer = await put(through, key, { templateID: template })
        assert.ok([200, 503].includes(answer.status), answer.text)
        if (answer.status === 503) return false
        assert.equal(answer.json.sandboxID, first.id)
        return new Inside(answer.json, through)
      }
      const through = victim === owner ? other : owner
      await holds(await until('an answer', () => same(through), 60_000), pid)
      // The one that died is back, and it works through it, too.
      await until('the next server', () => victim.call('GET', '/sessions').then((answer) => answer.status === 200, () => false), 60_000)
      await holds(await until('its answer', () => same(victim), 60_000), pid)
      assert.equal((await sandboxesOf(a, b)).filter((id) => id === first.id).length, 1)
      assert.equal((await a.call('DELETE', at(key))).status, 204)
    })
  }

  test('sessions/redis: an outage is told and loses nothing', limited(120), async () => {
    const key = unique('outage')
    const first = await acquire(a, key, 'created')
    const pid = await fill(first)
    const before = (await sandboxesOf(a, b)).sort()
    await redis.stop()
    for (const each of [a, b]) {
      for (const name of [key, unique('new')]) {
        const answer = await put(each, name, { templateID: 'base' })
        assert.equal(answer.status, 503, answer.text)
        assert.equal(answer.json.code, 503)
        assert.match(answer.json.message, /session store at redis:\/\/127\.0\.0\.1:\d+ does not answer: .*Nothing was made or lost/)
        assert.doesNotMatch(answer.json.message, /geheim/)
        assert.match(answer.headers['retry-after'], /^\d+$/)
      }
    }
    assert.deepEqual((await sandboxesOf(a, b)).sort(), before)
    await holds(first, pid)
    await redis.begin()
    for (const each of [a, b]) {
      const again = await acquire(each, key, 'reused')
      assert.equal(again.id, first.id)
      await holds(again, pid)
    }
    assert.deepEqual((await sandboxesOf(a, b)).sort(), before)
    assert.equal((await b.call('DELETE', at(key))).status, 204)
  })

  test('sessions/keys: a key of one server is good for the others', limited(60), async () => {
    assert.notEqual(a.key, b.key)
    for (const [server, key] of [[a, b.key], [b, a.key]]) {
      const answer = await server.call('GET', '/sessions', undefined, key)
      assert.equal(answer.status, 200, answer.text)
    }
    assert.equal((await a.call('GET', '/sessions', undefined, `e2b_${'0'.repeat(40)}`)).status, 401)
  })
})

describe('sessions of a standby', () => {
  test('sessions/standby: kill -9 of the process that serves', limited(150), async () => {
    const active = await startServer([], light)
    let crashed = false
    let standby
    try {
      standby = await startServer(['--standby'], light, active.home)
      assert.notEqual(standby.url, active.url)
      const key = unique('standby')
      const first = await acquire(standby, key, 'created')
      const pid = await fill(first)
      const { supervisor, pid: serving } = factsOf(active.home)
      assert.equal(supervisor, active.pid)
      process.kill(supervisor, 'SIGKILL')
      process.kill(serving, 'SIGKILL')
      crashed = true
      const again = await until('the standby', async () => {
        try {
          return await acquire(standby, key, 'reused')
        } catch (error) {
          if (error.code === 'ERR_ASSERTION') throw error
          return false
        }
      }, 60_000)
      assert.equal(again.id, first.id)
      await holds(again, pid)
      assert.equal(factsOf(standby.home).supervisor, standby.pid)
      assert.equal((await standby.call('DELETE', at(key))).status, 204)
    } finally {
      if (!crashed) await active.stop()
      if (standby) await standby.stop()
    }
  })
})
