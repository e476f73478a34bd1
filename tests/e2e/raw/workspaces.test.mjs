// Workspaces on servers of their own: in a directory, and in a bucket of a real S3 server.
import { execFile, spawnSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { assert, limited, request, sleep, start, until } from './support.mjs'
import { startServer } from './own-server.mjs'
import { S3Server } from './s3-server.mjs'

const GiB = 1 << 30
const light = ['--pool-ready', '0', '--pool-skeletons', '0', '--no-zygotes']
const sha256 = (data) => createHash('sha256').update(data).digest('hex')
const query = (values) => Object.entries(values).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&')

// A pattern without memory: a block, of which each copy begins with its number.
const block = randomBytes(1 << 20)
async function* pattern(bytes, hash) {
  for (let at = 0; at < bytes; at += block.length) {
    const piece = Buffer.from(block.subarray(0, Math.min(block.length, bytes - at)))
    piece.writeUInt32LE(at / block.length)
    hash?.update(piece)
    yield piece
  }
}

class Atoll {
  static async start(options, environment) {
    const atoll = new Atoll()
    atoll.server = await startServer([...light, ...options], environment)
    atoll.environment = environment
    return atoll
  }
  facts() {
    return JSON.parse(fs.readFileSync(path.join(this.server.home, 'state', 'server.json'), 'utf8'))
  }
  call(method, target, content, key) {
    return this.server.call(method, target, content, key)
  }
  // The content of a file, in memory or (async iterable with its length) streamed.
  async put(name, file, body, { length, key = this.server.key } = {}) {
    return request('PUT', `/workspaces/${name}/files?${query({ path: file })}`, {
      base: this.server.base, headers: { 'X-API-KEY': key, ...(length !== undefined && { 'Content-Length': length }) }, body,
    })
  }
  get(name, file, more = {}, key = this.server.key) {
    return request('GET', `/workspaces/${name}/files?${query({ path: file, ...more })}`, { base: this.server.base, headers: { 'X-API-KEY': key } })
  }
  async entries(name, more = {}) {
    const answer = await this.call('GET', `/workspaces/${name}/entries?${query(more)}`)
    assert.equal(answer.status, 200, answer.text)
    return answer.json
  }
  // Kills the server; its supervisor starts the next one.
  async crash() {
    const { pid } = this.facts()
    process.kill(pid, 'SIGKILL')
    await until('the next server', async () => {
      try {
        return this.facts().pid !== pid && (await this.call('GET', '/workspaces')).status === 200
      } catch {
        return false
      }
    }, 30_000)
  }
  async sandbox() {
    const made = await this.call('POST', '/v2/sandboxes', { templateID: 'base', timeout: 600 })
    assert.equal(made.status, 201, made.text)
    const id = made.json.sandboxID
    const headers = { 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': made.json.envdAccessToken }
    const at = (file) => `/files?${query({ path: file })}`
    return {
      id,
      write: async (file, body) => {
        const answer = await request('POST', at(file), { base: this.server.base, headers: { ...headers, 'Content-Type': 'application/octet-stream' }, body })
        assert.equal(answer.status, 200, answer.text)
      },
      read: (file) => request('GET', at(file), { base: this.server.base, headers }),
      run: (command) => this.cli('sandbox', 'exec', id, '--', 'bash', '-c', command),
      kill: () => this.call('DELETE', `/sandboxes/${id}`),
    }
  }
  async cli(...args) {
    const { stdout } = await promisify(execFile)(process.env.ATOLL_E2E_ATOLL, [args[0], args[1], '--home', this.server.home, ...args.slice(2)], { maxBuffer: 64 << 20 })
    return stdout
  }
  // How much more memory the server's process has at its peak than now, while `body` runs.
  async growth(body) {
    const { pid } = this.facts()
    const figure = (name) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024
    fs.writeFileSync(`/proc/${pid}/clear_refs`, '5')  // the peak begins now
    const before = figure('VmRSS')
    await body()
    return figure('VmHWM') - before
  }
  save(name, sandbox, sandboxPath, workspacePath) {
    return this.call('POST', `/workspaces/${name}/save`, { sandboxID: sandbox.id, sandboxPath, workspacePath })
  }
  load(name, workspacePath, sandbox, sandboxPath, version) {
    return this.call('POST', `/workspaces/${name}/load`, { sandboxID: sandbox.id, workspacePath, sandboxPath, version })
  }
}

// Reads a file of a workspace piece by piece: its hash and length.
function digest(atoll, name, file) {
  return new Promise((resolve, reject) => {
    const asked = start(atoll.server.base, { method: 'GET', path: `/workspaces/${name}/files?${query({ path: file })}`, headers: { 'X-API-KEY': atoll.server.key } }, (res) => {
      const hash = createHash('sha256')
      let length = 0
      res.on('data', (piece) => {
        hash.update(piece)
        length += piece.length
      })
      res.on('error', reject)
      res.on('end', () => resolve({ status: res.statusCode, length, sha256: hash.digest('hex') }))
    })
    asked.on('error', reject)
    asked.end()
  })
}

// A PUT that sends `bytes` and then neither goes on nor ends.
function halfPut(atoll, name, file, bytes) {
  const asked = start(atoll.server.base, {
    method: 'PUT', path: `/workspaces/${name}/files?${query({ path: file })}`, headers: { 'X-API-KEY': atoll.server.key, 'Content-Length': 10 * bytes },
  })
  asked.on('error', () => {})
  const sent = (async () => {
    for await (const piece of pattern(bytes)) if (!asked.write(piece)) await new Promise((go) => asked.once('drain', go).once('close', go))
  })()
  return { asked, sent }
}

function filesBelow(dir) {
  return fs.readdirSync(dir, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? filesBelow(path.join(dir, entry.name)) : [path.join(dir, entry.name)])
}

const missing = process.env.E2E_S3 ? undefined : `no S3 server: ${process.env.E2E_S3_MISSING ?? 'E2E_S3 is not set'}`

describe('workspaces', () => {
  let s3
  const backends = {
    directory: {
      start: () => Atoll.start([]),
      // What is kept, and what is half done.
      kept: async (atoll) => filesBelow(path.join(atoll.server.home, 'workspaces', 'blobs')).length,
      halfDone: async (atoll) => filesBelow(path.join(atoll.server.home, 'workspaces', 'tmp')).length,
    },
    bucket: {
      skip: missing,
      start: () => Atoll.start(['--blobs', s3.location()], s3.environment),
      kept: async () => (await s3.keys('atoll/')).length,
      halfDone: async () => (await s3.uploads()).length,
    },
  }
  const servers = {}

  before(async () => {
    if (!missing) s3 = await S3Server.start('atoll-e2e')
    for (const [name, backend] of Object.entries(backends)) if (!backend.skip) servers[name] = await backend.start()
  }, limited(180))
  after(async () => {
    for (const atoll of Object.values(servers)) await atoll.server.stop()
    await s3?.stop()
  })

  for (const [kind, backend] of Object.entries(backends)) {
    const it = (name, seconds, body) => test(`workspaces/${kind}: ${name}`, { ...limited(seconds), skip: backend.skip }, (t) => body(servers[kind], t))

    it('what a sandbox saved, another loads after it is gone and the server was restarted', 120, async (atoll) => {
      const data = randomBytes(3_000_000)
      const first = await atoll.sandbox()
      await first.write('/home/user/report/data.bin', data)
      await first.write('/home/user/report/notes/über uns.txt', 'text')
      await first.run('cd /home/user/report && ln -s /etc/passwd link && ln -s notes folder-link && mkfifo pipe && : > empty')
      const file = await atoll.save('outlive', first, 'report/data.bin')
      assert.equal(file.status, 200, file.text)
      assert.deepEqual(file.json.files.map(({ path: at, size, sha256: hash }) => [at, size, hash]), [['/data.bin', data.length, sha256(data)]])
      const folder = await atoll.save('outlive', first, '/home/user/report', '/kept')
      assert.equal(folder.status, 200, folder.text)
      assert.deepEqual(folder.json.files.map((saved) => saved.path).sort(), ['/kept/data.bin', '/kept/empty', '/kept/notes/über uns.txt'])
      assert.deepEqual(folder.json.skipped.map((left) => [path.basename(left.path), left.reason]).sort(),
        [['folder-link', 'a symbolic link'], ['link', 'a symbolic link'], ['pipe', 'not a regular file']])
      assert.equal((await first.kill()).status, 204)
      await atoll.crash()

      const second = await atoll.sandbox()
      try {
        assert.equal((await atoll.load('outlive', '/data.bin', second)).status, 200)
        assert.equal(sha256((await second.read('data.bin')).body), sha256(data))
        await second.write('/home/user/new/there/data.bin', 'to be replaced')
        const loaded = await atoll.load('outlive', '/kept', second, '/home/user/new/there')
        assert.equal(loaded.status, 200, loaded.text)
        assert.equal(loaded.json.files.length, 3)
        assert.equal(sha256((await second.read('new/there/data.bin')).body), sha256(data))
        assert.equal((await second.read('new/there/notes/über uns.txt')).text, 'text')
        assert.equal(await second.run('stat -c %U /home/user/new/there/data.bin'), 'user\n')
        for (const wrong of [{ from: '/nothing', status: 404 }, { from: '../kept', status: 400 }])
          assert.equal((await atoll.load('outlive', wrong.from, second)).status, wrong.status)
        assert.equal((await atoll.save('outlive', second, '/home/user/nothing')).status, 404)
        // A paused one is woken.
        assert.equal((await atoll.call('POST', `/sandboxes/${second.id}/pause`, {})).status, 204)
        const woken = await atoll.save('outlive', second, 'data.bin', '/from-paused')
        assert.equal(woken.status, 200, woken.text)
      } finally {
        await second.kill()
      }
    })

    it('two gigabytes stream both ways in bounded memory', 900, async (atoll) => {
      const hash = createHash('sha256')
      let written, read
      const grown = await atoll.growth(async () => {
        written = await atoll.put('two', '/two', pattern(2 * GiB, hash), { length: 2 * GiB })
        read = await digest(atoll, 'two', '/two')
      })
      assert.equal(written.status, 201, written.text)
      const expected = hash.digest('hex')
      assert.deepEqual([written.json.size, written.json.sha256], [2 * GiB, expected])
      assert.deepEqual(read, { status: 200, length: 2 * GiB, sha256: expected })
      assert.ok(grown < 64 << 20, `the server grew by ${grown >> 20} MiB`)
      assert.equal((await atoll.call('DELETE', '/workspaces/two')).status, 204)
    })

    it('a large file goes from one sandbox to another in bounded memory', 900, async (atoll) => {
      const size = GiB
      const [from, to] = [await atoll.sandbox(), await atoll.sandbox()]
      try {
        await from.run(`cd /home/user && head -c 64M /dev/urandom > big && truncate -s ${size} big`)
        const grown = await atoll.growth(async () => {
          const saved = await atoll.save('big', from, 'big')
          assert.equal(saved.status, 200, saved.text)
          const loaded = await atoll.load('big', '/big', to, 'copy/big')
          assert.equal(loaded.status, 200, loaded.text)
          assert.equal(loaded.json.files[0].size, size)
        })
        const sum = (sandbox, file) => sandbox.run(`sha256sum < /home/user/${file}`)
        assert.equal(await sum(to, 'copy/big'), await sum(from, 'big'))
        assert.ok(grown < 64 << 20, `the server grew by ${grown >> 20} MiB`)

        // The sandbox dies while it is saved: the version from before stays.
        const [before] = await atoll.entries('big', { prefix: '/big' })
        const saving = atoll.save('big', from, 'big')
        await until('the save to be under way', async () => (await backend.halfDone(atoll)) > 0)
        await from.kill()
        const broken = await saving
        assert.ok(broken.status >= 400 && broken.json.code === broken.status, broken.text)
        assert.deepEqual(await atoll.entries('big', { prefix: '/big', versions: true }), [before])
        await until('nothing half done', async () => (await backend.halfDone(atoll)) === 0)
      } finally {
        await from.kill()
        await to.kill()
        await atoll.call('DELETE', '/workspaces/big')
      }
    })

    it('an interrupted write leaves the old version and nothing else', 180, async (atoll) => {
      assert.equal((await atoll.put('cut', '/file', 'old')).status, 201)
      const kept = await backend.kept(atoll)
      const unchanged = async () => {
        assert.equal((await atoll.get('cut', '/file')).text, 'old')
        assert.equal((await atoll.entries('cut', { versions: true })).length, 1)
        await until('nothing half done', async () => (await backend.halfDone(atoll)) === 0, 60_000)
        assert.equal(await backend.kept(atoll), kept)
      }
      // The client goes away.
      const gone = halfPut(atoll, 'cut', '/file', 24 << 20)
      await gone.sent
      await until('the write to be under way', async () => (await backend.halfDone(atoll)) > 0)
      assert.equal((await atoll.get('cut', '/file')).text, 'old')
      gone.asked.destroy()
      await unchanged()
      // The server dies.
      const cut = halfPut(atoll, 'cut', '/file', 24 << 20)
      await cut.sent
      await until('the write to be under way', async () => (await backend.halfDone(atoll)) > 0)
      await atoll.crash()
      cut.asked.destroy()
      await unchanged()
      // Not as long as announced: refused by the connection's end, which is the same.
      assert.equal((await atoll.put('cut', '/file', 'new')).status, 201)
      assert.equal((await atoll.get('cut', '/file')).text, 'new')
    })

    it('versions are listed, read, restored and limited', 90, async (atoll) => {
      assert.equal((await atoll.call('PUT', '/workspaces/old', { keepVersions: 3 })).status, 200)
      for (const text of ['one', 'two', 'three', 'four']) assert.equal((await atoll.put('old', '/f', text)).status, 201)
      const versions = await atoll.entries('old', { versions: true })
      assert.equal(versions.length, 3)
      assert.deepEqual(versions.map((v) => v.sha256), ['four', 'three', 'two'].map(sha256))
      assert.ok(versions.every((v, i) => i === 0 || v.version < versions[i - 1].version))
      const two = versions.at(-1).version
      assert.equal((await atoll.get('old', '/f', { version: two })).text, 'two')
      const restored = await atoll.call('POST', '/workspaces/old/restore', { path: '/f', version: two })
      assert.equal(restored.status, 201, restored.text)
      const now = await atoll.get('old', '/f')
      assert.deepEqual([now.text, now.headers['x-version'], now.headers.etag], ['two', restored.json.version, `"${sha256('two')}"`])
      assert.equal((await atoll.get('old', '/f', { version: '000000000000000-00000000' })).status, 404)
      assert.equal((await atoll.call('DELETE', '/workspaces/old/files?path=/f')).status, 204)
      assert.equal((await atoll.get('old', '/f', { version: two })).status, 404)
      assert.equal((await atoll.call('GET', '/workspaces/old')).json.bytes, 0)
    })

    it('quotas hold, also for what is streamed', 90, async (atoll) => {
      const set = await atoll.call('PUT', '/workspaces/small', { maxBytes: 1 << 20, maxFiles: 2 })
      assert.equal(set.status, 200, set.text)
      assert.equal((await atoll.put('small', '/a', randomBytes(900_000))).status, 201)
      const kept = await backend.kept(atoll)
      const refused = async (answer, words) => {
        assert.equal(answer.status, 507, answer.text)
        assert.equal(answer.json.code, 507)
        assert.match(answer.json.message, words)
      }
      await refused(await atoll.put('small', '/b', randomBytes(200_000)), /quota of 1048576 bytes/)
      await refused(await atoll.put('small', '/b', (async function* () { for (let i = 0; i < 20; i++) yield randomBytes(10_000) })()), /quota/)
      assert.equal((await atoll.put('small', '/b', 'x')).status, 201)
      await refused(await atoll.put('small', '/c', 'x'), /quota of 2 files/)
      assert.equal(await backend.kept(atoll), kept + 2)
      const { bytes, files, versions } = (await atoll.call('GET', '/workspaces/small')).json
      assert.deepEqual([bytes, files, versions], [900_001, 2, 2])
    })

    it('bad names and paths are refused', 90, async (atoll) => {
      const kept = await backend.kept(atoll)
      const bad = async (method, target) => {
        const answer = await request(method, target, { base: atoll.server.base, headers: { 'X-API-KEY': atoll.server.key }, body: method === 'PUT' ? 'x' : undefined })
        assert.equal(answer.status, 400, `${target}: ${answer.text}`)
        assert.equal(answer.json.code, 400)
        assert.ok(answer.json.message.length > 5)
      }
      for (const file of ['..', '../a', '/a/../../b', '/a/./b', '%2e%2e/a', '/%2e%2e%2fa', '/a%00b', '/a%0ab', '/a%1bb', '/a%7f', '/%ff%fe', '/', '/a/', '', '/' + 'a'.repeat(300), '/' + 'a/'.repeat(70) + 'b', '/' + 'ab/'.repeat(250) + 'c'])
        for (const method of ['PUT', 'GET', 'DELETE']) await bad(method, `/workspaces/w/files?path=${file}`)
      for (const name of ['%2e%2e', '.hidden', 'a%20b', 'a%2Fb', '%00', 'x'.repeat(65), '-a']) await bad('PUT', `/workspaces/${name}/files?path=/a`)
      await bad('GET', '/workspaces/w/files?path=/a&version=..%2f..%2fx')
      await bad('GET', '/workspaces/w/entries?nextToken=%21')
      assert.equal(await backend.kept(atoll), kept)
      // What looks bad and is not.
      for (const file of ['/%2e%2e', '/...', '/.hidden', '/a=2Fb', '/@v', '/üñí/報告', "/a'b\"c<&>", '/~/a b+c']) {
        const put = await atoll.put('odd', file, file)
        assert.equal(put.status, 201, `${file}: ${put.text}`)
        assert.equal((await atoll.get('odd', file)).text, file)
      }
      assert.equal((await atoll.entries('odd')).length, 8)
    })

    it('another team sees nothing of it', 90, async (atoll) => {
      assert.equal((await atoll.put('private', '/f', 'secret')).status, 201)
      const other = JSON.parse(await atoll.cli('key', 'create', 'other', '--team', 'others', '--json')).key
      assert.ok(other)
      assert.deepEqual((await atoll.call('GET', '/workspaces', undefined, other)).json, [])
      assert.equal((await atoll.get('private', '/f', {}, other)).status, 404)
      assert.equal((await atoll.call('GET', '/workspaces/private', undefined, other)).status, 404)
      assert.equal((await atoll.call('DELETE', '/workspaces/private', undefined, other)).status, 404)
      assert.equal((await atoll.put('private', '/f', 'theirs', { key: other })).status, 201)
      assert.equal((await atoll.get('private', '/f')).text, 'secret')
      const sandbox = await atoll.sandbox()
      const stolen = await atoll.call('POST', '/workspaces/private/save', { sandboxID: sandbox.id, sandboxPath: '/etc/passwd' }, other)
      assert.equal(stolen.status, 404, stolen.text)
      await sandbox.kill()
      assert.equal((await request('GET', '/workspaces', { base: atoll.server.base })).status, 401)
    })

    it('the command line does all of it', 120, async (atoll) => {
      const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'atoll-ws-cli-'))  // root's: the command gives up root on its way
      const sandbox = await atoll.sandbox()
      try {
        const local = path.join(dir, 'data.bin')
        const data = randomBytes(5_000_000)
        fs.writeFileSync(local, data)
        const ws = (...args) => atoll.cli('workspace', ...args)
        assert.match(await ws('put', 'cli', local), /^\/data\.bin\t/)
        assert.match(await ws('put', 'cli', local, '/deep/er/'), /^\/deep\/er\/data\.bin\t/)
        assert.match(await ws('ls'), /^cli\t2\t10000000\t/m)
        assert.deepEqual(JSON.parse(await ws('ls', 'cli', '--json')).map((file) => file.path), ['/data.bin', '/deep/er/data.bin'])
        await ws('get', 'cli', '/data.bin', path.join(dir, 'back'))
        assert.equal(sha256(fs.readFileSync(path.join(dir, 'back'))), sha256(data))
        await ws('load', 'cli', '/deep', sandbox.id, 'deep')
        assert.equal(await sandbox.run('sha256sum < /home/user/deep/er/data.bin | cut -c-64'), `${sha256(data)}\n`)
        await sandbox.run('echo changed > /home/user/deep/er/data.bin')
        assert.match(await ws('save', 'cli', sandbox.id, 'deep/er/data.bin', '/data.bin'), /^\/data\.bin\t8\t/)
        const versions = JSON.parse(await ws('versions', 'cli', '/data.bin', '--json'))
        assert.deepEqual(versions.map((v) => v.size), [8, data.length])
        assert.match(await ws('restore', 'cli', '/data.bin', versions[1].version), /\t5000000\t/)
        assert.match(await ws('quota', 'cli', '--bytes', '64M', '--versions', '2'), /bytes\t\d+\t64000000|bytes\t\d+\t67108864/)
        await ws('rm', 'cli', '/deep', '-r')
        const failed = (...args) => {
          const done = spawnSync(process.env.ATOLL_E2E_ATOLL, ['workspace', args[0], '--home', atoll.server.home, ...args.slice(1)], { encoding: 'utf8' })
          assert.equal(done.status, 1, done.stdout)
          return done.stderr
        }
        assert.match(failed('get', 'cli', '/deep/er/data.bin', path.join(dir, 'none')), /no file \/deep\/er\/data\.bin/)
        assert.deepEqual(fs.readdirSync(dir).sort(), ['back', 'data.bin'])
        assert.match(failed('rm', 'cli'), /--all/)
        await ws('rm', 'cli', '--all')
        assert.match(failed('ls', 'cli'), /no workspace 'cli'/)
      } finally {
        await sandbox.kill()
        fs.rmSync(dir, { recursive: true, force: true })
      }
    })
  }

  test('workspaces/bucket: what every blob store promises', { ...limited(180), skip: missing }, async () => {
    const program = path.join(path.dirname(process.env.ATOLL_E2E_ATOLL), '..', 'src', 'store', 'blobs', 'blobs_test')
    assert.ok(fs.existsSync(program), `${program} was not built`)
    const { stdout } = await promisify(execFile)(program, ['--gtest_filter=S3Test.*'], { env: { ...process.env, ...s3.environment, ATOLL_TEST_S3: s3.location('unit') } })
    assert.match(stdout, /PASSED.*\d+ tests/)
    assert.doesNotMatch(stdout, /SKIPPED/)
  })

  test('workspaces/bucket: several servers see the same', { ...limited(120), skip: missing }, async () => {
    const second = await backends.bucket.start()
    try {
      assert.equal((await servers.bucket.put('shared', '/f', 'one')).status, 201)
      assert.equal((await second.get('shared', '/f')).text, 'one')
      assert.equal((await second.put('shared', '/f', 'two')).status, 201)
      assert.equal((await servers.bucket.get('shared', '/f')).text, 'two')
      assert.equal((await servers.bucket.entries('shared', { versions: true })).length, 2)
      // Writers of both at once: every version is there, whole.
      const writes = []
      for (let i = 0; i < 4; i++) for (const atoll of [servers.bucket, second]) writes.push(atoll.put('shared', '/g', `text ${writes.length}`))
      assert.deepEqual((await Promise.all(writes)).map((answer) => answer.status), Array(8).fill(201))
      const seen = await second.entries('shared', { prefix: '/g', versions: true })
      assert.deepEqual(seen.map((file) => file.sha256).sort(), Array.from({ length: 8 }, (_, i) => sha256(`text ${i}`)).sort())
      // Neither takes the other's upload for one of its own.
      const half = halfPut(servers.bucket, 'shared', '/h', 24 << 20)
      await half.sent
      await until('the write to be under way', async () => (await s3.uploads()).length > 0)
      await second.crash()
      assert.equal((await s3.uploads()).length, 1)
      half.asked.destroy()
      await until('nothing half done', async () => (await s3.uploads()).length === 0)
    } finally {
      await second.server.stop()
    }
  })

  test('workspaces/bucket: an outage is said so and passes', { ...limited(180), skip: missing }, async () => {
    const atoll = servers.bucket
    assert.equal((await atoll.put('outage', '/f', 'before')).status, 201)
    await s3.down()
    try {
      for (const answer of [await atoll.get('outage', '/f'), await atoll.put('outage', '/f', 'x'), await atoll.call('GET', '/workspaces')]) {
        assert.equal(answer.status, 503, answer.text)
        assert.equal(answer.json.code, 503)
        assert.match(answer.json.message, /storage of workspaces does not answer/)
        assert.ok(Number(answer.headers['retry-after']) > 0)
      }
      // Sandboxes do not need it.
      const sandbox = await atoll.sandbox()
      assert.equal((await atoll.save('outage', sandbox, '/etc/hostname')).status, 503)
      await sandbox.kill()
    } finally {
      await s3.up()
    }
    await until('the storage', async () => (await atoll.get('outage', '/f')).text === 'before', 30_000)
    await until('a write', async () => (await atoll.put('outage', '/f', 'after')).status === 201, 30_000)
    assert.equal((await atoll.get('outage', '/f')).text, 'after')
    // Nor does the start of a server wait for one that takes connections and says nothing.
    const sockets = []
    const silent = net.createServer((socket) => sockets.push(socket.on('error', () => {})))
    await new Promise((resolve) => silent.listen(0, '127.0.0.1', resolve))
    try {
      const began = Date.now()
      const other = await Atoll.start(['--blobs', `s3://silent/x?endpoint=http://127.0.0.1:${silent.address().port}&path_style=1`], s3.environment)
      const took = Date.now() - began
      await other.server.stop()
      assert.ok(sockets.length > 0)
      assert.ok(took < 60_000, `the start took ${took} ms`)
    } finally {
      for (const socket of sockets) socket.destroy()
      silent.close()
    }
  })

  test('workspaces/bucket: keys that it refuses stop the start, and say so', { ...limited(120), skip: missing }, async () => {
    for (const environment of [{ AWS_SECRET_ACCESS_KEY: 'wrong-secret' }, { AWS_ACCESS_KEY_ID: 'AKWRONG' }, { AWS_ACCESS_KEY_ID: '' }]) {
      await assert.rejects(Atoll.start(['--blobs', s3.location()], { ...s3.environment, ...environment }), (failure) => {
        assert.match(failure.message, /AWS_SECRET_ACCESS_KEY/)
        assert.match(failure.message, /refuses the server's keys|there are no keys/)
        assert.ok(!failure.message.includes('wrong-secret') && !failure.message.includes(s3.secretKey))
        return true
      })
    }
  })

  test('workspaces/bucket: its keys are nowhere to be seen', { ...limited(180), skip: missing }, async () => {
    const atoll = servers.bucket
    const sandbox = await atoll.sandbox()
    assert.doesNotMatch(await sandbox.run('env; cat /proc/1/environ 2>/dev/null || true'), /AWS_/)
    const clean = (text) => assert.ok(!text.includes(s3.secretKey) && !text.includes(s3.accessKey), text)
    // Neither in what is said about a storage that refuses them.
    const restart = async (secretKey) => {
      await s3.down()
      s3.accept(secretKey)
      await s3.up()
    }
    await restart('another-secret')
    try {
      for (const ask of [() => atoll.put('keys', '/f', 'x'), () => atoll.get('keys', '/f'), () => atoll.save('keys', sandbox, '/etc/hostname')]) {
        await until('the refusal', async () => {
          const answer = await ask()
          assert.ok(answer.status >= 400, answer.text)
          clean(answer.text)
          return /refuses the server's keys/.test(answer.text)
        }, 60_000)
      }
    } finally {
      await restart(s3.secretKey)
    }
    await sandbox.kill()
    await until('the storage', async () => (await atoll.put('keys', '/f', 'x')).status === 201, 60_000)
    clean(atoll.server.log())
  })
})
