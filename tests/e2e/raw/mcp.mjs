// MCP hosts: the official client over stdio and over streamable HTTP, and what its answers must have.
import { test } from 'node:test'
import { Client, StdioClientTransport, StreamableHTTPClientTransport } from '../js/mcp-sdk.mjs'
import { api, apiKey, apiUrl, assert, limited, plainUrl, unique } from './support.mjs'

export const HOME = '/home/user'

export class Host {
  // `kind`: 'http' or 'stdio'. `key`: of the session; null leaves it to the server.
  static async connect(kind, { key = unique('mcp'), headers = {}, args = [], url = plainUrl.href, apiKey: own = apiKey } = {}) {
    const host = new Host()
    host.key = key
    host.stderr = ''
    if (kind === 'http') {
      host.transport = new StreamableHTTPClientTransport(new URL('/mcp', apiUrl), {
        requestInit: { headers: { 'X-API-Key': own, ...(key && { 'X-Atoll-Session': key }), ...headers } },
      })
    } else {
      host.transport = new StdioClientTransport({
        command: process.env.ATOLL_E2E_ATOLL,
        args: ['mcp', ...(key ? ['--session', key] : []), ...args],
        env: { E2B_API_URL: url, E2B_API_KEY: own },
        stderr: 'pipe',
      })
      host.transport.stderr.on('data', (data) => (host.stderr += data))
    }
    host.client = new Client({ name: 'atoll-e2e', version: '1.0.0' })
    await host.client.connect(host.transport)
    // From now on the client checks structured content against the tools' output schemas.
    host.tools = (await host.client.listTools()).tools
    return host
  }

  call(name, args = {}, options = {}) {
    return this.client.callTool({ name, arguments: args }, undefined, { timeout: 130_000, ...options })
  }

  // A call that must succeed: its structured content.
  async ok(name, args, options) {
    const result = await this.call(name, args, options)
    assert.ok(!result.isError, JSON.stringify(result).slice(0, 2000))
    return this.checked(result)
  }

  // A call that must fail with this code.
  async fails(code, name, args) {
    const result = await this.call(name, args)
    const fields = this.checked(result)
    assert.equal(result.isError, true, `${name} ${JSON.stringify(args)}: ${JSON.stringify(result).slice(0, 1000)}`)
    assert.equal(fields.error, code, fields.message)
    assert.ok(fields.message.length > 10)
    assert.doesNotMatch(fields.message, /\.cc:|Traceback|std::|exception/i)
    return fields
  }

  checked(result) {
    const fields = result.structuredContent
    assert.ok(fields, 'structured content')
    assert.equal(typeof fields.session_id, 'string')
    if (this.key) assert.equal(fields.session_id, this.key)
    assert.equal(result.content[0].type, 'text')
    return fields
  }

  async bash(command, timeout = 30) {
    const fields = await this.ok('bash_exec', { command, timeout })
    assert.equal(fields.exit_code, 0, `${command}: ${fields.stderr}`)
    return fields.stdout
  }

  async close() {
    await this.client.close()
    if (this.key) await api('DELETE', `/sessions/${encodeURIComponent(this.key)}`)
  }
}

// A case with a host and a sandbox of its own.
export function withHost(id, kind, body, { seconds = 90, ...options } = {}) {
  test(id, limited(seconds), async (t) => {
    const host = await Host.connect(kind, options)
    try {
      await body(host, t)
    } catch (error) {
      if (error instanceof Error && host.stderr) error.stack += `\nstderr of atoll mcp: ${host.stderr}`
      throw error
    } finally {
      await host.close()
    }
  })
}
