// One half of the seed flow as a program of its own: seed.mjs make | seed.mjs find ID. seed.py is its twin.
import assert from 'node:assert/strict'
import process from 'node:process'
import { Sandbox } from '../js/code-sdk.mjs'

const template = process.env.E2E_CODE_TEMPLATE ?? 'code-interpreter-v1'
const [verb, id, pid] = process.argv.slice(2)

async function visit(sandbox) {
  const response = await fetch(`https://8000-${sandbox.sandboxId}.${process.env.E2E_DOMAIN}/`)
  return [response.status, await response.text()]
}

if (verb === 'make') {
  const sandbox = await Sandbox.create(template, { timeoutMs: 300_000, envs: { SEED: 'yes' } })
  const { error } = await sandbox.runCode('import pandas as pd\nframe = pd.DataFrame({"n": range(1000)})\ndef total(): return int(frame.n.sum())\nsecret = "told once"')
  assert.equal(error, undefined, error?.traceback)
  await sandbox.files.write('www/index.html', 'from the seed')
  await sandbox.files.write('/tmp/note', 'written before')
  await sandbox.commands.run('cd www && exec python3 -m http.server 8000', { background: true, timeoutMs: 0 })
  const counter = await sandbox.commands.run('n=0; while :; do n=$((n+1)); echo $n > /dev/shm/n; sleep 0.02; done', { background: true, timeoutMs: 0 })
  for (let tries = 0; (await visit(sandbox).catch(() => [0]))[0] !== 200; tries++) {
    assert.ok(tries < 300, 'the web server answers')
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  assert.equal(await sandbox.pause(), true)
  console.log(JSON.stringify({ id: sandbox.sandboxId, pid: counter.pid }))
} else {
  const sandbox = await Sandbox.connect(id)
  assert.equal((await sandbox.runCode('total(), secret')).text, "(499500, 'told once')")
  assert.deepEqual(await visit(sandbox), [200, 'from the seed'])
  assert.equal(await sandbox.files.read('/tmp/note'), 'written before')
  assert.equal((await sandbox.commands.run('echo $SEED')).stdout, 'yes\n')
  assert.ok((await sandbox.commands.list()).some((entry) => entry.pid === Number(pid)), 'the process is listed')
  const number = async () => Number(await sandbox.files.read('/dev/shm/n'))
  const before = await number()
  for (let tries = 0; (await number()) <= before; tries++) assert.ok(tries < 300, 'the process counts')
  await sandbox.commands.kill(Number(pid))
  console.log('found')
}
process.exit(0)
