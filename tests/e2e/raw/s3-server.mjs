// A real S3 server for a suite: SeaweedFS, one process, which checks signatures and keeps its objects on disk.
import { execFile, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { request, until } from './support.mjs'

// Ports p and p + 10000 (gRPC) that are free now.
async function freePort() {
  const free = (port) => new Promise((resolve) => {
    const probe = net.createServer().once('error', () => resolve(0)).listen(port, '127.0.0.1', () => {
      const { port: got } = probe.address()
      probe.close(() => resolve(got))
    })
  })
  for (;;) {
    const port = await free(0)
    if (port > 10_000 && port < 45_000 && (await free(port + 10_000))) return port
    const lower = 10_000 + Math.floor(Math.random() * 20_000)
    if ((await free(lower)) && (await free(lower + 10_000))) return lower
  }
}

export class S3Server {
  static async start(bucket) {
    const server = new S3Server()
    server.bucket = bucket
    server.accessKey = `AK${randomBytes(8).toString('hex').toUpperCase()}`
    server.secretKey = `${randomBytes(18).toString('base64').replaceAll('=', '')}/+x`
    server.dir = fs.mkdtempSync(path.join(os.tmpdir(), 'atoll-s3-'))
    server.accept(server.secretKey)
    fs.mkdirSync(path.join(server.dir, 'data'))
    server.ports = []
    for (let i = 0; i < 4; i++) server.ports.push(await freePort())
    await server.up()
    await until('the bucket', () => server.curl('PUT', `/${bucket}`).then(() => true, () => false), 30_000)
    return server
  }

  // The secret of its key, from the next start on.
  accept(secretKey) {
    fs.writeFileSync(path.join(this.dir, 's3.json'), JSON.stringify({
      identities: [{ name: 'test', credentials: [{ accessKey: this.accessKey, secretKey }], actions: ['Admin', 'Read', 'Write', 'List'] }],
    }))
  }

  // Starts it over what is there; comes back when it answers.
  async up() {
    const [s3, master, volume, filer] = this.ports
    this.log = fs.openSync(path.join(this.dir, 'log'), 'a')
    this.child = spawn(process.env.E2E_S3, ['-logtostderr', 'server', '-ip=127.0.0.1', `-dir=${path.join(this.dir, 'data')}`, '-s3', `-s3.port=${s3}`,
      `-s3.config=${path.join(this.dir, 's3.json')}`, `-master.port=${master}`, `-volume.port=${volume}`, `-filer.port=${filer}`,
      '-master.volumeSizeLimitMB=1024', '-volume.max=64', '-master.telemetry=false'], { stdio: ['ignore', this.log, this.log] })
    this.ended = new Promise((resolve) => this.child.on('exit', resolve))
    await until('the S3 server', async () => {
      try {
        return (await request('GET', '/', { base: this.url })).status > 0
      } catch {
        return false
      }
    }, 60_000)
  }

  // At once; it has nothing to say good-bye to.
  async down() {
    this.child.kill('SIGKILL')
    await this.ended
    fs.closeSync(this.log)
  }

  async stop() {
    await this.down()
    fs.rmSync(this.dir, { recursive: true, force: true })
  }

  get url() {
    return new URL(`http://127.0.0.1:${this.ports[0]}`)
  }
  location(prefix = 'atoll') {
    return `s3://${this.bucket}/${prefix}?endpoint=${this.url.origin}&region=us-east-1&path_style=1`
  }
  get environment() {
    return { AWS_ACCESS_KEY_ID: this.accessKey, AWS_SECRET_ACCESS_KEY: this.secretKey }
  }

  // A signed request by somebody else's implementation; rejects on a refusal.
  async curl(method, target) {
    const { stdout } = await promisify(execFile)('curl', ['-sSf', '--max-time', '60', '--aws-sigv4', 'aws:amz:us-east-1:s3', '--user',
      `${this.accessKey}:${this.secretKey}`, '-X', method, `${this.url.origin}${target}`], { maxBuffer: 64 << 20 })
    return stdout
  }
  async keys(prefix = '') {
    const list = await this.curl('GET', `/${this.bucket}?list-type=2&prefix=${encodeURIComponent(prefix)}`)
    return [...list.matchAll(/<Key>([^<]*)<\/Key>/g)].map((m) => m[1])
  }
  async uploads() {
    return [...(await this.curl('GET', `/${this.bucket}?uploads=`)).matchAll(/<UploadId>([^<]*)<\/UploadId>/g)].map((m) => m[1])
  }
}
