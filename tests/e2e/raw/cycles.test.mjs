// Create, run, kill, many times: languages and deaths of kernels at random, and nothing stays behind.
import fs from 'node:fs'
import path from 'node:path'
import { describe, test } from 'node:test'
import { api, assert, limited, until } from './support.mjs'
import { Interpreter } from './kernel.mjs'
import { home, pids } from './machine.mjs'

const CYCLES = Number(process.env.E2E_CYCLES ?? 1000)
const SIDE_BY_SIDE = Number(process.env.E2E_CYCLES_JOBS ?? 4)
const seed = Number(process.env.E2E_SEED ?? Date.now() % 2 ** 31)

// Reproducible by E2E_SEED.
let state = seed
const random = () => {
  state = (state * 1103515245 + 12345) % 2 ** 31
  return state / 2 ** 31
}

// Of a hundred cycles so many in each language: what takes long to start comes seldom.
const SHARES = [['python', 62, 'print(6 * 7)'], ['javascript', 15, 'console.log(6 * 7)'], ['bash', 15, 'echo $((6 * 7))'],
                ['r', 5, 'cat(6 * 7, "\\n", sep = "")'], ['java', 3, 'System.out.println(6 * 7)']]
const DEATHS = { python: 'import os; os._exit(1)', bash: 'kill -9 $$', javascript: 'process.kill(process.pid, "SIGKILL")' }

function pick() {
  let at = random() * 100
  return SHARES.find(([, share]) => (at -= share) < 0) ?? SHARES[0]
}

async function cycle() {
  const [language, , code] = pick()
  const [dies, leaves] = [random() < 0.15, random() < 0.05]
  const sandbox = await Interpreter.create()
  try {
    if (dies && DEATHS[language]) {
      const death = await sandbox.run(DEATHS[language], language)
      assert.ok(death.error, JSON.stringify(death.run.lines))
    }
    if (leaves) {
      const run = sandbox.begin('import time; time.sleep(60)')
      await run.answered
      run.close()
    }
    const { stdout, error } = await sandbox.run(code, language)
    assert.equal(stdout.trim(), '42', `${language}: ${JSON.stringify(error)}`)
  } finally {
    for (const stream of sandbox.streams) stream.close()
    const killed = await sandbox.kill()
    assert.equal(killed.status, 204, killed.text)
  }
  return sandbox.id
}

// Where a sandbox leaves traces under its id.
const traces = (ids) => {
  const known = new Set(ids)
  const names = (text) => [...text.matchAll(/i[a-z0-9]{20}/g)].map(([id]) => id).filter((id) => known.has(id))
  const read = (file) => {
    try {
      return fs.readFileSync(file, 'utf8')
    } catch {
      return ''
    }
  }
  const found = []
  for (const pid of pids()) {
    const hits = new Set([...names(read(`/proc/${pid}/cgroup`)), ...names(read(`/proc/${pid}/cmdline`))])
    for (const id of hits) found.push(`process ${pid} of ${id}`)
  }
  for (const id of new Set(names(read('/proc/self/mountinfo')))) found.push(`mount of ${id}`)
  const walk = (directory, depth) => {
    for (const entry of fs.existsSync(directory) ? fs.readdirSync(directory, { withFileTypes: true }) : []) {
      if (known.has(names(entry.name)[0])) found.push(path.join(directory, entry.name))
      else if (entry.isDirectory() && depth > 0) walk(path.join(directory, entry.name), depth - 1)
    }
  }
  for (const place of ['sandboxes', 'run', 'state', 'snapshots']) walk(path.join(home, place), 2)
  walk('/sys/fs/cgroup', 4)
  return found
}

describe('cycles', () => {
  test('cycles/many: create, run and kill leave nothing behind', limited(Math.max(120, CYCLES * 0.5)), async () => {
    const ids = []
    let left = CYCLES
    const lane = async () => {
      while (left-- > 0) ids.push(await cycle())
    }
    const started = Date.now()
    const done = await Promise.allSettled(Array.from({ length: SIDE_BY_SIDE }, lane))
    for (const { reason } of done.filter(({ status }) => status === 'rejected')) throw new Error(`seed ${seed}: ${reason?.stack}`)
    console.error(`${ids.length} cycles in ${((Date.now() - started) / 1000).toFixed(1)} s, seed ${seed}`)
    assert.equal(ids.length, CYCLES)
    assert.equal(new Set(ids).size, CYCLES)
    let remains
    await until('traces to vanish', () => (remains = traces(ids)).length === 0, 20_000).catch(() => {})
    assert.deepEqual(remains.slice(0, 20), [])
    const listed = (await api('GET', '/v2/sandboxes?limit=100')).json.map(({ sandboxID }) => sandboxID)
    assert.deepEqual(listed.filter((id) => ids.includes(id)), [])
  })
})
