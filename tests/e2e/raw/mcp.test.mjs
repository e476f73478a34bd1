// The MCP server with the official client: every tool over both transports, every documented error.
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { describe, test } from 'node:test'
import { adminToken, api, apiKey, assert, limited, plainUrl, request, unique, until } from './support.mjs'
import { HOME, Host, withHost } from './mcp.mjs'
import { withServer } from './own-server.mjs'

const parallel = { concurrency: Number(process.env.E2E_JOBS ?? 3) }
const TOOLS = ['bash_exec', 'edit_file', 'glob_files', 'grep_files', 'list_files', 'load_from_workspace', 'pause', 'read_file',
               'reset', 'run_code', 'save_to_workspace', 'write_file']
const PNG = /^iVBORw0KGgo/

describe('mcp/tour', parallel, () => {
  for (const kind of ['stdio', 'http']) {
    withHost(`mcp/tour: every tool over ${kind}`, kind, async (host) => {
      assert.deepEqual(host.tools.map((tool) => tool.name).sort(), TOOLS)
      for (const tool of host.tools) assert.equal(tool.inputSchema.type, 'object')
      assert.equal(host.client.getServerVersion().name, 'atoll')
      await host.client.ping()

      const shell = await host.ok('bash_exec', { command: 'echo out; echo err >&2; pwd; exit 3' })
      assert.deepEqual([shell.stdout, shell.stderr, shell.exit_code, shell.timed_out], [`out\n${HOME}\n`, 'err\n', 3, false])
      assert.match(shell.sandbox_id, /^[a-z0-9]+$/)

      const written = await host.ok('write_file', { path: 'deep/er/a.txt', content: 'one\ntwo\nthree' })
      assert.deepEqual([written.path, written.bytes, written.created], [`${HOME}/deep/er/a.txt`, 13, true])
      assert.equal((await host.ok('write_file', { path: 'deep/er/a.txt', content: 'one\ntwo\nthree' })).created, false)
      const read = await host.ok('read_file', { path: `${HOME}/deep/er/a.txt`, offset: 1, limit: 1 })
      assert.deepEqual([read.content, read.lines, read.total_lines, read.next_offset], ['two\n', 1, 3, 2])
      const edited = await host.ok('edit_file', { path: 'deep/er/a.txt', old_text: 'two\n', new_text: '' })
      assert.deepEqual([edited.replacements, edited.line], [1, 2])
      assert.equal((await host.ok('read_file', { path: 'deep/er/a.txt' })).content, 'one\nthree')

      assert.deepEqual((await host.ok('glob_files', { pattern: '**/*.txt' })).files, [`${HOME}/deep/er/a.txt`])
      assert.deepEqual((await host.ok('grep_files', { pattern: '^th' })).matches,
                       [{ file: `${HOME}/deep/er/a.txt`, line: 2, text: 'three' }])
      const listed = await host.ok('list_files', { path: 'deep', depth: 2 })
      assert.deepEqual(listed.entries.map(({ path, type }) => [path, type]),
                       [[`${HOME}/deep/er`, 'directory'], [`${HOME}/deep/er/a.txt`, 'file']])

      const code = await host.ok('run_code', { code: 'x = 20\nprint("hi")\nx + 1' })
      assert.deepEqual([code.text, code.stdout], ['21', 'hi\n'])

      const folder = unique('tour')
      const saved = await host.ok('save_to_workspace', { sandbox_path: 'deep/er/a.txt', workspace_path: `/${folder}/a.txt` })
      assert.deepEqual([saved.path, saved.size], [`/${folder}/a.txt`, 9])
      const loaded = await host.ok('load_from_workspace', { workspace_path: `/${folder}/a.txt`, sandbox_path: 'back/b.txt' })
      assert.deepEqual([loaded.path, loaded.size], [`${HOME}/back/b.txt`, 9])
      assert.equal(await host.bash('cat back/b.txt'), 'one\nthree')

      assert.equal((await host.ok('pause')).paused, true)
      const resumed = await host.ok('run_code', { code: 'x' })
      assert.deepEqual([resumed.text, resumed.sandbox, resumed.sandbox_id], ['20', 'resumed', shell.sandbox_id])
      const reset = await host.ok('reset')
      assert.notEqual(reset.sandbox_id, shell.sandbox_id)
      assert.equal(reset.sandbox, 'created')
      assert.equal((await host.ok('bash_exec', { command: 'ls deep' })).exit_code, 2)
    }, { seconds: 180 })
  }
})

describe('mcp/files', parallel, () => {
  withHost('mcp/files: paths that lead outside', 'http', async (host) => {
    await host.bash(`sudo mkdir -p /home/user2 && sudo chmod 777 /home/user2 && echo secret > /home/user2/s && mkdir sub &&
      ln -s /etc/passwd link && ln -s /etc dir && ln -s ../../etc rel && ln -s /home/user2 two && ln -s /etc/new dangling && ln -s sub good &&
      echo fine > sub/f && ln -s a loop_b && ln -s loop_b a`)
    const outside = ['../../etc/passwd', '/etc/passwd', 'sub/../../../etc/passwd', 'link', 'dir/passwd', 'rel/passwd', '/home/user2/s',
                     'two/s', '../user2/s', '/home/user2', '/', '/home', '..', 'good/../../../etc/passwd', '/proc/self/root/etc/passwd',
                     `${HOME}/../user2/s`]
    for (const path of outside) {
      await host.fails('invalid_path', 'read_file', { path })
      await host.fails('invalid_path', 'edit_file', { path, old_text: 'root', new_text: 'toor' })
      await host.fails('invalid_path', 'list_files', { path })
      await host.fails('invalid_path', 'grep_files', { pattern: 'x', path })
      await host.fails('invalid_path', 'glob_files', { pattern: '*', path })
      await host.fails('invalid_path', 'save_to_workspace', { sandbox_path: path })
    }
    for (const path of ['../x', '/tmp/x', 'dir/x', 'dangling', 'two/x', 'two/new/dir/x', '/home/user2/x']) {
      await host.fails('invalid_path', 'write_file', { path, content: 'x' })
    }
    for (const pattern of ['../*', '/etc/*', 'dir/*', '/home/user2/*']) await host.fails('invalid_path', 'glob_files', { pattern })
    assert.equal(await host.bash('ls /home/user2; ls /etc/new 2>/dev/null; true'), 's\n')
    // What stays inside is fine, also by a link.
    assert.equal((await host.ok('read_file', { path: 'good/f' })).path, `${HOME}/sub/f`)
    assert.equal((await host.ok('read_file', { path: `${HOME}/sub/../good/./f` })).content, 'fine\n')
    await host.ok('write_file', { path: 'good/new/g', content: 'x' })
    assert.equal(await host.bash('cat sub/new/g'), 'x')
    // Links inside a tree are shown, not followed, whatever chooses the files.
    for (const more of [{}, { include: '*' }, { include: '**/*' }, { include: './**' }]) {
      const found = await host.ok('grep_files', { pattern: '^root:|^secret$|^fine$', ...more })
      assert.deepEqual(found.matches.map(({ file }) => file), [`${HOME}/sub/f`], JSON.stringify(more))
    }
    assert.ok((await host.ok('list_files', { depth: 3 })).entries.every(({ path }) => !path.includes('passwd')))
    assert.ok((await host.ok('glob_files', { pattern: '**' })).files.every((path) => !path.includes('passwd')))
    await host.fails('not_a_file', 'read_file', { path: 'a' })  // a link that leads nowhere but to itself
    const nul = await host.fails('invalid_path', 'read_file', { path: 'a\0b' })
    assert.match(nul.message, /NUL/)
  }, { seconds: 180 })

  withHost('mcp/files: missing, directory, binary, empty', 'http', async (host) => {
    await host.bash(`mkdir d && printf 'a\\0b' > nul && head -c 3000 /dev/urandom > noise && touch empty && mkfifo pipe && printf 'gr\\374n\\n' > latin`)
    await host.ok('run_code', { code: 'import base64; open("p.png","wb").write(base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="))' })
    for (const [tool, more] of [['read_file', {}], ['edit_file', { old_text: 'a', new_text: 'b' }]]) {
      assert.match((await host.fails('not_found', tool, { path: 'no/such', ...more })).message, /no\/such/)
      await host.fails('is_directory', tool, { path: 'd', ...more })
      await host.fails('binary_file', tool, { path: 'nul', ...more })
      await host.fails('not_a_file', tool, { path: 'pipe', ...more })
    }
    const png = await host.fails('binary_file', 'read_file', { path: 'p.png' })
    assert.deepEqual([png.mime_type, png.size], ['image/png', 70])
    assert.match(png.message, /70 bytes of image\/png/)
    await host.fails('binary_file', 'read_file', { path: 'noise' })
    await host.fails('is_directory', 'write_file', { path: 'd', content: '' })
    await host.fails('is_directory', 'write_file', { path: 'new/', content: '' })
    for (const tool of ['list_files', 'grep_files']) await host.fails('not_found', tool, { path: 'nowhere', ...(tool === 'grep_files' && { pattern: 'x' }) })
    await host.fails('not_found', 'glob_files', { path: 'nowhere', pattern: '*' })
    await host.fails('not_a_directory', 'list_files', { path: 'empty' })
    await host.fails('not_a_directory', 'write_file', { path: 'empty/below', content: 'x' })
    await host.fails('not_a_directory', 'read_file', { path: 'empty/below' })
    await host.fails('invalid_path', 'write_file', { path: 'x'.repeat(300), content: 'x' })
    await host.fails('invalid_path', 'read_file', { path: 'x/'.repeat(2045) })
    const empty = await host.ok('read_file', { path: 'empty' })
    assert.deepEqual([empty.content, empty.lines, empty.total_lines], ['', 0, 0])
    assert.equal((await host.ok('read_file', { path: 'latin' })).content, 'gr\ufffdn\n')
    const beyond = await host.ok('read_file', { path: 'latin', offset: 5 })
    assert.deepEqual([beyond.content, beyond.total_lines], ['', 1])
    assert.deepEqual((await host.ok('list_files', { path: 'd' })).entries, [])
  })

  withHost('mcp/files: edits', 'http', async (host) => {
    await host.ok('write_file', { path: 'f', content: 'aXbXc\naaa\n$1 \\1 \r\n' })
    const many = await host.fails('ambiguous_match', 'edit_file', { path: 'f', old_text: 'X', new_text: 'Y' })
    assert.equal(many.count, 2)
    assert.match(many.message, /2 times/)
    assert.equal((await host.fails('ambiguous_match', 'edit_file', { path: 'f', old_text: 'aa', new_text: '' })).count, 2)
    await host.fails('text_not_found', 'edit_file', { path: 'f', old_text: 'nothing of that', new_text: 'Y' })
    await host.fails('invalid_argument', 'edit_file', { path: 'f', old_text: '', new_text: 'Y' })
    assert.equal(await host.bash('cat f'), 'aXbXc\naaa\n$1 \\1 \r\n')
    await host.ok('edit_file', { path: 'f', old_text: '$1 \\1 \r\n', new_text: '$& \\0 "\'\n' })
    assert.equal(await host.bash('cat f'), 'aXbXc\naaa\n$& \\0 "\'\n')
    await host.bash('chmod 750 f')
    // None of many at once gets lost.
    await host.ok('write_file', { path: 'n', content: Array.from({ length: 12 }, (_, i) => `line <${i}>\n`).join('') })
    await Promise.all(Array.from({ length: 12 }, (_, i) => host.ok('edit_file', { path: 'n', old_text: `<${i}>`, new_text: `[${i}]` })))
    assert.equal(await host.bash('cat n'), Array.from({ length: 12 }, (_, i) => `line [${i}]\n`).join(''))
    assert.equal(await host.bash('stat -c %a f'), '750\n')
  })

  withHost('mcp/files: odd names', 'http', async (host) => {
    const names = ['-rf', '--help', "it's", 'a"b', 'with space', 'new\nline', '$(id)', '`id`', 'a;b', 'ünï-日本-🎈', 'back\\slash', '*', '[x]', '{a,b}', '~', '%s']
    for (const [i, name] of names.entries()) {
      const path = `odd/${name}`
      const { path: at } = await host.ok('write_file', { path, content: `needle ${i}\n` })
      assert.equal(at, `${HOME}/odd/${name}`)
      assert.equal((await host.ok('read_file', { path })).content, `needle ${i}\n`)
      await host.ok('edit_file', { path, old_text: 'needle', new_text: 'Nadel' })
    }
    const want = names.map((name) => `${HOME}/odd/${name}`).sort()
    assert.deepEqual((await host.ok('list_files', { path: 'odd' })).entries.map(({ path }) => path).sort(), want)
    assert.deepEqual((await host.ok('glob_files', { pattern: 'odd/*' })).files.sort(), want)
    const found = await host.ok('grep_files', { pattern: 'Nadel', path: 'odd' })
    assert.deepEqual(found.matches.map(({ file }) => file).sort(), want)
    assert.deepEqual((await host.ok('glob_files', { pattern: 'odd/-*' })).files.sort(), [`${HOME}/odd/--help`, `${HOME}/odd/-rf`])
    assert.deepEqual((await host.ok('glob_files', { pattern: 'odd/\\*' })).files, [`${HOME}/odd/*`])
    assert.equal(Number(await host.bash('ls -A1 odd | wc -l')), names.length + 1)  // one name has two lines
    await host.fails('not_found', 'read_file', { path: '-nothing' })
    await host.ok('write_file', { path: '--version', content: 'x' })
    assert.equal((await host.ok('read_file', { path: '--version' })).content, 'x')
  })

  withHost('mcp/files: paging through 3 MB', 'http', async (host) => {
    await host.bash(`seq -f '%07.0f: the quick brown fox jumps over the lazy dog' 0 56999 > big; printf 'x%.0s' $(seq 1 300000) > one; stat -c %s big`)
    let text = ''
    let offset = 0
    let pages = 0
    while (offset !== undefined) {
      const page = await host.ok('read_file', { path: 'big', offset, limit: 4000 })
      assert.equal(page.total_lines, 57000)
      assert.ok(page.size > 2.9e6)
      text += page.content
      offset = page.next_offset
      pages++
    }
    assert.ok(pages >= 15 && pages < 30, `${pages} pages`)
    assert.equal(text, Array.from({ length: 57000 }, (_, i) => `${String(i).padStart(7, '0')}: the quick brown fox jumps over the lazy dog\n`).join(''))
    const standard = await host.call('read_file', { path: 'big' })
    assert.equal(standard.structuredContent.lines, 2000)
    assert.match(standard.content[1].text, /lines 0 to 1999 of 57000.*offset 2000/)
    // More lines than fit end at a line, and say where to go on.
    const much = await host.ok('read_file', { path: 'big', limit: 50000 })
    assert.ok(much.lines < 6000 && much.next_offset === much.lines && much.content.endsWith('\n'))
    const long = await host.ok('read_file', { path: 'one' })
    assert.match(long.content, /bytes left out/)
    assert.match(long.note, /bytes of that line left out/)
    const content = 'é'.repeat(1_500_000)
    assert.equal((await host.ok('write_file', { path: 'up', content })).bytes, 3_000_000)
    assert.equal(await host.bash('stat -c %s up'), '3000000\n')
  })

  withHost('mcp/files: no space left', 'http', async (host) => {
    await host.bash('df -P /home/user > /tmp/df; fallocate -l $(( ($(awk \'NR==2{print $4}\' /tmp/df) - 2000) * 1024 )) fill || head -c 100T /dev/zero > fill 2>/dev/null; true', 120)
    const result = await host.call('write_file', { path: 'more', content: 'x'.repeat(9_000_000) })
    assert.equal(result.isError, true)
    assert.equal(result.structuredContent.error, 'no_space', result.structuredContent.message)
    await host.bash('rm -f fill more')
    await host.ok('write_file', { path: 'more', content: 'x' })
  }, { seconds: 240, headers: { 'X-Atoll-Template': 'base' } })
})

describe('mcp/search', parallel, () => {
  withHost('mcp/search: globs', 'http', async (host) => {
    await host.bash('mkdir -p src/a/b .hidden && touch top.py src/x.py src/a/y.py src/a/b/z.py src/a/b/z.js src/q.ts .hidden/h.py src/.env && touch -d "1 hour ago" src/x.py && touch -d "2 hours ago" src/a/y.py')
    const glob = async (pattern, more = {}) => (await host.ok('glob_files', { pattern, ...more })).files.map((path) => path.slice(HOME.length + 1))
    assert.deepEqual(await glob('**/*.py'), ['src/a/b/z.py', 'src/a/y.py', 'src/x.py', 'top.py'])
    assert.deepEqual(await glob('*.py'), ['top.py'])
    assert.deepEqual(await glob('src/**/z.{py,js}'), ['src/a/b/z.js', 'src/a/b/z.py'])
    assert.deepEqual(await glob('**/[x-z].py', { path: 'src' }), ['src/a/b/z.py', 'src/a/y.py', 'src/x.py'])
    assert.deepEqual(await glob('src/?.ts'), ['src/q.ts'])
    assert.deepEqual(await glob('**/.env'), ['src/.env'])
    assert.deepEqual(await glob('.hidden/*'), ['.hidden/h.py'])
    assert.deepEqual(await glob('src/**/*.py', { newest_first: true }), ['src/a/b/z.py', 'src/x.py', 'src/a/y.py'])
    assert.deepEqual(await glob(`${HOME}/src/*.py`), ['src/x.py'])
    assert.deepEqual(await glob('nowhere/*.py'), [])
    assert.deepEqual(await glob('top.py/below/*.py'), [])
    assert.deepEqual(await glob('*.none'), [])
    for (const pattern of ['[a', '{a,b', 'a*/../b']) await host.fails('invalid_pattern', 'glob_files', { pattern })
    await host.bash('mkdir many && cd many && seq 1 1500 | xargs touch')
    const many = await host.ok('glob_files', { pattern: 'many/*' })
    assert.deepEqual([many.files.length, many.count], [1000, 1500])
    assert.match(many.note, /500 more/)
    const listed = await host.ok('list_files', { path: 'many' })
    assert.deepEqual([listed.entries.length, listed.count], [1000, 1500])
  })

  withHost('mcp/search: grep', 'http', async (host) => {
    await host.bash(`mkdir -p src/deep && printf 'alpha 12\\nbeta\\r\\nGAMMA\\n' > src/a.py && printf 'alpha 7\\n' > src/deep/b.js && printf 'alpha\\0 9' > src/bin &&
      printf 'alpha: 3:4\\n' > 'src/c:5:x.txt' && mkfifo src/pipe && printf 'größe 5\\n' > src/u.txt && printf -- '-e dash\\n' > src/d.txt`)
    const grep = async (pattern, more = {}) => (await host.ok('grep_files', { pattern, ...more })).matches.map(({ file, line, text }) => `${file.slice(HOME.length + 1)}:${line}:${text}`).sort()
    assert.deepEqual(await grep('alpha \\d+'), ['src/a.py:1:alpha 12', 'src/deep/b.js:1:alpha 7'])
    assert.deepEqual(await grep('alpha'), ['src/a.py:1:alpha 12', 'src/c:5:x.txt:1:alpha: 3:4', 'src/deep/b.js:1:alpha 7'])
    assert.deepEqual(await grep('(?i)gamma|beta$'.replace('$', '\\s*$')), ['src/a.py:2:beta', 'src/a.py:3:GAMMA'])
    assert.deepEqual(await grep('alpha', { include: '*.py' }), ['src/a.py:1:alpha 12'])
    assert.deepEqual(await grep('alpha', { include: '*.{py,js}' }), ['src/a.py:1:alpha 12', 'src/deep/b.js:1:alpha 7'])
    assert.deepEqual(await grep('alpha', { include: 'src/**/*.js' }), ['src/deep/b.js:1:alpha 7'])
    assert.deepEqual(await grep('alpha', { include: 'deep/*', path: 'src' }), ['src/deep/b.js:1:alpha 7'])
    assert.deepEqual(await grep('alpha', { path: 'src/a.py' }), ['src/a.py:1:alpha 12'])
    assert.deepEqual(await grep('gr..e'), ['src/u.txt:1:größe 5'])
    assert.deepEqual(await grep('-e dash'), ['src/d.txt:1:-e dash'])
    const none = await host.ok('grep_files', { pattern: 'nothing like that' })
    assert.deepEqual([none.matches, none.count], [[], 0])
    for (const pattern of ['(', '[a', 'a{2,1}', '*a', '(?<n', 'a\nb']) await host.fails('invalid_pattern', 'grep_files', { pattern })
    await host.fails('invalid_pattern', 'grep_files', { pattern: 'a', include: '[x' })
    await host.bash(`seq 1 200000 | sed 's/^/hay needle /' > hay; head -c 2000000 /dev/zero | tr '\\0' y > line`)
    const many = await host.ok('grep_files', { pattern: 'needle' })
    assert.equal(many.matches.length, 500)
    assert.match(many.note, /left out/)
    const [long] = (await host.ok('grep_files', { pattern: 'yyy', path: 'line' })).matches
    assert.ok(long.text.length < 700 && /left out/.test(long.text))
    // A search that was given up is none that found nothing.
    await host.bash(`mkdir odd && (head -c 3000 /dev/zero | tr '\\0' a; echo b) > odd/endless && (echo aaa; cat odd/endless) > odd/both`)
    assert.match((await host.fails('invalid_pattern', 'grep_files', { pattern: '(a+)+$', path: 'odd/endless' })).message, /backtracking limit/)
    await host.fails('invalid_pattern', 'grep_files', { pattern: '(a+)+$', path: 'odd', include: './endless' })
    const some = await host.ok('grep_files', { pattern: '(a+)+$', path: 'odd/both' })
    assert.deepEqual(some.matches.map(({ line }) => line), [1])
    assert.match(some.note, /not everything was searched: .*backtracking limit/)
    await host.bash('echo hidden > odd/locked && sudo chown root odd/locked && sudo chmod 600 odd/locked')
    const locked = await host.ok('grep_files', { pattern: 'hidden', path: 'odd' })
    assert.deepEqual(locked.matches, [])
    assert.match(locked.note, /locked: Permission denied/)
  })

  withHost('mcp/search: a search that takes too long ends', 'http', async (host) => {
    // Many lines, each with a million ways to match almost.
    await host.bash(`yes b$(head -c 200 /dev/zero | tr '\\0' a) | head -50000 > slow`)
    const began = Date.now()
    const late = await host.fails('timeout', 'grep_files', { pattern: '^(.*)(.*)(.*)b$' })
    assert.match(late.message, /15 s/)
    assert.ok(Date.now() - began > 14_000 && Date.now() - began < 60_000)
    assert.equal((await host.ok('bash_exec', { command: 'pgrep -x grep' })).exit_code, 1)
  }, { seconds: 200, headers: { 'X-Atoll-Template': 'base' } })
})

describe('mcp/run', parallel, () => {
  withHost('mcp/run: commands that take too long are killed with all they started', 'stdio', async (host) => {
    const fields = await host.fails('timeout', 'bash_exec', {
      command: 'echo before; sleep 1001 & (setsid sleep 1002 &) ; nohup sleep 1003 >/dev/null 2>&1 & sleep 1004', timeout: 8,
    })
    assert.deepEqual([fields.exit_code, fields.timed_out, fields.stdout], [-1, true, 'before\n'])
    assert.match(fields.message, /longer than 8 s/)
    assert.equal((await host.ok('bash_exec', { command: 'pgrep -f "sleep 100[1-4]"' })).exit_code, 1)
    // What one that ended in time left in the background goes on.
    await host.bash('nohup sleep 2001 >/dev/null 2>&1 &')
    assert.equal((await host.ok('bash_exec', { command: 'pgrep -fx "sleep 2001"' })).exit_code, 0)
    for (const timeout of [0, 121, -1, 1.5]) await host.fails('invalid_argument', 'bash_exec', { command: 'true', timeout })
    for (const command of ['', '  \n']) await host.fails('invalid_argument', 'bash_exec', { command })
    assert.equal((await host.ok('bash_exec', { command: 'kill -9 $$' })).exit_code, 137)
    assert.equal((await host.ok('bash_exec', { command: 'nosuchcommand' })).exit_code, 127)
    await assert.rejects(host.call('rm_rf'), /Unknown tool/)
    await host.fails('invalid_argument', 'bash_exec', { command: 'true', cwd: '/' })
    await host.fails('invalid_argument', 'bash_exec', {})
  })

  withHost('mcp/run: much output is cut in the middle', 'http', async (host) => {
    const result = await host.call('bash_exec', { command: 'seq 1 1000000; echo END; seq 1 200000 >&2' })
    const fields = host.checked(result)
    assert.ok(fields.stdout.length < 60_000 && fields.stderr.length < 60_000)
    assert.ok(fields.stdout.startsWith('1\n2\n') && fields.stdout.endsWith('1000000\nEND\n'))
    assert.match(fields.stdout, /\[\.\.\. \d+ bytes left out; redirect the output to a file/)
    assert.match(fields.note, /left out/)
    assert.ok(JSON.stringify(result).length < 300_000)
    assert.equal((await host.bash(`printf '\\377\\376ok'`)), '\ufffd\ufffdok')
    const code = await host.ok('run_code', { code: 'print("x" * 1_000_000)\n"y" * 500_000' })
    assert.ok(code.stdout.length < 60_000 && /left out/.test(code.stdout) && /left out/.test(code.text))
    const endless = await host.fails('output_limit', 'run_code', { code: 'while True: print("z" * 100_000)', timeout: 60 })
    assert.match(endless.stdout, /^z+/)
    assert.equal((await host.ok('run_code', { code: '1 + 1' })).text, '2')
  })

  withHost('mcp/run: code with plots, errors and a limit of time', 'http', async (host) => {
    const plot = await host.call('run_code', {
      code: 'import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()\nplt.figure(); plt.bar(["a"], [1])\nplt.show()', timeout: 90,
    })
    const images = plot.content.filter((part) => part.type === 'image')
    assert.equal(images.length, 2)
    for (const image of images) {
      assert.equal(image.mimeType, 'image/png')
      assert.match(image.data, PNG)
      assert.equal(Buffer.from(image.data, 'base64').toString('base64'), image.data)
    }
    assert.deepEqual(plot.structuredContent.results.map((result) => result.image), [0, 1])
    assert.ok(!JSON.stringify(plot.structuredContent).includes('iVBORw0KGgo'), 'images are not repeated')
    const raised = await host.fails('execution_error', 'run_code', { code: 'kept = 5\nprint("so far")\n1 / 0' })
    assert.deepEqual([raised.error_name, raised.error_value, raised.stdout], ['ZeroDivisionError', 'division by zero', 'so far\n'])
    const late = await host.fails('timeout', 'run_code', { code: 'late = 7\nprint("begun", flush=True)\nimport time\ntime.sleep(600)', timeout: 8 })
    assert.deepEqual([late.timed_out, late.stdout], [true, 'begun\n'])
    assert.equal((await host.ok('run_code', { code: 'kept + late', timeout: 60 })).text, '12')
    assert.equal((await host.ok('run_code', { code: '[1, 2].map(x => x * 2)', language: 'javascript', timeout: 60 })).text, '[ 2, 4 ]')
    assert.match((await host.fails('invalid_argument', 'run_code', { code: '1', language: 'cobol' })).message, /no language cobol/)
  }, { seconds: 180 })

  withHost('mcp/run: a template without an interpreter says so', 'http', async (host) => {
    await host.fails('no_interpreter', 'run_code', { code: '1' })
    assert.equal(await host.bash('echo fine'), 'fine\n')
  }, { headers: { 'X-Atoll-Template': 'base' } })

  for (const kind of ['stdio', 'http']) {
    withHost(`mcp/run: many calls at once over ${kind}`, kind, async (host) => {
      await host.bash('mkdir there')
      // None ends before all have begun: they run side by side, or never end.
      const outs = await Promise.all(Array.from({ length: 16 }, (_, i) =>
        host.bash(`touch there/${i}; until [ "$(ls there | wc -l)" -eq 16 ]; do sleep 0.3; done; echo ${i}`, 110)))
      assert.deepEqual(outs, Array.from({ length: 16 }, (_, i) => `${i}\n`))
    }, { seconds: 150 })

    withHost(`mcp/run: a call that is cancelled ends its processes over ${kind}`, kind, async (host) => {
      await host.bash('true')
      const abort = new AbortController()
      const running = host.call('bash_exec', { command: 'sleep 3001 & sleep 3002', timeout: 100 }, { signal: abort.signal })
      running.catch(() => {})
      const count = async () => Number((await host.ok('bash_exec', { command: 'pgrep -cfx "sleep 300[12]"' })).stdout)
      await until('the command', async () => (await count()) === 2, 60_000)
      abort.abort('enough')
      await assert.rejects(running)
      await until('the end of its processes', async () => (await count()) === 0, 60_000)
      const code = new AbortController()
      const looping = host.call('run_code', { code: 'import time\nmark = 1\nopen("begun", "w").close()\nfor i in range(1000): time.sleep(0.1)', timeout: 110 }, { signal: code.signal })
      looping.catch(() => {})
      await until('the loop', async () => (await host.ok('bash_exec', { command: 'ls begun' })).exit_code === 0, 60_000)
      code.abort('enough')
      await assert.rejects(looping)
      assert.equal((await host.ok('run_code', { code: 'mark', timeout: 60 })).text, '1')
    }, { seconds: 240 })
  }

  test('mcp/run: a client that goes away cancels its call', limited(180), async () => {
    const host = await Host.connect('http')
    const other = await Host.connect('http', { key: host.key })
    try {
      await host.bash('true')
      host.call('bash_exec', { command: 'sleep 4001', timeout: 100 }).catch(() => {})
      const count = async () => Number((await other.ok('bash_exec', { command: 'pgrep -cfx "sleep 4001"' })).stdout)
      await until('the command', async () => (await count()) === 1, 60_000)
      await host.client.close()
      await until('its end', async () => (await count()) === 0, 60_000)
    } finally {
      await other.close()
    }
  })

  withHost('mcp/run: a long call tells that it is alive', 'http', async (host) => {
    const progress = []
    const slow = await host.ok('bash_exec', { command: 'sleep 25; echo done', timeout: 100 },
                               { onprogress: (event) => progress.push(event.progress), timeout: 15_000, resetTimeoutOnProgress: true })
    assert.equal(slow.stdout, 'done\n')
    assert.ok(progress.length >= 2 && progress.every((value, i) => i === 0 || value > progress[i - 1]), progress.join())
  })
})

describe('mcp/session', parallel, () => {
  test('mcp/session: one key is one sandbox, over both transports, and state survives pauses', limited(120), async () => {
    const key = unique('shared')
    const [http, stdio] = await Promise.all([Host.connect('http', { key }), Host.connect('stdio', { key })])
    try {
      await http.ok('run_code', { code: 'n = 41' })
      await http.bash('nohup sleep 5001 >/dev/null 2>&1 & echo kept > file')
      const seen = await stdio.ok('run_code', { code: 'n += 1; n' })
      assert.equal(seen.text, '42')
      assert.equal((await stdio.ok('read_file', { path: 'file' })).sandbox, 'reused')
      await stdio.ok('pause')
      await stdio.ok('pause')
      const { json: info } = await api('GET', `/sessions/${key}`)
      assert.equal(info.state, 'paused')
      const after = await http.ok('run_code', { code: 'n' })
      assert.deepEqual([after.text, after.sandbox, after.sandbox_id], ['42', 'resumed', seen.sandbox_id])
      assert.equal((await http.ok('bash_exec', { command: 'pgrep -fx "sleep 5001"' })).exit_code, 0)
      // A sandbox that was killed is replaced, and the model is told.
      assert.equal((await api('DELETE', `/sandboxes/${seen.sandbox_id}`)).status, 204)
      const next = await http.ok('bash_exec', { command: 'ls file' })
      assert.deepEqual([next.sandbox, next.exit_code], ['created', 2])
    } finally {
      await stdio.client.close()
      await http.close()
    }
  })

  test('mcp/session: without a key each connection has its own', limited(90), async () => {
    const [one, two] = await Promise.all([Host.connect('http', { key: null }), Host.connect('http', { key: null })])
    const keys = []
    try {
      const [a, b] = await Promise.all([one.ok('bash_exec', { command: 'echo a > f' }), two.ok('bash_exec', { command: 'ls f' })])
      assert.notEqual(a.sandbox_id, b.sandbox_id)
      assert.equal(b.exit_code, 2)
      assert.equal(a.session_id, `mcp-${one.transport.sessionId}`)
      keys.push(a.session_id, b.session_id)
      // The end of a session pauses its sandbox; its key leads back to it.
      await one.transport.terminateSession()
      assert.equal((await api('GET', `/sessions/${a.session_id}`)).json.state, 'paused')
      const back = await Host.connect('http', { key: a.session_id })
      assert.equal(await back.bash('cat f'), 'a\n')
      await back.client.close()
    } finally {
      await one.client.close()
      await two.client.close()
      for (const key of keys) await api('DELETE', `/sessions/${key}`)
    }
  })

  withHost('mcp/session: nothing to pause before the first call', 'http', async (host) => {
    await host.fails('no_session', 'pause', {})
    assert.equal((await host.ok('reset')).sandbox, 'created')
    await host.ok('pause')
  })

  withHost('mcp/session: a sandbox that cannot be made', 'http', async (host) => {
    const fields = await host.fails('sandbox_unavailable', 'bash_exec', { command: 'true' })
    assert.match(fields.message, /nosuch-template/)
  }, { headers: { 'X-Atoll-Template': 'nosuch-template' } })

  withHost('mcp/session: without internet', 'stdio', async (host) => {
    const got = await host.ok('bash_exec', { command: 'curl -sS -m 5 https://example.com', timeout: 30 })
    assert.notEqual(got.exit_code, 0)
    const { json } = await api('GET', `/sandboxes/${got.sandbox_id}`)
    assert.equal(json.allowInternetAccess, false, JSON.stringify(json))
  }, { args: ['--no-internet', '--template', 'base'] })
})

describe('mcp/workspace', parallel, () => {
  test('mcp/workspace: files outlive their sandbox', limited(120), async () => {
    const workspace = unique('ws')
    const headers = { 'X-Atoll-Workspace': workspace, 'X-Atoll-Template': 'base' }
    const first = await Host.connect('http', { headers })
    await first.bash('mkdir -p out/sub && echo 1 > out/a && echo 22 > out/sub/b && head -c 5000000 /dev/urandom > big && sha256sum big > sum')
    const saved = await first.ok('save_to_workspace', { sandbox_path: 'out', workspace_path: '/results' })
    assert.deepEqual([saved.workspace, saved.size, saved.files.map(({ path }) => path).sort()], [workspace, 5, ['/results/a', '/results/sub/b']])
    assert.equal((await first.ok('save_to_workspace', { sandbox_path: 'big' })).path, '/big')
    await first.ok('save_to_workspace', { sandbox_path: 'sum' })
    await first.bash('echo newer > out/a')
    await first.ok('save_to_workspace', { sandbox_path: 'out/a', workspace_path: '/results/a' })
    await first.fails('not_found', 'save_to_workspace', { sandbox_path: 'nothing' })
    await first.close()
    const second = await Host.connect('stdio', { args: ['--workspace', workspace, '--template', 'base'] })
    try {
      assert.deepEqual([(await second.ok('load_from_workspace', { workspace_path: '/big' })).path], [`${HOME}/big`])
      await second.ok('load_from_workspace', { workspace_path: 'sum' })
      assert.equal(await second.bash('sha256sum -c sum'), 'big: OK\n')
      await second.ok('load_from_workspace', { workspace_path: '/results', sandbox_path: 'in' })
      assert.equal(await second.bash('cat in/a in/sub/b'), 'newer\n22\n')
      await second.fails('not_found', 'load_from_workspace', { workspace_path: '/nothing' })
      await second.fails('invalid_path', 'load_from_workspace', { workspace_path: '/big', sandbox_path: '../x' })
      await second.fails('invalid_path', 'load_from_workspace', { workspace_path: '/big', sandbox_path: '/etc/x' })
      // A link below the target leads one of the files outside: none is written. One that stays inside is fine.
      await second.bash('mkdir trap && ln -s /tmp trap/sub && mkdir ok real && ln -s ../real ok/sub')
      for (const workspace_path of ['/results', 'results/', '//results//']) {
        await second.fails('invalid_path', 'load_from_workspace', { workspace_path, sandbox_path: 'trap' })
      }
      assert.equal(await second.bash('ls trap; ls /tmp/b 2>/dev/null; true'), 'sub\n')
      await second.ok('load_from_workspace', { workspace_path: '/results', sandbox_path: 'ok' })
      assert.equal(await second.bash('cat ok/a real/b'), 'newer\n22\n')
    } finally {
      await second.close()
    }
  })
})

describe('mcp/http', parallel, () => {
  const accept = { Accept: 'application/json, text/event-stream', 'Content-Type': 'application/json' }
  const post = (message, headers = {}) => request('POST', '/mcp', { headers: { ...accept, ...headers }, body: JSON.stringify(message) })
  const hello = (version = '2025-06-18') => ({ jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: version, capabilities: {}, clientInfo: { name: 'raw', version: '1' } } })

  test('mcp/http: credentials', limited(30), async () => {
    for (const headers of [{}, { 'X-API-Key': 'e2b_' + '0'.repeat(40) }, { Authorization: 'Bearer e2b_nonsense' }, { Authorization: 'Bearer x' }]) {
      const refused = await post(hello(), headers)
      assert.equal(refused.status, 401, refused.text)
      assert.equal(refused.json.code, 401)
    }
    assert.equal((await post(hello(), { Authorization: `Bearer ${apiKey}` })).status, 200)
    await assert.rejects(Host.connect('http', { apiKey: 'e2b_' + '0'.repeat(40) }), /401|Invalid API key/)
    // The administrator works for a team, by its header.
    assert.equal((await post(hello(), { 'X-Admin-Token': adminToken() })).status, 401)
    const session = (await post(hello(), { 'X-API-Key': apiKey })).headers['mcp-session-id']
    assert.match(session, /^[0-9a-f]{32}$/)
    assert.equal((await post({ jsonrpc: '2.0', id: 1, method: 'ping' }, { 'Mcp-Session-Id': session })).status, 401)
  })

  test('mcp/http: sessions, methods and headers', limited(30), async () => {
    const key = { 'X-API-Key': apiKey }
    const ping = { jsonrpc: '2.0', id: 1, method: 'ping' }
    assert.equal((await post(ping, key)).status, 400)
    assert.equal((await post(ping, { ...key, 'Mcp-Session-Id': 'f'.repeat(32) })).status, 404)
    for (const version of ['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25']) {
      assert.equal((await post(hello(version), key)).json.result.protocolVersion, version)
    }
    assert.equal((await post(hello('1999-01-01'), key)).json.result.protocolVersion, '2025-11-25')
    const id = (await post(hello('2025-03-26'), key)).headers['mcp-session-id']
    const mine = { ...key, 'Mcp-Session-Id': id }
    const get = await request('GET', '/mcp', { headers: { ...mine, Accept: 'text/event-stream' } })
    assert.equal(get.status, 405)
    assert.match(get.headers.allow, /POST/)
    assert.equal((await post(ping, { ...mine, Origin: 'http://evil.example' })).status, 403)
    assert.equal((await post(ping, { ...mine, Accept: 'text/html' })).status, 406)
    assert.equal((await post(ping, { ...mine, 'MCP-Protocol-Version': 'x' })).status, 400)
    assert.equal((await post({ jsonrpc: '2.0', method: 'notifications/initialized' }, mine)).status, 202)
    const batch = await post([ping, { ...ping, id: 'two' }], mine)
    assert.deepEqual(batch.json.map((answer) => answer.id), [1, 'two'])
    const broken = await request('POST', '/mcp', { headers: { ...accept, ...mine }, body: '{' })
    assert.deepEqual([broken.status, broken.json.error.code], [400, -32700])
    const large = await request('POST', '/mcp', { headers: { ...accept, ...mine }, body: 'x'.repeat((16 << 20) + 1) })
    assert.equal(large.status, 413)
    assert.equal((await post({ ...ping, method: 'resources/list' }, mine)).json.error.code, -32601)
    assert.equal((await request('DELETE', '/mcp', { headers: mine })).status, 204)
    assert.equal((await post(ping, mine)).status, 404)
  })
})

describe('mcp/stdio', parallel, () => {
  // Lines to `atoll mcp`; all that it prints, and how it ends.
  function talk(lines, { args = [], env = {} } = {}) {
    return new Promise((resolve, reject) => {
      const child = spawn(process.env.ATOLL_E2E_ATOLL, ['mcp', ...args],
                          { env: { PATH: process.env.PATH, E2B_API_URL: plainUrl.href, E2B_API_KEY: apiKey, ...env } })
      let out = ''
      let err = ''
      child.stdout.on('data', (data) => (out += data))
      child.stderr.on('data', (data) => (err += data))
      child.on('error', reject)
      child.on('close', (code) => resolve({ code, err, answers: out.split('\n').filter(Boolean).map((line) => JSON.parse(line)) }))
      child.stdin.end(lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line)) + '\n').join(''))
    })
  }
  const hello = { jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'raw', version: '1' } } }
  const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' }

  test('mcp/stdio: one line, one message', limited(60), async () => {
    const key = unique('lines')
    const { code, answers, err } = await talk(
      [hello, { jsonrpc: '2.0', method: 'notifications/initialized' }, list, '', '{broken', '[]', { jsonrpc: '2.0', id: 'x', method: 'nothing' },
       { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'bash_exec', arguments: { command: 'echo "a\nb"' } } }],
      { args: ['--session', key, '--template', 'base'] })
    assert.equal(code, 0, err)
    const by = (id) => answers.find((answer) => answer.id === id)
    assert.equal(by(0).result.protocolVersion, '2025-06-18')
    assert.equal(by(1).result.tools.length, 12)
    assert.equal(by('x').error.code, -32601)
    assert.equal(by(2).result.structuredContent.stdout, 'a\nb\n')
    assert.deepEqual(answers.filter((answer) => answer.id === null).map((answer) => answer.error.code).sort(), [-32600, -32700].sort())
    // The end of the input has paused the sandbox.
    assert.equal((await api('GET', `/sessions/${key}`)).json.state, 'paused')
    const kept = await talk([hello, { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'list_files' } }], { args: ['--session', key, '--keep'] })
    assert.equal(kept.answers[1].result.structuredContent.sandbox, 'resumed')
    assert.equal((await api('GET', `/sessions/${key}`)).json.state, 'running')
    await talk([hello, { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'list_files' } }], { args: ['--session', key, '--remove'] })
    assert.equal((await api('GET', `/sessions/${key}`)).status, 404)
  })

  test('mcp/stdio: no server, a wrong key', limited(60), async () => {
    const nowhere = await talk([hello, list], { env: { E2B_API_URL: 'http://127.0.0.1:1' } })
    assert.deepEqual(nowhere.answers.map(({ id, error }) => [id, error.code, error.data.error]),
                     [[0, -32000, 'sandbox_unavailable'], [1, -32000, 'sandbox_unavailable']])
    assert.match(nowhere.answers[0].error.message, /no server answers at/)
    const wrong = await talk([hello], { env: { E2B_API_KEY: 'e2b_' + '0'.repeat(40) } })
    assert.deepEqual([wrong.answers[0].error.code, wrong.answers[0].error.data.error], [-32002, 'authentication_required'])
    const none = await talk([hello], { args: ['--home', '/nonexistent'], env: { E2B_API_URL: '', E2B_API_KEY: '' } })
    assert.equal(none.answers[0].error.code, -32000)
    assert.equal(none.code, 1)
    await assert.rejects(Host.connect('stdio', { apiKey: 'e2b_' + '0'.repeat(40) }), /API key/)
  })

  test('mcp/stdio: a restart of the server goes unnoticed', limited(120), () => withServer(['--pool-ready', '0', '--pool-skeletons', '0'], async (server) => {
    const facts = () => JSON.parse(readFileSync(`${server.home}/state/server.json`, 'utf8'))
    const host = await Host.connect('stdio', { url: server.url, apiKey: server.key, args: ['--template', 'base'] })
    try {
      const before = await host.ok('bash_exec', { command: 'echo kept > f; nohup sleep 6001 > /dev/null 2>&1 &' })
      const { pid } = facts()
      process.kill(pid, 'SIGKILL')
      await until('another server', () => {
        try {
          return facts().pid !== pid
        } catch {
          return false
        }
      }, 60_000)
      const after = await host.ok('bash_exec', { command: 'cat f; pgrep -cfx "sleep 6001"' })
      assert.deepEqual([after.stdout, after.sandbox_id, after.sandbox], ['kept\n1\n', before.sandbox_id, 'reused'])
    } finally {
      await host.client.close()
    }
  }))

  test('mcp/stdio: by the home of the server on this machine', limited(60), async () => {
    const { code, answers, err } = await talk([hello, list], { args: ['--home', process.env.ATOLL_E2E_HOME], env: { E2B_API_URL: '', E2B_API_KEY: '' } })
    assert.equal(code, 0, err)
    assert.equal(answers.at(-1).result.tools.length, 12)
  })
})
