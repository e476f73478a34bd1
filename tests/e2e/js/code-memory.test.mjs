// The code interpreter over pauses and forks.
import { describe } from 'node:test'
import { TimeoutError } from '@e2b/code-interpreter'
import { assert, control, parallel } from './support.mjs'
import { Sandbox, languages, limitMs, row, secure, stdout } from './interpreter.mjs'

const pause = async (sandbox) => {
  assert.equal(await sandbox.pause(), true)
  assert.equal((await control(sandbox)).memoryTier, 'dumped')
}
const good = (execution) => {
  assert.equal(execution.error, undefined, execution.error?.traceback)
  return execution
}

describe('code/memory', parallel, () => {
  const reconnect = async ({ sandbox }) => {
    good(await sandbox.runCode('import pandas as pd\nkept = pd.DataFrame({"a": range(1000)})\ndef double(x): return x * 2'))
    await pause(sandbox)
    const same = await Sandbox.connect(sandbox.sandboxId)
    assert.equal((await same.runCode('x = 1; x')).text, '1')
    assert.equal((await same.runCode('double(int(kept.a.sum()))')).text, '999000')
    // The handle from before the pause, and the count of the kernel.
    const next = await sandbox.runCode('len(kept)')
    assert.deepEqual([next.text, next.executionCount], ['1000', 4])
  }
  row('code/memory: reconnect after a pause', {}, reconnect)
  row('code/memory: secure, without public traffic, after a pause', { create: secure }, reconnect)

  row('code/memory: contexts of all languages after a pause', { limitMs: limitMs * 1.5 }, async ({ sandbox }) => {
    const spoken = ['python', 'javascript', 'bash', 'r', 'java']
    const own = await sandbox.createCodeContext({ cwd: '/usr/share' })
    good(await sandbox.runCode('only_here = 7', { context: own }))
    for (const language of spoken) good(await sandbox.runCode(languages[language].set, { language }))
    const before = (await sandbox.listCodeContexts()).map(({ id }) => id)
    await pause(sandbox)
    await sandbox.connect()
    assert.deepEqual((await sandbox.listCodeContexts()).map(({ id }) => id), before)
    for (const language of spoken) {
      assert.equal(stdout(good(await sandbox.runCode(languages[language].get, { language }))).trim(), '42', language)
    }
    assert.equal((await sandbox.runCode('import os; (only_here, os.getcwd())', { context: own })).text, "(7, '/usr/share')")
    assert.equal((await sandbox.runCode('only_here')).error.name, 'NameError')
    // A kernel that starts after the resume.
    const fresh = await sandbox.createCodeContext()
    assert.equal((await sandbox.runCode('1 + 1', { context: fresh })).text, '2')
  })

  row('code/memory: an interrupt after a pause', {}, async ({ sandbox }) => {
    good(await sandbox.runCode('kept = 7'))
    await pause(sandbox)
    await sandbox.connect()
    await assert.rejects(sandbox.runCode('import time; time.sleep(300)', { timeoutMs: 1_500 }), TimeoutError)
    assert.equal((await sandbox.runCode('kept', { timeoutMs: 20_000 })).text, '7')
    await sandbox.restartCodeContext((await sandbox.listCodeContexts())[0].id)
    assert.equal((await sandbox.runCode('kept')).error.name, 'NameError')
  })

  row('code/memory: forks have variables of their own', {}, async ({ sandbox, defer }) => {
    good(await sandbox.runCode('numbers = [1, 2, 3]'))
    const forks = await sandbox.fork({ count: 2 })
    for (const one of forks) {
      assert.ok(one instanceof Sandbox, `${one}`)
      defer(() => one.kill())
    }
    for (const [number, one] of forks.entries()) good(await one.runCode(`numbers.append(${number})`))
    const seen = await Promise.all([sandbox, ...forks].map(async (one) => (await one.runCode('numbers')).text))
    assert.deepEqual(seen, ['[1, 2, 3]', '[1, 2, 3, 0]', '[1, 2, 3, 1]'])
  })
})
