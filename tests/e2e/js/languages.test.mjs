import { describe } from 'node:test'
import { assert, parallel } from './support.mjs'
import { languages, row, secure, shown } from './interpreter.mjs'

describe('languages/contexts', parallel, () => {
  const made = async (sandbox, options) => {
    const context = await sandbox.createCodeContext(options)
    const last = (await sandbox.listCodeContexts()).at(-1)
    assert.deepEqual([last.id, last.language, last.cwd], [context.id, context.language, context.cwd])
    return context
  }
  const variants = [['', {}], [', secure', { create: secure }]]
  for (const [suffix, options] of variants) {
    row(`languages/contexts: create${suffix}`, options, async ({ sandbox }) => {
      const context = await made(sandbox)
      assert.deepEqual([context.language, context.cwd], ['python', '/home/user'])
    })

    row(`languages/contexts: remove${suffix}`, options, async ({ sandbox }) => {
      const context = await sandbox.createCodeContext()
      await sandbox.removeCodeContext(context)
      assert.ok(!(await sandbox.listCodeContexts()).some(({ id }) => id === context.id))
    })

    row(`languages/contexts: list${suffix}`, options, async ({ sandbox }) => {
      const listed = (await sandbox.listCodeContexts()).map(({ language }) => language)
      assert.deepEqual(listed.slice(0, 2), ['python', 'javascript'])
    })

    row(`languages/contexts: restart${suffix}`, options, async ({ sandbox }) => {
      const context = await sandbox.createCodeContext()
      await sandbox.runCode('x = 1', { context })
      await sandbox.restartCodeContext(context.id)
      const { error, executionCount } = await sandbox.runCode('x', { context })
      assert.deepEqual([error.name, error.value, executionCount], ['NameError', "name 'x' is not defined", 1])
    })
  }

  row('languages/contexts: create with language and directory', {}, async ({ sandbox }) => {
    const context = await made(sandbox, { language: 'python', cwd: '/root' })
    assert.deepEqual([context.language, context.cwd], ['python', '/root'])
    assert.equal((await sandbox.runCode('1', { context })).text, '1')
  })
})

const supported = Object.keys(languages).filter((name) => name !== 'comment')

describe('languages/cwd', parallel, () => {
  for (const language of supported) {
    const { cwd, cwd_at: at } = languages[language]
    row(`languages/cwd: ${language}`, {}, async ({ sandbox }) => {
      const short = { javascript: 'js', typescript: 'ts' }[language] ?? language
      const wanted = language === 'r' ? '[1] "/home/user"' : '/home/user'
      assert.equal(shown(await sandbox.runCode(cwd, { language: short }), at), wanted)
    })
  }
})

describe('languages/output', parallel, () => {
  const chunks = async (sandbox, language, code) => {
    const execution = await sandbox.runCode(code, { language })
    assert.equal(execution.error, undefined)
    return execution.logs.stdout
  }
  row('languages/output: javascript', {}, async ({ sandbox }) => {
    assert.deepEqual(await chunks(sandbox, 'js', 'console.log("Hello World!")'), ['Hello World!\n'])
  })
  row('languages/output: typescript', {}, async ({ sandbox }) => {
    assert.deepEqual(await chunks(sandbox, 'ts', 'const message: string = "Hello World!"; console.log(message)'), ['Hello World!\n'])
  })
  row('languages/output: javascript import', {}, async ({ sandbox }) => {
    assert.deepEqual(await chunks(sandbox, 'js', `
        import { readFileSync } from 'fs'
        console.log(typeof readFileSync)
        `), ['function\n'])
  })
  row('languages/output: javascript await', {}, async ({ sandbox }) => {
    const execution = await sandbox.runCode(`
        await Promise.resolve('Hello World!')
        `, { language: 'js' })
    assert.equal(execution.text, 'Hello World!')
  })
  row('languages/output: r', {}, async ({ sandbox }) => {
    assert.deepEqual(await chunks(sandbox, 'r', 'print("Hello, World!")'), ['[1] "Hello, World!"\n'])
  })
  row('languages/output: java', {}, async ({ sandbox }) => {
    assert.equal((await chunks(sandbox, 'java', 'System.out.println("Hello, World!")'))[0], 'Hello, World!')
  })
  row('languages/output: bash', {}, async ({ sandbox }) => {
    assert.deepEqual(await chunks(sandbox, 'bash', 'echo 1; echo 2 >&2'), ['1\n', '2\n'])
  })
})

describe('languages/env', parallel, () => {
  for (const language of supported) {
    const { env, foo, at } = languages[language]
    const value = (text) => language === 'r' ? `[1] "${text}"` : text
    const create = { envs: { TEST_ENV_VAR: 'supertest' } }

    row(`languages/env: of the sandbox in ${language}`, { create }, async ({ sandbox }) => {
      const execution = await sandbox.runCode(env, { language })
      assert.equal(shown(execution, at), value('supertest'))
      if (language === 'bash') assert.deepEqual(execution.logs.stdout, ['supertest\n'])
    })

    row(`languages/env: of one run in ${language}`, {}, async ({ sandbox }) => {
      assert.equal(shown(await sandbox.runCode(foo, { language, envs: { FOO: 'bar' } }), at), value('bar'))
      assert.equal(shown(await sandbox.runCode(foo, { language }), at), value('default'))
    })

    row(`languages/env: overwritten for one run in ${language}`, { create }, async ({ sandbox }) => {
      assert.equal(shown(await sandbox.runCode(env, { language, envs: { TEST_ENV_VAR: 'overwrite' } }), at), value('overwrite'))
      assert.equal(shown(await sandbox.runCode(env, { language }), at), value('supertest'))
    })
  }
})
