// Sandboxes whose memory goes to files: what the memory suites share.
import fs from 'node:fs'
import path from 'node:path'
import { api, assert, Raw, request, until, urlOf } from './support.mjs'
import { home, pids, status } from './machine.mjs'

// --- the server's own end

export const facts = () => JSON.parse(fs.readFileSync(path.join(home, 'state', 'server.json'), 'utf8'))
export const healthy = async () => {
  try {
    return (await api('GET', '/v2/sandboxes')).status === 200
  } catch {
    return false
  }
}
const descends = (pid, ancestor) => {
  for (let at = pid; at > 1; at = Number(status(at).PPid ?? 0)) if (at === ancestor) return true
  return false
}
export const warden = () => pids().find((pid) => status(pid).Name === 'atoll-warden' && descends(pid, facts().supervisor))

// Kills `pid` (the server's or its warden's) and waits for the next server.
export async function crash(pid) {
  const before = facts().pid
  process.kill(pid, 'SIGKILL')
  await until('the next server', async () => {
    try {
      return facts().pid !== before && (await healthy())
    } catch {
      return false
    }
  }, 30_000)
}

// --- tiers

export const info = async (sandbox) => {
  const answer = await sandbox.api('GET')
  assert.equal(answer.status, 200, answer.text)
  return answer.json
}
export const tier = async (sandbox) => (await info(sandbox)).memoryTier

export async function pause(sandbox, expected = 'dumped') {
  const answer = await sandbox.api('POST', '/pause', {})
  assert.equal(answer.status, 204, answer.text)
  const { state, memoryTier, memoryReason } = await info(sandbox)
  assert.deepEqual([state, memoryTier], ['paused', expected], memoryReason)
  return memoryReason ?? ''
}

export async function resume(sandbox, timeout = 120) {
  const answer = await sandbox.api('POST', '/connect', { timeout })
  assert.equal(answer.status, 201, answer.text)
  assert.equal(answer.json.envdAccessToken, sandbox.token)
  assert.equal(await tier(sandbox), 'running')
  return answer
}

// Processes of the sandbox as the host sees them; the first one is the sandbox's process 1.
export function processesOf(sandbox) {
  const mine = pids().filter((pid) => {
    try {
      return fs.readFileSync(`/proc/${pid}/cgroup`, 'utf8').includes(sandbox.id)
    } catch {
      return false
    }
  })
  return mine.sort((a, b) => (status(b).NSpid?.endsWith('\t1') ? 1 : 0) - (status(a).NSpid?.endsWith('\t1') ? 1 : 0))
}

// --- a program inside that keeps what it is told

export const HOLDER = 7700
const holder = `
import http.server, json, sys, traceback
space = {}

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        code = self.rfile.read(int(self.headers["Content-Length"])).decode()
        space.pop("out", None)
        try:
            exec(code, space)
            answer = {"out": space.get("out")}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

http.server.HTTPServer(("127.0.0.1", ${HOLDER}), Handler).serve_forever()
`

// Starts it; `tell` then runs Python code in it, whose variable \`out\` comes back.
export async function hold(sandbox) {
  await sandbox.serve(HOLDER, holder)
  return (code) => tell(sandbox, code)
}

export async function tell(sandbox, code) {
  const answer = await request('POST', '/', { base: urlOf(sandbox.id, HOLDER), body: code })
  assert.equal(answer.status, 200, answer.text)
  assert.equal(answer.json.error, undefined, answer.json.error)
  return answer.json.out
}

// Something to lose: a program that counts, with a megabyte to be compared.
export async function fill(sandbox) {
  const told = await hold(sandbox)
  await told('import hashlib, os, threading, time\ndata = os.urandom(1 << 20); n = [0]\ndef count():\n    while True: n[0] += 1; time.sleep(0.01)\nthreading.Thread(target=count, daemon=True).start()')
  return told('out = hashlib.sha256(data).hexdigest()')
}
// The same again, and it counts.
export async function whole(sandbox, digest) {
  const seen = await tell(sandbox, 'before, end = n[0], time.time() + 10\nwhile n[0] <= before and time.time() < end: time.sleep(0.02)\nout = [hashlib.sha256(data).hexdigest(), n[0] > before]')
  assert.deepEqual(seen, [digest, true])
}

// --- snapshots

export async function snapshot(sandbox, body = {}) {
  const answer = await sandbox.api('POST', '/snapshots', body)
  assert.equal(answer.status, 201, answer.text)
  return answer.json
}

export const remove = (snapshotID) => api('DELETE', `/templates/${encodeURIComponent(snapshotID)}`)

export async function fork(sandbox, count = 1, Kind = Raw) {
  const answer = await sandbox.api('POST', '/fork', { count, timeout: 120 })
  assert.equal(answer.status, 201, answer.text)
  assert.equal(answer.json.length, count)
  return answer.json.map((entry) => {
    assert.ok(entry.sandbox, JSON.stringify(entry))
    return new Kind(entry.sandbox)
  })
}

// What a check found out about the machine, for the report of the run: it is printed and stands in the matrix.
export function note(row, text) {
  fs.appendFileSync(`${process.env.E2E_RESULTS}.notes`, JSON.stringify({ id: row, note: text }) + '\n')
}
