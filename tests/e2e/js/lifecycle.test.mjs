// Pause and resume, by hand, by time and by traffic.
import { describe } from 'node:test'
import { Sandbox, SandboxNotFoundError } from 'e2b'
import { assert, parallel, row, sleep, unique, until, visit } from './support.mjs'

const bootId = (sandbox) => sandbox.files.read('/proc/sys/kernel/random/boot_id')
const state = async (sandbox) => (await sandbox.getInfo()).state
const paused = (sandbox) => until('the pause', async () => (await state(sandbox)) === 'paused')

async function serve(sandbox, port, text) {
  await sandbox.files.write(`www${port}/index.html`, text)
  const server = await sandbox.commands.run(`cd www${port} && python3 -m http.server ${port}`, { background: true, timeoutMs: 0 })
  await until('the server', async () => (await visit(sandbox, port)).status === 200)
  return server
}

describe('lifecycle/pause', parallel, () => {
  row('lifecycle/pause: pause and resume', {}, async ({ sandbox }) => {
    assert.equal(await sandbox.pause(), true)
    assert.equal(await sandbox.isRunning(), false)
    assert.equal(await state(sandbox), 'paused')
    const same = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(same.sandboxId, sandbox.sandboxId)
    assert.equal(await sandbox.isRunning(), true)
    assert.equal(await state(sandbox), 'running')
    // The handle from before the pause goes on working.
    assert.equal((await sandbox.commands.run('echo again')).stdout, 'again\n')
  })

  row('lifecycle/pause: by id', {}, async ({ sandbox }) => {
    assert.equal(await Sandbox.pause(sandbox.sandboxId), true)
    assert.equal(await sandbox.isRunning(), false)
  })

  row('lifecycle/pause: of a paused or killed sandbox', {}, async ({ sandbox }) => {
    assert.equal(await sandbox.pause(), true)
    assert.equal(await sandbox.pause(), false)
    assert.equal(await sandbox.kill(), true)
    await assert.rejects(sandbox.pause(), SandboxNotFoundError)
    await assert.rejects(Sandbox.connect(sandbox.sandboxId), SandboxNotFoundError)
  })

  row('lifecycle/pause: resume by connect with the old handle', {}, async ({ sandbox }) => {
    await sandbox.pause()
    await sandbox.connect()
    assert.equal(await sandbox.isRunning(), true)
    await sandbox.files.write('after.txt', 'the pause')
    assert.equal(await sandbox.files.read('after.txt'), 'the pause')
  })

  row('lifecycle/pause: environment survives', { create: { envs: { TEST_VAR: 'sfisback' } } }, async ({ sandbox }) => {
    const read = async () => (await sandbox.commands.run('echo "$TEST_VAR"')).stdout
    assert.equal(await read(), 'sfisback\n')
    await sandbox.pause()
    await sandbox.connect()
    assert.equal(await read(), 'sfisback\n')
  })

  row('lifecycle/pause: files survive', {}, async ({ sandbox }) => {
    await sandbox.files.write('snapshot.txt', 'before')
    await sandbox.commands.run('echo in memory > /dev/shm/mark && echo temporary > /tmp/mark')
    await sandbox.pause()
    await sandbox.connect()
    assert.equal(await sandbox.files.read('snapshot.txt'), 'before')
    assert.equal((await sandbox.commands.run('cat /dev/shm/mark /tmp/mark')).stdout, 'in memory\ntemporary\n')
  })

  row('lifecycle/pause: a running process goes on', {}, async ({ sandbox }) => {
    const command = await sandbox.commands.run('sleep 3600', { background: true, timeoutMs: 0 })
    command.wait().catch(() => {})
    const before = await bootId(sandbox)
    await sandbox.pause()
    await sandbox.connect()
    assert.ok((await sandbox.commands.list()).some((entry) => entry.pid === command.pid), 'the same pid is listed')
    const again = await sandbox.commands.connect(command.pid)
    assert.equal(again.pid, command.pid)
    assert.equal(await bootId(sandbox), before)
    assert.equal(await again.kill(), true)
  })

  row('lifecycle/pause: a job finishes after the resume', {}, async ({ sandbox }) => {
    const job = await sandbox.commands.run('sleep 2 && echo done > /home/user/job.txt', { background: true, timeoutMs: 0 })
    job.wait().catch(() => {})
    await sandbox.pause()
    await sandbox.connect()
    await until('the job', () => sandbox.files.exists('job.txt'))
    assert.equal(await until('its text', () => sandbox.files.read('job.txt')), 'done\n')
  })

  row('lifecycle/pause: a server inside answers again', {}, async ({ sandbox }) => {
    const server = await serve(sandbox, 8000, 'served over a pause')
    server.wait().catch(() => {})
    await sandbox.pause()
    assert.equal((await visit(sandbox, 8000)).status, 502)
    await sandbox.connect()
    const response = await visit(sandbox, 8000)
    assert.equal(response.status, 200)
    assert.equal(await response.text(), 'served over a pause')
  })

  row('lifecycle/pause: filesystem only is a reboot', { create: { envs: { KEPT: 'yes' } } }, async ({ sandbox }) => {
    await sandbox.files.write('kept.txt', 'on disk')
    const command = await sandbox.commands.run('sleep 3600', { background: true, timeoutMs: 0 })
    command.wait().catch(() => {})
    const before = await bootId(sandbox)
    assert.equal(await sandbox.pause({ keepMemory: false }), true)
    assert.equal(await sandbox.isRunning(), false)
    assert.equal(await state(sandbox), 'paused')
    const same = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(same.sandboxId, sandbox.sandboxId)
    // The old handle holds the old token.
    assert.equal(await sandbox.files.read('kept.txt'), 'on disk')
    assert.notEqual(await bootId(sandbox), before)
    assert.ok(!(await sandbox.commands.list()).some((entry) => entry.pid === command.pid), 'processes are gone')
    assert.equal((await sandbox.commands.run('echo $KEPT')).stdout, 'yes\n')
  })

  row('lifecycle/pause: reboot on resume', {}, async ({ sandbox }) => {
    const before = await bootId(sandbox)
    await sandbox.files.write('kept.txt', 'on disk')
    await sandbox.pause()
    await Sandbox.connect(sandbox.sandboxId, { onResume: 'reboot' })
    assert.notEqual(await bootId(sandbox), before)
    assert.equal(await sandbox.files.read('kept.txt'), 'on disk')
  })

  row('lifecycle/pause: many cycles lose nothing', { create: { timeoutMs: 420_000 } }, async ({ sandbox }) => {
    const before = await bootId(sandbox)
    const counter = await sandbox.commands.run(
      'python3 -uc "import time\nn = 0\nwhile True:\n    n += 1\n    open(\'/dev/shm/n\', \'w\').write(str(n))\n    time.sleep(0.01)"',
      { background: true, timeoutMs: 0 })
    counter.wait().catch(() => {})
    let last = 0
    await until('the counter', () => sandbox.files.exists('/dev/shm/n'))
    for (let cycle = 0; cycle < 5; cycle++) {
      const started = Date.now()
      await sandbox.pause()
      await sandbox.connect()
      assert.ok(Date.now() - started < 10_000, 'a pause and a resume take less than ten seconds')
      last = Number(await until(`the counter in cycle ${cycle}`, async () => {
        const now = await sandbox.files.read('/dev/shm/n')
        return Number(now) > last && now
      }))
    }
    assert.equal(await bootId(sandbox), before)
  })
})

describe('lifecycle/timeout', parallel, () => {
  row('lifecycle/timeout: auto-pause needs a connect to wake', {
    create: { timeoutMs: 3_000, lifecycle: { onTimeout: 'pause' } },
  }, async ({ sandbox }) => {
    await sleep(5_000)
    assert.equal(await state(sandbox), 'paused')
    assert.equal(await sandbox.isRunning(), false)
    assert.equal(await state(sandbox), 'paused')
    await sandbox.connect()
    assert.equal(await state(sandbox), 'running')
    assert.equal(await sandbox.isRunning(), true)
  })

  row('lifecycle/timeout: filesystem-only auto-pause reboots', {
    create: { timeoutMs: 3_000, lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } },
  }, async ({ sandbox }) => {
    await sandbox.files.write('kept.txt', 'on disk')
    const before = await bootId(sandbox)
    await sleep(4_500)
    assert.equal(await state(sandbox), 'paused')
    await sandbox.connect()
    assert.equal(await sandbox.files.read('kept.txt'), 'on disk')
    assert.notEqual(await bootId(sandbox), before)
  })

  row('lifecycle/timeout: auto-resume wakes on a request', {
    create: { timeoutMs: 60_000, lifecycle: { onTimeout: 'pause', autoResume: true } },
  }, async ({ sandbox }) => {
    // Its stream is open over the pause and stands still: a broken one would make the SDK ask for the sandbox's health, which is traffic.
    await sandbox.files.write('www/index.html', 'woken')
    const server = await sandbox.commands.run('cd www && exec python3 -m http.server 8000', { background: true, timeoutMs: 0 })
    await until('the server', async () => (await visit(sandbox, 8000)).status === 200)
    await sandbox.setTimeout(1_000)
    await paused(sandbox)
    const response = await visit(sandbox, 8000)
    assert.equal(response.status, 200)
    assert.equal(await response.text(), 'woken')
    assert.equal(await state(sandbox), 'running')
    assert.equal(await sandbox.isRunning(), true)
    // The new end is at least five minutes away.
    assert.ok((await sandbox.getInfo()).endAt - Date.now() > 290_000)
    // Its old stream ended with the memory that it led to; the process goes on.
    await assert.rejects(server.wait())
    assert.equal(await server.kill(), true)
  })

  row('lifecycle/timeout: auto-resume by the SDK itself', {
    create: { timeoutMs: 60_000, lifecycle: { onTimeout: 'pause', autoResume: true } },
  }, async ({ sandbox }) => {
    assert.equal(await sandbox.pause(), true)
    assert.equal(await state(sandbox), 'paused')
    assert.equal((await sandbox.commands.run('echo awake')).stdout, 'awake\n')
    assert.equal(await state(sandbox), 'running')
  })

  row('lifecycle/timeout: zero pauses now', {
    create: { timeoutMs: 60_000, lifecycle: { onTimeout: { action: 'pause' } } },
  }, async ({ sandbox }) => {
    const before = await bootId(sandbox)
    await sandbox.setTimeout(0)
    await paused(sandbox)
    await sandbox.connect()
    assert.equal(await bootId(sandbox), before)
  })

  row('lifecycle/timeout: zero kills now', {}, async ({ sandbox }) => {
    await sandbox.setTimeout(0)
    await until('the end', async () => !(await sandbox.isRunning()))
    await assert.rejects(sandbox.getInfo(), SandboxNotFoundError)
  })

  row('lifecycle/timeout: info tells the lifecycle', {
    create: { timeoutMs: 60_000, lifecycle: { onTimeout: 'pause', autoResume: true } },
  }, async ({ sandbox }) => {
    const info = await sandbox.getInfo()
    assert.deepEqual({ ...info.lifecycle }, { onTimeout: 'pause', autoResume: true })
  })
})

describe('lifecycle/list', parallel, () => {
  const all = async (options) => {
    const pages = Sandbox.list(options)
    const found = []
    while (pages.hasNext) found.push(...(await pages.nextItems()))
    return found
  }
  const make = async (defer, tag) => {
    const sandbox = await Sandbox.create('base', { metadata: { tag } })
    defer(() => sandbox.kill())
    return sandbox
  }
  const ids = (entries) => entries.map((entry) => entry.sandboxId)

  row('lifecycle/list: paused sandboxes', { sandbox: false }, async ({ defer }) => {
    const tag = unique('paused')
    const sandbox = await make(defer, tag)
    await sandbox.pause()
    const found = await all({ query: { metadata: { tag }, state: ['paused'] } })
    assert.deepEqual(found.map((entry) => [entry.sandboxId, entry.state]), [[sandbox.sandboxId, 'paused']])
    assert.deepEqual(await all({ query: { metadata: { tag }, state: ['running'] } }), [])
  })

  row('lifecycle/list: paginate paused sandboxes', { sandbox: false }, async ({ defer }) => {
    const tag = unique('paused')
    const older = await make(defer, tag)
    const newer = await make(defer, tag)
    // By the start, not by the pause.
    await newer.pause()
    await older.pause()
    const pages = Sandbox.list({ limit: 1, query: { metadata: { tag }, state: ['paused'] } })
    assert.deepEqual(ids(await pages.nextItems()), [newer.sandboxId])
    assert.ok(pages.hasNext && pages.nextToken)
    assert.deepEqual(ids(await pages.nextItems()), [older.sandboxId])
    assert.equal(pages.hasNext, false)
  })

  row('lifecycle/list: paginate running and paused sandboxes', { sandbox: false }, async ({ defer }) => {
    const tag = unique('both')
    const older = await make(defer, tag)
    const newer = await make(defer, tag)
    await newer.pause()
    const pages = Sandbox.list({ limit: 1, query: { metadata: { tag }, state: ['running', 'paused'] } })
    const first = await pages.nextItems()
    const second = await pages.nextItems()
    assert.deepEqual([...first, ...second].map((entry) => [entry.sandboxId, entry.state]),
                     [[newer.sandboxId, 'paused'], [older.sandboxId, 'running']])
    assert.equal(pages.hasNext, false)
  })
})

describe('lifecycle/metrics', parallel, () => {
  const fields = ['timestamp', 'cpuUsedPct', 'cpuCount', 'memUsed', 'memTotal', 'diskUsed', 'diskTotal']

  row('lifecycle/metrics: a point soon after the start', {}, async ({ sandbox }) => {
    const points = await until('metrics', async () => {
      const found = await sandbox.getMetrics()
      return found.length > 0 && found
    }, 25_000)
    for (const field of fields) assert.notEqual(points[0][field], undefined, field)
    assert.ok(points[0].memTotal > 0 && points[0].diskTotal > 0 && points[0].cpuCount >= 1, JSON.stringify(points[0]))
    assert.ok(points[0].memUsed > 0 && points[0].memUsed < points[0].memTotal, JSON.stringify(points[0]))
  })

  row('lifecycle/metrics: time range', {}, async ({ sandbox }) => {
    const start = new Date(Date.now() - 10_000)
    await until('metrics', async () => (await sandbox.getMetrics()).length > 0, 25_000)
    const end = new Date(Date.now() + 10_000)
    const within = await sandbox.getMetrics({ start, end })
    assert.ok(within.length > 0)
    for (const point of within) {
      assert.ok(point.timestamp >= new Date(start - 10_000) && point.timestamp <= new Date(end.getTime() + 10_000), `${point.timestamp}`)
    }
    const hour = 3_600_000
    assert.deepEqual(await sandbox.getMetrics({ start: new Date(start - hour), end: new Date(end - hour) }), [])
  })
})
