// The server dies by kill -9, and its warden: sandboxes go on, the next server finds them as they were.
import { execFile } from 'node:child_process'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Sandbox } from '../js/sdk.mjs'
import { api, assert, domain, limited, Raw, sleep, unique, until } from './support.mjs'
import { crash, facts, healthy, info, warden } from './memory.mjs'

async function lives(what, victim) {
  const tag = unique('restart')
  const sandbox = await Sandbox.create('base', { metadata: { tag }, timeoutMs: 300_000, envs: { KEPT: 'yes' } })
  const raw = new Raw((await api('POST', `/sandboxes/${sandbox.sandboxId}/connect`, { timeout: 30 })).json)
  try {
    let typed = ''
    const pty = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: (data) => (typed += Buffer.from(data)) })
    pty.wait().catch(() => {})
    await sandbox.pty.sendInput(pty.pid, Buffer.from('MARK=remembered\n'))
    const command = await sandbox.commands.run('for i in $(seq 1000); do echo line $i; sleep 0.1; done', { background: true, timeoutMs: 0 })
    command.wait().catch(() => {})
    await sandbox.files.write('kept.txt', 'told to a client')
    const before = { ...(await sandbox.getInfo()) }

    await crash(victim())

    const after = { ...(await sandbox.getInfo()) }
    assert.equal(after.state, 'running', `${what}: sandbox ${sandbox.sandboxId}`)
    assert.equal(after.startedAt.getTime(), before.startedAt.getTime())
    assert.equal(after.endAt.getTime(), before.endAt.getTime())
    // A new client, and the handle from before: the same token.
    const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 1_000 })
    assert.equal((await api('POST', `/sandboxes/${sandbox.sandboxId}/connect`, { timeout: 1 })).json.envdAccessToken, raw.token)
    assert.equal(await sandbox.files.read('kept.txt'), 'told to a client')
    assert.equal((await again.commands.run('echo $KEPT')).stdout, 'yes\n')
    const listed = (await again.commands.list()).map((entry) => entry.pid)
    assert.ok(listed.includes(command.pid) && listed.includes(pty.pid), `${listed} has ${command.pid} and ${pty.pid}`)
    // The command goes on under its pid.
    let out = ''
    const handle = await again.commands.connect(command.pid, { onStdout: (data) => (out += data) })
    assert.equal(handle.pid, command.pid)
    await until('new lines', () => /line \d+\n/.test(out))
    assert.equal(await handle.kill(), true)
    // The terminal remembers.
    let seen = ''
    const terminal = await again.pty.connect(pty.pid, { onData: (data) => (seen += Buffer.from(data)) })
    await again.pty.sendInput(pty.pid, Buffer.from('echo "<$MARK>"\n'))
    await until('the terminal', () => seen.includes('<remembered>'))
    await again.pty.sendInput(pty.pid, Buffer.from('exit\n'))
    assert.equal((await terminal.wait()).exitCode, 0)
  } finally {
    await sandbox.kill()
  }
}

describe('restart', () => {
  test('restart/server: kill -9 of the server', limited(90), () => lives('server', () => facts().pid))

  test('restart/server: kill -9 of the warden', limited(90), () => lives('warden', () => {
    const pid = warden()
    assert.ok(pid, 'a warden runs')
    return pid
  }))

  test('restart/server: paused ones stay paused and wake up', limited(90), async () => {
    const frozen = await Raw.create()
    const disk = await Raw.create()
    try {
      await frozen.run('echo in memory > /dev/shm/mark')
      await disk.run('echo on disk > /home/user/mark')
      assert.equal((await frozen.api('POST', '/pause', { memory: true })).status, 204)
      assert.equal((await disk.api('POST', '/pause', { memory: false })).status, 204)
      await crash(facts().pid)
      for (const sandbox of [frozen, disk]) assert.equal((await sandbox.api('GET')).json.state, 'paused', sandbox.id)
      for (const sandbox of [frozen, disk]) {
        const answer = await sandbox.api('POST', '/connect', { timeout: 60 })
        assert.equal(answer.status, 201, answer.text)
        assert.equal(answer.json.envdAccessToken, sandbox.token)
      }
      assert.equal((await frozen.run('cat /dev/shm/mark')).stdout, 'in memory\n')
      assert.equal((await disk.run('cat /home/user/mark')).stdout, 'on disk\n')
    } finally {
      await Promise.all([frozen.kill(), disk.kill()])
    }
  })

  test('restart/server: network rules hold before, between and after', limited(90), async () => {
    const sandbox = await Raw.create({ network: { denyOut: ['203.0.113.22'] } })
    const reach = async (target) => (await sandbox.run(`curl -s -o /dev/null -w '%{http_code}' --connect-timeout 2 --max-time 4 http://${target}/ || true`)).stdout
    try {
      assert.deepEqual([await reach('203.0.113.22'), await reach('203.0.113.20')], ['000', '200'])
      await crash(facts().pid)
      assert.deepEqual([await reach('203.0.113.22'), await reach('203.0.113.20')], ['000', '200'])
      assert.equal((await sandbox.run('getent ahostsv4 allowed.example.com | head -1 | cut -d" " -f1')).stdout, '203.0.113.20\n')
    } finally {
      await sandbox.kill()
    }
  })

  test('restart/server: timers that ran out meanwhile fire', limited(90), async () => {
    const short = await Raw.create({ timeout: 2 })
    const pausing = await Raw.create({ timeout: 2, autoPause: true })
    const supervisor = facts().supervisor
    assert.ok(supervisor)
    // Held while the clock runs: the next server starts only when the supervisor may go on.
    process.kill(supervisor, 'SIGSTOP')
    try {
      process.kill(facts().pid, 'SIGKILL')
      await sleep(3_000)
    } finally {
      process.kill(supervisor, 'SIGCONT')
    }
    await until('the next server', healthy, 30_000)
    try {
      await until('the end of the short one', async () => (await short.api('GET')).status === 404)
      await until('the pause of the other', async () => (await pausing.api('GET')).json.state === 'paused')
    } finally {
      await pausing.kill()
    }
  })

  test('restart/server: requests wait for the next server', limited(90), async () => {
    const sandbox = await Raw.create()
    try {
      process.kill(facts().pid, 'SIGKILL')
      // The listening socket never closes: no refusal, only a pause.
      const answer = await sandbox.api('GET')
      assert.equal(answer.status, 200, answer.text)
      assert.equal(await sandbox.alive(), true)
    } finally {
      await sandbox.kill()
    }
  })
})

describe('restart/memory', () => {
  const script = (name) => fileURLToPath(new URL(name, import.meta.url))
  const clients = { JavaScript: [process.execPath, script('seed.mjs')], Python: [process.env.E2E_PYTHON, script('seed.py')] }
  const run = ([program, file], ...words) => new Promise((resolve, reject) => execFile(program, [file, ...words],
    // By domain, as people use it.
    { env: { ...process.env, E2B_API_URL: undefined, E2B_SANDBOX_URL: undefined, E2B_DOMAIN: domain }, timeout: 60_000 },
    (error, stdout, stderr) => (error ? reject(new Error(`${file} ${words.join(' ')}: ${error.message}\n${stdout}\n${stderr}`)) : resolve(stdout.trim()))))

  for (const [first, second] of [['JavaScript', 'Python'], ['Python', 'JavaScript']]) {
    const skip = process.env.E2E_PYTHON ? undefined : 'the Python SDK cannot be had here'
    test(`restart/memory: made with ${first}, found with ${second} after kill -9`, { ...limited(120), skip }, async () => {
      const { id, pid } = JSON.parse(await run(clients[first], 'make'))
      const sandbox = new Raw({ sandboxID: id })
      try {
        assert.equal((await info(sandbox)).memoryTier, 'dumped')
        await crash(facts().pid)
        const { state, memoryTier } = await info(sandbox)
        assert.deepEqual([state, memoryTier], ['paused', 'dumped'])
        assert.equal(await run(clients[second], 'find', id, String(pid)), 'found')
      } finally {
        await sandbox.kill()
      }
    })
  }
})
