'use strict';
// Rewrites a cell into something that V8's REPL mode runs, when it needs that:
//
//  - TypeScript is compiled by esbuild (acorn parses what is plain JavaScript, without a process);
//  - static imports are taken out and loaded by the caller, their names bound by `let` at the start; `import()`,
//    `import.meta` and `export` get a meaning in a script;
//  - top-level `const` becomes `let`, with assignments to such names made to throw;
//  - a name that exists already as a `var` and is now declared by `let` (or the other way round) is assigned to.
//
// Edits keep every line where it is, so positions in stack traces are those of the cell.

const HELPER = '__atoll__'; // the global object that rewritten code refers to
const ESBUILD = '/usr/bin/esbuild';
const ESBUILD_ARGUMENTS = [
  '--loader=ts', '--target=es2022', '--sourcemap=inline', '--sources-content=false', '--tree-shaking=false',
  '--log-level=error', '--color=false', '--log-limit=1', '--charset=utf8',
  '--tsconfig-raw={"compilerOptions":{"verbatimModuleSyntax":true,"useDefineForClassFields":true}}',
];

// What earlier cells declared at the top level.
const lexical = new Set();
const constant = new Set();

let acorn;

function parse(code) {
  acorn ??= require('acorn');
  return acorn.parse(code, {
    ecmaVersion: 'latest', sourceType: 'script', allowImportExportEverywhere: true, allowAwaitOutsideFunction: true,
    allowHashBang: true,
  });
}

// Cells that V8 takes as they are: nothing declared, nothing imported, no TypeScript that is also JavaScript.
function is_plain(code) {
  return constant.size === 0 && !/\b(?:let|const|class|var|function|import|export|enum)\b/.test(code) && !may_be_generic(code);
}

// `f<T>(x)` is a call in TypeScript and two comparisons in JavaScript.
function may_be_generic(code) {
  return /[\w$]<[^;\n]*>\s*[(`]/.test(code);
}

// ---- syntax errors

function frame(code, line, column) {
  const lines = code.split(/\r?\n/);
  const width = String(Math.min(line + 3, lines.length)).length;
  const out = [];
  for (let n = Math.max(1, line - 2); n <= Math.min(lines.length, line + 3); n += 1) {
    const text = lines[n - 1].slice(0, 500);
    out.push(`${n === line ? '>' : ' '} ${String(n).padStart(width)} |${text ? ' ' + text : ''}`);
    if (n === line && column <= 500) out.push(`  ${' '.repeat(width)} | ${' '.repeat(column)}^`);
  }
  return out.join('\n');
}

function syntax_error(code, message, line, column) {
  const error = new SyntaxError(`${process.cwd()}/index.ts: ${message} (${line}:${column})\n\n${frame(code, line, column)}`);
  error.stack = `SyntaxError: ${error.message}`;
  error.position = { line, column };
  return error;
}

function is_later(a, b) {
  return a.line !== b.line ? a.line > b.line : a.column > b.column;
}

// ---- TypeScript

function compile(code) {
  const { spawnSync } = require('child_process');
  const run = spawnSync(ESBUILD, ESBUILD_ARGUMENTS, {
    input: code, env: { PATH: '/usr/bin:/bin' }, cwd: '/', maxBuffer: 256 << 20, encoding: 'utf8',
  });
  if (run.error) throw run.error;
  if (run.status !== 0) {
    const found = /\[ERROR\] (.*)\n\n\s+<stdin>:(\d+):(\d+):/.exec(run.stderr);
    throw found ? syntax_error(code, found[1], Number(found[2]), Number(found[3])) : new Error(run.stderr.trim());
  }
  const at = run.stdout.lastIndexOf('//# sourceMappingURL=');
  const map = /base64,([\w+/=]+)/.exec(run.stdout.slice(at));
  const payload = map && JSON.parse(Buffer.from(map[1], 'base64').toString('utf8'));
  return { code: run.stdout.slice(0, at).trimEnd(), map: payload };
}

// The tree of the cell, compiled if it is TypeScript: { code, tree, map }.
function read(code) {
  let tree;
  let failure;
  try {
    tree = parse(code);
    if (!may_be_generic(code)) return { code, tree };
  } catch (error) {
    if (!error.loc) throw error;
    failure = syntax_error(code, error.message.replace(/ \(\d+:\d+\)$/, ''), error.loc.line, error.loc.column);
  }
  let compiled;
  try {
    compiled = compile(code);
    return { ...compiled, tree: parse(compiled.code) };
  } catch (error) {
    if (tree) return { code, tree };
    if (compiled || !error.position || !is_later(error.position, failure.position)) throw failure;
    throw error;
  }
}

// ---- the tree

function names_of(pattern, out = []) {
  if (!pattern) return out;
  switch (pattern.type) {
    case 'Identifier': out.push(pattern.name); break;
    case 'ObjectPattern': for (const p of pattern.properties) names_of(p.type === 'RestElement' ? p.argument : p.value, out); break;
    case 'ArrayPattern': for (const e of pattern.elements) names_of(e, out); break;
    case 'AssignmentPattern': names_of(pattern.left, out); break;
    case 'RestElement': names_of(pattern.argument, out); break;
    default: break; // a member expression declares nothing
  }
  return out;
}

function declared(declaration) {
  return declaration.declarations.flatMap((d) => names_of(d.id));
}

const is_function = (node) => /^(?:Function|ArrowFunction)/.test(node.type);

// Calls visit(node, parent, inner) for every node; `inner` says that it is inside a function or class body.
function walk(node, visit, parent = null, inner = false) {
  visit(node, parent, inner);
  const below = inner || is_function(node) || node.type === 'StaticBlock' || node.type === 'PropertyDefinition';
  for (const key in node) {
    const child = node[key];
    if (Array.isArray(child)) {
      for (const item of child) if (item && typeof item.type === 'string') walk(item, visit, node, below);
    } else if (child && typeof child.type === 'string') {
      walk(child, visit, node, below);
    }
  }
}

// Collects edits of a text and applies them at the end.
class Editor {
  constructor(code) {
    this.code = code;
    this.edits = [];
  }

  replace(start, end, text) {
    this.edits.push({ start, end, text, order: this.edits.length });
  }

  // Removes a range but keeps its line breaks.
  blank(start, end) {
    this.replace(start, end, this.code.slice(start, end).replace(/[^\r\n]/g, ' '));
  }

  result() {
    this.edits.sort((a, b) => a.start - b.start || a.end - b.end || a.order - b.order);
    let out = '';
    let at = 0;
    for (const { start, end, text } of this.edits) {
      if (start < at) continue; // inside a range that is gone
      out += this.code.slice(at, start) + text;
      at = end;
    }
    return out + this.code.slice(at);
  }
}

function exists_as_var(name) {
  const found = Object.getOwnPropertyDescriptor(globalThis, name);
  return found !== undefined && !found.configurable && found.writable;
}

// `let a = 1, {b} = c` becomes `void (a = 1, {b} = c)`.
function turn_into_assignment(editor, node, in_head) {
  const { declarations } = node;
  editor.replace(node.start, declarations[0].start, in_head ? '' : ';void (');
  for (const d of declarations) {
    if (!d.init && !in_head) editor.replace(d.end, d.end, node.kind === 'var' ? '' : ' = undefined');
  }
  const end = declarations[declarations.length - 1].end;
  if (!in_head) editor.replace(end, end, ');');
}

function rewrite_imports(editor, tree, imports) {
  const bindings = [];
  const request = (source) => {
    const value = source.value;
    let index = imports.indexOf(value);
    if (index < 0) index = imports.push(value) - 1;
    return `${HELPER}.modules[${index}]`;
  };
  for (const node of tree.body) {
    switch (node.type) {
      case 'ImportDeclaration': {
        const from = request(node.source);
        for (const s of node.specifiers) {
          const key = s.type === 'ImportSpecifier' ? s.imported.name ?? s.imported.value : undefined;
          const whole = s.type === 'ImportNamespaceSpecifier';
          const value = whole ? from : key === undefined || key === 'default' ? `${HELPER}.default_of(${from})` : `${from}[${JSON.stringify(key)}]`;
          bindings.push([s.local.name, value]);
        }
        editor.blank(node.start, node.end);
        break;
      }
      case 'ExportAllDeclaration':
        request(node.source);
        editor.blank(node.start, node.end);
        break;
      case 'ExportNamedDeclaration':
        if (node.source) request(node.source);
        editor.blank(node.start, node.declaration ? node.declaration.start : node.end);
        break;
      case 'ExportDefaultDeclaration':
        if (/Declaration$/.test(node.declaration.type) && node.declaration.id) {
          editor.blank(node.start, node.declaration.start);
        } else {
          editor.replace(node.start, node.declaration.start, ';exports.default = ');
          editor.replace(node.end, node.end, ';');
        }
        break;
      default:
    }
  }
  return bindings;
}

// Declarations at the top level. Returns the names that the prefix must declare.
function rewrite_declarations(editor, tree, found) {
  const fresh = { let: [], var: [] };
  const adapt = (node, kind, in_head) => {
    const names = declared(node);
    const clash = names.filter((n) => (kind === 'let' ? exists_as_var(n) : lexical.has(n)));
    if (clash.length > 0) {
      turn_into_assignment(editor, node, in_head);
      fresh[kind].push(...names.filter((n) => !clash.includes(n)));
    } else if (node.kind === 'const') {
      editor.replace(node.start, node.start + 5, 'let  ');
      for (const d of node.declarations) if (!d.init) throw new Error('const without a value');
    }
    if (kind === 'let') found.lexical.push(...names.filter((n) => !clash.includes(n)));
    if (node.kind === 'const') found.constant.push(...names);
    found.declared.push(...names);
  };
  const named = (node, clash) => {
    found.declared.push(node.id.name);
    if (!clash) return;
    editor.replace(node.start, node.start, `;void (${node.id.name} = `);
    editor.replace(node.end, node.end, ');');
  };
  for (const statement of tree.body) {
    const node = (/^Export/.test(statement.type) && statement.declaration) || statement;
    if (node.type === 'VariableDeclaration' && node.kind !== 'var') {
      adapt(node, 'let', false);
    } else if (node.type === 'ClassDeclaration' && node.id) {
      const clash = exists_as_var(node.id.name);
      named(node, clash);
      if (!clash) found.lexical.push(node.id.name);
    } else if (node.type === 'FunctionDeclaration' && node.id) {
      named(node, lexical.has(node.id.name));
    }
  }
  walk(tree, (node, parent, inner) => {
    if (inner || node.type !== 'VariableDeclaration' || node.kind !== 'var') return;
    adapt(node, 'var', /^For/.test(parent.type) && parent.body !== node);
  });
  return fresh;
}

// Names that are declared below the top level: assignments to them are not looked at.
function inner_names(tree) {
  const names = new Set();
  const top = new Set(tree.body.map((n) => (/^Export/.test(n.type) && n.declaration) || n));
  walk(tree, (node, parent, inner) => {
    let found = [];
    if (is_function(node)) found = node.params.flatMap((p) => names_of(p));
    if (/^(?:Function|Class)/.test(node.type) && node.id && !top.has(node)) found.push(node.id.name);
    if (node.type === 'VariableDeclaration' && !top.has(node) && (inner || node.kind !== 'var')) found = declared(node);
    if (node.type === 'CatchClause') found = names_of(node.param);
    for (const name of found) names.add(name);
  });
  return names;
}

function guard_constants(editor, tree, constants) {
  if (constants.size === 0) return;
  let hidden;
  walk(tree, (node) => {
    let target;
    let wrap = node;
    if (node.type === 'AssignmentExpression') target = node.left;
    else if (node.type === 'UpdateExpression') target = node.argument;
    else if (/^For(?:In|Of)/.test(node.type) && node.left.type !== 'VariableDeclaration') [target, wrap] = [node.left, node.right];
    const name = target && names_of(target).find((n) => constants.has(n) && !(hidden ??= inner_names(tree)).has(n));
    if (name === undefined) return;
    editor.replace(wrap.start, wrap.start, `(${HELPER}.refuse(), `);
    editor.replace(wrap.end, wrap.end, ')');
  });
}

function rewrite_dynamic(editor, tree) {
  walk(tree, (node) => {
    if (node.type === 'ImportExpression') editor.replace(node.start, node.start + 6, `${HELPER}.import`);
    else if (node.type === 'MetaProperty' && node.meta.name === 'import') editor.replace(node.start, node.end, `${HELPER}.meta()`);
  });
}

function prefix_position(code, tree) {
  let at = code.startsWith('#!') ? (code.indexOf('\n') + 1 || code.length) : 0;
  for (const node of tree.body) {
    if (node.directive === undefined) break;
    at = node.end;
  }
  return at;
}

// Returns { code, imports, map, changed }; throws a SyntaxError that is ready for the user. `imports` are the modules
// that must be in `modules` of the helper, in this order, before the code runs.
function transform(source) {
  const { code, tree, map } = read(source);
  const editor = new Editor(code);
  const imports = [];
  const found = { lexical: [], constant: [], declared: [] };
  const bindings = rewrite_imports(editor, tree, imports);
  const fresh = rewrite_declarations(editor, tree, found);
  const own = bindings.map(([name]) => name);
  const held = new Set([...constant].filter((n) => !found.declared.includes(n) && !own.includes(n)).concat(found.constant, own));
  guard_constants(editor, tree, held);
  rewrite_dynamic(editor, tree);

  const assigned = bindings.filter(([name]) => exists_as_var(name));
  const bound = bindings.filter(([name]) => !exists_as_var(name));
  let prefix = '';
  if (fresh.let.length > 0) prefix += `let ${fresh.let.join(', ')}; `;
  if (fresh.var.length > 0) prefix += `var ${fresh.var.join(', ')}; `;
  if (bound.length > 0) prefix += `let ${bound.map(([name, value]) => `${name} = ${value}`).join(', ')}; `;
  for (const [name, value] of assigned) prefix += `void (${name} = ${value}); `;
  if (prefix) {
    const at = prefix_position(code, tree);
    editor.edits.unshift({ start: at, end: at, text: (at > 0 ? ';' : '') + prefix, order: -1 });
  }
  for (const name of [...found.lexical, ...bound.map(([n]) => n)]) lexical.add(name);
  constant.clear();
  for (const name of held) constant.add(name);
  const result = editor.result();
  return { code: result, imports, map, changed: result !== source };
}

// A function that puts positions of compiled code in a stack back to those of the cell.
function stack_mapper(map, name) {
  const { SourceMap } = require('module');
  const positions = new SourceMap(map);
  return (stack) => stack.replaceAll(new RegExp(`${name.replace(/\W/g, '\\$&')}:(\\d+):(\\d+)`, 'g'), (whole, line, column) => {
    const entry = positions.findEntry(Number(line) - 1, Number(column) - 1);
    return entry.originalLine === undefined ? whole : `${name}:${entry.originalLine + 1}:${entry.originalColumn + 1}`;
  });
}

module.exports = { HELPER, is_plain, transform, stack_mapper };
