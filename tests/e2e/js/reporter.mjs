// node:test reporter: one JSON object per finished case, for tests/e2e/run.
export default async function* reporter(source) {
  for await (const event of source) {
    if (event.type !== 'test:pass' && event.type !== 'test:fail') continue
    const { name, details, skip, todo, file } = event.data
    if (details?.type === 'suite') {
      if (event.type === 'test:pass') continue
      // A suite fails with its cases; report it only when it failed by itself (a hook or the file could not load).
      if (details?.error?.failureType === 'subtestsFailed') continue
    }
    const error = details?.error
    const cause = error?.cause ?? error
    // The runner reports each file as a test of its own; it carries news only when the file failed to load.
    if (file && name === file && (event.type === 'test:pass' || error?.failureType === 'subtestsFailed')) continue
    yield JSON.stringify({
      id: name,
      outcome: event.type === 'test:fail' ? 'failed' : skip !== undefined || todo !== undefined ? 'skipped' : 'passed',
      ms: Math.round(details?.duration_ms ?? 0),
      reason: typeof skip === 'string' ? skip : undefined,
      error: event.type === 'test:fail' ? String(cause?.stack ?? cause) : undefined,
    }) + '\n'
  }
}
