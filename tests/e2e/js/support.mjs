// Shared ground of the JavaScript suites: rows of ../rows.tsv become node:test cases, each with its own sandbox.
//
// In debug mode (E2B_DEBUG=true) the SDK talks to one bare agent, so all cases share one machine: every case works
// under names of its own and ends what it started.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { Sandbox } from 'e2b'

export const debug = process.env.E2B_DEBUG === 'true'
// How the SDK finds the server: by domain with TLS, or by two plain URLs.
export const overTls = !debug && !process.env.E2B_API_URL
// Set when a release other than the newest is tested.
export const oldRelease = process.env.E2E_OLD === '1'
// All limits are for a fast machine; a slow one has so many times as long.
const timeScale = Number(process.env.E2E_TIME_SCALE ?? 1)
const perTestLimitMs = 30_000

// Cases of one area run a few at a time: most of them wait rather than compute.
export const parallel = { concurrency: Number(process.env.E2E_JOBS ?? 4) }

export const unique = (prefix) => `${prefix}-${randomBytes(6).toString('hex')}`

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// Waits until `probe` returns something other than undefined/false, at most `limitMs`. Only for what must happen: waiting for something
// that must not would take longer for nothing.
export async function until(what, probe, limitMs = 10_000) {
  const end = Date.now() + limitMs * timeScale
  for (;;) {
    const value = await probe()
    if (value) return value
    if (Date.now() > end) assert.fail(`gave up waiting for ${what}`)
    await sleep(20)
  }
}

// Headers that lead a hand-made request to a port of the sandbox. Behind one plain address signed URLs carry no sandbox
// id; over a domain the host says it all.
export const route = (sandbox, port = 49983) => overTls ? {} : {
  'E2b-Sandbox-Id': sandbox.sandboxId,
  'E2b-Sandbox-Port': String(port),
}

// A request to a server inside the sandbox.
export const visit = (sandbox, port, { path = '/', headers = {}, ...options } = {}) =>
  fetch((overTls ? `https://${sandbox.getHost(port)}` : process.env.E2B_SANDBOX_URL) + path,
        { redirect: 'manual', signal: AbortSignal.timeout(15_000 * timeScale), ...options, headers: { ...route(sandbox, port), ...headers } })

// What the control plane says of the sandbox, also what the SDK has no name for.
export async function control(sandbox) {
  const api = overTls ? `https://api.${process.env.E2B_DOMAIN}` : process.env.E2B_API_URL
  const response = await fetch(`${api}/sandboxes/${sandbox.sandboxId}`, { headers: { 'X-API-Key': process.env.E2B_API_KEY } })
  assert.equal(response.status, 200)
  return response.json()
}

const rows = new Map(readFileSync(new URL('../rows.tsv', import.meta.url), 'utf8').split('\n')
  .filter((line) => line && !line.startsWith('#')).map((line) => line.split('\t')).map(([id, , where]) => [id, where]))

// Does the row hold where we are? rows.tsv says: T over a domain with TLS, P by plain URLs, D debug mode, O old releases, J old
// releases of JavaScript only.
export const applies = (id) =>
  (rows.get(id) ?? '').includes(debug ? 'D' : overTls ? 'T' : 'P') && (!oldRelease || /[OJ]/.test(rows.get(id)))

// Declares one row. Options: `create` are options of Sandbox.create; `sandbox: false` leaves creating to the body; `make` creates
// another kind of sandbox; `skip` says why the case cannot be run here. The body
// gets { sandbox, defer, t }; `defer` registers a cleanup that runs before the sandbox ends.
export function row(id, options, body) {
  if (!rows.has(id)) throw new Error(`rows.tsv does not know '${id}'`)
  if (!applies(id)) return
  const limit = (options.limitMs ?? perTestLimitMs) * timeScale
  test(id, { timeout: limit, skip: options.skip }, async (t) => {
    const cleanups = []
    const defer = (cleanup) => cleanups.push(cleanup)
    let sandbox
    if (options.sandbox !== false) {
      const make = options.make ?? ((wanted) => Sandbox.create('base', wanted))
      sandbox = await make({ metadata: { e2e: id }, ...options.create })
      if (!debug) cleanups.push(() => sandbox.kill())
    }
    try {
      await body({ sandbox, defer, t })
    } catch (error) {
      if (sandbox && error instanceof Error) error.stack = `sandbox ${sandbox.sandboxId}: ${error.stack}`
      throw error
    } finally {
      for (const cleanup of cleanups.reverse()) await Promise.resolve(cleanup()).catch(() => {})
    }
  })
}

export { assert, Sandbox }
