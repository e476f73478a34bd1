// Limits and back-pressure, on servers of their own with small numbers.
import { describe, test } from 'node:test'
import { assert, limited, request, sleep, until } from './support.mjs'
import { withServer } from './own-server.mjs'
import { RateLimitError, Sandbox } from '../js/sdk.mjs'

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
