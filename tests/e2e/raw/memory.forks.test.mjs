// Snapshots, forks and rollback by plain requests and by atoll's own command line.
import { execFile, execFileSync } from 'node:child_process'
import fs from 'node:fs'
import { describe, test } from 'node:test'
import { api, assert, limited, Raw, request, unique, until, withSandbox } from './support.mjs'
import { fill, fork, hold, info, pause, processesOf, remove, resume, snapshot, tell, tier, whole } from './memory.mjs'
import { Interpreter, withInterpreter } from './kernel.mjs'

const parallel = { concurrency: 2 }
const one = { seconds: 60 }
const line = async (sandbox, command, user) => (await sandbox.run(command, user)).stdout.trim()
const ends = (sandboxes) => Promise.all(sandboxes.map((sandbox) => sandbox.kill()))
const create = (templateID, Kind = Raw, more = {}) => Kind.create({ templateID, ...more })
const refused = (answer, status, message = /./) => {
  assert.equal(answer.status, status, answer.text)
  assert.equal(answer.json.code, status)
  assert.match(answer.json.message, message)
}

async function cell(sandbox, code) {
  const { error, text } = await sandbox.run(code)
  assert.equal(error, undefined, error?.traceback)
  return text
}

describe('memory/fork', parallel, () => {
  withInterpreter('memory/fork: a data frame ten ways', async (sandbox) => {
    await cell(sandbox, `
import random, ssl, uuid, hashlib, numpy as np, pandas as pd
frame = pd.DataFrame(np.random.rand(100_000, 4), columns=list("abcd"))
def digest(): return hashlib.sha256(pd.util.hash_pandas_object(frame).values.tobytes()).hexdigest()
ssl.RAND_bytes(8); random.seed(42); np.random.seed(42)
def chance(): return [random.random(), float(np.random.rand()), int(np.random.default_rng().integers(1 << 60)), ssl.RAND_bytes(8).hex(), uuid.uuid4().hex]`)
    const digest = await cell(sandbox, 'digest()')
    const { endAt } = await info(sandbox)
    const forks = await fork(sandbox, 10, Interpreter)
    try {
      assert.equal(new Set([sandbox, ...forks].map(({ id }) => id)).size, 11)
      const chances = []
      for (const [number, copy] of forks.entries()) {
        assert.equal(await cell(copy, 'digest()'), digest)
        chances.push(await cell(copy, 'chance()'))
        await cell(copy, `frame["e"] = ${number}; frame.loc[0, "a"] = ${number}`)
      }
      // Nobody sees what the others did.
      for (const [number, copy] of forks.entries()) {
        assert.equal(await cell(copy, 'list(frame.columns), int(frame.e.sum()), float(frame.a[0])'), `(['a', 'b', 'c', 'd', 'e'], ${number * 100_000}, ${number}.0)`)
      }
      // Every source of chance differs from fork to fork.
      const values = chances.map((text) => JSON.parse(text.replaceAll("'", '"')))
      for (const [source, name] of ['random', 'numpy.random', 'numpy default_rng', 'ssl', 'uuid'].entries()) {
        assert.equal(new Set(values.map((value) => value[source])).size, 10, `${name}: ${values.map((value) => value[source])}`)
      }
      // The parent: its frame, its sequence of chance, its count, its end.
      assert.equal(await cell(sandbox, 'digest()'), digest)
      assert.equal(await cell(sandbox, 'list(frame.columns)'), "['a', 'b', 'c', 'd']")
      assert.equal(await cell(sandbox, 'chance()[:2] == [random.Random(42).random(), float(np.random.RandomState(42).rand())]'), 'True')
      assert.equal((await sandbox.run('1')).count, 6)
      assert.equal((await info(sandbox)).endAt, endAt)
    } finally {
      await ends(forks)
    }
  }, { seconds: 120, create: { timeout: 300 } })

  withSandbox('memory/fork: each has an identity of its own', async (sandbox) => {
    const look = (each) => line(each, 'echo $E2B_SANDBOX_ID')
    const network = (each) => fs.readlinkSync(`/proc/${processesOf(each)[0]}/ns/net`)
    const digest = await fill(sandbox)
    const forks = await fork(sandbox, 2)
    try {
      const all = [sandbox, ...forks]
      assert.deepEqual(await Promise.all(all.map(look)), all.map(({ id }) => id))
      assert.equal(new Set(all.map(network)).size, 3, 'a network each')
      const names = await Promise.all(all.map((each) => line(each, 'hostname; cat /etc/hostname; grep -c "$(hostname)" /etc/hosts')))
      assert.equal(new Set(names).size, 3, `host names: ${names}`)
      assert.equal(new Set(all.map(({ token }) => token)).size, 3)
      // A token opens one sandbox.
      const strange = await forks[0].request('GET', '/files?path=/etc/hostname', { headers: { 'X-Access-Token': sandbox.token } })
      assert.equal(strange.status, 401, strange.text)
      for (const each of all) await whole(each, digest)
      // They reach the internet, each by an address of its own, and are paused and resumed like any other.
      assert.deepEqual(await Promise.all(all.map((each) => line(each, 'curl -s -o /dev/null -w "%{http_code}" --max-time 10 http://203.0.113.22/'))), ['200', '200', '200'])
      await pause(forks[0])
      await resume(forks[0])
      await whole(forks[0], digest)
      // A fork of a fork.
      const [grandchild] = await fork(forks[0])
      forks.push(grandchild)
      await whole(grandchild, digest)
    } finally {
      await ends(forks)
    }
  }, { seconds: 90 })

  withSandbox('memory/fork: hooks run in forks and after resumes', async (sandbox) => {
    await sandbox.upload('/tmp/hooks.sh', `
for kind in after-fork after-resume; do
  mkdir -p /etc/atoll/$kind.d
  printf '#!/bin/sh\necho "%s $ATOLL_SANDBOX_ID $(printf %%s "$ATOLL_SEED" | wc -c) $(id -u)" >> /var/tmp/hooks\n' $kind > /etc/atoll/$kind.d/10-mine
  printf '#!/bin/sh\nexit 1\n' > /etc/atoll/$kind.d/20-fails
  # Not root's: not run.
  printf '#!/bin/sh\necho not mine >> /var/tmp/hooks\n' > /etc/atoll/$kind.d/30-strange
  chmod 755 /etc/atoll/$kind.d/*; chown user /etc/atoll/$kind.d/30-strange
done`)
    assert.equal((await sandbox.run('bash -e /tmp/hooks.sh', 'root')).end.status, 'exit status 0')
    const ran = async (each) => (await line(each, 'cat /var/tmp/hooks 2>/dev/null || true')).split('\n').filter(Boolean)
    const [copy] = await fork(sandbox)
    try {
      const [mine, ...more] = await ran(copy)
      assert.match(mine, new RegExp(`^after-fork ${copy.id} [1-9]\\d* 0$`))
      assert.deepEqual(more, [])
      assert.deepEqual(await ran(sandbox), [])
      await pause(sandbox)
      await resume(sandbox)
      const [own, ...rest] = await ran(sandbox)
      assert.match(own, new RegExp(`^after-resume ${sandbox.id} \\d+ 0$`))
      assert.deepEqual(rest, [])
    } finally {
      await copy.kill()
    }
  }, one)

  withSandbox('memory/fork: statuses', async (sandbox) => {
    for (const body of [{ count: 0 }, { count: 101 }, { count: 'two' }, { timeout: -1 }]) refused(await sandbox.api('POST', '/fork', body), 400)
    refused(await api('POST', '/sandboxes/nonexistingsandbox/fork', {}), 404)
    await pause(sandbox)
    refused(await sandbox.api('POST', '/fork', {}), 409, /paused/)
    await resume(sandbox)
    // Nothing was told: one fork with a short life.
    const answer = await sandbox.api('POST', '/fork')
    assert.equal(answer.status, 201, answer.text)
    assert.equal(answer.json.length, 1)
    const copy = new Raw(answer.json[0].sandbox)
    assert.ok(new Date((await info(copy)).endAt) - Date.now() < 16_000)
    await copy.kill()
  }, one)

  withSandbox('memory/fork: of a sandbox that cannot be dumped', async (sandbox) => {
    const told = await hold(sandbox)
    // One that is traced from before the end of its exec stops a second time, when it is let go.
    await told('import ctypes, os, subprocess\nlibc = ctypes.CDLL(None)\nchild = subprocess.Popen(["sh", "-c", "echo; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\nassert child.stdout.readline() == b"\\n"\nassert libc.ptrace(16, child.pid, 0, 0) == 0; os.waitpid(child.pid, 0)')
    const copied = await sandbox.api('POST', '/fork', { count: 2 })
    // One error for all, or one for each.
    if (copied.status === 201) for (const entry of copied.json) assert.match(entry.error.message, /trac/i)
    else assert.match(copied.json.message, /trac/i, copied.text)
    const taken = await sandbox.api('POST', '/snapshots', {})
    assert.ok(taken.status >= 400, taken.text)
    assert.match(taken.json.message, /trac/i)
    // The source goes on; without its tracer it can be copied.
    assert.equal(await told('out = libc.ptrace(17, child.pid, 0, 0)'), 0)
    assert.equal(await tier(sandbox), 'running')
    await ends(await fork(sandbox))
  }, one)
})

describe('memory/snapshots', parallel, () => {
  withSandbox('memory/snapshots: names and tags', async (sandbox) => {
    const name = unique('snap')
    const made = []
    try {
      const first = await snapshot(sandbox, { name })
      made.push(first.snapshotID)
      assert.ok(first.snapshotID.includes(name) && first.names.some((entry) => entry.includes(name)), JSON.stringify(first))
      await sandbox.upload('/home/user/version', 'second')
      const second = await snapshot(sandbox, { name })
      assert.equal(second.snapshotID, first.snapshotID)
      const tagged = await snapshot(sandbox, { name: `${name}:v2` })
      made.push(tagged.snapshotID)
      assert.match(tagged.snapshotID, /:v2$/)
      const unnamed = await snapshot(sandbox)
      made.push(unnamed.snapshotID)
      assert.deepEqual(unnamed.names, [])
      const listed = async (query) => (await api('GET', `/snapshots?${query}`)).json.map((entry) => entry.snapshotID)
      assert.deepEqual(new Set(await listed(`sandboxID=${sandbox.id}`)), new Set(made))
      assert.ok((await listed(`name=${name}`)).includes(first.snapshotID))
      assert.deepEqual(await listed(`name=${name}:v2`), [tagged.snapshotID])
      assert.deepEqual(await listed(`name=${unique('none')}`), [])
      for (const reference of [name, first.snapshotID, `${name}:v2`]) {
        const copy = await create(reference)
        assert.equal(await line(copy, 'cat version'), 'second', reference)
        await copy.kill()
      }
      for (const wrong of ['Not A Name!', `strangers/${name}`, 7]) refused(await sandbox.api('POST', '/snapshots', { name: wrong }), 400)
    } finally {
      for (const id of made) await remove(id)
    }
  }, { seconds: 90 })

  withSandbox('memory/snapshots: the source goes on, and its end does not end them', async (sandbox) => {
    const digest = await fill(sandbox)
    const { endAt } = await info(sandbox)
    const { snapshotID } = await snapshot(sandbox)
    try {
      await whole(sandbox, digest)
      assert.equal((await info(sandbox)).endAt, endAt)
      await sandbox.kill()
      const copy = await create(snapshotID, Raw, { metadata: { mine: 'new' }, timeout: 60 })
      await whole(copy, digest)
      assert.deepEqual((await info(copy)).metadata, { mine: 'new' })
      refused(await remove(snapshotID), 400)
      await pause(copy)
      refused(await remove(snapshotID), 400)
      await resume(copy)
      await whole(copy, digest)
      await copy.kill()
    } finally {
      assert.equal((await remove(snapshotID)).status, 204)
      refused(await remove(snapshotID), 404)
    }
  }, one)

  withSandbox('memory/snapshots: statuses', async (sandbox) => {
    refused(await api('POST', '/sandboxes/nonexistingsandbox/snapshots', {}), 404)
    refused(await sandbox.api('POST', '/snapshots', '{'), 400)
    refused(await api('POST', '/v2/sandboxes', { templateID: `${unique('none')}:default`, timeout: 60 }), 404)
    refused(await remove('base'), 403)
    await pause(sandbox)
    refused(await sandbox.api('POST', '/snapshots', {}), 404)
    await resume(sandbox)
    // Two at once: both, or one is told to wait.
    const answers = await Promise.all([1, 2].map(() => sandbox.api('POST', '/snapshots', {})))
    const codes = answers.map(({ status }) => status)
    assert.ok(codes.includes(201) && codes.every((code) => [201, 409].includes(code)), `${codes}`)
    for (const { status, json } of answers) if (status === 201) assert.equal((await remove(json.snapshotID)).status, 204)
  }, one)

  withSandbox('memory/snapshots: another team sees nothing', async (sandbox) => {
    const { key } = JSON.parse(execFileSync(process.env.ATOLL_E2E_ATOLL,
      ['key', 'create', 'strangers', '--team', unique('strangers'), '--json', '--home', process.env.ATOLL_E2E_HOME], { encoding: 'utf8' }))
    const theirs = (method, path, body) => request(method, path, { headers: { 'X-API-KEY': key, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body) })
    const name = unique('private')
    const { snapshotID } = await snapshot(sandbox, { name })
    try {
      assert.deepEqual((await theirs('GET', '/snapshots')).json, [])
      for (const templateID of [snapshotID, name]) {
        assert.ok([403, 404].includes((await theirs('POST', '/v2/sandboxes', { templateID, timeout: 60 })).status), templateID)
      }
      assert.ok([403, 404].includes((await theirs('DELETE', `/templates/${encodeURIComponent(snapshotID)}`)).status))
      for (const verb of ['snapshots', 'fork', 'rollback']) refused(await theirs('POST', `/sandboxes/${sandbox.id}/${verb}`, { snapshotID }), 404)
    } finally {
      assert.equal((await remove(snapshotID)).status, 204)
    }
  }, one)

  test('memory/snapshots: longer chains than disks have layers', limited(150), async () => {
    const snapshots = []
    let sandbox = await Raw.create({ timeout: 300 })
    try {
      for (let generation = 0; generation < 10; generation++) {
        await sandbox.run(`echo ${generation} > gen${generation}; echo ${generation} > latest; rm -f gen${generation - 2}`)
        if (generation === 0) await fill(sandbox)
        snapshots.push((await snapshot(sandbox)).snapshotID)
        const next = await create(snapshots.at(-1), Raw, { timeout: 300 })
        await sandbox.kill()
        sandbox = next
      }
      assert.equal(await line(sandbox, 'ls gen*; cat latest'), 'gen8\ngen9\n9')
      assert.equal(await tell(sandbox, 'out = len(data)'), 1 << 20)
      // Old ones can still be made anew.
      const early = await create(snapshots[2])
      assert.equal(await line(early, 'ls gen*; cat latest'), 'gen1\ngen2\n2')
      await early.kill()
    } finally {
      await sandbox.kill()
      for (const id of snapshots.reverse()) assert.equal((await remove(id)).status, 204, id)
    }
  })
})

describe('memory/rollback', parallel, () => {
  withSandbox('memory/rollback: puts memory, files and processes back', async (sandbox) => {
    await sandbox.upload('/home/user/file.txt', 'good')
    const digest = await fill(sandbox)
    await tell(sandbox, 'mark = "good"')
    const { snapshotID } = await snapshot(sandbox)
    try {
      for (let time = 0; time < 2; time++) {
        await tell(sandbox, 'mark = "spoilt"; data = b""')
        await sandbox.run('echo spoilt > file.txt; echo new > new.txt; (sleep 5555 > /dev/null 2>&1 &); sync')
        const before = await info(sandbox)
        const answer = await sandbox.api('POST', '/rollback', { snapshotID })
        assert.equal(answer.status, 200, answer.text)
        assert.deepEqual([answer.json.sandboxID, answer.json.envdAccessToken], [sandbox.id, sandbox.token])
        assert.equal(await tell(sandbox, 'out = mark'), 'good')
        await whole(sandbox, digest)
        assert.equal(await line(sandbox, 'cat file.txt; ls new.txt 2>/dev/null; pgrep -f "[s]leep 5555"; echo; echo $E2B_SANDBOX_ID'), `good\n${sandbox.id}`)
        const after = await info(sandbox)
        assert.deepEqual([after.endAt, after.startedAt, after.state, after.metadata], [before.endAt, before.startedAt, 'running', before.metadata])
      }
      // It is an ordinary sandbox still.
      await pause(sandbox)
      await resume(sandbox)
      await whole(sandbox, digest)
      refused(await remove(snapshotID), 400)
    } finally {
      await sandbox.kill()
      assert.equal((await remove(snapshotID)).status, 204)
    }
  }, { seconds: 90 })

  withSandbox('memory/rollback: what is refused changes nothing', async (sandbox) => {
    const digest = await fill(sandbox)
    for (const body of [{}, { snapshotID: 7 }, '{']) refused(await sandbox.api('POST', '/rollback', body), 400)
    refused(await sandbox.api('POST', '/rollback', { snapshotID: `${unique('none')}:default` }), 404)
    refused(await sandbox.api('POST', '/rollback', { snapshotID: 'base' }), 404)
    refused(await api('POST', '/sandboxes/nonexistingsandbox/rollback', { snapshotID: 'base' }), 404)
    await whole(sandbox, digest)
    assert.equal(await tier(sandbox), 'running')
  }, one)

  withInterpreter('memory/rollback: a kernel forgets what it did', async (sandbox) => {
    await cell(sandbox, 'x = [1]')
    const { snapshotID } = await snapshot(sandbox)
    try {
      await cell(sandbox, 'x.append(2); y = 1')
      assert.equal((await sandbox.api('POST', '/rollback', { snapshotID })).status, 200)
      assert.equal(await cell(sandbox, 'x, "y" in globals()'), '([1], False)')
    } finally {
      await sandbox.kill()
      await remove(snapshotID)
    }
  }, { seconds: 90 })
})

describe('memory/cli', parallel, () => {
  const atoll = (...words) => new Promise((resolve, reject) => execFile(process.env.ATOLL_E2E_ATOLL, [...words, '--home', process.env.ATOLL_E2E_HOME], { timeout: 45_000 },
    (error, stdout, stderr) => (error ? reject(new Error(`atoll ${words.join(' ')}: ${error.message}\n${stdout}${stderr}`)) : resolve(stdout.trim()))))

  withSandbox('memory/cli: snapshot, fork and rollback', async (sandbox) => {
    await sandbox.upload('/home/user/file.txt', 'good')
    const name = unique('by-hand')
    const snapshotID = (await atoll('sandbox', 'snapshot', sandbox.id, '--name', name)).split(/\s+/)[0]
    assert.ok(snapshotID.includes(name), snapshotID)
    const forks = []
    try {
      forks.push(...(await atoll('sandbox', 'fork', sandbox.id, '--count', '2')).split('\n').map((text) => new Raw({ sandboxID: text.trim() })))
      assert.equal(forks.length, 2)
      for (const copy of forks) assert.equal(await tier(copy), 'running')
      await sandbox.run('echo spoilt > file.txt')
      await atoll('sandbox', 'rollback', sandbox.id, snapshotID)
      assert.equal(await line(sandbox, 'cat file.txt'), 'good')
      await assert.rejects(atoll('sandbox', 'rollback', sandbox.id, unique('none')), /not found|no such|does not exist|unknown/i)
      await atoll('sandbox', 'pause', sandbox.id)
      assert.match(await atoll('sandbox', 'info', sandbox.id), /dumped/)
      await until('the listing', async () => /dumped|paused/.test(await atoll('sandbox', 'ls')))
      await atoll('sandbox', 'resume', sandbox.id)
    } finally {
      await ends(forks)
      await sandbox.kill()
      assert.equal((await remove(snapshotID)).status, 204)
    }
  }, { seconds: 90 })
})
