import { describe } from 'node:test'
import { FileNotFoundError, FilesystemEventType, FileType, SandboxError } from 'e2b'
import { assert, parallel, row, unique, until } from './support.mjs'

// Watches `dir` and hands back the events seen so far plus a wait for a matching one.
async function watch(sandbox, defer, dir, options) {
  const seen = []
  const handle = await sandbox.files.watchDir(dir, (event) => void seen.push(event), options)
  defer(() => handle.stop())
  const expect = (type, name) =>
    until(`${type} of ${name}`, () => seen.find((event) => event.type === type && event.name === name))
  return { seen, handle, expect }
}

describe('files/watch', parallel, () => {
  row('files/watch: directory changes', {}, async ({ sandbox, defer }) => {
    const dir = unique('watched')
    await sandbox.files.write(`${dir}/file.txt`, 'before')
    const { seen, handle, expect } = await watch(sandbox, defer, dir)
    await sandbox.files.write(`${dir}/file.txt`, 'after')
    await expect(FilesystemEventType.WRITE, 'file.txt')
    assert.ok(seen.every((event) => event.name === 'file.txt'), JSON.stringify(seen))
    assert.equal(seen[0].entry, undefined)

    await handle.stop()
    const count = seen.length
    await sandbox.files.write(`${dir}/file.txt`, 'unseen')
    assert.equal(seen.length, count)
  })

  row('files/watch: recursive changes', {}, async ({ sandbox, defer }) => {
    const dir = unique('watched')
    await sandbox.files.write(`${dir}/nested/file.txt`, 'before')
    const { expect } = await watch(sandbox, defer, dir, { recursive: true })
    await sandbox.files.write(`${dir}/nested/file.txt`, 'after')
    await expect(FilesystemEventType.WRITE, 'nested/file.txt')
  })

  row('files/watch: recursive after nested folder addition', {}, async ({ sandbox, defer }) => {
    const dir = unique('watched')
    await sandbox.files.makeDir(dir)
    const { expect } = await watch(sandbox, defer, dir, { recursive: true })
    await sandbox.files.makeDir(`${dir}/nested`)
    await expect(FilesystemEventType.CREATE, 'nested')
    await sandbox.files.write(`${dir}/nested/file.txt`, 'inside')
    await expect(FilesystemEventType.WRITE, 'nested/file.txt')
  })

  row('files/watch: with entry info', {}, async ({ sandbox, defer }) => {
    const dir = unique('watched')
    await sandbox.files.write(`${dir}/file.txt`, 'before')
    const { expect } = await watch(sandbox, defer, dir, { includeEntry: true })
    await sandbox.files.write(`${dir}/file.txt`, 'after')
    const { entry } = await expect(FilesystemEventType.WRITE, 'file.txt')
    assert.deepEqual([entry.name, entry.path, entry.type],
                     ['file.txt', `/home/user/${dir}/file.txt`, FileType.FILE])
  })

  row('files/watch: with network mounts allowed', {}, async ({ sandbox, defer }) => {
    const dir = unique('watched')
    await sandbox.files.write(`${dir}/file.txt`, 'before')
    const { expect } = await watch(sandbox, defer, dir, { allowNetworkMounts: true })
    await sandbox.files.write(`${dir}/file.txt`, 'after')
    await expect(FilesystemEventType.WRITE, 'file.txt')
  })

  row('files/watch: non-existing directory', {}, async ({ sandbox }) => {
    await assert.rejects(sandbox.files.watchDir(unique('absent'), () => {}), FileNotFoundError)
  })

  row('files/watch: file', {}, async ({ sandbox }) => {
    const name = unique('file.txt')
    await sandbox.files.write(name, 'not a directory')
    await assert.rejects(sandbox.files.watchDir(name, () => {}), SandboxError)
  })
})
