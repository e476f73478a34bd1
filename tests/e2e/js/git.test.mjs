import { randomInt } from 'node:crypto'
import { describe } from 'node:test'
import { FileType } from 'e2b'
import { assert, debug, parallel, row, unique, until } from './support.mjs'

const author = { authorName: 'Sandbox Bot', authorEmail: 'sandbox@example.com' }

// Cases that touch the global configuration would meet each other on a shared bare agent.
const mode = debug ? { concurrency: 1 } : parallel

const place = () => `/tmp/test-git/${unique('r')}`

async function repository(sandbox) {
  const path = `${place()}/repo`
  await sandbox.git.init(path, { initialBranch: 'main' })
  return path
}

// A repository with README.md committed on main.
async function committed(sandbox) {
  const path = await repository(sandbox)
  await sandbox.files.write(`${path}/README.md`, 'hello\n')
  await sandbox.git.add(path)
  await sandbox.git.commit(path, 'Initial commit', author)
  return path
}

const output = async (sandbox, command) => (await sandbox.commands.run(command)).stdout.trim()

// A bare repository behind `git daemon` inside the sandbox; ends with the case.
async function served(sandbox, defer) {
  const base = place()
  await sandbox.git.init(`${base}/remote.git`, { bare: true, initialBranch: 'main' })
  for (let attempt = 0; attempt < 5; attempt++) {
    const port = randomInt(9418, 10418)
    const daemon = await sandbox.commands.run(
      `git daemon --reuseaddr --base-path=${base} --export-all --enable=receive-pack --listen=127.0.0.1 --port=${port}`,
      { background: true, timeoutMs: 0 })
    const url = `git://127.0.0.1:${port}/remote.git`
    const answers = await until('git daemon', async () => {
      if (daemon.exitCode !== undefined) return 'ended'
      const probe = await sandbox.commands.run(`git ls-remote ${url} >/dev/null 2>&1 && echo up || true`)
      return probe.stdout.trim()
    })
    if (answers === 'ended') continue
    defer(() => daemon.kill())
    return { url, base, daemon }
  }
  assert.fail('no free port for git daemon')
}

describe('git/add', mode, () => {
  row('git/add: add stages files', {}, async ({ sandbox }) => {
    const path = await repository(sandbox)
    await sandbox.files.write(`${path}/README.md`, 'hello\n')
    await sandbox.git.add(path)
    const status = await sandbox.git.status(path)
    const entry = status.fileStatus.find((file) => file.name === 'README.md')
    assert.deepEqual([entry?.status, entry?.staged], ['added', true])
  })
})

describe('git/branches', mode, () => {
  row('git/branches: lists current and feature', {}, async ({ sandbox }) => {
    const path = await committed(sandbox)
    await sandbox.commands.run(`git -C ${path} branch feature`)
    const { branches, currentBranch } = await sandbox.git.branches(path)
    assert.equal(currentBranch, 'main')
    assert.deepEqual([...branches].sort(), ['feature', 'main'])
  })

  row('git/branches: checkoutBranch switches', {}, async ({ sandbox }) => {
    const path = await committed(sandbox)
    await sandbox.commands.run(`git -C ${path} branch feature`)
    await sandbox.git.checkoutBranch(path, 'feature')
    assert.equal((await sandbox.git.branches(path)).currentBranch, 'feature')
  })

  row('git/branches: createBranch creates and checks out', {}, async ({ sandbox }) => {
    const path = await committed(sandbox)
    await sandbox.git.createBranch(path, 'feature')
    const { branches, currentBranch } = await sandbox.git.branches(path)
    assert.equal(currentBranch, 'feature')
    assert.ok(branches.includes('main'))
  })

  row('git/branches: deleteBranch removes', {}, async ({ sandbox }) => {
    const path = await committed(sandbox)
    await sandbox.commands.run(`git -C ${path} branch feature`)
    await sandbox.git.deleteBranch(path, 'feature')
    assert.deepEqual((await sandbox.git.branches(path)).branches, ['main'])
  })
})

describe('git/clone', mode, () => {
  row('git/clone: clone fetches repo', {}, async ({ sandbox, defer }) => {
    const { url, base, daemon } = await served(sandbox, defer)
    const path = await committed(sandbox)
    await sandbox.git.remoteAdd(path, 'origin', url)
    await sandbox.git.push(path, { remote: 'origin', branch: 'main', setUpstream: true })
    await sandbox.git.clone(url, { path: `${base}/clone` })
    assert.equal(await sandbox.files.read(`${base}/clone/README.md`), 'hello\n')
    assert.equal(await daemon.kill(), true)
    assert.equal(await output(sandbox, 'echo still here'), 'still here')
  })
})

describe('git/commit', mode, () => {
  row('git/commit: commit creates commit', {}, async ({ sandbox }) => {
    const path = await repository(sandbox)
    await sandbox.files.write(`${path}/README.md`, 'hello\n')
    await sandbox.git.add(path)
    await sandbox.git.commit(path, 'Initial commit', author)
    assert.equal(await output(sandbox, `git -C ${path} log -1 --pretty=%B`), 'Initial commit')
    assert.equal(await output(sandbox, `git -C ${path} log -1 --pretty='%an <%ae>'`),
                 `${author.authorName} <${author.authorEmail}>`)
  })

  row('git/commit: config fills missing author fields', {}, async ({ sandbox }) => {
    const path = await repository(sandbox)
    await sandbox.git.setConfig('user.email', 'local@example.com', { scope: 'local', path })
    await sandbox.files.write(`${path}/README.md`, 'hello\n')
    await sandbox.git.add(path)
    await sandbox.git.commit(path, 'Initial commit', { authorName: 'Override Bot' })
    assert.equal(await output(sandbox, `git -C ${path} log -1 --pretty='%an <%ae>'`), 'Override Bot <local@example.com>')
  })
})

describe('git/config', mode, () => {
  row('git/config: getConfig reads local', {}, async ({ sandbox }) => {
    const path = await repository(sandbox)
    await sandbox.commands.run(`git -C ${path} config --local pull.rebase true`)
    assert.equal(await sandbox.git.getConfig('pull.rebase', { scope: 'local', path }), 'true')
    assert.equal(await sandbox.git.getConfig('atoll.absent', { scope: 'local', path }), undefined)
  })

  row('git/config: setConfig updates local', {}, async ({ sandbox }) => {
    const path = await repository(sandbox)
    await sandbox.git.setConfig('pull.rebase', 'false', { scope: 'local', path })
    assert.equal(await output(sandbox, `git -C ${path} config --local --get pull.rebase`), 'false')
  })

  row('git/config: configureUser sets global name and email', {}, async ({ sandbox }) => {
    await sandbox.git.configureUser('Config Bot', 'config@example.com')
    assert.equal(await output(sandbox, 'git config --global --get user.name'), 'Config Bot')
    assert.equal(await output(sandbox, 'git config --global --get user.email'), 'config@example.com')
    assert.equal(await sandbox.git.getConfig('user.name', { scope: 'global' }), 'Config Bot')
  })
})

describe('git/auth', mode, () => {
  row('git/auth: dangerouslyAuthenticate sets helper', {}, async ({ sandbox }) => {
    await sandbox.git.dangerouslyAuthenticate({
      username: 'git', password: 'token', host: 'example.com', protocol: 'https',
    })
    assert.equal(await output(sandbox, 'git config --global --get credential.helper'), 'store')
  })
})

describe('git/init', mode, () => {
  row('git/init: init creates repository', {}, async ({ sandbox }) => {
    const path = await repository(sandbox)
    const info = await sandbox.files.getInfo(`${path}/.git`)
    assert.equal(info.type, FileType.DIR)
    assert.equal(await output(sandbox, `git -C ${path} symbolic-ref --short HEAD`), 'main')
  })
})

describe('git/remote', mode, () => {
  row('git/remote: remoteGet of a missing remote', {}, async ({ sandbox }) => {
    const path = await repository(sandbox)
    assert.equal(await sandbox.git.remoteGet(path, 'origin'), undefined)
  })

  row('git/remote: remoteAdd adds', {}, async ({ sandbox }) => {
    const path = await repository(sandbox)
    await sandbox.git.remoteAdd(path, 'origin', 'https://example.com/repo.git')
    assert.equal(await sandbox.git.remoteGet(path, 'origin'), 'https://example.com/repo.git')
  })

  row('git/remote: remoteAdd overwrite replaces', {}, async ({ sandbox }) => {
    const path = await repository(sandbox)
    await sandbox.git.remoteAdd(path, 'origin', 'https://example.com/first.git')
    await sandbox.git.remoteAdd(path, 'origin', 'https://example.com/second.git', { overwrite: true })
    assert.equal(await sandbox.git.remoteGet(path, 'origin'), 'https://example.com/second.git')
  })
})

describe('git/reset and restore', mode, () => {
  row('git/reset: hard discards changes', {}, async ({ sandbox }) => {
    const path = await committed(sandbox)
    await sandbox.files.write(`${path}/README.md`, 'changed\n')
    assert.equal((await sandbox.git.status(path)).isClean, false)
    await sandbox.git.reset(path, { mode: 'hard', target: 'HEAD' })
    assert.equal((await sandbox.git.status(path)).isClean, true)
    assert.equal(await sandbox.files.read(`${path}/README.md`), 'hello\n')
  })

  row('git/restore: staged unstages', {}, async ({ sandbox }) => {
    const path = await committed(sandbox)
    await sandbox.files.write(`${path}/README.md`, 'changed\n')
    await sandbox.git.add(path)
    assert.equal((await sandbox.git.status(path)).hasStaged, true)
    await sandbox.git.restore(path, { staged: true, paths: ['README.md'] })
    const status = await sandbox.git.status(path)
    assert.deepEqual([status.hasStaged, status.hasChanges], [false, true])
  })

  row('git/restore: worktree discards changes', {}, async ({ sandbox }) => {
    const path = await committed(sandbox)
    await sandbox.files.write(`${path}/README.md`, 'changed\n')
    await sandbox.git.restore(path, { paths: ['README.md'] })
    assert.equal((await sandbox.git.status(path)).isClean, true)
    assert.equal(await sandbox.files.read(`${path}/README.md`), 'hello\n')
  })
})

describe('git/status', mode, () => {
  row('git/status: untracked file', {}, async ({ sandbox }) => {
    const path = await repository(sandbox)
    await sandbox.files.write(`${path}/README.md`, 'hello\n')
    const status = await sandbox.git.status(path)
    assert.equal(status.currentBranch, 'main')
    assert.deepEqual(status.fileStatus.map((file) => [file.name, file.status, file.staged]),
                     [['README.md', 'untracked', false]])
    const counters = ['isClean', 'hasChanges', 'hasStaged', 'hasUntracked', 'hasConflicts',
                      'totalCount', 'stagedCount', 'unstagedCount', 'untrackedCount', 'conflictCount']
    assert.deepEqual(counters.map((name) => status[name]), [false, true, false, true, false, 1, 0, 1, 1, 0])
  })

  row('git/status: added, modified, deleted, renamed', {}, async ({ sandbox }) => {
    const path = await repository(sandbox)
    await sandbox.files.writeFiles(['README.md', 'DELETE.md', 'RENAME.md'].map((name) => ({
      path: `${path}/${name}`, data: `the content of ${name}\n`,
    })))
    await sandbox.git.add(path)
    await sandbox.git.commit(path, 'Initial commit', author)
    await sandbox.files.write(`${path}/README.md`, 'changed\n')
    await sandbox.commands.run('git mv RENAME.md RENAMED.md && git rm -q DELETE.md', { cwd: path })
    await sandbox.files.write(`${path}/NEW.md`, 'new\n')
    await sandbox.git.add(path, { files: ['NEW.md'] })
    const status = await sandbox.git.status(path)
    assert.equal(status.totalCount, 4)
    assert.equal(status.stagedCount, 3)
    const by = Object.fromEntries(status.fileStatus.map((file) => [file.name, file]))
    assert.deepEqual([by['README.md'].status, by['README.md'].staged], ['modified', false])
    assert.equal(by['DELETE.md'].status, 'deleted')
    assert.deepEqual([by['RENAMED.md'].status, by['RENAMED.md'].renamedFrom], ['renamed', 'RENAME.md'])
    assert.equal(by['NEW.md'].status, 'added')
  })
})

describe('git/sync', mode, () => {
  row('git/sync: push updates remote', {}, async ({ sandbox, defer }) => {
    const { url, base } = await served(sandbox, defer)
    const path = await committed(sandbox)
    await sandbox.git.remoteAdd(path, 'origin', url)
    await sandbox.git.push(path, { remote: 'origin', branch: 'main', setUpstream: true })
    assert.equal(await output(sandbox, `git --git-dir=${base}/remote.git log -1 --pretty=%B main`), 'Initial commit')
  })

  row('git/sync: push without upstream', {}, async ({ sandbox, defer }) => {
    const { url } = await served(sandbox, defer)
    const path = await committed(sandbox)
    await sandbox.git.remoteAdd(path, 'origin', url)
    await assert.rejects(sandbox.git.push(path, { setUpstream: false }), /no upstream branch is configured/i)
  })

  row('git/sync: pull updates clone', {}, async ({ sandbox, defer }) => {
    const { url, base } = await served(sandbox, defer)
    const path = await committed(sandbox)
    await sandbox.git.remoteAdd(path, 'origin', url)
    await sandbox.git.push(path, { remote: 'origin', branch: 'main', setUpstream: true })
    await sandbox.git.clone(url, { path: `${base}/clone` })
    await sandbox.files.write(`${path}/README.md`, 'second\n')
    await sandbox.git.add(path)
    await sandbox.git.commit(path, 'Second commit', author)
    await sandbox.git.push(path)
    await sandbox.git.pull(`${base}/clone`)
    assert.equal(await sandbox.files.read(`${base}/clone/README.md`), 'second\n')
  })

  row('git/sync: pull without upstream', {}, async ({ sandbox, defer }) => {
    const { url } = await served(sandbox, defer)
    const path = await committed(sandbox)
    await sandbox.git.remoteAdd(path, 'origin', url)
    await assert.rejects(sandbox.git.pull(path), /no upstream branch is configured/i)
  })
})
