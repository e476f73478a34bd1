// node --import: 'e2b' means the pinned old release (package.json's "e2b-old") in everything that follows.
import { register } from 'node:module'

const hooks = `
  export const resolve = (specifier, context, next) => next(specifier === 'e2b' ? 'e2b-old' : specifier, context)
`
register(`data:text/javascript,${encodeURIComponent(hooks)}`, import.meta.url)
