// Ends of all kinds: of sandboxes under their clients, of clients under their sandboxes, of many at once.
import { spawn } from 'node:child_process'
import net from 'node:net'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { TimeoutError } from '../js/sdk.mjs'
import { api, apiKey, apiUrl, assert, limited, Raw, Sandbox, sleep, unique, until, withSandbox } from './support.mjs'
import { commandLine, home, inventory, learnCgroups, pids } from './machine.mjs'

const start = '/process.Process/Start'
const bash = (command, more = {}) => ({ process: { cmd: '/bin/bash', args: ['-c', command] }, ...more })

// Waits until the machine looks as it did; a few descriptors (idle connections) may come and go.
async function unchanged(before, limitMs = 20_000) {
  const slack = { serverDescriptors: 24, wardenDescriptors: 2 }
  let differences
  const end = Date.now() + limitMs
  do {
    const now = inventory()
    differences = Object.keys(before).filter((key) => now[key] > before[key] + (slack[key] ?? 0))
      .map((key) => `${key}: ${before[key]} -> ${now[key]}`)
    if (differences.length === 0) return
    await sleep(200)
  } while (Date.now() < end)
  assert.fail(`left behind: ${differences.join(', ')}`)
}

describe('kill/sandbox', () => {
  withSandbox('kill/sandbox: kill mid-command resets the connection', async (sandbox) => {
    const stream = sandbox.open(start, bash('sleep 60'))
    await until('start', () => stream.messages[0])
    assert.equal((await sandbox.kill()).status, 204)
    await assert.rejects(stream.ended, { code: 'ECONNRESET' })
    const health = await sandbox.request('GET', '/health')
    assert.equal(health.status, 502)
    assert.equal(health.json.message, 'The sandbox was not found')
    assert.equal((await sandbox.kill()).status, 404)
    assert.equal((await api('GET', `/sandboxes/${sandbox.id}`)).status, 404)
  })

  withSandbox('kill/sandbox: expiry mid-command resets the connection', async (sandbox) => {
    const stream = sandbox.open(start, bash('sleep 60'))
    await until('start', () => stream.messages[0])
    assert.equal((await api('POST', `/sandboxes/${sandbox.id}/timeout`, { timeout: 1 })).status, 204)
    await assert.rejects(stream.ended, { code: 'ECONNRESET' })
    assert.equal((await sandbox.request('GET', '/health')).status, 502)
  })

  withSandbox('kill/sandbox: kill during a download', async (sandbox) => {
    assert.equal((await sandbox.run('head -c 200000000 /dev/zero > big.bin')).end.status, 'exit status 0')
    const reading = new Sandbox({
      sandboxId: sandbox.id, envdVersion: sandbox.fields.envdVersion, envdAccessToken: sandbox.token,
    }).files.read('big.bin', { format: 'stream' })
    const reader = (await reading).getReader()
    await reader.read()
    assert.equal((await sandbox.kill()).status, 204)
    await assert.rejects(async () => {
      while (!(await reader.read()).done);
    })
  })

  test('kill/sandbox: the SDK names the end', limited(30), async () => {
    const sandbox = await Sandbox.create('base')
    const handles = await Promise.all([1, 2, 3].map(() => sandbox.commands.run('sleep 60', { background: true })))
    await sandbox.kill()
    for (const handle of handles) {
      await assert.rejects(handle.wait(), (error) => {
        assert.ok(error instanceof TimeoutError, `${error}`)
        assert.match(error.message, /sandbox was killed or reached its end of life/)
        return true
      })
    }
  })

  withSandbox('kill/sandbox: kills at the same time', async (sandbox) => {
    const answers = await Promise.all(Array.from({ length: 5 }, () => sandbox.kill()))
    const codes = answers.map((answer) => answer.status)
    assert.ok(codes.includes(204) && codes.every((code) => code === 204 || code === 404), `${codes}`)
  })

  withSandbox('kill/sandbox: no process survives', async (sandbox) => {
    const mark = `${100000 + Math.floor(Math.random() * 899999)}`
    // A daemon that left its session and ignores signals is gone, too.
    await sandbox.run(`setsid nohup bash -c "trap '' TERM HUP INT; exec sleep ${mark}" >/dev/null 2>&1 & sleep 0.2`)
    await sandbox.run(`sudo setsid nohup sleep ${mark} >/dev/null 2>&1 & sleep 0.2`)
    const alive = () => pids().filter((pid) => commandLine(pid).includes(mark)).length
    assert.ok(alive() >= 2, `${alive()} of 2 run`)
    assert.equal((await sandbox.kill()).status, 204)
    assert.equal(alive(), 0)
  })
})

describe('kill/client', () => {
  // A client of its own: starts an endless command and reports its pid.
  function client(sandbox, command) {
    const child = spawn(process.execPath, [fileURLToPath(new URL('./client.mjs', import.meta.url)), sandbox.id, command],
                        { stdio: ['ignore', 'pipe', 'inherit'] })
    const lines = []
    child.stdout.on('data', (data) => lines.push(...data.toString().split('\n').filter(Boolean)))
    return { child, lines }
  }

  withSandbox('kill/client: kill -9 mid-stream leaves the process running', async (sandbox) => {
    const before = inventory()
    const { child, lines } = client(sandbox, 'while :; do date +%N; sleep 0.05; done')
    const pid = Number((await until('the client', () => lines.find((line) => line.startsWith('pid ')))).slice(4))
    await until('output', () => lines.length > 5)
    child.kill('SIGKILL')
    await sleep(500)
    const listed = (await sandbox.call('/process.Process/List', {})).json.processes
    assert.deepEqual(listed.map((entry) => entry.pid), [pid])
    const again = sandbox.open('/process.Process/Connect', { process: { pid } })
    await until('output again', () => again.messages.filter((message) => message.event.data).length > 3)
    again.close()
    assert.equal((await sandbox.call('/process.Process/SendSignal', { process: { pid }, signal: 'SIGNAL_SIGKILL' })).status, 200)
    await until('the list to be empty', async () => !((await sandbox.call('/process.Process/List', {})).json.processes ?? []).length)
    await unchanged(before)
  }, { seconds: 60 })

  withSandbox('kill/client: many clients killed at once', async (sandbox) => {
    const before = inventory()
    const clients = Array.from({ length: 6 }, () => client(sandbox, 'yes | head -c 100000000; sleep 60'))
    for (const { lines } of clients) await until('a client', () => lines.find((line) => line.startsWith('pid ')), 30_000)
    for (const { child } of clients) child.kill('SIGKILL')
    assert.equal((await sandbox.run('echo still')).stdout, 'still\n')
    const running = () => sandbox.call('/process.Process/List', {}).then((answer) => answer.json.processes ?? [])
    for (const { pid } of await running()) {
      await sandbox.call('/process.Process/SendSignal', { process: { pid }, signal: 'SIGNAL_SIGKILL' })
    }
    await until('the list to be empty', async () => (await running()).length === 0)
    await sandbox.run('pkill -KILL yes; true')
    await unchanged(before)
  }, { seconds: 90 })

  withSandbox('kill/client: an abandoned watch ends', async (sandbox) => {
    const instances = async () =>
      Number((await sandbox.run('sudo find /proc/1/fd -lname "anon_inode:inotify" | wc -l')).stdout.trim())
    const before = await instances()
    const watches = Array.from({ length: 10 }, () => sandbox.open('/filesystem.Filesystem/WatchDir', { path: '/home/user' }))
    for (const watch of watches) await until('start', () => watch.messages[0])
    for (const watch of watches) watch.close()
    await until('the watches to end', async () => (await instances()) <= before)
  })
})

describe('kill/churn', () => {
  test('kill/churn: 200 creates and kills, 20 at a time, leave nothing behind', limited(300), async () => {
    // The first sandbox makes what stays for good (parent cgroups and the like), and shows that it would be noticed.
    const first = await Raw.create()
    assert.ok(learnCgroups() > 0)
    const during = inventory()
    await first.kill()
    await sleep(500)
    const before = inventory()
    for (const key of ['processes', 'inside', 'networks', 'cgroups', 'sandboxes', 'ranges']) {
      assert.ok(during[key] > before[key], `${key} counts sandboxes: ${before[key]} -> ${during[key]}`)
    }
    const tag = unique('churn')
    let left = 200
    const worker = async () => {
      while (left-- > 0) {
        const sandbox = await Raw.create({ metadata: { tag } })
        assert.equal((await sandbox.run('echo $E2B_SANDBOX_ID')).stdout, `${sandbox.id}\n`)
        assert.equal((await sandbox.kill()).status, 204)
      }
    }
    await Promise.all(Array.from({ length: 20 }, worker))
    const listed = await api('GET', `/v2/sandboxes?metadata=${encodeURIComponent(`tag=${tag}`)}`)
    assert.deepEqual(listed.json, [])
    await unchanged(before, 30_000)
  })

  test('kill/churn: clients that go away during create leave nothing behind', limited(120), async () => {
    const before = inventory()
    const body = JSON.stringify({ templateID: 'base', timeout: 5, metadata: { tag: 'abandoned' } })
    for (let i = 0; i < 20; i++) {
      const socket = net.connect(Number(apiUrl.port), apiUrl.hostname)
      socket.on('error', () => {})
      socket.write(`POST /v2/sandboxes HTTP/1.1\r\nHost: ${apiUrl.host}\r\nX-API-KEY: ${apiKey}\r\n` +
                   `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
      setTimeout(() => socket.resetAndDestroy(), 5 + i)
    }
    const abandoned = async () =>
      (await api('GET', `/v2/sandboxes?metadata=${encodeURIComponent('tag=abandoned')}`)).json.length
    await until('some of them', abandoned)
    // Those that were made all the same end by their timeout.
    await until('the list to be empty', async () => (await abandoned()) === 0, 30_000)
    await unchanged(before)
  })

  test('kill/churn: the leak check agrees', limited(60), async () => {
    const leakcheck = fileURLToPath(new URL('../../testing/leakcheck', import.meta.url))
    const check = spawn(leakcheck, ['--quiet', home], { stdio: ['ignore', 'pipe', 'pipe'] })
    const said = []
    for (const stream of [check.stdout, check.stderr]) stream.on('data', (data) => said.push(data))
    const code = await new Promise((resolve) => check.on('close', resolve))
    assert.equal(code, 0, Buffer.concat(said).toString())
  })
})
