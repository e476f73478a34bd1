// Names what a program does that the static check refuses, one "Line N: reason" per line. stdin is the body of POST /run.
'use strict';
const acorn = require('acorn');
const MODULES = new Set(['child_process', 'cluster', 'dgram', 'dns', 'fs', 'fs/promises', 'http', 'https', 'http2', 'inspector',
  'module', 'net', 'process', 'repl', 'tls', 'v8', 'vm', 'worker_threads']);
const CALLS = new Set(['eval', 'Function']);

const code = Buffer.from(JSON.parse(require('fs').readFileSync(0, 'utf8')).code_b64, 'base64').toString('utf8');
const options = { ecmaVersion: 'latest', locations: true, allowHashBang: true, allowReturnOutsideFunction: true,
  allowAwaitOutsideFunction: true };
let tree;
for (const sourceType of ['script', 'module']) {
  try {
    tree ??= acorn.parse(code, { ...options, sourceType });
  } catch { /* the run tells */ }
}
const found = new Set();
const refuse = (node, reason) => found.add(`Line ${node.loc.start.line}: ${reason}`);
const named = (node) => (node?.type === 'Literal' && typeof node.value === 'string' ? node.value.replace(/^node:/, '') : undefined);
const look = (node) => {
  if (!node || typeof node !== 'object') return;
  if (Array.isArray(node)) return node.forEach(look);
  if (node.type === 'ImportDeclaration' || node.type === 'ImportExpression') {
    const name = named(node.source);
    if (name === undefined) refuse(node, 'import of a computed name');
    else if (MODULES.has(name)) refuse(node, `import of ${name}`);
  }
  if (node.type === 'CallExpression' || node.type === 'NewExpression') {
    if (node.callee.type === 'Identifier' && CALLS.has(node.callee.name)) refuse(node, `call of ${node.callee.name}`);
    if (node.callee.type === 'Identifier' && node.callee.name === 'require') {
      const name = named(node.arguments[0]);
      if (name === undefined) refuse(node, 'require of a computed name');
      else if (MODULES.has(name)) refuse(node, `require of ${name}`);
    }
  }
  if (node.type === 'MemberExpression' && node.object.type === 'Identifier' && node.object.name === 'process' &&
      ['binding', 'dlopen', 'kill'].includes(node.property.name)) refuse(node, `use of process.${node.property.name}`);
  for (const key of Object.keys(node)) if (key !== 'loc') look(node[key]);
};
look(tree);
for (const line of [...found].sort((a, b) => a.localeCompare(b, 'en', { numeric: true }))) console.log(line);
