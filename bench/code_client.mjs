// The JavaScript code-interpreter SDK as a bench client: one JSON request per line on stdin, one JSON answer per line on stdout.
//   {"op":"first","template":"…","code":"…","expect":"…"}  create and the first result; { create, run, total } in ms; the kill is not counted
//   {"op":"open","template":"…"}                         keeps a sandbox for `run`
//   {"op":"run","code":"…","expect":"…"}                  runCode in it; { total }
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
