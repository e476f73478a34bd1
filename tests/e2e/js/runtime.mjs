// A small client for other runtimes: a sandbox, one cell, its output.
import process from 'node:process'
import { Sandbox } from '@e2b/code-interpreter'

const sandbox = await Sandbox.create(process.env.E2E_CODE_TEMPLATE ?? 'code-interpreter-v1', { timeoutMs: 15_000 })
try {
  const execution = await sandbox.runCode('print("Hello, World!")')
  process.stdout.write(execution.logs.stdout.join(''))
} finally {
  await sandbox.kill()
}
