import { describe } from 'node:test'
import { assert, parallel } from './support.mjs'
import { Sandbox, languages, row, stdout, template } from './interpreter.mjs'

const create = async (defer) => {
  const sandbox = await Sandbox.create(template, { timeoutMs: 300_000 })
  defer(() => sandbox.kill())
  return sandbox
}

describe('flows', parallel, () => {
  for (const language of ['python', 'javascript', 'bash', 'r', 'java']) {
    const cells = languages[language]

    row(`flows/execute: setup commands, code and files in ${language}`, { sandbox: false }, async ({ defer }) => {
      const sandbox = await create(defer)
      const run = async (line) => (await sandbox.commands.run(line)).stdout
      for (const line of ['mkdir -p project', 'echo prepared > project/note.txt', "touch -d '1 minute ago' project/note.txt"]) await run(line)
      const stamp = (await run('date -u +%Y-%m-%dT%H:%M:%S')).trim()
      const { error } = await sandbox.runCode(cells.write, { language })
      assert.equal(error, undefined, error?.traceback)
      const found = (await run(`find /home/user -type f -newermt '${stamp}' -not -path '*/node_modules/*' 2>/dev/null`)).trim()
      assert.equal(found, '/home/user/made.txt')
      assert.equal(Buffer.from(await sandbox.files.read(found, { format: 'bytes' })).toString(), `made by ${language}`)
    })

    row(`flows/steps: another client sees the state in ${language}`, { sandbox: false }, async ({ defer }) => {
      const sandbox = await create(defer)
      assert.equal((await sandbox.runCode(cells.set, { language })).error, undefined)
      const other = await Sandbox.connect(sandbox.sandboxId)
      assert.equal(stdout(await other.runCode(cells.get, { language })).trim(), '42')
    })

    row(`flows/errors: the last words of a killed sandbox in ${language}`, { sandbox: false }, async ({ defer }) => {
      const sandbox = await create(defer)
      const seen = []
      const execution = await sandbox.runCode(cells.fail, {
        language,
        onError: async ({ name }) => {
          seen.push(name)
          await sandbox.kill()
        },
      })
      assert.deepEqual(seen, [cells.fail_name])
      assert.equal(execution.error.name, cells.fail_name)
      assert.equal(await sandbox.isRunning(), false)
    })
  }
})
