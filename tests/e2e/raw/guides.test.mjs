// The guides, executed: every fenced block of docs/agents.md and README.md that is marked `test=NAME` runs as it stands, in the order of the page,
// against the server that the page's own first block starts. What it prints is what the block `output=NAME` says. `needs=/path` and `needs=verb` say
// what the server or the command line must have; without it the case is skipped, and says so.
import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { assert, limited } from './support.mjs'

const root = fileURLToPath(new URL('../../..', import.meta.url))
const atoll = process.env.ATOLL_E2E_ATOLL
const python = process.env.E2E_GUIDES_PYTHON

// Fenced blocks with attributes: { language, text, test, output, needs, ... }
function blocksOf(file) {
  const found = []
  const text = fs.readFileSync(path.join(root, file), 'utf8')
  for (const [, info, body] of text.matchAll(/^```([^\n`]+)\n([^]*?)^```$/gm)) {
    const [language, ...words] = info.trim().split(/\s+/)
    found.push({ language, text: body, ...Object.fromEntries(words.map((word) => word.split('=', 2))) })
  }
  return found
}

let place, environment

// A program with the environment of the guide's reader; resolves when it has ended.
function run(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: place, env: environment, stdio: ['ignore', 'pipe', 'pipe'], ...options })
    let stdout = ''
    let stderr = ''
    child.stdout.on('data', (data) => (stdout += data))
    child.stderr.on('data', (data) => (stderr += data))
    child.on('error', reject)
    child.on('close', (code) => resolve({ code, stdout, stderr }))
  })
}

const file = (name, text) => {
  fs.writeFileSync(path.join(place, name), text)
  return path.join(place, name)
}

const runners = {
  sh: (block) => run('bash', ['-e', file(`${block.test}.sh`, block.text)]),
  python: (block) => run(python, [file(`${block.test}.py`, block.text)]),
  js: (block) => run('node', [file(`${block.test}.mjs`, block.text)]),
}

const initialize = { jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'guide', version: '1' } } }

// What a host does with an entry of its configuration: starts or calls it, and says hello.
async function hello(entry) {
  if (entry.command) {
    const child = spawn(entry.command, entry.args, { env: { PATH: environment.PATH, HOME: environment.HOME, ...entry.env }, stdio: ['pipe', 'pipe', 'inherit'] })
    const ended = new Promise((resolve) => child.on('close', resolve))
    try {
      child.stdin.write(JSON.stringify(initialize) + '\n')
      let text = ''
      for await (const data of child.stdout) {
        text += data
        if (text.includes('\n')) return JSON.parse(text.slice(0, text.indexOf('\n')))
      }
      assert.fail('it ended without an answer')
    } finally {
      child.stdin.end()
      setTimeout(() => child.kill(), 5_000).unref()
      await ended
    }
  }
  const answer = await fetch(entry.url, { method: 'POST', body: JSON.stringify(initialize),
    headers: { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', ...entry.headers } })
  const text = await answer.text()
  assert.equal(answer.status, 200, text)
  return JSON.parse(/^data: (.*)$/m.exec(text)?.[1] ?? text)
}

async function checkHosts(block) {
  const hosts = JSON.parse(block.text.replaceAll('e2b_YOUR_KEY', environment.E2B_API_KEY))
  for (const entry of Object.values(hosts.mcpServers)) {
    const answer = await hello(entry)
    assert.equal(answer.id, 1)
    assert.ok(answer.result?.serverInfo?.name, JSON.stringify(answer))
    assert.ok(answer.result.capabilities.tools)
  }
}

// Why a block cannot run here; empty: it can.
async function missing(block) {
  if (block.language === 'python' && !python) return 'there is no Python with the SDKs: PyPI was out of reach'
  if (!block.needs) return ''
  if (block.needs.startsWith('/')) {
    const answer = await fetch(environment.E2B_API_URL + block.needs, { headers: { 'X-API-Key': environment.E2B_API_KEY } })
    return answer.status === 404 ? `this server has no ${block.needs}` : ''
  }
  const verbs = spawnSync(atoll, ['--help'], { encoding: 'utf8' }).stdout
  return new RegExp(`^  ${block.needs}\\b`, 'm').test(verbs) ? '' : `this atoll has no verb ${block.needs}`
}

// What a block of README.md takes for granted: the one before it.
const preludes = {
  'readme-memory': 'from e2b_code_interpreter import Sandbox\nsandbox = Sandbox.create()\nsandbox.run_code("import pandas as pd; df = pd.DataFrame({\'a\': [1, 2, 3]})")\n',
}
const epilogues = {
  'readme-memory': 'made = Sandbox.create(template=snapshot.snapshot_id)\nprint(*(one.run_code("int(df.a.sum())").text for one in [sandbox, *copies, made]))\nfor one in [sandbox, *copies, made]: one.kill()\n',
}
// What the page says in words.
const outputs = { 'readme-run': 'hello', 'readme-python': '42', 'readme-interpreter': '6', 'readme-memory': '6 6 6 6 6' }
const files = { 'readme-figure': 'atoll-output/result.png' }

function cases(page, name) {
  const blocks = blocksOf(page)
  const outputOf = (block) => outputs[block.test] ?? blocks.find((other) => other.output === block.test)?.text.trimEnd()
  for (const block of blocks.filter((one) => one.test && one.test !== 'up')) {
    test(`guides/${name}: ${block.test}`, limited(120), async (t) => {
      const why = await missing(block)
      if (why) return t.skip(why)
      if (block.language === 'json') return checkHosts(block)
      const whole = { ...block, text: (preludes[block.test] ?? '') + block.text + (epilogues[block.test] ?? '') }
      const done = await runners[block.language](whole)
      assert.equal(done.code, 0, done.stdout + done.stderr)
      const expected = outputOf(block)
      if (expected !== undefined) assert.equal(done.stdout.trimEnd(), expected)
      if (files[block.test]) assert.ok(fs.existsSync(path.join(place, files[block.test])))
    })
  }
}

describe('guides', () => {
  before(async () => {
    place = fs.mkdtempSync(path.join(os.tmpdir(), 'atoll-guides-'))
    fs.chmodSync(place, 0o755)
    fs.symlinkSync(atoll, path.join(place, 'atoll'))
    fs.symlinkSync(path.join(root, 'tests/e2e/js/node_modules'), path.join(place, 'node_modules'))
    const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('E2B_') && !name.startsWith('E2E_') && !/^(NODE_EXTRA_CA_CERTS|SSL_CERT_FILE)$/.test(name))
    environment = { ...Object.fromEntries(kept), ATOLL_HOME: path.join(place, 'home'), PATH: `${place}:${process.env.PATH}` }
    // Its exports are the environment of all that follows.
    const up = blocksOf('docs/agents.md').find((block) => block.test === 'up')
    const done = await run('bash', ['-e', file('up.sh', up.text + 'env -0 > environment\n')])
    assert.equal(done.code, 0, done.stderr)
    const expected = blocksOf('docs/agents.md').find((block) => block.output === 'up').text
    assert.equal(done.stdout, expected)
    environment = Object.fromEntries(fs.readFileSync(path.join(place, 'environment'), 'utf8').split('\0').filter(Boolean)
      .map((entry) => [entry.slice(0, entry.indexOf('=')), entry.slice(entry.indexOf('=') + 1)]))
    assert.match(environment.E2B_API_KEY, /^e2b_/)
  }, limited(120))

  after(async () => {
    const down = await run('./atoll', ['down'])
    fs.rmSync(place, { recursive: true, force: true })
    assert.equal(down.code, 0, down.stderr)
  })

  test('guides/agents: up', limited(30), async () => {
    assert.equal((await fetch(`${environment.E2B_API_URL}/health`)).ok, true)
  })
  cases('docs/agents.md', 'agents')
  cases('README.md', 'readme')
})
