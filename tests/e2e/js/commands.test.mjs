import { describe } from 'node:test'
import { CommandExitError, NotFoundError, TimeoutError } from 'e2b'
import { assert, parallel, row, until } from './support.mjs'

const ended = (pid) => `kill -0 ${pid}`

describe('commands/connect', parallel, () => {
  row('commands/connect: connect to process', {}, async ({ sandbox, defer }) => {
    const started = await sandbox.commands.run('sleep 10', { background: true })
    defer(() => started.kill())
    const attached = await sandbox.commands.connect(started.pid)
    assert.equal(attached.pid, started.pid)
    await attached.disconnect()
  })

  row('commands/connect: connect to non-existing process', {}, async ({ sandbox }) => {
    await assert.rejects(sandbox.commands.connect(999999), NotFoundError)
  })
})

describe('commands/envs', parallel, () => {
  row('commands/envs: sandbox global env vars', { create: { envs: { FOO: 'bar' } } }, async ({ sandbox }) => {
    const seen = await sandbox.commands.run('echo $FOO')
    assert.equal(seen.stdout.trim(), 'bar')
  })

  row('commands/envs: bash command scoped env vars', {}, async ({ sandbox }) => {
    const first = await sandbox.commands.run('echo $FOO', { envs: { FOO: 'bar' } })
    assert.equal(first.stdout.trim(), 'bar')
    const next = await sandbox.commands.run('sudo echo "$FOO"')
    assert.equal(next.exitCode, 0)
    assert.equal(next.stdout.trim(), '')
    assert.equal(next.stderr, '')
  })

  row('commands/envs: python command scoped env vars', {}, async ({ sandbox }) => {
    const code = `python3 -c "import os; print(os.environ['FOO'])"`
    const seen = await sandbox.commands.run(code, { envs: { FOO: 'bar' } })
    assert.equal(seen.exitCode, 0)
    assert.equal(seen.stdout.trim(), 'bar')
    await assert.rejects(sandbox.commands.run(code), CommandExitError)
  })
})

describe('commands/kill', parallel, () => {
  row('commands/kill: kill process', {}, async ({ sandbox }) => {
    const command = await sandbox.commands.run('sleep 10', { background: true })
    assert.equal(await sandbox.commands.kill(command.pid), true)
    await assert.rejects(command.wait(), (error) => {
      assert.ok(error instanceof CommandExitError)
      assert.equal(error.exitCode, -1)
      assert.equal(error.error, 'signal: killed')
      return true
    })
    await assert.rejects(sandbox.commands.run(ended(command.pid)), CommandExitError)
  })

  row('commands/kill: kill non-existing process', {}, async ({ sandbox }) => {
    assert.equal(await sandbox.commands.kill(999999), false)
  })
})

describe('commands/list', parallel, () => {
  row('commands/list: list processes', {}, async ({ sandbox, defer }) => {
    const one = await sandbox.commands.run('sleep 10', { background: true })
    const two = await sandbox.commands.run('sleep 10', { background: true })
    defer(() => one.kill())
    defer(() => two.kill())
    const listed = await sandbox.commands.list()
    assert.ok(listed.length >= 2)
    for (const wanted of [one, two]) {
      const found = listed.find((entry) => entry.pid === wanted.pid)
      assert.ok(found, `pid ${wanted.pid} is listed`)
      assert.equal(found.cmd, '/bin/bash')
      assert.deepEqual(found.args, ['-l', '-c', 'sleep 10'])
    }
  })
})

describe('commands/run', parallel, () => {
  row('commands/run: run', {}, async ({ sandbox }) => {
    const text = 'Hello, World!'
    const result = await sandbox.commands.run(`echo "${text}"`)
    assert.deepEqual([result.exitCode, result.stdout, result.stderr], [0, `${text}\n`, ''])
  })

  row('commands/run: run with special characters', {}, async ({ sandbox }) => {
    const text = '!@#$%^&*()_+'
    const result = await sandbox.commands.run(`echo '${text}'`)
    assert.deepEqual([result.exitCode, result.stdout], [0, `${text}\n`])
  })

  row('commands/run: run with multiline string', {}, async ({ sandbox }) => {
    const text = 'Hello,\nWorld!'
    const result = await sandbox.commands.run(`echo "${text}"`)
    assert.deepEqual([result.exitCode, result.stdout], [0, `${text}\n`])
  })

  row('commands/run: run with timeout', {}, async ({ sandbox }) => {
    const result = await sandbox.commands.run('echo in time', { timeoutMs: 4000 })
    assert.deepEqual([result.exitCode, result.stdout], [0, 'in time\n'])
  })

  row('commands/run: run with too short timeout', {}, async ({ sandbox }) => {
    await assert.rejects(sandbox.commands.run('sleep 10', { timeoutMs: 1000 }), TimeoutError)
  })

  row('commands/run: run with too short timeout iterating', {}, async ({ sandbox }) => {
    const command = await sandbox.commands.run('sleep 10', { timeoutMs: 2000, background: true })
    await assert.rejects(command.wait(), TimeoutError)
    // The limit also ends the process itself.
    await until('the process to end', async () => {
      const probe = await sandbox.commands.run(`${ended(command.pid)} 2>/dev/null || echo gone`)
      return probe.stdout.trim() === 'gone'
    })
  })
})

describe('commands/killed', () => {
  row('commands/killed: killing the sandbox while a command is running', {}, async ({ sandbox }) => {
    const command = await sandbox.commands.run('sleep 60', { background: true })
    await sandbox.kill()
    await assert.rejects(command.wait(), (error) => {
      assert.ok(error instanceof TimeoutError, `${error}`)
      assert.match(error.message, /sandbox was killed or reached its end of life/)
      return true
    })
  })
})

describe('commands/stdin', parallel, () => {
  // Starts `cat`, feeds it through `feed`, and expects `text` back while stdin stays open.
  async function echoed(sandbox, text, feed) {
    let out = ''
    const command = await sandbox.commands.run('cat', {
      background: true,
      stdin: true,
      onStdout: (chunk) => {
        out += chunk
      },
    })
    try {
      await feed(command)
      await until(`${JSON.stringify(text)} on stdout`, () => out.length >= text.length)
      assert.equal(out, text)
      assert.equal(command.stdout, text)
    } finally {
      assert.equal(await command.kill(), true)
    }
  }

  row('commands/stdin: send stdin to process', {}, async ({ sandbox }) => {
    const text = 'Hello, World!'
    await echoed(sandbox, text, (command) => sandbox.commands.sendStdin(command.pid, text))
  })

  row('commands/stdin: send binary stdin', {}, async ({ sandbox }) => {
    const text = 'Hëllo, Wörld!'
    const bytes = new TextEncoder().encode(text)
    await echoed(sandbox, text, (command) => sandbox.commands.sendStdin(command.pid, bytes))
  })

  row('commands/stdin: send stdin via command handle', {}, async ({ sandbox }) => {
    const text = 'through the handle'
    await echoed(sandbox, text, (command) => command.sendStdin(text))
  })

  row('commands/stdin: close stdin via command handle', {}, async ({ sandbox }) => {
    const text = 'all of it'
    const command = await sandbox.commands.run('cat', { background: true, stdin: true })
    await command.sendStdin(text)
    await command.closeStdin()
    const result = await command.wait()
    assert.deepEqual([result.exitCode, result.stdout], [0, text])
  })

  row('commands/stdin: send empty stdin to process', {}, async ({ sandbox }) => {
    const command = await sandbox.commands.run('cat', { background: true, stdin: true })
    await sandbox.commands.sendStdin(command.pid, '')
    await sandbox.commands.closeStdin(command.pid)
    const result = await command.wait()
    assert.deepEqual([result.exitCode, result.stdout], [0, ''])
  })

  row('commands/stdin: send special characters', {}, async ({ sandbox }) => {
    const text = '!@#$%^&*()_+\\"\'`|<>;'
    await echoed(sandbox, text, (command) => sandbox.commands.sendStdin(command.pid, text))
  })

  row('commands/stdin: send multiline string', {}, async ({ sandbox }) => {
    const text = 'Hello,\nWorld!\n\nthird\n'
    await echoed(sandbox, text, (command) => sandbox.commands.sendStdin(command.pid, text))
  })
})
