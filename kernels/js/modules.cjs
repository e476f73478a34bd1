'use strict';
// `require`, `module` and `import()` of cells: as in a file of the working directory, whichever that is at the moment.

const Module = require('module');
const path = require('path');
const { pathToFileURL } = require('url');
const vm = require('vm');

// Where `npm install -g` puts packages. ES modules are looked up from a file beside `node_modules`.
const GLOBAL_PREFIXES = ['/usr/local/lib', '/usr/lib'];
const CELL_FILE = '[cell].js';

let current; // { directory, module, require }

function here() {
  const directory = process.cwd();
  if (!current || current.directory !== directory) {
    const filename = path.join(directory, CELL_FILE);
    const module_ = current ? current.module : new Module('.', null);
    module_.filename = filename;
    module_.path = directory;
    module_.paths = Module._nodeModulePaths(directory);
    current = { directory, module: module_, require: Module.createRequire(filename) };
  }
  return current;
}

function cell_require(id) {
  return here().require(id);
}

const importers = new Map();

function importer(file) {
  let found = importers.get(file);
  if (!found) {
    const { emitWarning } = process;
    process.emitWarning = () => {}; // this use of the loader counts as experimental
    try {
      found = new vm.Script('(specifier, options) => import(specifier, options)', {
        filename: file, importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
      }).runInThisContext();
      found('node:path').catch(() => {}); // the first call is what warns
    } finally {
      process.emitWarning = emitWarning;
    }
    if (importers.size > 64) importers.clear();
    importers.set(file, found);
  }
  return found;
}

function is_bare(specifier) {
  return !/^(?:\.{0,2}\/|[a-z][a-z0-9+.-]*:)/i.test(specifier) && specifier !== '.' && specifier !== '..';
}

// import() as cells call it. The first error is the one that is reported.
async function cell_import(specifier, options) {
  const text = String(specifier);
  let first;
  for (const prefix of [here().directory, ...(is_bare(text) ? GLOBAL_PREFIXES : [])]) {
    try {
      return await importer(path.join(prefix, CELL_FILE))(text, options);
    } catch (error) {
      first ??= error;
      if (!error || error.code !== 'ERR_MODULE_NOT_FOUND' || !String(error.message).includes(`'${text.split('/')[0]}`)) throw first;
    }
  }
  let found;
  try {
    found = pathToFileURL(cell_require.resolve(text)).href;
  } catch {
    throw first;
  }
  return import(found);
}

// The module of a static import: by require, which is immediate, or else by import().
// Returns { module } or { promise }.
function load(specifier) {
  try {
    return { module: cell_require(specifier) };
  } catch (error) {
    const retry = error && ['ERR_REQUIRE_ESM', 'ERR_REQUIRE_ASYNC_MODULE', 'ERR_PACKAGE_PATH_NOT_EXPORTED', 'MODULE_NOT_FOUND']
      .includes(error.code);
    const own = error && (error.code !== 'MODULE_NOT_FOUND' || String(error.message).startsWith(`Cannot find module '${specifier}'`));
    if (!retry || !own) throw error;
    return { promise: cell_import(specifier) };
  }
}

// What a default import means: the whole of a CommonJS module, `default` of an ES module.
function default_of(module_) {
  return require('util').types.isModuleNamespaceObject(module_) && 'default' in module_ ? module_.default : module_;
}

function meta() {
  const { directory } = here();
  const filename = path.join(directory, CELL_FILE);
  return {
    dirname: directory, filename, url: pathToFileURL(filename).href,
    resolve: (specifier) => pathToFileURL(cell_require.resolve(specifier)).href,
  };
}

// Makes packages that were installed globally visible to require() in the whole process.
function set_global_paths() {
  const own = process.env.NODE_PATH;
  process.env.NODE_PATH = [own, ...GLOBAL_PREFIXES.map((p) => path.join(p, 'node_modules'))].filter(Boolean).join(':');
  Module._initPaths();
  if (own === undefined) delete process.env.NODE_PATH;
  else process.env.NODE_PATH = own;
}

function define(name, get) {
  Object.defineProperty(globalThis, name, {
    configurable: true, enumerable: false, get,
    set(value) {
      Object.defineProperty(globalThis, name, { configurable: true, enumerable: true, writable: true, value });
    },
  });
}

function install() {
  set_global_paths();
  Object.defineProperty(cell_require, 'name', { value: 'require' });
  for (const key of ['resolve', 'cache', 'extensions']) {
    Object.defineProperty(cell_require, key, { enumerable: true, get: () => here().require[key] });
  }
  process.mainModule = here().module;
  cell_require.main = here().module;
  here().module.require = cell_require;
  define('require', () => cell_require);
  define('module', () => here().module);
  define('exports', () => here().module.exports);
  define('__dirname', () => here().directory);
  define('__filename', () => here().module.filename);
}

module.exports = { install, load, default_of, cell_import, meta };
