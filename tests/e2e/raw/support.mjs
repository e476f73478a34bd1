// Hand-made HTTP for the raw suites: plain requests, raw sockets, Connect framing with both codecs.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import http from 'node:http'
import https from 'node:https'
import net from 'node:net'
import { test } from 'node:test'
export { Sandbox } from '../js/sdk.mjs'

export { assert }
export const domain = process.env.E2E_DOMAIN
// By domain and TLS unless the run says plain URLs.
export const overTls = !process.env.E2B_API_URL
export const apiUrl = new URL(process.env.E2B_API_URL ?? `https://api.${domain}`)
// The server's plain address, for suites that look at bytes; both lead to the same server.
export const plainUrl = new URL(process.env.E2E_SERVER_URL)
export const apiKey = process.env.E2B_API_KEY
const timeScale = Number(process.env.E2E_TIME_SCALE ?? 1)

export const unique = (prefix) => `${prefix}-${randomBytes(6).toString('hex')}`
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// Every limit is for a fast machine: a slow one has E2E_TIME_SCALE times as long. Only for what must happen: waiting for something
// that must not would take longer for nothing.
export async function until(what, probe, limitMs = 10_000) {
  const end = Date.now() + limitMs * timeScale
  for (;;) {
    const value = await probe()
    if (value) return value
    if (Date.now() > end) assert.fail(`gave up waiting for ${what}`)
    await sleep(25)
  }
}

export const limited = (seconds) => ({ timeout: seconds * 1000 * timeScale })

// A client request of node:http or node:https over a connection of its own.
export const start = (base, options, onResponse) =>
  (base.protocol === 'https:' ? https : http).request(
    { host: base.hostname, port: base.port || (base.protocol === 'https:' ? 443 : 80), agent: false, ...options }, onResponse)

// Where a port of a sandbox answers by its own name.
export const hostOf = (id, port) => `${port}-${id}.${domain}`
export const urlOf = (id, port) => new URL(`https://${hostOf(id, port)}`)

// The administrator's secret, as the server keeps it.
export const adminToken = () => readFileSync(`${process.env.ATOLL_E2E_HOME}/keys/admin.token`, 'utf8').trim()

// One request over a connection of its own. The body may be a string, bytes, or an async iterable (sent chunked).
// Returns { status, headers, body (Buffer), text, json }.
export function request(method, path, { headers = {}, body, base = apiUrl } = {}) {
  return new Promise((resolve, reject) => {
    const req = start(base, { method, path, headers }, (res) => {
      const chunks = []
      res.on('data', (chunk) => chunks.push(chunk))
      res.on('error', reject)
      res.on('end', () => {
        const whole = Buffer.concat(chunks)
        resolve({
          status: res.statusCode,
          headers: res.headers,
          body: whole,
          text: whole.toString(),
          get json() {
            return JSON.parse(whole.toString())
          },
        })
      })
    })
    req.on('error', reject)
    if (body === undefined) req.end()
    else if (typeof body === 'string' || body instanceof Uint8Array) req.end(body)
    else
      (async () => {
        for await (const piece of body) if (!req.write(piece)) await new Promise((go) => req.once('drain', go))
        req.end()
      })().catch(reject)
  })
}

// A control-plane call with the API key; objects become JSON.
export function api(method, path, body, headers = {}) {
  const isText = typeof body === 'string' || body instanceof Uint8Array
  return request(method, path, {
    headers: { 'X-API-KEY': apiKey, ...(body === undefined ? {} : { 'Content-Type': 'application/json' }), ...headers },
    body: body === undefined || isText ? body : JSON.stringify(body),
  })
}

// Writes `bytes` to a fresh connection and returns all that comes back until the server closes or `waitMs` pass.
export function exchange(bytes, { waitMs = 5_000, base = apiUrl } = {}) {
  return new Promise((resolve) => {
    const socket = net.connect(Number(base.port), base.hostname)
    const chunks = []
    let closed = false
    const done = () => {
      clearTimeout(timer)
      socket.destroy()
      resolve({ text: Buffer.concat(chunks).toString('latin1'), closed })
    }
    const timer = setTimeout(done, waitMs)
    socket.on('data', (chunk) => chunks.push(chunk))
    socket.on('error', () => {
      closed = true
      done()
    })
    socket.on('end', () => {
      closed = true
      done()
    })
    socket.write(bytes)
  })
}

export const statusOf = (text) => Number(/^HTTP\/1\.[01] (\d{3})/.exec(text)?.[1] ?? 0)

// --- a sandbox made by plain requests

export class Raw {
  static async create(options = {}) {
    const made = await api('POST', '/v2/sandboxes', { templateID: 'base', timeout: 120, ...options })
    assert.equal(made.status, 201, made.text)
    return new Raw(made.json)
  }

  constructor(fields) {
    this.id = fields.sandboxID
    this.token = fields.envdAccessToken
    this.fields = fields
    this.streams = []
  }

  // Headers that lead to the agent, with its token.
  headers(port = 49983) {
    return { 'E2b-Sandbox-Id': this.id, 'E2b-Sandbox-Port': String(port), ...(this.token && { 'X-Access-Token': this.token }) }
  }

  get base() {
    return overTls ? urlOf(this.id, 49983) : apiUrl
  }

  request(method, path, { headers = {}, ...options } = {}) {
    return request(method, path, { base: this.base, headers: { ...this.headers(), ...headers }, ...options })
  }

  // A request to a server inside, by the host of its port and nothing else.
  visit(port, path = '/', { method = 'GET', headers = {}, body } = {}) {
    return request(method, path, { base: urlOf(this.id, port), headers, body })
  }

  upload(path, body, headers = {}) {
    return this.request('POST', `/files?path=${encodeURIComponent(path)}`, {
      headers: { 'Content-Type': 'application/octet-stream', ...headers },
      body,
    })
  }

  download(path, headers = {}) {
    return this.request('GET', `/files?path=${encodeURIComponent(path)}`, { headers })
  }

  // Unary call with the JSON codec.
  call(procedure, message, headers = {}) {
    return this.request('POST', procedure, {
      headers: { 'Content-Type': 'application/json', 'Connect-Protocol-Version': '1', ...headers },
      body: typeof message === 'string' || message instanceof Uint8Array ? message : JSON.stringify(message),
    })
  }

  // Whole server stream: { status, messages, end }. `encode`/`decode` default to JSON.
  async stream(procedure, message, { headers = {}, codec = jsonCodec, framed } = {}) {
    const answer = await this.request('POST', procedure, {
      headers: { 'Content-Type': `application/connect+${codec.name}`, 'Connect-Protocol-Version': '1', ...headers },
      body: framed ?? envelope(codec.encode(message)),
    })
    return Object.assign(answer, answer.status === 200 ? readEnvelopes(answer.body, codec) : { messages: [], end: undefined })
  }

  // An open server stream: events arrive in `messages`; `ended` resolves with the end-of-stream object, or rejects when
  // the connection breaks.
  open(procedure, message, { headers = {} } = {}) {
    const stream = { messages: [], socket: undefined }
    const req = start(this.base, {
      method: 'POST', path: procedure,
      headers: { ...this.headers(), 'Content-Type': 'application/connect+json', 'Connect-Protocol-Version': '1', ...headers },
    })
    stream.close = () => req.destroy()
    stream.request = req
    this.streams.push(stream)
    stream.ended = new Promise((resolve, reject) => {
      req.on('error', reject)
      req.on('response', (res) => {
        stream.status = res.statusCode
        stream.response = res
        let rest = Buffer.alloc(0)
        res.on('data', (chunk) => {
          rest = Buffer.concat([rest, chunk])
          while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
            const size = rest.readUInt32BE(1)
            const value = JSON.parse(rest.subarray(5, 5 + size).toString() || '{}')
            if (rest[0] & 2) resolve(value)
            else stream.messages.push(value)
            rest = rest.subarray(5 + size)
          }
        })
        res.on('error', reject)
        res.on('end', () => reject(new Error('the body ended without an end-of-stream envelope')))
      })
    })
    stream.ended.catch(() => {})
    req.end(envelope(jsonCodec.encode(message)))
    return stream
  }

  // Runs a shell command through the agent and returns { stdout, stderr, end }.
  async run(command, user) {
    const headers = user ? { Authorization: `Basic ${Buffer.from(`${user}:`).toString('base64')}` } : {}
    const answer = await this.stream('/process.Process/Start',
      { process: { cmd: '/bin/bash', args: ['-l', '-c', command] }, stdin: false }, { headers })
    assert.deepEqual(answer.end, {}, JSON.stringify(answer.end))
    const gather = (kind) =>
      Buffer.concat(answer.messages.map((m) => Buffer.from(m.event?.data?.[kind] ?? '', 'base64'))).toString()
    return { stdout: gather('stdout'), stderr: gather('stderr'), end: answer.messages.at(-1).event.end }
  }

  kill() {
    return api('DELETE', `/sandboxes/${this.id}`)
  }

  // Starts a command that goes on, and returns its stream.
  background(command, user) {
    const headers = user ? { Authorization: `Basic ${Buffer.from(`${user}:`).toString('base64')}` } : {}
    return this.open('/process.Process/Start', { process: { cmd: '/bin/bash', args: ['-l', '-c', command] } }, { headers })
  }

  // A Python program inside that serves `port`; comes back when it does.
  async serve(port, program, { address = '127.0.0.1' } = {}) {
    const name = `/home/user/serve-${port}.py`
    assert.equal((await this.upload(name, program)).status, 200)
    this.background(`exec python3 -u ${name} > /tmp/serve-${port}.log 2>&1`)
    await until(`the server on port ${port} of sandbox ${this.id}`, async () =>
      (await this.run(`python3 -c 'import socket; socket.create_connection(("${address}", ${port}), 1)' 2>/dev/null && echo up || true`))
        .stdout === 'up\n')
  }

  api(method, path = '', body, headers) {
    return api(method, `/sandboxes/${this.id}${path}`, body, headers)
  }

  async alive() {
    const health = await this.request('GET', '/health')
    return health.status === 204
  }
}

// A case with a raw sandbox of its own.
export function withSandbox(id, body, { seconds = 30, create = {} } = {}) {
  test(id, limited(seconds), async (t) => {
    const sandbox = await Raw.create({ metadata: { e2e: id }, ...create })
    try {
      await body(sandbox, t)
    } catch (error) {
      if (error instanceof Error) error.stack = `sandbox ${sandbox.id}: ${error.stack}`
      throw error
    } finally {
      // An open connection would keep the whole file from ending.
      for (const stream of sandbox.streams) stream.close()
      await sandbox.kill()
    }
  })
}

// --- Connect framing

export function envelope(payload, flags = 0) {
  const head = Buffer.alloc(5)
  head[0] = flags
  head.writeUInt32BE(payload.length, 1)
  return Buffer.concat([head, payload])
}

export const jsonCodec = {
  name: 'json',
  encode: (message) => Buffer.from(typeof message === 'string' ? message : JSON.stringify(message)),
  decode: (bytes) => JSON.parse(bytes.toString() || '{}'),
}

export function readEnvelopes(body, codec = jsonCodec) {
  const messages = []
  let end
  let at = 0
  while (at < body.length) {
    const size = body.readUInt32BE(at + 1)
    const payload = body.subarray(at + 5, at + 5 + size)
    assert.equal(payload.length, size, 'whole envelopes')
    if (body[at] & 2) end = JSON.parse(payload.toString())
    else messages.push(codec.decode(payload))
    at += 5 + size
  }
  return { messages, end }
}

// --- protobuf by hand: [field, value] pairs in, a map of field -> [values] out

function varint(n) {
  const out = []
  let rest = BigInt.asUintN(64, BigInt(n))
  do {
    const low = Number(rest & 0x7fn)
    rest >>= 7n
    out.push(rest ? low | 0x80 : low)
  } while (rest)
  return Buffer.from(out)
}

// Numbers and booleans are varints, the rest is length-delimited (strings, bytes, nested pair lists).
export function proto(...fields) {
  return Buffer.concat(fields.flatMap(([number, value]) => {
    if (typeof value === 'number' || typeof value === 'boolean') return [varint(number << 3), varint(Number(value))]
    const bytes = Array.isArray(value) ? proto(...value) : Buffer.from(value)
    return [varint((number << 3) | 2), varint(bytes.length), bytes]
  }))
}

export function unproto(bytes) {
  const fields = new Map()
  let at = 0
  const next = () => {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++]
      value |= BigInt(byte & 0x7f) << shift
      if (!(byte & 0x80)) return value
    }
  }
  while (at < bytes.length) {
    const key = Number(next())
    let value
    if ((key & 7) === 0) value = Number(next())
    else if ((key & 7) === 2) {
      const size = Number(next())
      value = bytes.subarray(at, at + size)
      at += size
    } else assert.fail(`wire type ${key & 7}`)
    fields.set(key >> 3, [...(fields.get(key >> 3) ?? []), value])
  }
  return fields
}

export const protoCodec = { name: 'proto', encode: (bytes) => bytes, decode: unproto }
