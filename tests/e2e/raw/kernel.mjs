// The code interpreter by plain requests: runs as streams of lines.
import { Raw, api, apiUrl, assert, limited, overTls, request, start, until, urlOf } from './support.mjs'
import { test } from 'node:test'

export const template = process.env.E2E_CODE_TEMPLATE ?? 'code-interpreter-v1'
export const PORT = 49999

export class Interpreter extends Raw {
  static async create(options = {}) {
    const made = await api('POST', '/v2/sandboxes', { templateID: template, timeout: 300, ...options })
    assert.equal(made.status, 201, made.text)
    return new Interpreter(made.json)
  }

  // Over a domain the name of the host says it all, as with clients that send no headers.
  get where() {
    const traffic = this.fields.trafficAccessToken && { 'E2B-Traffic-Access-Token': this.fields.trafficAccessToken }
    return overTls ? { base: urlOf(this.id, PORT), headers: { ...traffic } }
      : { base: apiUrl, headers: { 'E2b-Sandbox-Id': this.id, 'E2b-Sandbox-Port': String(PORT), ...traffic } }
  }

  // One plain request; objects become JSON.
  ask(method, path, body, headers = {}) {
    const { base, headers: route } = this.where
    return request(method, path, {
      base,
      headers: { ...route, ...(body === undefined ? {} : { 'Content-Type': 'application/json' }), ...headers },
      body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
    })
  }

  // A run that has begun: `lines` grow, `answered` and `ended` are promises. Output beyond `keep` characters is counted only.
  begin(code, options = {}, { keep = 1 << 20, route = this.where } = {}) {
    const run = { lines: [], chunks: 0, bytes: 0, count: 0, kept: 0, ascii: true, whole: false }
    const body = JSON.stringify(typeof code === 'object' ? code : { code, ...options })
    const req = start(route.base, { method: 'POST', path: '/execute', headers: { ...route.headers, 'Content-Type': 'application/json' } })
    run.close = () => req.destroy()
    this.streams.push(run)
    let answer
    run.answered = new Promise((resolve, reject) => {
      answer = resolve
      req.on('error', reject)
    })
    run.ended = new Promise((resolve, reject) => {
      req.on('error', reject)
      req.on('response', (res) => {
        run.status = res.statusCode
        run.headers = res.headers
        answer(res.statusCode)
        let rest = ''
        res.on('data', (chunk) => {
          run.chunks++
          run.bytes += chunk.length
          const text = chunk.toString('latin1')
          if (/[^\n\x20-\x7e]/.test(text)) run.ascii = false
          const parts = (rest + text).split('\n')
          rest = parts.pop()
          for (const part of parts) {
            run.count++
            const line = part.length + run.kept > keep && !/^\{"type": ?"(error|end_of|number)/.test(part) ? undefined : part
            if (line === undefined) continue
            run.kept += line.length
            run.lines.push(JSON.parse(line))
          }
        })
        res.on('error', reject)
        res.on('end', () => {
          run.whole = true
          run.rest = rest
          resolve(run)
        })
      })
    })
    run.answered.catch(() => {})
    run.ended.catch(() => {})
    run.of = (type) => run.lines.filter((line) => line.type === type)
    req.end(body)
    return run
  }

  // A whole run, summed up.
  async run(code, options, more) {
    if (typeof options === 'string') options = { language: options }
    const run = await this.begin(code, options, more).ended
    return summary(run)
  }

  // A command by the process service, as any client runs one.
  command(line, user) {
    return super.run(line, user)
  }

  // The sandbox still answers, in its Python default.
  async usable() {
    const after = await this.run('1 + 1')
    assert.equal(after.text, '2', JSON.stringify(after.run.lines))
    return after
  }

  async printed(run, text) {
    await until(`the output ${JSON.stringify(text)}`, () => run.of('stdout').some((line) => line.text.includes(text)), 60_000)
  }
}

export function summary(run) {
  assert.equal(run.status, 200)
  const texts = (type) => run.of(type).map((line) => line.text)
  return {
    run,
    error: run.of('error').at(-1),
    stdout: texts('stdout').join(''),
    stderr: texts('stderr').join(''),
    results: run.of('result'),
    text: run.of('result').find((line) => line.is_main_result)?.text,
    count: run.of('number_of_executions')[0]?.execution_count,
  }
}

// A case with a sandbox of its own.
export function withInterpreter(id, body, { seconds = 60, create = {} } = {}) {
  test(id, limited(seconds), async (t) => {
    const sandbox = await Interpreter.create({ metadata: { e2e: id }, ...create })
    // A case that takes too long is left where it is: its streams would keep the file from ending.
    t.signal.addEventListener('abort', () => {
      for (const stream of sandbox.streams) stream.close()
      sandbox.kill().catch(() => {})
    })
    try {
      await body(sandbox, t)
    } catch (error) {
      if (error instanceof Error) error.stack = `sandbox ${sandbox.id}: ${error.stack}`
      throw error
    } finally {
      for (const stream of sandbox.streams) stream.close()
      await sandbox.kill()
    }
  })
}
