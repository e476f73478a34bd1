import { execFile } from 'node:child_process'
import { describe } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { InvalidArgumentError, TimeoutError } from '@e2b/code-interpreter'
import { assert, parallel, sleep, until } from './support.mjs'
import { Sandbox, row, secure, stdout } from './interpreter.mjs'

describe('code/basic', parallel, () => {
  const one = async ({ sandbox }) => assert.equal((await sandbox.runCode('x = 1; x')).text, '1')
  row('code/basic: the last value', {}, one)
  row('code/basic: secure, without public traffic', { create: secure }, one)

  row('code/basic: a shell escape', {}, async ({ sandbox }) => {
    assert.equal(stdout(await sandbox.runCode('!pwd')).trim(), '/home/user')
  })
})

describe('code/callbacks', parallel, () => {
  const called = async (sandbox, name, code) => {
    const calls = []
    const execution = await sandbox.runCode(code, { [name]: (value) => void calls.push(value) })
    assert.equal(calls.length, 1, JSON.stringify(calls))
    return { execution, value: calls[0] }
  }

  row('code/callbacks: result', {}, async ({ sandbox }) => {
    const { execution, value } = await called(sandbox, 'onResult', 'x = 1;x')
    assert.equal(execution.results[0].text, '1')
    assert.equal(value.isMainResult, true)
  })

  row('code/callbacks: error', {}, async ({ sandbox }) => {
    const { execution, value } = await called(sandbox, 'onError', 'undefined_name')
    assert.equal(execution.error.name, 'NameError')
    assert.match(value.traceback, /undefined_name/)
  })

  row('code/callbacks: stdout', {}, async ({ sandbox }) => {
    const { execution } = await called(sandbox, 'onStdout', 'print("hello")')
    assert.deepEqual(execution.logs, { stdout: ['hello\n'], stderr: [] })
  })

  row('code/callbacks: stderr', {}, async ({ sandbox }) => {
    const { execution } = await called(sandbox, 'onStderr', 'import sys\nprint("a complaint", file=sys.stderr)')
    assert.deepEqual(execution.logs, { stdout: [], stderr: ['a complaint\n'] })
  })
})

describe('code/streaming', parallel, () => {
  row('code/streaming: output', {}, async ({ sandbox }) => {
    const seen = []
    await sandbox.runCode('print(1)', { onStdout: (message) => seen.push([message.line, message.error]) })
    assert.deepEqual(seen, [['1\n', false]])
  })

  row('code/streaming: errors', {}, async ({ sandbox }) => {
    const seen = []
    await sandbox.runCode('import sys\nprint(1, file=sys.stderr)', { onStderr: (message) => seen.push([message.line, message.error]) })
    assert.deepEqual(seen, [['1\n', true]])
  })

  row('code/streaming: results', {}, async ({ sandbox }) => {
    const seen = []
    await sandbox.runCode(`
        import matplotlib.pyplot as plt
        import numpy as np
        x = np.linspace(0, 4, 50)
        plt.plot(x, np.sin(x))
        plt.show()
        x
        `, { onResult: (result) => seen.push(result) })
    assert.equal(seen.length, 2)
    assert.ok(seen[0].png && !seen[0].isMainResult && seen[1].isMainResult)
  })

  row('code/streaming: output arrives while the cell runs', {}, async ({ sandbox }) => {
    const seen = []
    const running = sandbox.runCode('import time\nprint("early", flush=True)\nwhile not __import__("os").path.exists("/tmp/go"): time.sleep(0.05)\nprint("late")',
                                    { onStdout: ({ line }) => seen.push(line) })
    await until('the first line', () => seen.length > 0)
    assert.deepEqual(seen, ['early\n'])
    await sandbox.files.write('/tmp/go', '')
    await running
    assert.deepEqual(seen, ['early\n', 'late\n'])
  })
})

describe('code/state', parallel, () => {
  row('code/state: stays between runs', {}, async ({ sandbox }) => {
    await sandbox.runCode('x = 1')
    assert.equal((await sandbox.runCode('x += 1; x')).text, '2')
  })

  row('code/state: the count goes on after errors', {}, async ({ sandbox }) => {
    await sandbox.runCode("echo 'this is no Python'")
    assert.equal((await sandbox.runCode('!pwd')).executionCount, 2)
  })
})

describe('code/contexts', parallel, () => {
  row('code/contexts: another one', {}, async ({ sandbox }) => {
    const context = await sandbox.createCodeContext()
    assert.match(context.id, /^[0-9a-f-]{36}$/)
  })

  row('code/contexts: do not share variables', {}, async ({ sandbox }) => {
    const context = await sandbox.createCodeContext()
    await sandbox.runCode('x = 1')
    assert.equal((await sandbox.runCode('x', { context })).error.value, "name 'x' is not defined")
    await sandbox.runCode('y = 1', { context })
    assert.equal((await sandbox.runCode('y')).error.value, "name 'y' is not defined")
    assert.equal((await sandbox.runCode('y', { context })).text, '1')
  })

  row('code/contexts: context and language together', {}, async ({ sandbox }) => {
    const context = await sandbox.createCodeContext()
    await assert.rejects(sandbox.runCode('1', { context, language: 'python' }), InvalidArgumentError)
    // An object instead of code is refused by the server.
    await assert.rejects(sandbox.runCode({ context, language: 'python' }), /422/)
    assert.equal((await sandbox.runCode('2', { context })).text, '2')
  })
})

describe('code/sandbox', parallel, () => {
  row('code/sandbox: reconnect', {}, async ({ sandbox }) => {
    await sandbox.runCode('kept = 5')
    const same = await Sandbox.connect(sandbox.sandboxId)
    assert.equal((await same.runCode('x = 1; x')).text, '1')
    assert.equal((await same.runCode('kept')).text, '5')
  })

  row('code/sandbox: a timeout interrupts', {}, async ({ sandbox }) => {
    await sandbox.runCode('kept = 7')
    await assert.rejects(sandbox.runCode('import time; time.sleep(300)', { timeoutMs: 3_000 }), TimeoutError)
    await sleep(5_000)
    assert.equal((await sandbox.runCode('1 + 1', { timeoutMs: 10_000 })).text, '2')
    assert.equal((await sandbox.runCode('kept', { timeoutMs: 10_000 })).text, '7')
  })

  row('code/sandbox: killed while a cell runs', {}, async ({ sandbox }) => {
    const running = assert.rejects(sandbox.runCode('import time; time.sleep(300)', { timeoutMs: 60_000 }), (error) => {
      assert.ok(error instanceof TimeoutError, error.stack)
      assert.match(error.message, /sandbox was killed while the request was in progress/)
      return true
    })
    await sleep(2_000)
    await sandbox.kill()
    await running
  })
})

describe('code/service', parallel, () => {
  const health = async (sandbox) =>
    (await sandbox.commands.run('curl -s -o /dev/null -w "%{http_code}" http://0.0.0.0:49999/health')).stdout

  for (const [name, pattern] of [['jupyter', 'jupyter server'], ['uvicorn', 'uvicorn main:app']]) {
    row(`code/service: lives after an attempt to kill ${name}`, {}, async ({ sandbox }) => {
      assert.equal(await health(sandbox), '200')
      await sandbox.commands.run(`kill -9 $(pgrep -f '${pattern}')`, { user: 'root' }).catch(() => {})
      await until('the service', async () => (await health(sandbox)) === '200', 30_000)
      assert.equal((await sandbox.runCode('x = 1; x')).text, '1')
    })
  }
})

describe('code/url', () => {
  row('code/url: built by the client', { sandbox: false }, async () => {
    const made = (options) => new Sandbox({ sandboxId: 'test-sandbox-id', sandboxDomain: 'example.dev', domain: 'example.dev', envdVersion: '0.4.0', ...options }).jupyterUrl
    const before = process.env.E2B_SANDBOX_URL
    try {
      delete process.env.E2B_SANDBOX_URL
      assert.equal(made({}), 'https://49999-test-sandbox-id.example.dev')
      assert.equal(made({ sandboxUrl: 'http://localhost:8080' }), 'http://localhost:8080')
      process.env.E2B_SANDBOX_URL = 'http://sandbox.test:81'
      assert.equal(made({}), 'http://sandbox.test:81')
    } finally {
      if (before === undefined) delete process.env.E2B_SANDBOX_URL
      else process.env.E2B_SANDBOX_URL = before
    }
  })
})

describe('code/results', parallel, () => {
  row('code/results: a figure', {}, async ({ sandbox }) => {
    const { results } = await sandbox.runCode(`
        import matplotlib.pyplot as plt
        import numpy as np
        x = np.linspace(0, 20, 100)
        plt.plot(x, np.sin(x))
        plt.show()
        `)
    assert.match(results[0].png, /^iVBORw0KGgo/)
    assert.match(results[0].text, /^<Figure size \d+x\d+ with 1 Axes>$/)
    assert.deepEqual(results[0].extra, {})
  })

  row('code/results: a data frame', {}, async ({ sandbox }) => {
    const { results } = await sandbox.runCode(`
        import pandas as pd
        pd.DataFrame({"a": [1, 2, 3]})
        `)
    assert.deepEqual(results[0].data, { a: [1, 2, 3] })
    assert.match(results[0].html, /<table/)
  })

  const image = 'import numpy\nfrom PIL import Image\nimage = Image.fromarray(numpy.full((48, 64, 3), 128, numpy.uint8))\n'
  for (const [how, line] of [['shown', 'image.show()'], ['as the last value', 'image'], ['saved', 'image.save("test.png")']]) {
    row(`code/results: an image ${how}`, {}, async ({ sandbox }) => {
      const { results } = await sandbox.runCode(image + line)
      assert.match(results[0].png, /^iVBORw0KGgo/)
    })
  }
})

describe('code/runtime', () => {
  for (const [name, variable] of [['Bun', 'E2E_BUN'], ['Deno', 'E2E_DENO']]) {
    const program = process.env[variable]
    const skip = program ? undefined : process.env[`${variable}_MISSING`] ?? `${name} is not installed`
    row(`code/runtime: ${name}`, { sandbox: false, skip }, async () => {
      const script = fileURLToPath(new URL('runtime.mjs', import.meta.url))
      const words = name === 'Deno' ? ['run', '--allow-all', '--node-modules-dir=manual', script] : ['run', script]
      const env = { ...process.env, DENO_TLS_CA_STORE: 'system', ...(process.env.SSL_CERT_FILE && { DENO_CERT: process.env.SSL_CERT_FILE }) }
      const { stdout: said } = await promisify(execFile)(program, words, { env, timeout: 50_000 })
      assert.equal(said, 'Hello, World!\n')
    })
  }
})
