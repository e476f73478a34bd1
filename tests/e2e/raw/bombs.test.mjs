// Cells that misbehave: each ends in a clear message, and the sandbox goes on.
import { describe } from 'node:test'
import { assert, sleep, until } from './support.mjs'
import { withInterpreter } from './kernel.mjs'

const parallel = { concurrency: Number(process.env.E2E_JOBS ?? 2) }
const MiB = 1 << 20

// The run ends with the error `name`, and the next one works.
function bomb(id, code, name, { language = 'python', check, seconds = 60 } = {}) {
  withInterpreter(`bombs/${id}`, async (sandbox) => {
    const ended = await sandbox.run(code, language)
    assert.equal(ended.run.lines.at(-1).type, 'end_of_execution')
    const names = [name].flat()
    assert.ok(names.includes(ended.error?.name), `${JSON.stringify(ended.error)} instead of ${names}`)
    assert.equal(typeof ended.error.value, 'string')
    check?.(ended)
    await sandbox.usable()
  }, { seconds })
}

describe('bombs/output', parallel, () => {
  const within = ({ run, error }) => {
    assert.ok(run.bytes <= 80 * MiB, `${run.bytes} bytes`)
    assert.match(error.value, /\S/)
  }
  bomb('output: 1 GB of lines', 'for _ in range(10_000_000): print("x" * 99)', 'OutputLimitExceeded', { check: within, seconds: 120 })
  bomb('output: a line of 1 GB', 'import sys\nfor _ in range(1000): sys.stdout.write("x" * 1_000_000)', 'OutputLimitExceeded', { check: within, seconds: 120 })
  bomb('output: 100,000 display calls', 'for i in range(100_000): display(i)', 'OutputLimitExceeded', { check: within, seconds: 120 })
  bomb('output: a result of 1 GB', 'class Big:\n    def __repr__(self): return "x" * 1_000_000_000\nBig()', ['OutputLimitExceeded', 'ContextRestarting', 'MemoryError'], { seconds: 120 })
  bomb('output: from a shell', 'yes', 'OutputLimitExceeded', { language: 'bash', check: within, seconds: 120 })
  bomb('output: from JavaScript', 'for (;;) console.log("x".repeat(100))', ['OutputLimitExceeded', 'ContextRestarting'], { language: 'js', seconds: 120 })
})

describe('bombs/process', parallel, () => {
  const replaced = { check: ({ error }) => assert.equal(error.value, 'Context was restarted') }
  bomb('process: a segmentation fault', 'import ctypes; ctypes.string_at(0)', 'ContextRestarting', replaced)
  bomb('process: os._exit', 'import os; os._exit(0)', 'ContextRestarting', replaced)
  bomb('process: an exit of JavaScript', 'process.exit(0)', 'ContextRestarting', { language: 'js', ...replaced })
  bomb('process: sys.exit', 'x = 5\nimport sys; sys.exit(3)', 'SystemExit', { check: ({ error }) => assert.equal(error.value, '3') })
  bomb('process: deep recursion', 'def f(n): return f(n + 1)\nf(0)', 'RecursionError')
  bomb('process: deep recursion without a limit', 'import sys; sys.setrecursionlimit(10**9)\ndef f(n): return [f(n + 1) for _ in range(1)]\nf(0)',
       ['RecursionError', 'ContextRestarting', 'MemoryError'], { seconds: 120 })
  bomb('process: more memory than there is', 'x = []\nwhile True: x.append(bytearray(16 * 2**20))', ['MemoryError', 'ContextRestarting'], { seconds: 120 })

  withInterpreter('bombs/process: exit() ends the kernel, not the context', async (sandbox) => {
    await sandbox.run('x = 5')
    assert.equal((await sandbox.run('exit()')).error, undefined)
    assert.equal((await sandbox.usable()).count, 1)
    assert.equal((await sandbox.run('"x" in globals()')).text, 'False')
  })

  const forks = [['python', 'import os\nwhile True:\n    try: os.fork()\n    except OSError: pass'], ['bash', 'bomb() { bomb | bomb & }; bomb; wait; sleep 60']]
  for (const [language, code] of forks) {
    withInterpreter(`bombs/process: a fork bomb in ${language}`, async (sandbox) => {
      const run = sandbox.begin(code, { language })
      await run.answered
      // Where there is no room for another process, there is no count either.
      await until('many processes', async () => {
        const count = await Promise.race([sandbox.command('ls -d /proc/[0-9]* | wc -l', 'root'), sleep(5_000)]).catch(() => undefined)
        return !count?.stdout.trim() || Number(count.stdout) > 100
      }, 30_000)
      const [context] = (await sandbox.ask('GET', '/contexts')).json.filter((one) => one.language === language)
      assert.equal((await sandbox.ask('POST', `/contexts/${context.id}/restart`)).status, 200)
      await run.ended
      assert.match(run.of('error').at(-1).name, /^(UnexpectedEndOfExecution|ContextRestarting|BlockingIOError|OSError|)$/)
      await until('a usable kernel', async () => (await sandbox.run('1 + 1')).text === '2', 30_000)
      assert.equal((await sandbox.run('echo on', 'bash')).stdout, 'on\n')
    }, { seconds: 120 })
  }
})

describe('bombs/streams', parallel, () => {
  const closing = [
    ['closing sys.stdout', 'import sys; sys.stdout.close(); sys.stderr.close()'],
    ['closing descriptors 0, 1 and 2', 'import os; [os.close(n) for n in range(3)]'],
  ]
  for (const [what, code] of closing) {
    withInterpreter(`bombs/streams: ${what}`, async (sandbox) => {
      const ended = await sandbox.run(code)
      assert.equal(ended.run.lines.at(-1).type, 'end_of_execution')
      await sandbox.usable()
      assert.equal((await sandbox.run('print("heard")')).stdout, 'heard\n')
    })
  }

  withInterpreter('bombs/streams: closing all descriptors but that of the protocol', async (sandbox) => {
    const run = sandbox.begin('import os; [os.close(n) for n in range(256) if n != 3 and os.path.exists(f"/proc/self/fd/{n}")]')
    // A kernel without its own descriptors may say no more; then it is replaced when its client has left.
    await Promise.race([run.ended, sleep(3_000)])
    run.close()
    const next = await sandbox.run('1 + 1')
    assert.ok(next.text === '2' || next.error?.name === 'ContextRestarting', JSON.stringify(next.run.lines))
    await sandbox.usable()
    assert.equal((await sandbox.run('print("heard")')).stdout, 'heard\n')
  })

  withInterpreter('bombs/streams: the descriptor of the protocol', async (sandbox) => {
    const ended = await sandbox.run('import os; os.write(3, b"rubbish\\n{}\\n"); os.close(3)')
    assert.equal(ended.run.lines.at(-1).type, 'end_of_execution')
    await sandbox.usable()
  })

  withInterpreter('bombs/streams: replacing sys.stdout', async (sandbox) => {
    await sandbox.run('import sys, io; sys.stdout = io.StringIO(); print("swallowed")')
    await sandbox.usable()
    assert.equal((await sandbox.run('sys.stdout = sys.__stdout__ = None; 5')).text, '5')
    await sandbox.usable()
    assert.equal((await sandbox.run('print("heard")')).error, undefined)
  })

  withInterpreter('bombs/streams: replacing builtins', async (sandbox) => {
    await sandbox.run('import builtins, json, os, time\nbuiltins.print = builtins.len = builtins.str = json.dumps = time.time = os.write = None')
    const ended = await sandbox.run('"still here"')
    assert.equal(ended.run.lines.at(-1).type, 'end_of_execution')
    const [{ id }] = (await sandbox.ask('GET', '/contexts')).json
    assert.equal((await sandbox.ask('POST', `/contexts/${id}/restart`)).status, 200)
    await sandbox.usable()
  })
})

describe('bombs/loops', parallel, () => {
  const endless = [
    ['python', 'print("on", flush=True)\nwhile True: pass'],
    ['javascript', 'console.log("on"); for (;;) {}'],
    ['bash', 'echo on; while :; do :; done'],
  ]
  for (const [language, code] of endless) {
    withInterpreter(`bombs/loops: endless in ${language}`, async (sandbox) => {
      const run = sandbox.begin(code, { language })
      await sandbox.printed(run, 'on')
      run.close()
      const after = await sandbox.run(language === 'bash' ? 'echo 42' : '42', language)
      assert.match(after.text ?? after.stdout, /^42/)
    })
  }

  const stubborn = [
    ['python', 'import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint("on", flush=True)\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass'],
    ['bash', "trap '' INT; echo on; while :; do sleep 1; done"],
  ]
  for (const [language, code] of stubborn) {
    withInterpreter(`bombs/loops: deaf to interrupts in ${language}`, async (sandbox) => {
      const run = sandbox.begin(code, { language })
      await sandbox.printed(run, 'on')
      run.close()
      const after = await sandbox.run(language === 'bash' ? 'echo 42' : '42', language)
      assert.match(after.text ?? after.stdout, /^42/)
      assert.equal(after.count, 1)
      assert.match(after.stderr, /\S/)
    })
  }
})
