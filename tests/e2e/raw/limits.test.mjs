// Limits and back-pressure, on servers of their own with small numbers.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { describe, test } from 'node:test'
import { assert, limited, request, sleep, until } from './support.mjs'
import { RateLimitError, Sandbox } from '../js/sdk.mjs'

// A server with `options`, and calls to it; it ends with the body.
async function withServer(options, body) {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), 'atoll-limits-'))
  fs.chmodSync(home, 0o755)
  const child = spawn(process.env.ATOLL_E2E_ATOLL, ['up', '--home', home, '--listen', '127.0.0.1:0', '--metrics-listen', 'off', ...options],
                      { stdio: ['ignore', 'pipe', 'pipe'] })
  let out = ''
  let log = ''
  child.stdout.on('data', (data) => (out += data))
  child.stderr.on('data', (data) => (log += data))
  const ended = new Promise((resolve) => child.on('close', resolve))
  try {
    await until('the server', () => /E2B_API_KEY=\S+\n/.test(out) || child.exitCode !== null, 60_000)
    const exported = (name) => new RegExp(`export ${name}=['"]?([^'"\\n]+)`).exec(out)?.[1]
    assert.ok(exported('E2B_API_URL'), log)
    const base = new URL(exported('E2B_API_URL'))
    const call = (method, target, content, key = exported('E2B_API_KEY')) => request(method, target, {
      base, headers: { 'X-API-KEY': key, ...(content && { 'Content-Type': 'application/json' }) }, body: content && JSON.stringify(content),
    })
    const create = () => call('POST', '/v2/sandboxes', { templateID: 'base', timeout: 60 })
    await body({ base, call, create, url: exported('E2B_API_URL'), key: exported('E2B_API_KEY'), home })
  } finally {
    child.kill('SIGINT')
    const code = await ended
    fs.rmSync(home, { recursive: true, force: true })
    assert.equal(code, 0, `the server ended with ${code}: ${log.slice(-2000)}`)
  }
}

function over(answer, message) {
  assert.equal(answer.status, 429, answer.text)
  assert.equal(answer.json.code, 429)
  assert.match(answer.json.message, message)
  // A time to wait is said where waiting helps; then in whole seconds.
  if (answer.headers['retry-after'] !== undefined) assert.match(answer.headers['retry-after'], /^\d+$/)
}

describe('limits', () => {
  test('limits/sandboxes: over the maximum', limited(90), () => withServer(['--max-sandboxes', '2'], async ({ create, call, url, key }) => {
    const one = await create()
    const two = await create()
    assert.deepEqual([one.status, two.status], [201, 201])
    over(await create(), /maximum number of concurrent/)
    // The SDK gives it its own name.
    await assert.rejects(Sandbox.create('base', { apiUrl: url, apiKey: key, sandboxUrl: url, retries: 0 }), RateLimitError)
    // A place that becomes free is a place.
    assert.equal((await call('DELETE', `/sandboxes/${one.json.sandboxID}`)).status, 204)
    assert.equal((await create()).status, 201)
    over(await create(), /./)
  }))

  test('limits/sandboxes: of one key', limited(90), () => withServer(['--max-per-key', '1'], async ({ create }) => {
    assert.equal((await create()).status, 201)
    over(await create(), /./)
  }))

  test('limits/creates: those in line wait and succeed', limited(120), () => withServer(['--max-creates', '1'], async ({ create, call }) => {
    const answers = await Promise.all(Array.from({ length: 30 }, create))
    assert.deepEqual([...new Set(answers.map((answer) => answer.status))], [201])
    await Promise.all(answers.map((answer) => call('DELETE', `/sandboxes/${answer.json.sandboxID}`)))
  }))

  test('limits/connections: of one sandbox', limited(90), () => withServer(['--max-connections-per-sandbox', '2'], async ({ base, create }) => {
    const made = (await create()).json
    const headers = {
      'E2b-Sandbox-Id': made.sandboxID, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': made.envdAccessToken,
      'Content-Type': 'application/connect+json', 'Connect-Protocol-Version': '1',
    }
    const payload = Buffer.from(JSON.stringify({ process: { cmd: 'sleep', args: ['8'] } }))
    const head = Buffer.alloc(5)
    head.writeUInt32BE(payload.length, 1)
    // The probe below may be there first, and then one of these is refused.
    const hold = async () => {
      const answer = await request('POST', '/process.Process/Start', { base, headers, body: Buffer.concat([head, payload]) })
      if (answer.status !== 429) return answer
      await sleep(25)
      return hold()
    }
    const held = [hold(), hold()]
    const refused = await until('a refusal', async () => {
      const answer = await request('GET', '/health', { base, headers })
      return answer.status === 429 && answer
    })
    assert.deepEqual(refused.json, {
      sandboxId: made.sandboxID, message: 'The sandbox has too many concurrent incoming connections (limit: 2)', code: 429, connectionLimit: 2,
    })
    await Promise.all(held)
    assert.equal((await request('GET', '/health', { base, headers })).status, 204)
  }))
})
