import { describe } from 'node:test'
import { FileNotFoundError, FileType, InvalidArgumentError, NotEnoughSpaceError, NotFoundError } from 'e2b'
import { assert, parallel, row, unique } from './support.mjs'

const home = '/home/user'

async function text(stream) {
  const decoder = new TextDecoder()
  let out = ''
  for await (const chunk of stream) out += decoder.decode(chunk, { stream: true })
  return out + decoder.decode()
}

function streamOf(text, pieces = 8) {
  const bytes = new TextEncoder().encode(text)
  const step = Math.ceil(bytes.length / pieces)
  let at = 0
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return controller.close()
      controller.enqueue(bytes.slice(at, at + step))
      at += step
    },
  })
}

describe('files/encoding', parallel, () => {
  row('files/encoding: write and read file with gzip', {}, async ({ sandbox }) => {
    const name = unique('gzip.txt')
    const info = await sandbox.files.write(name, 'This is compressed on the way.', { gzip: true })
    assert.deepEqual([info.name, info.type, info.path], [name, FileType.FILE, `${home}/${name}`])
    assert.equal(await sandbox.files.read(name, { gzip: true }), 'This is compressed on the way.')
  })

  row('files/encoding: write with gzip and read without encoding', {}, async ({ sandbox }) => {
    const name = unique('gzip.txt')
    await sandbox.files.write(name, 'stored plainly', { gzip: true })
    assert.equal(await sandbox.files.read(name), 'stored plainly')
    const stored = await sandbox.commands.run(`cat ${home}/${name}`)
    assert.equal(stored.stdout, 'stored plainly')
  })

  row('files/encoding: write several files with gzip', {}, async ({ sandbox }) => {
    const files = [1, 2, 3].map((n) => ({ path: unique(`gzip${n}.txt`), data: `content ${n}` }))
    const infos = await sandbox.files.writeFiles(files, { gzip: true })
    assert.deepEqual(infos.map((info) => info.path), files.map((file) => `${home}/${file.path}`))
    for (const file of files) assert.equal(await sandbox.files.read(file.path), file.data)
  })

  row('files/encoding: read file as bytes with gzip', {}, async ({ sandbox }) => {
    const name = unique('gzip.bin')
    await sandbox.files.write(name, 'bytes, too', { gzip: true })
    const bytes = await sandbox.files.read(name, { format: 'bytes', gzip: true })
    assert.ok(bytes instanceof Uint8Array)
    assert.equal(new TextDecoder().decode(bytes), 'bytes, too')
  })
})

describe('files/exists', parallel, () => {
  row('files/exists: file exists', {}, async ({ sandbox }) => {
    const name = unique('exists.txt')
    await sandbox.files.write(name, 'here')
    assert.equal(await sandbox.files.exists(name), true)
  })

  row('files/exists: file does not exist', {}, async ({ sandbox }) => {
    assert.equal(await sandbox.files.exists(unique('absent.txt')), false)
  })
})

describe('files/info', parallel, () => {
  row('files/info: file', {}, async ({ sandbox }) => {
    const name = unique('info.txt')
    await sandbox.files.write(name, 'test')
    const cwd = (await sandbox.commands.run('pwd')).stdout.trim()
    const info = await sandbox.files.getInfo(name)
    assert.equal(info.name, name)
    assert.equal(info.type, FileType.FILE)
    assert.equal(info.path, `${cwd}/${name}`)
    assert.equal(info.size, 4)
    assert.equal(info.mode, 0o644)
    assert.equal(info.permissions, '-rw-r--r--')
    assert.deepEqual([info.owner, info.group], ['user', 'user'])
    assert.ok(Math.abs(info.modifiedTime.getTime() - Date.now()) < 60_000, `${info.modifiedTime}`)
    assert.equal(info.symlinkTarget, undefined)
  })

  row('files/info: file that does not exist', {}, async ({ sandbox }) => {
    await assert.rejects(sandbox.files.getInfo(unique('absent.txt')), FileNotFoundError)
  })

  row('files/info: directory', {}, async ({ sandbox }) => {
    const name = unique('dir')
    await sandbox.files.makeDir(name)
    const info = await sandbox.files.getInfo(name)
    assert.deepEqual([info.name, info.type, info.path], [name, FileType.DIR, `${home}/${name}`])
    assert.ok(info.size > 0)
    assert.deepEqual([info.mode, info.permissions], [0o755, 'drwxr-xr-x'])
    assert.deepEqual([info.owner, info.group], ['user', 'user'])
    assert.ok(info.modifiedTime instanceof Date)
  })

  row('files/info: directory that does not exist', {}, async ({ sandbox }) => {
    await assert.rejects(sandbox.files.getInfo(`${unique('absent')}/deeper`), FileNotFoundError)
  })

  row('files/info: symlink', {}, async ({ sandbox }) => {
    const dir = unique('links')
    await sandbox.files.write(`${dir}/target.txt`, 'pointed at')
    await sandbox.commands.run('ln -s target.txt link.txt', { cwd: `${home}/${dir}` })
    const info = await sandbox.files.getInfo(`${dir}/link.txt`)
    assert.equal(info.name, 'link.txt')
    assert.equal(info.symlinkTarget, `${home}/${dir}/target.txt`)
    assert.equal(info.type, FileType.FILE)
  })
})

describe('files/list', parallel, () => {
  row('files/list: directory by depth', {}, async ({ sandbox }) => {
    const root = `${home}/${unique('tree')}`
    const files = ['subdir2/file2_2.txt', 'subdir1/file1_2.txt', 'file1.txt', 'subdir2/file2_1.txt', 'subdir1/file1_1.txt']
    await sandbox.files.writeFiles(files.map((file) => ({ path: `${root}/${file}`, data: file })))
    const shallow = ['file1.txt', 'subdir1', 'subdir2']
    const deep = ['file1.txt', 'subdir1', 'subdir1/file1_1.txt', 'subdir1/file1_2.txt',
                  'subdir2', 'subdir2/file2_1.txt', 'subdir2/file2_2.txt']
    const cases = [[undefined, shallow], [1, shallow], [2, deep], [3, deep]]
    for (const [depth, wanted] of cases) {
      const entries = await sandbox.files.list(root, depth === undefined ? undefined : { depth })
      assert.deepEqual(entries.map((entry) => entry.path), wanted.map((name) => `${root}/${name}`), `depth ${depth}`)
      assert.deepEqual(entries.map((entry) => entry.name), wanted.map((name) => name.split('/').pop()))
      assert.deepEqual(entries.map((entry) => entry.type),
                       wanted.map((name) => (name.endsWith('.txt') ? FileType.FILE : FileType.DIR)))
    }
  })

  row('files/list: invalid depth', {}, async ({ sandbox }) => {
    await assert.rejects(sandbox.files.list('/', { depth: 0 }), /depth should be at least one/)
    await assert.rejects(sandbox.files.list('/', { depth: -1 }), InvalidArgumentError)
  })

  row('files/list: file entry details', {}, async ({ sandbox }) => {
    const root = `${home}/${unique('one')}`
    await sandbox.files.write(`${root}/only.txt`, 'Hello, World!')
    const [entry, ...more] = await sandbox.files.list(root)
    assert.equal(more.length, 0)
    assert.deepEqual([entry.name, entry.path, entry.type], ['only.txt', `${root}/only.txt`, FileType.FILE])
    assert.deepEqual([entry.mode, entry.permissions, entry.size], [0o644, '-rw-r--r--', 13])
    assert.deepEqual([entry.owner, entry.group], ['user', 'user'])
    assert.ok(entry.modifiedTime instanceof Date)
    assert.equal(entry.symlinkTarget, undefined)
  })

  row('files/list: directory entry details', {}, async ({ sandbox }) => {
    const root = `${home}/${unique('one')}`
    await sandbox.files.makeDir(`${root}/inner`)
    const [entry, ...more] = await sandbox.files.list(root)
    assert.equal(more.length, 0)
    assert.deepEqual([entry.name, entry.path, entry.type], ['inner', `${root}/inner`, FileType.DIR])
    assert.deepEqual([entry.mode, entry.permissions], [0o755, 'drwxr-xr-x'])
    assert.deepEqual([entry.owner, entry.group], ['user', 'user'])
  })

  row('files/list: mixed entries', {}, async ({ sandbox }) => {
    const root = `${home}/${unique('mixed')}`
    await sandbox.files.makeDir(`${root}/subdir`)
    await sandbox.files.write(`${root}/file1.txt`, 'one')
    await sandbox.files.write(`${root}/file2.txt`, 'two')
    const entries = await sandbox.files.list(root)
    assert.deepEqual(entries.map((entry) => [entry.name, entry.type]),
                     [['file1.txt', 'file'], ['file2.txt', 'file'], ['subdir', 'dir']])
  })
})

describe('files/makeDir', parallel, () => {
  row('files/makeDir: new directory', {}, async ({ sandbox }) => {
    const name = unique('made')
    assert.equal(await sandbox.files.makeDir(name), true)
    assert.equal(await sandbox.files.exists(name), true)
  })

  row('files/makeDir: existing directory', {}, async ({ sandbox }) => {
    const name = unique('made')
    assert.equal(await sandbox.files.makeDir(name), true)
    assert.equal(await sandbox.files.makeDir(name), false)
  })

  row('files/makeDir: nested directory', {}, async ({ sandbox }) => {
    const root = unique('made')
    assert.equal(await sandbox.files.makeDir(`${root}/b/c`), true)
    for (const part of [root, `${root}/b`, `${root}/b/c`]) assert.equal(await sandbox.files.exists(part), true)
  })
})

describe('files/metadata', parallel, () => {
  const metadata = { author: 'e2e', purpose: 'check' }

  row('files/metadata: write file with metadata', {}, async ({ sandbox }) => {
    const name = unique('meta.txt')
    const written = await sandbox.files.write(name, 'x', { metadata })
    assert.deepEqual({ ...written.metadata }, metadata)
    assert.deepEqual({ ...(await sandbox.files.getInfo(name)).metadata }, metadata)
  })

  row('files/metadata: write with metadata using octet-stream', {}, async ({ sandbox }) => {
    const name = unique('meta.txt')
    const written = await sandbox.files.write(name, 'x', { metadata, useOctetStream: true })
    assert.deepEqual({ ...written.metadata }, metadata)
    assert.deepEqual({ ...(await sandbox.files.getInfo(name)).metadata }, metadata)
  })

  row('files/metadata: write file without metadata', {}, async ({ sandbox }) => {
    const name = unique('meta.txt')
    const written = await sandbox.files.write(name, 'x')
    assert.equal(written.metadata, undefined)
    assert.equal((await sandbox.files.getInfo(name)).metadata, undefined)
  })

  row('files/metadata: several files share the metadata', {}, async ({ sandbox }) => {
    const files = [1, 2].map((n) => ({ path: unique(`meta${n}.txt`), data: `${n}` }))
    const infos = await sandbox.files.writeFiles(files, { metadata })
    assert.equal(infos.length, 2)
    for (const info of infos) assert.deepEqual({ ...info.metadata }, metadata)
    for (const file of files) assert.deepEqual({ ...(await sandbox.files.getInfo(file.path)).metadata }, metadata)
  })

  row('files/metadata: listing shows metadata', {}, async ({ sandbox }) => {
    const dir = unique('meta')
    await sandbox.files.write(`${dir}/a.txt`, 'x', { metadata })
    const [entry] = await sandbox.files.list(dir)
    assert.deepEqual({ ...entry.metadata }, metadata)
  })

  row('files/metadata: rename keeps metadata', {}, async ({ sandbox }) => {
    const dir = unique('meta')
    await sandbox.files.write(`${dir}/a.txt`, 'x', { metadata })
    const moved = await sandbox.files.rename(`${dir}/a.txt`, `${dir}/b.txt`)
    assert.deepEqual({ ...moved.metadata }, metadata)
  })

  row('files/metadata: overwriting clears stale metadata', {}, async ({ sandbox }) => {
    const name = unique('meta.txt')
    await sandbox.files.write(name, 'old', { metadata })
    const again = await sandbox.files.write(name, 'new')
    assert.equal(again.metadata, undefined)
    assert.equal((await sandbox.files.getInfo(name)).metadata, undefined)
  })

  row('files/metadata: xattr set inside is shown', {}, async ({ sandbox }) => {
    const name = unique('meta.txt')
    await sandbox.files.write(name, 'x')
    const path = (await sandbox.commands.run(`realpath ${name}`)).stdout.trim()
    await sandbox.commands.run(`python3 -c "import os; os.setxattr('${path}', 'user.e2b.author', b'inside')"`)
    assert.deepEqual({ ...(await sandbox.files.getInfo(name)).metadata }, { author: 'inside' })
  })

  row('files/metadata: invalid metadata is rejected', {}, async ({ sandbox }) => {
    const name = unique('meta.txt')
    for (const bad of [{ 'a key': 'v' }, { '': 'v' }, { key: 'line\nbreak' }, { key: 'ü' }]) {
      await assert.rejects(sandbox.files.write(name, 'x', { metadata: bad }), InvalidArgumentError)
    }
    assert.equal(await sandbox.files.exists(name), false)
  })
})

describe('files/read', parallel, () => {
  row('files/read: file', {}, async ({ sandbox }) => {
    const name = unique('read.txt')
    const content = 'Hello, world! äöü €'
    await sandbox.files.write(name, content)
    assert.equal(await sandbox.files.read(name), content)
    assert.equal(await (await sandbox.files.read(name, { format: 'blob' })).text(), content)
  })

  row('files/read: non-existing file', {}, async ({ sandbox }) => {
    await assert.rejects(sandbox.files.read(unique('absent.txt')), (error) => {
      assert.ok(error instanceof FileNotFoundError, `${error}`)
      assert.ok(error instanceof NotFoundError)
      return true
    })
  })

  row('files/read: as stream', {}, async ({ sandbox }) => {
    const name = unique('stream.txt')
    const content = Array.from({ length: 10_000 }, (_, n) => `line ${n} of many in a stream`).join('\n')
    assert.ok(content.length > 230_000)
    await sandbox.files.write(name, content)
    assert.equal(await text(await sandbox.files.read(name, { format: 'stream' })), content)
  })

  row('files/read: non-existing file as stream', {}, async ({ sandbox }) => {
    await assert.rejects(sandbox.files.read(unique('absent.txt'), { format: 'stream' }), FileNotFoundError)
  })

  row('files/read: empty file in all formats', {}, async ({ sandbox }) => {
    const name = unique('empty.txt')
    await sandbox.commands.run(`touch ${name}`)
    assert.equal(await sandbox.files.read(name), '')
    assert.equal(await sandbox.files.read(name, { format: 'text' }), '')
    const bytes = await sandbox.files.read(name, { format: 'bytes' })
    assert.ok(bytes instanceof Uint8Array)
    assert.equal(bytes.length, 0)
    assert.equal((await sandbox.files.read(name, { format: 'blob' })).size, 0)
    assert.equal(await text(await sandbox.files.read(name, { format: 'stream' })), '')
  })
})

describe('files/remove', parallel, () => {
  row('files/remove: file', {}, async ({ sandbox }) => {
    const name = unique('gone.txt')
    await sandbox.files.write(name, 'soon gone')
    await sandbox.files.remove(name)
    assert.equal(await sandbox.files.exists(name), false)
  })

  row('files/remove: non-existing file', {}, async ({ sandbox }) => {
    await sandbox.files.remove(unique('never-there.txt'))
  })
})

describe('files/rename', parallel, () => {
  row('files/rename: file', {}, async ({ sandbox }) => {
    const [from, to] = [unique('from.txt'), unique('to.txt')]
    await sandbox.files.write(from, 'moved along')
    const info = await sandbox.files.rename(from, to)
    assert.deepEqual([info.name, info.type, info.path], [to, FileType.FILE, `${home}/${to}`])
    assert.equal(await sandbox.files.exists(from), false)
    assert.equal(await sandbox.files.read(to), 'moved along')
  })

  row('files/rename: non-existing file', {}, async ({ sandbox }) => {
    await assert.rejects(sandbox.files.rename(unique('absent.txt'), unique('to.txt')), FileNotFoundError)
  })
})

describe('files/write', parallel, () => {
  row('files/write: file twice', {}, async ({ sandbox }) => {
    const name = unique('write.txt')
    for (const content of ['This is a test file.', 'This is a test file, again.']) {
      const info = await sandbox.files.write(name, content)
      assert.ok(!Array.isArray(info))
      assert.deepEqual([info.name, info.type, info.path], [name, FileType.FILE, `${home}/${name}`])
      assert.equal(await sandbox.files.exists(name), true)
      assert.equal(await sandbox.files.read(name), content)
    }
  })

  row('files/write: wrong arguments', {}, async ({ sandbox }) => {
    await assert.rejects(sandbox.files.write(undefined, 'x'), /Path or files are required/)
    await assert.rejects(sandbox.files.write('path.txt', [{ path: 'a', data: 'b' }]), /Cannot specify both path and array/)
  })

  row('files/write: several files at once', {}, async ({ sandbox }) => {
    assert.deepEqual(await sandbox.files.write([]), [])
    const single = unique('single.txt')
    const one = await sandbox.files.write([{ path: single, data: 'one' }])
    assert.ok(Array.isArray(one))
    assert.deepEqual([one.length, one[0].path], [1, `${home}/${single}`])

    const top = unique('/multi')
    const files = Array.from({ length: 10 }, (_, n) => ({
      path: n % 2 === 0 ? `${top}/${n}/multi_test_file${n}.txt` : `${home}/${unique(`multi${n}.txt`)}`,
      data: `content ${n}`,
    }))
    const infos = await sandbox.files.write(files)
    assert.deepEqual(infos.map((info) => info.path), files.map((file) => file.path))
    assert.deepEqual(infos.map((info) => info.name), files.map((file) => file.path.split('/').pop()))
    for (const file of files) assert.equal(await sandbox.files.read(file.path), file.data)
  })

  row('files/write: overwrite file', {}, async ({ sandbox }) => {
    const name = unique('write.txt')
    await sandbox.files.write(name, 'a long first version of the file')
    await sandbox.files.write(name, 'short')
    assert.equal(await sandbox.files.read(name), 'short')
  })

  row('files/write: to non-existing directory', {}, async ({ sandbox }) => {
    const path = `${unique('new')}/deep/er/file.txt`
    await sandbox.files.write(path, 'parents appear')
    assert.equal(await sandbox.files.read(path), 'parents appear')
    assert.equal((await sandbox.files.getInfo(path.split('/')[0])).owner, 'user')
  })

  row('files/write: writeFiles with empty list', {}, async ({ sandbox }) => {
    assert.deepEqual(await sandbox.files.writeFiles([]), [])
  })

  row('files/write: writeFiles with several files', {}, async ({ sandbox }) => {
    const files = Array.from({ length: 10 }, (_, n) => ({ path: unique(`w${n}.txt`), data: `content ${n}` }))
    const infos = await sandbox.files.writeFiles(files)
    assert.deepEqual(infos.map((info) => [info.name, info.type, info.path]),
                     files.map((file) => [file.path, FileType.FILE, `${home}/${file.path}`]))
    for (const file of files) assert.equal(await sandbox.files.read(file.path), file.data)
  })

  row('files/write: writeFiles with different data types', {}, async ({ sandbox }) => {
    const dir = unique('types')
    const bytes = new TextEncoder().encode('from an ArrayBuffer')
    const infos = await sandbox.files.writeFiles([
      { path: `${dir}/string.txt`, data: 'from a string' },
      { path: `${dir}/buffer.txt`, data: bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) },
      { path: `${dir}/blob.txt`, data: new Blob(['from a Blob']) },
      { path: `${dir}/stream.txt`, data: streamOf('from a stream', 2) },
    ])
    assert.equal(infos.length, 4)
    assert.equal(await sandbox.files.read(`${dir}/string.txt`), 'from a string')
    assert.equal(await sandbox.files.read(`${dir}/buffer.txt`), 'from an ArrayBuffer')
    assert.equal(await sandbox.files.read(`${dir}/blob.txt`), 'from a Blob')
    assert.equal(await sandbox.files.read(`${dir}/stream.txt`), 'from a stream')
  })

  row('files/write: writeFiles creates parent directories', {}, async ({ sandbox }) => {
    const dir = unique('parents')
    const files = [{ path: `${dir}/a/1.txt`, data: '1' }, { path: `${dir}/b/c/2.txt`, data: '2' }]
    await sandbox.files.writeFiles(files)
    for (const file of files) assert.equal(await sandbox.files.read(file.path), file.data)
  })

  row('files/write: writeFiles overwrites existing files', {}, async ({ sandbox }) => {
    const paths = [unique('over1.txt'), unique('over2.txt')]
    await sandbox.files.writeFiles(paths.map((path) => ({ path, data: 'the first, longer content' })))
    await sandbox.files.writeFiles(paths.map((path) => ({ path, data: `second ${path}` })))
    for (const path of paths) assert.equal(await sandbox.files.read(path), `second ${path}`)
  })

  const long = Array.from({ length: 20_000 }, (_, n) => `piece ${n} of it`).join('\n')

  row('files/write: stream with octet-stream upload', {}, async ({ sandbox }) => {
    const name = unique('long.txt')
    const info = await sandbox.files.write(name, streamOf(long), { useOctetStream: true })
    assert.deepEqual([info.name, info.path], [name, `${home}/${name}`])
    assert.equal((await sandbox.files.getInfo(name)).size, long.length)
    assert.equal(await sandbox.files.read(name), long)
  })

  row('files/write: stream with octet-stream upload and gzip', {}, async ({ sandbox }) => {
    const name = unique('long.txt')
    await sandbox.files.write(name, streamOf(long), { useOctetStream: true, gzip: true })
    assert.equal((await sandbox.files.getInfo(name)).size, long.length)
    assert.equal(await sandbox.files.read(name), long)
  })

  row('files/write: full disk', {}, async ({ sandbox }) => {
    const fill = 'fallocate -l $(($(df --output=avail -B1 /home/user | tail -1) - 4194304)) /home/user/filler'
    await sandbox.commands.run(fill, { user: 'root' })
    const data = new Blob([Buffer.alloc(24 << 20, 7)])
    await assert.rejects(sandbox.files.write('more.bin', data), NotEnoughSpaceError)
    await assert.rejects(sandbox.files.write('more.bin', data, { useOctetStream: true }), NotEnoughSpaceError)
    await sandbox.files.remove('filler', { user: 'user' })
    assert.equal((await sandbox.files.write('more.bin', data)).path, `${home}/more.bin`)
  })
})
