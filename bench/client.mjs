// The JavaScript SDK as a bench client: one JSON request per line on stdin, one JSON answer per line on stdout.
//   {"op":"create"}  a new sandbox and its first command; { create, first, total } in ms; the kill is not counted
//   {"op":"open"}    keeps a sandbox for the calls below; { id, token }
//   {"op":"run"}     commands.run("true") in it; { total }
//   {"op":"plain"}   the same call as a hand-made request on a kept connection; { total }
//   {"op":"close"}   kills it
import http from 'node:http'
import readline from 'node:readline'
import { Sandbox } from '../tests/e2e/js/sdk.mjs'

const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
let kept

function envelope(message) {
  const payload = Buffer.from(JSON.stringify(message))
  const head = Buffer.alloc(5)
  head.writeUInt32BE(payload.length, 1)
  return Buffer.concat([head, payload])
}

function plain() {
  const body = envelope({ process: { cmd: '/bin/bash', args: ['-l', '-c', 'true'] }, stdin: false })
  const url = new URL(process.env.E2B_SANDBOX_URL)
  return new Promise((resolve, reject) => {
    const request = http.request({
      host: url.hostname, port: url.port, method: 'POST', path: '/process.Process/Start', agent,
      headers: {
        'Content-Type': 'application/connect+json', 'Connect-Protocol-Version': '1', 'Content-Length': body.length,
        'E2b-Sandbox-Id': kept.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': kept.envdAccessToken,
      },
    }, (response) => {
      const chunks = []
      response.on('data', (chunk) => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString()
        if (text.includes('exit status 0')) resolve()
        else reject(new Error(text))
      })
    })
    request.on('error', reject)
    request.end(body)
  })
}

const operations = {
  async create() {
    const began = performance.now()
    const sandbox = await Sandbox.create('base', { timeoutMs: 60_000 })
    const made = performance.now()
    await sandbox.commands.run('true')
    const ran = performance.now()
    await sandbox.kill()
    return { create: made - began, first: ran - made, total: ran - began }
  },
  async open() {
    kept = await Sandbox.create('base', { timeoutMs: 3_600_000 })
    return { id: kept.sandboxId, token: kept.envdAccessToken }
  },
  async run() {
    const began = performance.now()
    await kept.commands.run('true')
    return { total: performance.now() - began }
  },
  async plain() {
    const began = performance.now()
    await plain()
    return { total: performance.now() - began }
  },
  async close() {
    await kept.kill()
    return {}
  },
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  let answer
  try {
    answer = await operations[JSON.parse(line).op]()
  } catch (error) {
    answer = { error: String(error?.stack ?? error) }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
process.exit(0)
