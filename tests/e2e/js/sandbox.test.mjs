import { describe } from 'node:test'
import { InvalidArgumentError, Sandbox, SandboxError, SandboxNotFoundError } from 'e2b'
import { assert, parallel, route, row, sleep, unique, until, visit } from './support.mjs'

async function all(paginator) {
  const found = []
  while (paginator.hasNext) found.push(...(await paginator.nextItems()))
  return found
}

const running = (tag) => Sandbox.list({ query: { metadata: { tag }, state: ['running'] } })

async function create(defer, options) {
  const sandbox = await Sandbox.create('base', options)
  defer(() => sandbox.kill())
  return sandbox
}

describe('sandbox/create', parallel, () => {
  row('sandbox/create: create is running', { create: { timeoutMs: 5_000 } }, async ({ sandbox }) => {
    assert.equal(await sandbox.isRunning(), true)
    assert.match(sandbox.sandboxId, /^[a-z0-9]+$/)
    const info = await sandbox.getInfo()
    assert.match(info.envdVersion, /^\d+\.\d+\.\d+$/)
  })

  row('sandbox/create: metadata is listed', { sandbox: false }, async ({ defer }) => {
    const metadata = { tag: unique('meta'), 'test-key': 'test value & more = ü' }
    const sandbox = await create(defer, { timeoutMs: 30_000, metadata })
    const found = (await all(Sandbox.list())).find((entry) => entry.sandboxId === sandbox.sandboxId)
    assert.deepEqual(found?.metadata, metadata)
  })

  row('sandbox/create: MCP gateway failure kills the sandbox', { sandbox: false }, async () => {
    const tag = unique('mcp')
    await assert.rejects(
      Sandbox.create('base', { mcp: { context7: {} }, metadata: { tag }, timeoutMs: 30_000 }),
      (error) => {
        assert.ok(error instanceof SandboxError)
        assert.match(error.message, /Failed to start MCP gateway/)
        return true
      })
    assert.deepEqual(await all(running(tag)), [])
  })
})

describe('sandbox/lifecycle', () => {
  row('sandbox/lifecycle: invalid combinations are refused by the client', { sandbox: false }, async () => {
    const refused = [
      { onTimeout: { action: 'kill', keepMemory: false } },
      { onTimeout: 'kill', autoResume: true },
      { onTimeout: { action: 'pause', keepMemory: false }, autoResume: true },
    ]
    for (const lifecycle of refused) {
      await assert.rejects(Sandbox.create('base', { lifecycle }), InvalidArgumentError)
    }
  })
})

describe('sandbox/connect', parallel, () => {
  row('sandbox/connect: connect to running', {}, async ({ sandbox }) => {
    const same = await Sandbox.connect(sandbox.sandboxId)
    assert.equal(same.sandboxId, sandbox.sandboxId)
    assert.equal(await same.isRunning(), true)
    assert.equal((await same.commands.run('echo same')).stdout, 'same\n')
  })

  row('sandbox/connect: connect to secured', {}, async ({ sandbox }) => {
    const same = await Sandbox.connect(sandbox.sandboxId)
    await same.files.write('hello.txt', 'written by the second handle')
    assert.equal(await sandbox.files.read('hello.txt'), 'written by the second handle')
  })

  row('sandbox/connect: connect to killed', {}, async ({ sandbox }) => {
    await sandbox.kill()
    await assert.rejects(Sandbox.connect(sandbox.sandboxId), SandboxNotFoundError)
    assert.equal(await sandbox.isRunning(), false)
  })

  row('sandbox/connect: never shortens the timeout', { create: { timeoutMs: 300_000 } }, async ({ sandbox }) => {
    const before = (await sandbox.getInfo()).endAt
    await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 10_000 })
    assert.equal((await sandbox.getInfo()).endAt.getTime(), before.getTime())
  })

  row('sandbox/connect: extends the timeout', { create: { timeoutMs: 100_000 } }, async ({ sandbox }) => {
    const before = (await sandbox.getInfo()).endAt
    await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 600_000 })
    assert.ok((await sandbox.getInfo()).endAt > before)
  })
})

describe('sandbox/kill', parallel, () => {
  row('sandbox/kill: kill and not listed', { sandbox: false }, async ({ defer }) => {
    const tag = unique('kill')
    const sandbox = await create(defer, { metadata: { tag } })
    assert.equal((await all(running(tag))).length, 1)
    assert.equal(await sandbox.kill(), true)
    assert.deepEqual(await all(running(tag)), [])
    assert.equal(await sandbox.isRunning(), false)
    await assert.rejects(sandbox.getInfo(), SandboxNotFoundError)
  })

  row('sandbox/kill: kill by id', { sandbox: false }, async ({ defer }) => {
    const tag = unique('kill')
    const sandbox = await create(defer, { metadata: { tag } })
    assert.equal(await Sandbox.kill(sandbox.sandboxId), true)
    assert.deepEqual(await all(running(tag)), [])
    assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
  })

  row('sandbox/kill: kill non-existing sandbox', { sandbox: false }, async () => {
    assert.equal(await Sandbox.kill('nonexistingsandbox'), false)
  })
})

describe('sandbox/timeout', parallel, () => {
  row('sandbox/timeout: shorten timeout', {}, async ({ sandbox }) => {
    await sandbox.setTimeout(5_000)
    assert.equal(await sandbox.isRunning(), true)
    await sleep(6_000)
    assert.equal(await sandbox.isRunning(), false)
  })

  row('sandbox/timeout: shorten then lengthen timeout', {}, async ({ sandbox }) => {
    await sandbox.setTimeout(5_000)
    await sleep(1_000)
    await sandbox.setTimeout(10_000)
    await sleep(6_000)
    assert.equal(await sandbox.isRunning(), true)
  })

  row('sandbox/timeout: end time is readable', { create: { timeoutMs: 120_000 } }, async ({ sandbox }) => {
    const { startedAt, endAt } = await sandbox.getInfo()
    assert.ok(endAt instanceof Date)
    assert.ok(Math.abs(endAt - startedAt - 120_000) < 5_000, `${startedAt} ${endAt}`)
  })
})

describe('sandbox/secure', () => {
  row('sandbox/secure: signed download without expiry', {}, async ({ sandbox }) => {
    await sandbox.files.write('hello.txt', 'hello world')
    const response = await fetch(await sandbox.downloadUrl('hello.txt'), { headers: route(sandbox) })
    assert.equal(response.status, 200)
    assert.equal(await response.text(), 'hello world')
  })
})

describe('sandbox/host', parallel, () => {
  row('sandbox/host: ping server in a running sandbox', {}, async ({ sandbox }) => {
    await sandbox.files.write('www/index.html', 'served from inside')
    await sandbox.commands.run('cd www && python -m http.server 8000', { background: true, timeoutMs: 0 })
    const answers = []
    await until('the server', async () => {
      const response = await visit(sandbox, 8000)
      answers.push(response.status)
      return response.status === 200 && (await response.text()) === 'served from inside'
    })
    assert.ok(answers.every((status) => status === 200 || status === 502), `${answers}`)
  })

  row('sandbox/host: request to a killed sandbox', {}, async ({ sandbox }) => {
    await sandbox.kill()
    const response = await visit(sandbox, 3000)
    assert.equal(response.status, 502)
    const body = await response.json()
    assert.equal(body.message, 'The sandbox was not found')
    assert.equal(body.code, 502)
    assert.ok(sandbox.sandboxId.startsWith(body.sandboxId))
  })

  row('sandbox/host: request to a closed port', {}, async ({ sandbox }) => {
    const response = await visit(sandbox, 3000)
    assert.equal(response.status, 502)
    const body = await response.json()
    assert.equal(body.message, 'The sandbox is running but port is not open')
    assert.deepEqual([body.port, body.code], [3000, 502])
  })
})

describe('sandbox/info', () => {
  row('sandbox/info: get info', { create: { metadata: { tag: 'info' } } }, async ({ sandbox }) => {
    const info = await Sandbox.getInfo(sandbox.sandboxId)
    assert.equal(info.sandboxId, sandbox.sandboxId)
    assert.equal(info.state, 'running')
    assert.equal(info.name, 'base')
    assert.deepEqual(info.metadata, { tag: 'info' })
    assert.ok(info.cpuCount >= 1 && info.memoryMB >= 128)
    assert.ok(info.startedAt < info.endAt)
    await assert.rejects(Sandbox.getInfo('nonexistingsandbox'), SandboxNotFoundError)
  })
})

describe('sandbox/list', parallel, () => {
  row('sandbox/list: filter by metadata', { sandbox: false }, async ({ defer }) => {
    const tag = unique('list & filter = yes')
    const sandbox = await create(defer, { metadata: { tag, other: 'x' } })
    await create(defer, { metadata: { tag: unique('someone-else') } })
    const found = await all(Sandbox.list({ query: { metadata: { tag } } }))
    assert.deepEqual(found.map((entry) => entry.sandboxId), [sandbox.sandboxId])
    assert.deepEqual(await all(Sandbox.list({ query: { metadata: { tag, other: 'y' } } })), [])
  })

  row('sandbox/list: running sandboxes', { sandbox: false }, async ({ defer }) => {
    const tag = unique('list')
    const sandbox = await create(defer, { metadata: { tag } })
    const found = await all(running(tag))
    assert.deepEqual(found.map((entry) => [entry.sandboxId, entry.state]), [[sandbox.sandboxId, 'running']])
    assert.deepEqual(await all(Sandbox.list({ query: { metadata: { tag }, state: ['paused'] } })), [])
  })

  row('sandbox/list: paginate running sandboxes', { sandbox: false }, async ({ defer }) => {
    const tag = unique('page')
    const older = await create(defer, { metadata: { tag } })
    const newer = await create(defer, { metadata: { tag } })
    const pages = Sandbox.list({ limit: 1, query: { metadata: { tag }, state: ['running'] } })
    const first = await pages.nextItems()
    assert.deepEqual(first.map((entry) => entry.sandboxId), [newer.sandboxId])
    assert.equal(pages.hasNext, true)
    assert.ok(pages.nextToken)
    const second = await pages.nextItems()
    assert.deepEqual(second.map((entry) => entry.sandboxId), [older.sandboxId])
    assert.equal(pages.hasNext, false)
    assert.equal(pages.nextToken, undefined)
  })

  row('sandbox/list: paginate to the end', { sandbox: false }, async ({ defer }) => {
    const tag = unique('page')
    const made = [await create(defer, { metadata: { tag } }), await create(defer, { metadata: { tag } })]
    const pages = Sandbox.list({ limit: 1, query: { metadata: { tag } } })
    const found = []
    await until('the last page', async () => {
      found.push(...(await pages.nextItems()))
      return !pages.hasNext
    })
    assert.deepEqual(found.map((entry) => entry.sandboxId).sort(), made.map((entry) => entry.sandboxId).sort())
  })

  row('sandbox/list: order', { sandbox: false }, async ({ defer }) => {
    const tag = unique('order')
    const older = await create(defer, { metadata: { tag } })
    const newer = await create(defer, { metadata: { tag } })
    const ids = async (order) => (await all(Sandbox.list({ order, query: { metadata: { tag } } }))).map((s) => s.sandboxId)
    assert.deepEqual(await ids('asc'), [older.sandboxId, newer.sandboxId])
    assert.deepEqual(await ids('desc'), [newer.sandboxId, older.sandboxId])
  })

  row('sandbox/list: started after', { sandbox: false }, async ({ defer }) => {
    const tag = unique('after')
    const sandbox = await create(defer, { metadata: { tag } })
    const { startedAt } = await sandbox.getInfo()
    const after = (when) => all(Sandbox.list({ query: { metadata: { tag }, startedAfter: when } }))
    assert.equal((await after(startedAt)).length, 1)
    assert.equal((await after(new Date(startedAt.getTime() + 1000))).length, 0)
  })

  row('sandbox/list: template filter', { sandbox: false }, async ({ defer }) => {
    const tag = unique('template')
    const sandbox = await create(defer, { metadata: { tag } })
    const { templateId } = await sandbox.getInfo()
    const from = (template) => all(Sandbox.list({ query: { metadata: { tag }, template } }))
    assert.equal((await from(templateId)).length, 1)
    assert.equal((await from('base')).length, 1)
    assert.equal((await from('unknown-template')).length, 0)
  })
})
