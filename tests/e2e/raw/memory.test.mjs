// Memory in files: tiers, ends and traffic, and all that may happen at the same time, by plain requests.
import fs from 'node:fs'
import path from 'node:path'
import { describe, test } from 'node:test'
import { api, assert, limited, Raw, request, Sandbox, sleep, until, urlOf, withSandbox } from './support.mjs'
import { home } from './machine.mjs'
import { fill, HOLDER, info, pause, processesOf, remove, resume, tier, whole } from './memory.mjs'
import { withInterpreter } from './kernel.mjs'
import { withServer } from './own-server.mjs'

const parallel = { concurrency: 3 }
const one = { seconds: 60 }

const state = async (sandbox) => (await info(sandbox)).state
const paused = (sandbox) => until(`the pause of ${sandbox.id}`, async () => (await state(sandbox)) === 'paused', 30_000)
// A sandbox that is being dumped is called paused already.
const dumped = (sandbox) => until(`the dump of ${sandbox.id}`, async () => (await tier(sandbox)) === 'dumped', 30_000)

const directory = (sandbox) => {
  const root = path.join(home, 'sandboxes')
  return fs.readdirSync(root).map((instance) => path.join(root, instance, sandbox.id)).find((place) => fs.existsSync(place))
}

describe('memory/tiers', parallel, () => {
  withSandbox('memory/tiers: info and list name the tier', async (sandbox) => {
    const listed = async () => (await api('GET', '/v2/sandboxes?limit=100')).json.find((entry) => entry.sandboxID === sandbox.id)?.memoryTier
    assert.deepEqual([await tier(sandbox), await listed()], ['running', 'running'])
    const digest = await fill(sandbox)
    assert.equal(await pause(sandbox), '')
    assert.equal(await listed(), 'dumped')
    await resume(sandbox)
    await whole(sandbox, digest)
    assert.equal((await sandbox.api('POST', '/pause', { memory: false })).status, 204)
    assert.deepEqual([await tier(sandbox), await listed()], ['disk', 'disk'])
    assert.equal((await sandbox.api('POST', '/connect', { timeout: 60 })).status, 201)
    assert.equal(await tier(sandbox), 'running')
  }, one)

  withSandbox('memory/tiers: a dumped sandbox has no process, and its files are private', async (sandbox) => {
    await fill(sandbox)
    assert.ok(processesOf(sandbox).length > 1)
    await pause(sandbox)
    assert.deepEqual(processesOf(sandbox), [])
    const place = path.join(directory(sandbox), 'memory')
    assert.equal(fs.statSync(place).mode & 0o777, 0o700)
    assert.ok(fs.existsSync(path.join(place, 'manifest.json')))
    const mounts = fs.readFileSync('/proc/self/mountinfo', 'utf8')
    assert.ok(!mounts.includes(sandbox.id), 'no mount of it')
    await resume(sandbox)
    assert.ok(!fs.existsSync(place), 'memory is used once')
  }, one)

  withSandbox('memory/tiers: memory that is damaged is refused and the disk still boots', async (sandbox) => {
    await sandbox.upload('/home/user/kept.txt', 'on disk')
    await fill(sandbox)
    await pause(sandbox)
    const images = path.join(directory(sandbox), 'memory', 'images')
    const pages = fs.readdirSync(images).find((name) => name.startsWith('pages-'))
    fs.truncateSync(path.join(images, pages), 4096)
    const refused = await sandbox.api('POST', '/connect', { timeout: 60 })
    assert.ok(refused.status >= 400 && refused.json.message, refused.text)
    assert.deepEqual([await state(sandbox), await tier(sandbox)], ['paused', 'dumped'])
    assert.equal((await sandbox.api('POST', '/connect', { timeout: 60 })).status, refused.status)
    const booted = await sandbox.api('POST', '/connect', { timeout: 60, memory: false })
    assert.equal(booted.status, 201, booted.text)
    assert.equal((await sandbox.run('cat kept.txt')).stdout, 'on disk')
  }, one)

  withInterpreter('memory/tiers: a cell under way comes to its end', async (sandbox) => {
    await sandbox.run('import time\ndone = []')
    const run = sandbox.begin('print("in", flush=True)\nfor i in range(30): time.sleep(0.1); done.append(i)')
    await sandbox.printed(run, 'in')
    await pause(sandbox)
    await resume(sandbox)
    assert.equal((await sandbox.run('len(done)')).text, '30')
  }, { seconds: 90 })

  test('memory/tiers: kept frozen for a while, then dumped', limited(150), () => withServer(['--keep-frozen', '10'], async ({ create, call }) => {
    const id = (await create()).json.sandboxID
    const look = async () => (await call('GET', `/sandboxes/${id}`)).json
    const does = async (verb, body = {}) => (await call('POST', `/sandboxes/${id}/${verb}`, body)).status
    assert.equal(await does('pause'), 204)
    assert.deepEqual([(await look()).state, (await look()).memoryTier], ['paused', 'frozen'])
    assert.equal(await does('connect', { timeout: 60 }), 201)
    assert.equal((await look()).memoryTier, 'running')
    assert.equal(await does('pause'), 204)
    assert.equal((await look()).memoryTier, 'frozen')
    await until('the dump', async () => (await look()).memoryTier === 'dumped', 60_000)
    assert.equal(await does('connect', { timeout: 60 }), 201)
    assert.equal((await look()).memoryTier, 'running')
  }))

  test('memory/tiers: the oldest are dumped when frozen ones hold too much', limited(90), () =>
    withServer(['--keep-frozen', '3600', '--max-frozen-memory', '100M'], async ({ call, sdk }) => {
      const made = []
      for (let i = 0; i < 2; i++) {
        const sandbox = await Sandbox.create('base', { ...sdk, timeoutMs: 120_000 })
        const held = await sandbox.commands.run('python3 -c "import os, time; d = os.urandom(60 << 20); open(\'/tmp/up\', \'w\'); time.sleep(600)"', { background: true, timeoutMs: 0 })
        held.wait().catch(() => {})
        await until('its memory', () => sandbox.files.exists('/tmp/up'))
        made.push(sandbox.sandboxId)
      }
      const tierOf = async (id) => (await call('GET', `/sandboxes/${id}`)).json.memoryTier
      for (const id of made) assert.equal((await call('POST', `/sandboxes/${id}/pause`, {})).status, 204)
      await until('the first to be dumped', async () => (await tierOf(made[0])) === 'dumped', 30_000)
      assert.equal(await tierOf(made[1]), 'frozen')
    }))
})

describe('memory/expiry', parallel, () => {
  withSandbox('memory/expiry: pauses into files, connect brings it back', async (sandbox) => {
    const digest = await fill(sandbox)
    for (let cycle = 0; cycle < 2; cycle++) {
      assert.equal((await sandbox.api('POST', '/timeout', { timeout: 0 })).status, 204)
      await dumped(sandbox)
      // It has a new end, and expires again.
      await resume(sandbox)
      await whole(sandbox, digest)
      assert.equal((await sandbox.api('POST', '/timeout', { timeout: 1 })).status, 204)
      await dumped(sandbox)
      await resume(sandbox)
    }
    await whole(sandbox, digest)
  }, { seconds: 60, create: { autoPause: true } })

  withSandbox('memory/expiry: traffic brings it back', async (sandbox) => {
    const digest = await fill(sandbox)
    for (let cycle = 0; cycle < 2; cycle++) {
      assert.equal((await sandbox.api('POST', '/timeout', { timeout: 0 })).status, 204)
      await dumped(sandbox)
      // Many at once wake it once, and all are answered.
      const answers = await Promise.all(Array.from({ length: 10 }, () => request('POST', '/', { base: urlOf(sandbox.id, HOLDER), body: 'out = n[0]' })))
      assert.deepEqual(answers.map(({ status }) => status), Array(10).fill(200))
      assert.equal(await tier(sandbox), 'running')
      await whole(sandbox, digest)
    }
    assert.ok(new Date((await info(sandbox)).endAt) - Date.now() > 290_000)
  }, { seconds: 60, create: { autoPause: true, autoResume: { enabled: true } } })

  withSandbox('memory/expiry: open streams do not bring it back', async (sandbox) => {
    const stream = sandbox.background('n=0; while :; do n=$((n+1)); echo $n > /dev/shm/n; sleep 0.02; done')
    let ended
    stream.ended.then(() => (ended = 'whole'), (error) => (ended = error.code ?? error.message))
    await until('the start', () => stream.messages[0])
    await pause(sandbox)
    await sleep(2_000)
    assert.deepEqual([await state(sandbox), ended], ['paused', undefined])
    // It wakes by traffic; then the old stream is broken, for its process has another by now.
    const number = async () => Number((await sandbox.run('cat /dev/shm/n')).stdout)
    const before = await number()
    assert.equal(await state(sandbox), 'running')
    await until('the stream to break', () => ended)
    assert.notEqual(ended, 'whole')
    await until('the process to go on', async () => (await number()) > before)
  }, { seconds: 60, create: { autoPause: true, autoResume: { enabled: true } } })

  withSandbox('memory/expiry: without auto-resume streams break at the pause', async (sandbox) => {
    const stream = sandbox.background('sleep 600')
    await until('the start', () => stream.messages[0])
    await pause(sandbox)
    await assert.rejects(stream.ended)
    assert.equal((await sandbox.request('GET', '/health')).status, 502)
    await resume(sandbox)
  }, one)
})

// What else happens at the same time, a little later each round.
const delays = [0, 10, 40, 90, 160, 250]
async function race(first, second, delay) {
  const going = first()
  await sleep(delay)
  const [a, b] = await Promise.all([going, second()])
  return [a.status, b.status]
}
const among = (status, allowed, what) => assert.ok(allowed.includes(status), `${what}: ${status}`)

describe('memory/races', parallel, () => {
  withSandbox('memory/races: a request while it pauses', async (sandbox) => {
    const digest = await fill(sandbox)
    for (const delay of delays) {
      const [first, second] = await race(() => sandbox.api('POST', '/pause', {}),
        () => request('POST', '/', { base: urlOf(sandbox.id, HOLDER), body: 'out = 1' }), delay)
      among(first, [204, 409], `pause, request ${delay} ms later`)
      assert.equal(second, 200, `the request ${delay} ms after the pause`)
      // A request that overtook the pause leaves it paused: the next one wakes it.
      await whole(sandbox, digest)
    }
  }, { seconds: 90, create: { autoPause: true, autoResume: { enabled: true } } })

  withSandbox('memory/races: connect while it pauses', async (sandbox) => {
    const digest = await fill(sandbox)
    for (const delay of delays) {
      const [first, second] = await race(() => sandbox.api('POST', '/pause', {}), () => sandbox.api('POST', '/connect', { timeout: 120 }), delay)
      among(first, [204, 409], `pause, connect ${delay} ms later`)
      among(second, [200, 201], `connect ${delay} ms after the pause`)
      if ((await state(sandbox)) === 'paused') await resume(sandbox)
      assert.equal(await tier(sandbox), 'running')
      await whole(sandbox, digest)
    }
  }, { seconds: 90 })

  withSandbox('memory/races: connects at the same time', async (sandbox) => {
    const digest = await fill(sandbox)
    await pause(sandbox)
    const answers = await Promise.all(Array.from({ length: 10 }, () => sandbox.api('POST', '/connect', { timeout: 120 })))
    for (const answer of answers) among(answer.status, [200, 201], answer.text)
    assert.ok(answers.some(({ status }) => status === 201))
    assert.deepEqual(new Set(answers.map(({ json }) => json.envdAccessToken)), new Set([sandbox.token]))
    await whole(sandbox, digest)
    // There is one of it. The brackets keep the shell that asks from being found.
    assert.equal((await sandbox.run(`pgrep -c -f '[s]erve-${HOLDER}'`)).stdout, '1\n')
  }, one)

  withSandbox('memory/races: pause while it resumes', async (sandbox) => {
    const digest = await fill(sandbox)
    for (const delay of delays) {
      if ((await state(sandbox)) !== 'paused') await pause(sandbox)
      const [first, second] = await race(() => sandbox.api('POST', '/connect', { timeout: 120 }), () => sandbox.api('POST', '/pause', {}), delay)
      among(first, [200, 201], `connect, pause ${delay} ms later`)
      among(second, [204, 404, 409], `pause ${delay} ms after the connect`)
      if ((await state(sandbox)) === 'paused') await resume(sandbox)
      await whole(sandbox, digest)
    }
  }, { seconds: 90 })

  withSandbox('memory/races: an end that comes while it resumes', async (sandbox) => {
    const digest = await fill(sandbox)
    for (const delay of delays) {
      if ((await state(sandbox)) !== 'paused') await pause(sandbox)
      const [first, second] = await race(() => sandbox.api('POST', '/connect', { timeout: 120 }), () => sandbox.api('POST', '/timeout', { timeout: 0 }), delay)
      among(first, [200, 201], `connect, timeout ${delay} ms later`)
      among(second, [204, 404, 409], `timeout ${delay} ms after the connect`)
      // An end that was accepted comes; it is a pause.
      if (second === 204) await paused(sandbox)
      if ((await state(sandbox)) === 'paused') await resume(sandbox)
      await whole(sandbox, digest)
    }
  }, { seconds: 90, create: { autoPause: true } })

  test('memory/races: kill while it pauses or resumes', limited(120), async () => {
    for (const delay of delays) {
      for (const verb of ['pause', 'connect']) {
        const sandbox = await Raw.create()
        if (verb === 'connect') await pause(sandbox)
        const place = directory(sandbox)
        assert.ok(place, 'its directory')
        const [first, second] = await race(() => sandbox.api('POST', `/${verb}`, { timeout: 60 }), () => sandbox.kill(), delay)
        const what = `kill ${delay} ms after ${verb}`
        among(first, [200, 201, 204, 404, 409, 410, 500, 503], what)
        assert.equal(second, 204, what)
        assert.equal((await sandbox.api('GET')).status, 404, what)
        await until(`the end of all that was left: ${what}`, () => processesOf(sandbox).length === 0 && !fs.existsSync(place))
      }
    }
  })

  withSandbox('memory/races: snapshot, pause and connect at once', async (sandbox) => {
    const digest = await fill(sandbox)
    for (const delay of delays.slice(0, 4)) {
      const taking = sandbox.api('POST', '/snapshots', {})
      await sleep(delay)
      const [taken, stopped] = await Promise.all([taking, sandbox.api('POST', '/pause', {})])
      among(taken.status, [201, 404, 409], `snapshot, pause ${delay} ms later`)
      among(stopped.status, [204, 409], `pause ${delay} ms after the snapshot`)
      if ((await state(sandbox)) === 'paused') await resume(sandbox)
      await whole(sandbox, digest)
      if (taken.status === 201) assert.equal((await remove(taken.json.snapshotID)).status, 204)
    }
  }, { seconds: 90 })
})
