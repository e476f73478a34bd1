// Servers that a case has for itself.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { assert, request, until } from './support.mjs'

// A server with `options`, and calls to it. `sdk` is what the SDK needs to find it; `stop` ends it and what it holds. With a home of another
// one it is that one's standby.
export async function startServer(options, environment = {}, home = fs.mkdtempSync(path.join(os.tmpdir(), 'atoll-own-'))) {
  fs.chmodSync(home, 0o755)
  const child = spawn(process.env.ATOLL_E2E_ATOLL, ['up', '--home', home, '--listen', '127.0.0.1:0', '--metrics-listen', 'off', ...options],
                      { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...environment } })
  let out = ''
  let log = ''
  child.stdout.on('data', (data) => (out += data))
  child.stderr.on('data', (data) => (log += data))
  const ended = new Promise((resolve) => child.on('close', resolve))
  const stop = async () => {
    child.kill('SIGINT')
    const code = await ended
    fs.rmSync(home, { recursive: true, force: true })
    assert.equal(code, 0, `the server ended with ${code}: ${log.slice(-2000)}`)
  }
  try {
    await until('the server', () => /E2B_API_KEY=\S+\n/.test(out) || child.exitCode !== null, 60_000)
    const exported = (name) => new RegExp(`export ${name}=['"]?([^'"\\n]+)`).exec(out)?.[1]
    assert.ok(exported('E2B_API_URL'), log)
    const base = new URL(exported('E2B_API_URL'))
    const call = (method, target, content, key = exported('E2B_API_KEY')) => request(method, target, {
      base, headers: { 'X-API-KEY': key, ...(content && { 'Content-Type': 'application/json' }) }, body: content && JSON.stringify(content),
    })
    const create = () => call('POST', '/v2/sandboxes', { templateID: 'base', timeout: 60 })
    const [url, key] = [exported('E2B_API_URL'), exported('E2B_API_KEY')]
    const facts = JSON.parse(fs.readFileSync(path.join(home, 'state', 'server.json'), 'utf8'))
    return { base, call, create, url, key, home, facts, stop, pid: child.pid, ended, log: () => log, sdk: { apiUrl: url, apiKey: key, sandboxUrl: url } }
  } catch (failure) {
    await stop().catch(() => {})
    throw failure
  }
}

// The same for as long as the body runs.
export async function withServer(options, body) {
  const server = await startServer(options)
  try {
    await body(server)
  } finally {
    await server.stop()
  }
}
