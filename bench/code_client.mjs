// The JavaScript code-interpreter SDK as a bench client: one JSON request per line on stdin, one JSON answer per line on stdout.
//   {"op":"first","template":"…","code":"…","expect":"…"}  create and the first result; { create, run, total } in ms; the kill is not counted
//   {"op":"open","template":"…"}                         keeps a sandbox for `run`
//   {"op":"run","code":"…","expect":"…"}                  runCode in it; { total }
//   {"op":"evaluate","code":"…"}                          the same, not measured; { text }
//   {"op":"pause"}                                       pauses it; { total }
//   {"op":"resume"}                                      connects to it by its id, then one cell; { total, first } in ms, the cell not in `total`
//   {"op":"snapshot"}                                    { total, id }
//   {"op":"forget","id":"…"}                              deletes a snapshot
//   {"op":"fork","count":N}                              { total, ready: ms until each gave its first result, failed: why others did not come };
//                                                        the kills are not counted
//   {"op":"close"}                                       kills it
import readline from 'node:readline'
import { Sandbox } from '../tests/e2e/js/code-sdk.mjs'

let kept

function check(execution, expect) {
  if (execution.error) throw new Error(`${execution.error.name}: ${execution.error.value}`)
  if (execution.text !== expect) throw new Error(`expected ${expect}, got ${execution.text}`)
}

const operations = {
  async first({ template, code, expect }) {
    const began = performance.now()
    const sandbox = await Sandbox.create(template, { timeoutMs: 60_000 })
    const made = performance.now()
    const execution = await sandbox.runCode(code)
    const ran = performance.now()
    await sandbox.kill()
    check(execution, expect)
    return { create: made - began, run: ran - made, total: ran - began }
  },
  async open({ template }) {
    kept = await Sandbox.create(template, { timeoutMs: 3_600_000 })
    return { id: kept.sandboxId }
  },
  async run({ code, expect }) {
    const began = performance.now()
    const execution = await kept.runCode(code)
    const total = performance.now() - began
    check(execution, expect)
    return { total }
  },
  async evaluate({ code }) {
    const execution = await kept.runCode(code, { timeoutMs: 300_000 })
    if (execution.error) throw new Error(`${execution.error.name}: ${execution.error.value}`)
    return { text: execution.text }
  },
  async pause() {
    const began = performance.now()
    await kept.pause({ requestTimeoutMs: 300_000 })
    return { total: performance.now() - began }
  },
  async resume() {
    const began = performance.now()
    kept = await Sandbox.connect(kept.sandboxId, { timeoutMs: 3_600_000, requestTimeoutMs: 300_000 })
    const back = performance.now()
    const execution = await kept.runCode('1+1')
    const ran = performance.now()
    check(execution, '2')
    return { total: back - began, first: ran - back }
  },
  async snapshot() {
    const began = performance.now()
    const made = await kept.createSnapshot({ requestTimeoutMs: 300_000 })
    return { total: performance.now() - began, id: made.snapshotId }
  },
  async forget({ id }) {
    if (!(await Sandbox.deleteSnapshot(id))) throw new Error(`there is no snapshot ${id}`)
    return {}
  },
  async fork({ count }) {
    const began = performance.now()
    const forks = await kept.fork({ count, timeoutMs: 600_000, requestTimeoutMs: 300_000 })
    const total = performance.now() - began
    const made = forks.filter((fork) => !(fork instanceof Error))
    const ready = await Promise.all(made.map(async (fork) => {
      check(await fork.runCode('1+1'), '2')
      return performance.now() - began
    }))
    for (const fork of made) await fork.kill()
    return { total, ready, failed: forks.filter((fork) => fork instanceof Error).map(String) }
  },
  async close() {
    await kept.kill()
    return {}
  },
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  let answer
  try {
    const request = JSON.parse(line)
    answer = await operations[request.op](request)
  } catch (error) {
    answer = { error: String(error?.stack ?? error) }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
process.exit(0)
