import { describe } from 'node:test'
import { assert, parallel, route, row } from './support.mjs'

const expired = { code: 401, message: 'signature is already expired' }

// The URL carries the signature; the headers only say which sandbox is meant. No access token is sent.
const get = (sandbox, url) => fetch(url, { headers: route(sandbox) })

function post(sandbox, url, content) {
  const form = new FormData()
  form.append('file', content)
  return fetch(url, { method: 'POST', body: form, headers: route(sandbox) })
}

describe('files/signing', parallel, () => {
  row('files/signing: download with expired signature', {}, async ({ sandbox }) => {
    await sandbox.files.write('hello.txt', 'hello world')
    const url = await sandbox.downloadUrl('hello.txt', { useSignatureExpiration: -120 })
    const response = await get(sandbox, url)
    assert.equal(response.status, 401)
    assert.deepEqual(await response.json(), expired)
  })

  row('files/signing: download with valid signature', {}, async ({ sandbox }) => {
    await sandbox.files.write('hello.txt', 'hello world')
    const response = await get(sandbox, await sandbox.downloadUrl('hello.txt'))
    assert.equal(response.status, 200)
    assert.equal(await response.text(), 'hello world')
  })

  row('files/signing: download with valid signature and expiry', {}, async ({ sandbox }) => {
    await sandbox.files.write('hello.txt', 'hello world')
    const url = await sandbox.downloadUrl('hello.txt', { useSignatureExpiration: 120, user: 'user' })
    assert.ok(new URL(url).searchParams.has('signature_expiration'))
    const response = await get(sandbox, url)
    assert.equal(response.status, 200)
    assert.equal(await response.text(), 'hello world')

    const tampered = new URL(url)
    tampered.searchParams.set('path', '/etc/hostname')
    assert.equal((await get(sandbox, tampered)).status, 401)
    const unsigned = new URL(url)
    unsigned.searchParams.delete('signature')
    assert.equal((await get(sandbox, unsigned)).status, 401)
  })

  row('files/signing: download as root', {}, async ({ sandbox }) => {
    await sandbox.files.write('hello.txt', 'of root', { user: 'root' })
    const url = await sandbox.downloadUrl('hello.txt', { user: 'root', useSignatureExpiration: 120 })
    const response = await get(sandbox, url)
    assert.equal(response.status, 200)
    assert.equal(await response.text(), 'of root')
    assert.equal(await sandbox.files.read('/root/hello.txt', { user: 'root' }), 'of root')
  })

  row('files/signing: upload with valid signature', {}, async ({ sandbox }) => {
    const url = await sandbox.uploadUrl('hello.txt', { useSignatureExpiration: 120 })
    const response = await post(sandbox, url, 'uploaded')
    assert.equal(response.status, 200)
    assert.deepEqual(await response.json(), [{ name: 'hello.txt', path: '/home/user/hello.txt', type: 'file' }])
    assert.equal(await sandbox.files.read('hello.txt'), 'uploaded')
  })

  row('files/signing: upload as root', {}, async ({ sandbox }) => {
    const url = await sandbox.uploadUrl('hello.txt', { user: 'root', useSignatureExpiration: 120 })
    const response = await post(sandbox, url, 'uploaded')
    assert.equal(response.status, 200)
    assert.deepEqual(await response.json(), [{ name: 'hello.txt', path: '/root/hello.txt', type: 'file' }])
    assert.equal((await sandbox.files.getInfo('/root/hello.txt', { user: 'root' })).owner, 'root')
  })

  row('files/signing: upload with expired signature', {}, async ({ sandbox }) => {
    const url = await sandbox.uploadUrl('hello.txt', { useSignatureExpiration: -120 })
    const response = await post(sandbox, url, 'never stored')
    assert.equal(response.status, 401)
    assert.deepEqual(await response.json(), expired)
    assert.equal(await sandbox.files.exists('hello.txt'), false)
  })

  row('files/signing: command in a secured sandbox', {}, async ({ sandbox }) => {
    const result = await sandbox.commands.run('echo Hello World!')
    assert.deepEqual([result.exitCode, result.stdout], [0, 'Hello World!\n'])
  })
})
