'use strict';
// The runner: reads lines of the agent (kernels/protocol.md), runs one cell at a time, answers.
//
// A run: transform, load imports, evaluate, call main() if there are arguments. Each step may finish at once or later;
// whichever comes first of value, error and SIGINT settles the run, and everything that arrives for it afterwards is
// ignored. The last lines of a run are written outside of interruptible code, so a late SIGINT cannot cut them.

const output = require('./output.cjs');
output.install_streams();
const { evaluate, interruptible, is_interruptible, take_signal } = require('./evaluate.cjs');
const { install_stack_filter, bundle, describe, error_line, stack_text, json_text, make_helper } = require('./bundle.cjs');
const modules = require('./modules.cjs');
const { reseed } = require('./reseed.cjs');
const { HELPER, is_plain, transform, stack_mapper } = require('./transform.cjs');
const { Console } = require('console');
const { isPromise } = require('util').types;

const SIGNAL_INTERVAL = 50; // milliseconds
const set_interval = setInterval;
const clear_interval = clearInterval;

let base_env = {};
let count = 0;
let run = null;

const helper = {
  modules: [], import: modules.cell_import, meta: modules.meta, default_of: modules.default_of,
  refuse() {
    const error = new TypeError('Assignment to constant variable.');
    Error.captureStackTrace(error, helper.refuse);
    throw error;
  },
};

// An error of the protocol: a name and a text, no stack.
function typed(name, value) {
  return { line: { type: 'error', name, value, traceback: '' } };
}

const INTERRUPTED = typed('Interrupted', 'The run was interrupted');

function enter(directory) {
  for (const candidate of [directory, process.env.HOME, '/']) {
    try {
      process.chdir(candidate);
      return;
    } catch {
      // the next one
    }
  }
}

function start(message) {
  for (const name of Object.keys(process.env)) delete process.env[name];
  base_env = message.env ?? {};
  Object.assign(process.env, base_env);
  enter(message.cwd);
  modules.install();
  process.argv = [process.execPath];
  output.begin();
  output.send({ type: 'ready' });
  output.end();
}

function restore_env(names) {
  for (const name of names) {
    if (Object.hasOwn(base_env, name)) process.env[name] = base_env[name];
    else delete process.env[name];
  }
}

// Ends the run. `outcome.line` is its last line before `done`, if there is one.
function finish(finished, outcome) {
  if (run !== finished) return;
  run = null;
  if (finished.timer) clear_interval(finished.timer);
  if (outcome.line) output.send(outcome.line);
  restore_env(finished.env);
  output.send({ type: 'done' });
  output.end();
}

// Runs a step of `current`. What it throws is the user's error. Steps inside a step leave the end to the outer one.
function step(current, work) {
  if (run !== current) return;
  const complete = interruptible(() => {
    try {
      work();
    } catch (error) {
      fail(current, error);
    }
  });
  if (is_interruptible()) return;
  const { next } = current;
  current.next = null;
  if (!complete) finish(current, INTERRUPTED);
  else if (current.outcome) finish(current, current.outcome);
  else if (next) next();
  else watch(current);
}

// Runs `work` outside of interruptible code: the runner's own work must not be stopped half-way.
function outside(current, work) {
  if (is_interruptible()) current.next = work;
  else work();
}

// A cell that waits is interrupted from here.
function watch(current) {
  current.timer ??= set_interval(() => {
    if (take_signal()) finish(current, INTERRUPTED);
  }, SIGNAL_INTERVAL);
}

function settle(current, outcome) {
  current.outcome ??= outcome;
}

function fail(current, error) {
  settle(current, { line: error_line(error, current.map_stack) });
}

function wait_for(current, value, then) {
  if (!isPromise(value)) {
    then(value);
    return;
  }
  Promise.prototype.then.call(
    value, (result) => step(current, () => wait_for(current, result, then)), (error) => step(current, () => fail(current, error)));
}

function execute(message) {
  count += 1;
  const current = { env: Object.keys(message.env ?? {}), name: `cell-${count}.js`, outcome: null, next: null, timer: null, has_main: false };
  run = current;
  output.begin();
  output.send({ type: 'started', execution_count: count });
  take_signal();
  Object.assign(process.env, message.env);
  if (is_plain(message.code)) step(current, () => run_plain(current, message));
  else translate(current, message);
}

// A cell that V8 does not take may be TypeScript.
function run_plain(current, message) {
  evaluate(message.code, current.name, (outcome) => step(current, () => {
    if (outcome.thrown instanceof SyntaxError) outside(current, () => translate(current, message, outcome));
    else evaluated(current, message, outcome);
  }));
}

// `tried` is what V8 said about the cell as it is, if it was asked.
function translate(current, message, tried) {
  let cell;
  try {
    cell = transform(message.code);
    if (cell.map) current.map_stack = stack_mapper(cell.map, current.name);
  } catch (error) {
    finish(current, { line: error_line(error) });
    return;
  }
  if (tried && !cell.changed) step(current, () => evaluated(current, message, tried));
  else step(current, () => run_transformed(current, message, cell));
}

function run_transformed(current, message, cell) {
  load_imports(current, cell.imports, (loaded) => {
    helper.modules = loaded;
    evaluate(cell.code, current.name, (outcome) => step(current, () => evaluated(current, message, outcome)));
  });
}

function load_imports(current, specifiers, then) {
  const loaded = specifiers.map((specifier) => modules.load(specifier));
  const pending = loaded.filter((entry) => entry.promise);
  if (pending.length === 0) {
    then(loaded.map((entry) => entry.module));
    return;
  }
  const all = Promise.all(loaded.map((entry) => entry.promise ?? entry.module));
  all.then((list) => step(current, () => then(list)), (error) => step(current, () => fail(current, error)));
}

function evaluated(current, message, outcome) {
  if ('thrown' in outcome) fail(current, outcome.thrown);
  else if (message.arguments) wait_for(current, outcome.value, () => call_main(current, message.arguments));
  else wait_for(current, outcome.value, (value) => show(current, value));
}

function show(current, value) {
  if (value === undefined || current.has_main) settle(current, {});
  else settle(current, { line: output.encode(bundle(describe(value), true)) });
}

function call_main(current, args) {
  evaluate('typeof main === "function" ? main : undefined', 'node:guard', (found) => step(current, () => {
    if (typeof found.value !== 'function') {
      settle(current, typed('MissingMain', 'The code defines no function main'));
      return;
    }
    wait_for(current, found.value(args), (value) => {
      let text;
      try {
        text = json_text(value);
      } catch (error) {
        settle(current, typed('UnserializableResult', String(error && error.message)));
        return;
      }
      if (text === undefined) settle(current, typed('UnserializableResult', `A ${typeof value} has no form in JSON`));
      else settle(current, { line: output.encode(bundle({ 'text/plain': text, 'application/json': JSON.parse(text) }, true)) });
    });
  }));
}

function emit(data, wants_main) {
  if (!run) return;
  const is_main = wants_main && !run.has_main;
  if (is_main) run.has_main = true;
  output.send(output.encode(bundle(data, is_main)));
}

function report(error) {
  output.send_text('stderr', `Uncaught ${stack_text(error)}\n`);
}

function forked(message) {
  base_env = { ...base_env, ...message.env };
  Object.assign(process.env, message.env);
  try {
    reseed(message.seed);
  } catch (error) {
    process.emitWarning(`The random numbers of this copy are those of its original: ${error.message}`);
  }
}

function define(name, value) {
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true, enumerable: false });
}

install_stack_filter();
define(HELPER, helper);
define('$$', make_helper(emit));
define('console', new Console({ stdout: process.stdout, stderr: process.stderr }));
process.on('uncaughtException', report);
process.on('unhandledRejection', report);

output.read_lines((message) => {
  if (message.op === 'start') start(message);
  else if (message.op === 'execute') execute(message);
  else if (message.op === 'forked') forked(message);
});
