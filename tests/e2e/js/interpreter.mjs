// The same for the code interpreter: rows whose sandbox is one of its SDK.
import { readFileSync } from 'node:fs'
import { Sandbox } from '@e2b/code-interpreter'
import { row as declare } from './support.mjs'

export { Sandbox }
export const template = process.env.E2E_CODE_TEMPLATE ?? 'code-interpreter-v1'
// A full template has all languages; R and Java take a while to start on a small machine.
export const limitMs = 60_000

export const languages = JSON.parse(readFileSync(new URL('../cells/languages.json', import.meta.url), 'utf8'))
export const chartCell = (name) => readFileSync(new URL(`../cells/charts/${name}.py`, import.meta.url), 'utf8')

// What several variants of a row add: no traffic without the token.
export const secure = { secure: true, network: { allowPublicTraffic: false } }

export const row = (id, options, body) =>
  declare(id, { limitMs, make: (wanted) => Sandbox.create(template, wanted), ...options }, body)

export const stdout = (execution) => execution.logs.stdout.join('')

// The value that a cell of languages.json shows.
export function shown(execution, at) {
  if (execution.error) throw new Error(`${execution.error.name}: ${execution.error.value}\n${execution.error.traceback}`)
  const text = at === 'stdout' ? stdout(execution) : at === 'first' ? execution.results[0].text : execution.text
  return text.trim()
}
