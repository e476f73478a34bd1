// Snapshots and forks: what both SDKs offer around the memory of a sandbox.
import { describe } from 'node:test'
import { InvalidArgumentError, Sandbox, SandboxError, SandboxNotFoundError } from 'e2b'
import { assert, control, parallel, row, unique, until, visit } from './support.mjs'

const line = async (sandbox, command) => (await sandbox.commands.run(command)).stdout.trim()
const bootId = (sandbox) => sandbox.files.read('/proc/sys/kernel/random/boot_id')
const limitMs = 60_000

async function start(sandbox, command) {
  const handle = await sandbox.commands.run(command, { background: true, timeoutMs: 0 })
  handle.wait().catch(() => {})
  return handle
}

// A snapshot that goes when the case ends; deferred calls run in reverse order, so sandboxes made from it go first.
async function take(sandbox, defer, options) {
  const snapshot = await sandbox.createSnapshot(options)
  defer(() => Sandbox.deleteSnapshot(snapshot.snapshotId))
  assert.ok(snapshot.snapshotId)
  return snapshot
}

async function from(snapshot, defer, options) {
  const sandbox = await Sandbox.create(snapshot.snapshotId, options)
  defer(() => sandbox.kill())
  return sandbox
}

async function all(pages) {
  const found = []
  while (pages.hasNext) found.push(...(await pages.nextItems()))
  return found
}
const ids = (snapshots) => snapshots.map((snapshot) => snapshot.snapshotId)

describe('snapshots/pause', parallel, () => {
  row('snapshots/pause: everything comes back from files', { limitMs, create: { envs: { KEPT: 'yes' } } }, async ({ sandbox }) => {
    await sandbox.files.write('www/index.html', 'served from files')
    await start(sandbox, 'cd www && exec python3 -m http.server 8000')
    await until('the server', async () => (await visit(sandbox, 8000)).status === 200)
    const sleeper = await start(sandbox, 'sleep 3600')
    await sandbox.commands.run('echo temporary > /tmp/mark && echo in memory > /dev/shm/mark')
    const before = await bootId(sandbox)
    assert.equal((await control(sandbox)).memoryTier, 'running')

    assert.equal(await sandbox.pause(), true)
    const { memoryTier, memoryReason } = await control(sandbox)
    assert.deepEqual([memoryTier, memoryReason ?? ''], ['dumped', ''])
    assert.equal((await visit(sandbox, 8000)).status, 502)

    const same = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(same.sandboxId, sandbox.sandboxId)
    assert.equal(await (await visit(sandbox, 8000)).text(), 'served from files')
    assert.equal(await bootId(sandbox), before)
    assert.equal(await line(sandbox, 'cat /tmp/mark /dev/shm/mark; echo $KEPT'), 'temporary\nin memory\nyes')
    assert.ok((await same.commands.list()).some((entry) => entry.pid === sleeper.pid))
    const again = await same.commands.connect(sleeper.pid)
    assert.equal(await again.kill(), true)
    assert.equal((await control(sandbox)).memoryTier, 'running')
  })
})

describe('snapshots/create', parallel, () => {
  row('snapshots/create: of a sandbox', { limitMs }, async ({ sandbox, defer }) => {
    const { endAt } = await sandbox.getInfo()
    const snapshot = await take(sandbox, defer)
    assert.match(snapshot.snapshotId, /:/)
    // The source goes on as before.
    assert.equal(await sandbox.isRunning(), true)
    assert.equal((await sandbox.getInfo()).endAt.getTime(), endAt.getTime())
    assert.equal(await line(sandbox, 'echo on'), 'on')
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  })

  row('snapshots/create: by id', { limitMs }, async ({ sandbox, defer }) => {
    const { snapshotId } = await Sandbox.createSnapshot(sandbox.sandboxId)
    defer(() => Sandbox.deleteSnapshot(snapshotId))
    assert.ok(snapshotId)
  })

  row('snapshots/create: with a name', { limitMs }, async ({ sandbox, defer }) => {
    const name = unique('named')
    const snapshot = await take(sandbox, defer, { name })
    assert.ok(snapshot.names.some((entry) => entry.includes(name)), JSON.stringify(snapshot.names))
    assert.ok(snapshot.snapshotId.includes(name), snapshot.snapshotId)
    // The same name means the same snapshot with new content.
    await sandbox.files.write('second.txt', 'second')
    assert.equal((await sandbox.createSnapshot({ name })).snapshotId, snapshot.snapshotId)
    const made = await from(snapshot, defer)
    assert.equal(await made.files.read('second.txt'), 'second')
    // The name alone will do.
    const other = await from({ snapshotId: name }, defer)
    assert.equal(await other.files.read('second.txt'), 'second')
  })

  row('snapshots/create: of a killed sandbox', {}, async ({ sandbox }) => {
    await sandbox.kill()
    await assert.rejects(sandbox.createSnapshot(), SandboxNotFoundError)
  })
})

describe('snapshots/sandbox', parallel, () => {
  row('snapshots/sandbox: from a snapshot', { limitMs }, async ({ sandbox, defer }) => {
    await sandbox.files.write('mark.txt', 'of the source')
    const snapshot = await take(sandbox, defer)
    await sandbox.files.write('mark.txt', 'changed since')
    const made = await from(snapshot, defer, { metadata: { made: 'from a snapshot' } })
    assert.notEqual(made.sandboxId, sandbox.sandboxId)
    assert.equal(await made.files.read('mark.txt'), 'of the source')
    assert.equal(await sandbox.files.read('mark.txt'), 'changed since')
    assert.deepEqual({ ...(await made.getInfo()).metadata }, { made: 'from a snapshot' })
  })

  row('snapshots/sandbox: two from one snapshot', { limitMs }, async ({ sandbox, defer }) => {
    await sandbox.files.write('mark.txt', 'shared')
    const snapshot = await take(sandbox, defer)
    const [one, two] = await Promise.all([from(snapshot, defer), from(snapshot, defer)])
    assert.notEqual(one.sandboxId, two.sandboxId)
    await one.files.write('mark.txt', 'one')
    await two.files.write('own.txt', 'two')
    assert.equal(await two.files.read('mark.txt'), 'shared')
    assert.equal(await one.files.exists('own.txt'), false)
    assert.equal(await sandbox.files.read('mark.txt'), 'shared')
  })

  row('snapshots/sandbox: directories and files', { limitMs }, async ({ sandbox, defer }) => {
    await sandbox.commands.run('mkdir -p app/src app/empty && echo alpha > app/src/a.txt && echo beta > app/b.txt && ln -s src/a.txt app/link && chmod 750 app/b.txt')
    await sandbox.commands.run('rm /etc/motd /etc/debian_version 2>/dev/null; mkdir -p /etc/own && echo of root > /etc/own/file', { user: 'root' })
    const look = 'cd app && find . -printf "%p %y %m %u %l\\n" | sort && cat src/a.txt b.txt link /etc/own/file && ls /etc/debian_version 2>&1 | tail -c 12'
    const before = await line(sandbox, look)
    const made = await from(await take(sandbox, defer), defer)
    assert.equal(await line(made, look), before)
  })

  row('snapshots/sandbox: processes and memory come along', { limitMs }, async ({ sandbox, defer }) => {
    const counter = await start(sandbox,
      'python3 -uc "import time\nn = 1000\nwhile True:\n    n += 1\n    open(\'/dev/shm/n\', \'w\').write(str(n))\n    time.sleep(0.02)"')
    await until('the counter', () => sandbox.files.exists('/dev/shm/n'))
    const made = await from(await take(sandbox, defer), defer)
    assert.ok((await made.commands.list()).some((entry) => entry.pid === counter.pid), 'the same process under the same pid')
    const read = async (one) => Number(await one.files.read('/dev/shm/n'))
    const first = await until('a number', () => read(made))
    assert.ok(first > 1000, `${first}`)
    await until('the copy to count', async () => (await read(made)) > first)
    // Its end is its own.
    await made.commands.kill(counter.pid)
    const own = await read(sandbox)
    await until('the source to count', async () => (await read(sandbox)) > own)
  })
})

describe('snapshots/list', parallel, () => {
  row('snapshots/list: all', { limitMs }, async ({ sandbox, defer }) => {
    const snapshot = await take(sandbox, defer)
    // Newest first: the first page has it.
    assert.ok(ids(await Sandbox.listSnapshots().nextItems()).includes(snapshot.snapshotId))
  })

  row('snapshots/list: of one sandbox', { limitMs, create: { timeoutMs: 120_000 } }, async ({ sandbox, defer }) => {
    const first = await take(sandbox, defer)
    const second = await take(sandbox, defer)
    assert.deepEqual(ids(await all(sandbox.listSnapshots())), [second.snapshotId, first.snapshotId])
    assert.deepEqual(ids(await all(Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId }))), [second.snapshotId, first.snapshotId])
    // In pages of one.
    const pages = sandbox.listSnapshots({ limit: 1 })
    assert.deepEqual(ids(await pages.nextItems()), [second.snapshotId])
    assert.ok(pages.hasNext && pages.nextToken)
    assert.deepEqual(ids(await pages.nextItems()), [first.snapshotId])
    assert.equal(pages.hasNext, false)
  })

  row('snapshots/list: by name', { limitMs }, async ({ sandbox, defer }) => {
    const name = unique('listed')
    const snapshot = await take(sandbox, defer, { name })
    await take(sandbox, defer)
    assert.deepEqual(ids(await all(Sandbox.listSnapshots({ name }))), [snapshot.snapshotId])
    assert.deepEqual(await all(Sandbox.listSnapshots({ name: unique('unknown') })), [])
  })
})

describe('snapshots/delete', parallel, () => {
  row('snapshots/delete: once and again', { limitMs }, async ({ sandbox }) => {
    const { snapshotId } = await sandbox.createSnapshot()
    assert.equal(await Sandbox.deleteSnapshot(snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(snapshotId), false)
    assert.deepEqual(await all(sandbox.listSnapshots()), [])
    await assert.rejects(Sandbox.create(snapshotId), SandboxError)
  })

  row('snapshots/delete: not under a sandbox made from it', { limitMs }, async ({ sandbox, defer }) => {
    const snapshot = await take(sandbox, defer)
    const made = await from(snapshot, defer)
    await assert.rejects(Sandbox.deleteSnapshot(snapshot.snapshotId), SandboxError)
    await made.pause()
    await assert.rejects(Sandbox.deleteSnapshot(snapshot.snapshotId), SandboxError)
    await made.kill()
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
    assert.equal(await sandbox.isRunning(), true)
  })
})

describe('snapshots/fork', parallel, () => {
  const fork = async (sandbox, defer, options) => {
    const forks = await sandbox.fork(options)
    for (const one of forks) {
      assert.ok(one instanceof Sandbox, `${one}`)
      defer(() => one.kill())
    }
    return forks
  }

  row('snapshots/fork: one', { limitMs, create: { metadata: { kind: 'parent' }, envs: { KEPT: 'yes' } } }, async ({ sandbox, defer }) => {
    await sandbox.files.write('mark.txt', 'of the parent')
    const sleeper = await start(sandbox, 'sleep 3600')
    const { endAt } = await sandbox.getInfo()
    const [copy, ...more] = await fork(sandbox, defer)
    assert.deepEqual(more, [])
    assert.notEqual(copy.sandboxId, sandbox.sandboxId)
    assert.deepEqual([await sandbox.isRunning(), await copy.isRunning()], [true, true])
    assert.equal(await copy.files.read('mark.txt'), 'of the parent')
    assert.equal(await line(copy, 'echo $KEPT'), 'yes')
    assert.ok((await copy.commands.list()).some((entry) => entry.pid === sleeper.pid))
    // Each has its own files from now on.
    await copy.files.write('mark.txt', 'of the fork')
    await sandbox.files.write('later.txt', 'only here')
    assert.equal(await sandbox.files.read('mark.txt'), 'of the parent')
    assert.equal(await copy.files.exists('later.txt'), false)
    const [parent, child] = [await sandbox.getInfo(), await copy.getInfo()]
    assert.equal(parent.endAt.getTime(), endAt.getTime())
    assert.deepEqual([{ ...child.metadata }, child.templateId], [{ kind: 'parent' }, parent.templateId])
    await copy.kill()
    assert.equal(await line(sandbox, 'echo undisturbed'), 'undisturbed')
  })

  row('snapshots/fork: several', { limitMs }, async ({ sandbox, defer }) => {
    await sandbox.files.write('mark.txt', 'shared')
    const forks = await fork(sandbox, defer, { count: 2, timeoutMs: 90_000 })
    assert.equal(new Set([sandbox, ...forks].map((one) => one.sandboxId)).size, 3)
    await Promise.all(forks.map(async (one, number) => {
      assert.equal(await one.files.read('mark.txt'), 'shared')
      await one.files.write('mark.txt', `fork ${number}`)
      assert.ok((await one.getInfo()).endAt - Date.now() < 91_000)
    }))
    assert.equal(await forks[0].files.read('mark.txt'), 'fork 0')
    assert.equal(await sandbox.files.read('mark.txt'), 'shared')
  })

  row('snapshots/fork: by id', { limitMs }, async ({ sandbox, defer }) => {
    const [copy] = await Sandbox.fork(sandbox.sandboxId)
    assert.ok(copy instanceof Sandbox, `${copy}`)
    defer(() => copy.kill())
    assert.equal(await copy.isRunning(), true)
  })

  row('snapshots/fork: of a killed sandbox', {}, async ({ sandbox }) => {
    await sandbox.kill()
    await assert.rejects(sandbox.fork(), SandboxNotFoundError)
    await assert.rejects(Sandbox.fork(sandbox.sandboxId), SandboxNotFoundError)
  })

  row('snapshots/fork: of a paused sandbox', { limitMs }, async ({ sandbox }) => {
    await sandbox.pause()
    await assert.rejects(sandbox.fork(), /paused/)
    await sandbox.connect()
    assert.equal(await line(sandbox, 'echo well'), 'well')
  })

  row('snapshots/fork: counts that make no sense', {}, async ({ sandbox }) => {
    await assert.rejects(sandbox.fork({ count: 0 }), Error)
    await assert.rejects(sandbox.fork({ count: 101 }), (error) => error instanceof SandboxError || error instanceof InvalidArgumentError)
    assert.equal(await line(sandbox, 'echo well'), 'well')
  })
})
