// The official command line (npm @e2b/cli) by key and domain.
import { execFile, spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, describe } from 'node:test'
import { fileURLToPath } from 'node:url'
import { api, assert, until, withSandbox } from './support.mjs'

const program = fileURLToPath(new URL('../js/node_modules/@e2b/cli/dist/index.js', import.meta.url))
const terminal = fileURLToPath(new URL('../harness/terminal.py', import.meta.url))
// A home of its own: nobody's login is read or written.
const home = fs.mkdtempSync(path.join(os.tmpdir(), 'atoll-cli-'))
after(() => fs.rmSync(home, { recursive: true, force: true }))
const env = { ...process.env, HOME: home, NO_COLOR: '1' }

const cli = (...words) => new Promise((resolve) => {
  const child = execFile(process.execPath, [program, ...words], { env, timeout: 30_000 }, (error, stdout, stderr) =>
    resolve({ code: error ? error.code ?? `signal ${error.signal}` : 0, stdout, stderr }))
  child.stdin.end()
})
const good = (done) => {
  assert.equal(done.code, 0, `${done.stdout}\n${done.stderr}`)
  return done.stdout
}
const many = { seconds: 60 }

describe('cli', { concurrency: 2 }, () => {
  withSandbox('cli/sandbox: list', async (sandbox) => {
    const entries = JSON.parse(good(await cli('sandbox', 'list', '--format', 'json')))
    assert.ok(entries.some((entry) => entry.sandboxId === sandbox.id), JSON.stringify(entries).slice(0, 500))
    assert.ok(good(await cli('sandbox', 'list')).includes(sandbox.id))
    const tagged = JSON.parse(good(await cli('sandbox', 'list', '--format', 'json', '--metadata', 'tag=cli-list')))
    assert.deepEqual(tagged.map((entry) => entry.sandboxId), [sandbox.id])
  }, { ...many, create: { metadata: { tag: 'cli-list' } } })

  withSandbox('cli/sandbox: info', async (sandbox) => {
    const info = JSON.parse(good(await cli('sandbox', 'info', sandbox.id, '--format', 'json')))
    assert.deepEqual([info.sandboxId, info.state], [sandbox.id, 'running'])
    assert.notEqual((await cli('sandbox', 'info', 'nonexistingsandbox')).code, 0)
  }, many)

  withSandbox('cli/sandbox: exec', async (sandbox) => {
    assert.match(good(await cli('sandbox', 'exec', sandbox.id, 'echo', 'backend-non-pipe')), /backend-non-pipe/)
    assert.equal((await cli('sandbox', 'exec', sandbox.id, 'exit 7')).code, 7)
    assert.match(good(await cli('sandbox', 'exec', '-u', 'root', '-c', '/etc', sandbox.id, 'pwd')), /^\/etc/)
  }, many)

  withSandbox('cli/sandbox: exec with piped input', async (sandbox) => {
    const child = spawn(process.execPath, [program, 'sandbox', 'exec', sandbox.id, 'cat'], { env, stdio: ['pipe', 'pipe', 'pipe'] })
    let out = ''
    child.stdout.on('data', (data) => (out += data))
    child.stdin.end('through a pipe\n')
    const code = await new Promise((resolve) => child.on('close', resolve))
    assert.deepEqual([code, out], [0, 'through a pipe\n'])
  }, many)

  withSandbox('cli/sandbox: connect', async (sandbox) => {
    const done = await new Promise((resolve) => execFile('python3', [terminal, process.execPath, program, 'sandbox', 'connect', sandbox.id],
      { env, timeout: 45_000 }, (error, stdout, stderr) => resolve({ code: error ? error.code : 0, stdout, stderr })))
    assert.equal(done.code, 0, `${done.stdout}\n${done.stderr}`)
    // It goes on without us.
    assert.equal(await sandbox.alive(), true)
  }, many)

  withSandbox('cli/sandbox: logs', async (sandbox) => {
    await sandbox.run('echo something to log')
    const text = good(await cli('sandbox', 'logs', '--level', 'DEBUG', '--format', 'json', sandbox.id))
    const lines = text.trim().split('\n').filter(Boolean).map((line) => JSON.parse(line))
    assert.ok(lines.length > 0, text)
    good(await cli('sandbox', 'logs', sandbox.id))
  }, many)

  withSandbox('cli/sandbox: metrics', async (sandbox) => {
    await until('a point', async () => (await sandbox.api('GET', '/metrics')).json.length > 0, 20_000)
    const text = good(await cli('sandbox', 'metrics', '--format', 'json', sandbox.id))
    assert.match(text, /cpuUsedPct|cpu/i)
    good(await cli('sandbox', 'metrics', sandbox.id))
  }, many)

  withSandbox('cli/sandbox: pause and resume', async (sandbox) => {
    const state = async () => (await sandbox.api('GET')).json.state
    good(await cli('sandbox', 'pause', sandbox.id))
    assert.equal(await state(), 'paused')
    const paused = JSON.parse(good(await cli('sandbox', 'list', '--state', 'paused', '--format', 'json')))
    assert.ok(paused.some((entry) => entry.sandboxId === sandbox.id))
    good(await cli('sandbox', 'resume', sandbox.id))
    assert.equal(await state(), 'running')
  }, many)

  withSandbox('cli/sandbox: kill', async (sandbox) => {
    good(await cli('sandbox', 'kill', sandbox.id))
    assert.equal((await sandbox.api('GET')).status, 404)
    // All of one kind.
    const made = await Promise.all([1, 2].map(() => api('POST', '/v2/sandboxes', { templateID: 'base', timeout: 60, metadata: { tag: 'cli-kill' } })))
    good(await cli('sandbox', 'kill', '--all', '--metadata', 'tag=cli-kill'))
    for (const { json } of made) assert.equal((await api('GET', `/sandboxes/${json.sandboxID}`)).status, 404)
  }, many)

  withSandbox('cli/sandbox: create', async () => {
    const out = good(await cli('sandbox', 'create', '--detach', '--timeout', '60', '--lifecycle.ontimeout', 'pause', 'base'))
    const id = /\bi[a-z0-9]{20}\b/.exec(out)?.[0]
    assert.ok(id, out)
    try {
      assert.equal((await api('GET', `/sandboxes/${id}`)).json.lifecycle.onTimeout, 'pause')
    } finally {
      await api('DELETE', `/sandboxes/${id}`)
    }
  }, many)

  withSandbox('cli/sandbox: templates are listed', async () => {
    assert.match(good(await cli('template', 'list')), /base/)
  }, many)
})
