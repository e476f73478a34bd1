import { describe } from 'node:test'
import { CommandExitError } from 'e2b'
import { assert, parallel, row, until } from './support.mjs'

const bytes = (text) => new TextEncoder().encode(text)

function collector() {
  const decoder = new TextDecoder()
  const out = { text: '', onData: (data) => void (out.text += decoder.decode(data, { stream: true })) }
  return out
}

const size = { cols: 80, rows: 24 }

describe('pty', parallel, () => {
  row('pty/kill: kill PTY', {}, async ({ sandbox }) => {
    const pty = await sandbox.pty.create({ ...size, onData: () => {} })
    assert.equal(await sandbox.pty.kill(pty.pid), true)
    await assert.rejects(pty.wait(), CommandExitError)
    await assert.rejects(sandbox.commands.run(`kill -0 ${pty.pid}`), CommandExitError)
  })

  row('pty/kill: kill non-existing PTY', {}, async ({ sandbox }) => {
    assert.equal(await sandbox.pty.kill(999999), false)
  })

  row('pty/connect: reconnect', {}, async ({ sandbox }) => {
    const [first, second] = [collector(), collector()]
    const pty = await sandbox.pty.create({ ...size, envs: { FOO: 'bar' }, onData: first.onData })
    await sandbox.pty.sendInput(pty.pid, bytes('echo $FOO\n'))
    await until('the first echo', () => /^bar/m.test(first.text))
    await pty.disconnect()

    const again = await sandbox.pty.connect(pty.pid, { onData: second.onData })
    assert.equal(again.pid, pty.pid)
    await sandbox.pty.sendInput(pty.pid, bytes('echo $FOO\nexit\n'))
    const result = await again.wait()
    assert.equal(result.exitCode, 0)
    assert.match(second.text, /^bar/m)
  })

  row('pty/create: create PTY', {}, async ({ sandbox }) => {
    const out = collector()
    const pty = await sandbox.pty.create({ ...size, envs: { ABC: '123' }, cwd: '/', onData: out.onData })
    await sandbox.pty.sendInput(pty.pid, bytes('echo $ABC; pwd; echo $TERM\nexit\n'))
    const result = await pty.wait()
    assert.equal(result.exitCode, 0)
    assert.match(out.text, /^123/m)
    assert.match(out.text, /^\/\r$/m)
    assert.match(out.text, /^xterm-256color/m)
  })

  row('pty/resize: resize', {}, async ({ sandbox }) => {
    const out = collector()
    const pty = await sandbox.pty.create({ ...size, onData: out.onData })
    await sandbox.pty.sendInput(pty.pid, bytes('tput cols\n'))
    await until('80 columns', () => /^80\r?$/m.test(out.text))
    await sandbox.pty.resize(pty.pid, { cols: 100, rows: 24 })
    await sandbox.pty.sendInput(pty.pid, bytes('tput cols\nexit\n'))
    const result = await pty.wait()
    assert.equal(result.exitCode, 0)
    assert.match(out.text, /^100\r?$/m)
  })

  row('pty/input: send input', {}, async ({ sandbox }) => {
    const pty = await sandbox.pty.create({ ...size, onData: () => {} })
    await sandbox.pty.sendInput(pty.pid, bytes('exit\n'))
    assert.equal((await pty.wait()).exitCode, 0)
  })
})
