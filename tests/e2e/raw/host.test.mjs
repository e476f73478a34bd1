// What the host shows: who runs as whom, who listens where, and that servers side by side do not meet.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { describe, test } from 'node:test'
import { apiKey, assert, limited, plainUrl, Raw, request, until, withSandbox } from './support.mjs'
import { commandLine, descriptors, home, networkSockets, pids, serverPid, status, wardenPid } from './machine.mjs'

const numbers = (text) => text.split(/\s+/).map(Number)

describe('host/server', () => {
  test('host/server: runs without root', limited(10), () => {
    const seen = status(serverPid)
    assert.ok(numbers(seen.Uid).every((uid) => uid > 0), `Uid ${seen.Uid}`)
    assert.ok(numbers(seen.Gid).every((gid) => gid > 0), `Gid ${seen.Gid}`)
    for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapAmb']) assert.match(seen[set], /^0+$/, `${set} ${seen[set]}`)
    assert.equal(seen.NoNewPrivs, '1')
    assert.ok(!seen.Groups || numbers(seen.Groups).every((gid) => gid > 0), `Groups ${seen.Groups}`)
  })

  test('host/server: every thread gave up root', limited(10), () => {
    for (const thread of fs.readdirSync(`/proc/${serverPid}/task`)) {
      const text = fs.readFileSync(`/proc/${serverPid}/task/${thread}/status`, 'utf8')
      assert.doesNotMatch(text, /^Uid:.*\b0\b/m, `thread ${thread}`)
      assert.match(text, /^CapEff:\s0+$/m)
    }
  })

  test('host/server: listens only where it was told', limited(10), () => {
    const listening = networkSockets(serverPid).filter((socket) => socket.table.startsWith('tcp') && socket.state === '0A')
    const hex = (number, width) => number.toString(16).toUpperCase().padStart(width, '0')
    const at = (address, port) => address.split('.').reverse().map((part) => hex(Number(part), 2)).join('') + ':' + hex(Number(port), 4)
    const told = [at('127.0.0.1', plainUrl.port), at(process.env.E2E_SERVER_ADDRESS, 443), at('127.0.0.1', 9464)]
    assert.ok(listening.some((socket) => socket.local === told[0]) && listening.some((socket) => socket.local === told[1]))
    // Sockets of the router that sandboxes reach are in its own namespace.
    assert.deepEqual(listening.map((socket) => socket.local).filter((local) => !told.includes(local)), [])
  })

  test('host/server: secrets are private', limited(10), () => {
    const keys = path.join(home, 'keys')
    assert.equal(fs.statSync(keys).mode & 0o077, 0, 'the folder of keys')
    const files = fs.readdirSync(keys)
    assert.ok(files.length > 0)
    // Certificates are for everybody; the folder is not.
    for (const file of files.filter((name) => !name.endsWith('.pem'))) assert.equal(fs.statSync(path.join(keys, file)).mode & 0o077, 0, file)
    const state = path.join(home, 'state')
    for (const file of fs.readdirSync(state)) {
      const whole = path.join(state, file)
      assert.ok(!fs.readFileSync(whole).includes(apiKey), `the key itself is in ${file}`)
    }
    assert.ok(!commandLine(serverPid).join(' ').includes(apiKey))
  })
})

describe('host/warden', () => {
  test('host/warden: has no network socket and one thread', limited(10), () => {
    const warden = wardenPid()
    assert.ok(warden, 'a warden runs')
    assert.equal(numbers(status(warden).Uid)[1], 0)
    assert.deepEqual(networkSockets(warden), [])
    assert.equal(status(warden).Threads, '1')
    for (const target of descriptors(warden)) assert.doesNotMatch(target, /socket:\[\d+\].*inet/)
  })
})

describe('host/sandbox', () => {
  // Processes that share a pid namespace with one that has `mark` among its words.
  function inside(mark) {
    const space = (pid) => {
      try {
        return fs.readlinkSync(`/proc/${pid}/ns/pid`)
      } catch {
        return undefined
      }
    }
    const own = space(process.pid)
    const marked = pids().find((pid) => commandLine(pid).includes(mark) && space(pid) !== own)
    return marked ? pids().filter((pid) => space(pid) === space(marked)) : []
  }

  withSandbox('host/sandbox: no process has a host uid below its range', async (sandbox) => {
    const mark = `${100000 + Math.floor(Math.random() * 899999)}`
    const bash = (command) => ({ process: { cmd: '/bin/bash', args: ['-c', command] } })
    const streams = [`sleep ${mark}`, `sudo sleep ${mark}`, `sudo setsid sleep ${mark}`].map((command) =>
      sandbox.open('/process.Process/Start', bash(command)))
    for (const stream of streams) await until('start', () => stream.messages[0])
    await until('three sleepers', () => inside(mark).filter((pid) => commandLine(pid).at(-1) === mark && commandLine(pid)[0] === 'sleep').length === 3)
    const found = inside(mark)
    const [first] = found
    const [, lowest, size] = numbers(fs.readFileSync(`/proc/${first}/uid_map`, 'utf8').trim())
    assert.ok(lowest >= 65536, `the range begins at ${lowest}`)
    for (const pid of found) {
      for (const kind of ['Uid', 'Gid']) {
        for (const id of numbers(status(pid)[kind])) {
          assert.ok(id >= lowest && id < lowest + size, `${commandLine(pid)}: ${kind} ${id}, range ${lowest}+${size}`)
        }
      }
    }
    // Root inside is nobody outside, but it is root inside.
    assert.equal((await sandbox.run('sudo id -u')).stdout, '0\n')
  })

  test('host/sandbox: sandboxes do not share ranges or namespaces', limited(30), async () => {
    const [one, two] = await Promise.all([Raw.create(), Raw.create()])
    try {
      const facts = []
      for (const sandbox of [one, two]) {
        const mark = `${100000 + Math.floor(Math.random() * 899999)}`
        sandbox.open('/process.Process/Start', { process: { cmd: 'sleep', args: [mark] } })
        const pid = await until('the sleeper', () => inside(mark).find((candidate) => commandLine(candidate).includes(mark)))
        const spaces = ['user', 'mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup'].map((kind) => fs.readlinkSync(`/proc/${pid}/ns/${kind}`))
        facts.push({ map: fs.readFileSync(`/proc/${pid}/uid_map`, 'utf8').trim(), spaces })
      }
      assert.notEqual(facts[0].map, facts[1].map)
      const host = ['user', 'mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup'].map((kind) => fs.readlinkSync(`/proc/self/ns/${kind}`))
      for (let i = 0; i < host.length; i++) {
        assert.equal(new Set([facts[0].spaces[i], facts[1].spaces[i], host[i]]).size, 3, host[i])
      }
    } finally {
      await Promise.all([one.kill(), two.kill()])
    }
  })
})

describe('host/servers', () => {
  test('host/servers: two side by side do not meet', limited(90), async () => {
    const second = fs.mkdtempSync(path.join(os.tmpdir(), 'atoll-second-'))
    fs.chmodSync(second, 0o755)
    const child = spawn(process.env.ATOLL_E2E_ATOLL, ['up', '--home', second, '--listen', '127.0.0.1:0'],
                        { stdio: ['ignore', 'pipe', 'pipe'] })
    let out = ''
    let log = ''
    child.stdout.on('data', (data) => (out += data))
    child.stderr.on('data', (data) => (log += data))
    const ended = new Promise((resolve) => child.on('close', resolve))
    const mine = await Raw.create()
    try {
      await until('the second server', () => /E2B_API_KEY=\S+\n/.test(out) || child.exitCode !== null, 60_000)
      const exported = (name) => new RegExp(`export ${name}=['"]?([^'"\\n]+)`).exec(out)?.[1]
      assert.ok(exported('E2B_API_URL'), log)
      const base = new URL(exported('E2B_API_URL'))
      const key = exported('E2B_API_KEY')
      assert.notEqual(key, apiKey)
      assert.notEqual(base.port, new URL(process.env.E2B_API_URL).port)

      const call = (method, target, withKey, body) => request(method, target, {
        base, headers: { 'X-API-KEY': withKey, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body),
      })
      assert.equal((await call('GET', '/v2/sandboxes', apiKey)).status, 401)
      const made = await call('POST', '/v2/sandboxes', key, { templateID: 'base', timeout: 60 })
      assert.equal(made.status, 201, made.text)
      assert.deepEqual((await call('GET', '/v2/sandboxes', key)).json.map((entry) => entry.sandboxID), [made.json.sandboxID])
      assert.equal((await call('GET', `/sandboxes/${mine.id}`, key)).status, 404)
      const theirs = { 'E2b-Sandbox-Id': made.json.sandboxID, 'E2b-Sandbox-Port': '49983' }
      assert.equal((await request('GET', '/health', { base, headers: theirs })).status, 204)
      assert.equal((await request('GET', '/health', { headers: theirs })).status, 502)
      assert.equal((await call('DELETE', `/sandboxes/${made.json.sandboxID}`, key)).status, 204)
    } finally {
      child.kill('SIGINT')
      const code = await ended
      assert.equal(code, 0, `the second server ended with ${code}: ${log.slice(-2000)}`)
      fs.rmSync(second, { recursive: true, force: true })
      // The first one noticed nothing.
      assert.equal((await mine.run('echo here')).stdout, 'here\n')
      await mine.kill()
    }
  })
})
