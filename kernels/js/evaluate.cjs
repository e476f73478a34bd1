'use strict';
// Runs source text in the global scope in V8's REPL mode, by way of an inspector session of this process with itself:
// names declared by `let` and `class` may be declared again later, `await` works at the top level, and the completion
// value is known in all cases. Values come back as themselves, not as descriptions.

const { Session } = require('inspector');
const Module = require('module');
const vm = require('vm');

const { startSigintWatchdog: hold_signal, stopSigintWatchdog: release_signal } = process.binding('contextify');

const GROUP = 'cell';
const receiver_key = Symbol.for('atoll.receiver');
const session = new Session();
session.connect();

let received; // what the last fetch() brought
let receiver_id;
let depth = 0;

function post(method, params) {
  let answer;
  session.post(method, params, (error, result) => {
    answer = { error, result };
  });
  if (!answer || answer.error) throw new Error((answer && answer.error.message) || `${method} did not answer`);
  return answer.result;
}

function receiver() {
  if (receiver_id === undefined) {
    globalThis[receiver_key] = (value) => {
      received = value;
    };
    receiver_id = post('Runtime.evaluate', { expression: "globalThis[Symbol.for('atoll.receiver')]" }).result.objectId;
    delete globalThis[receiver_key];
  }
  return receiver_id;
}

// The value behind a RemoteObject.
function fetch(remote) {
  if (remote.objectId === undefined && remote.unserializableValue === undefined) {
    return remote.subtype === 'null' ? null : remote.value;
  }
  const argument = remote.objectId === undefined
    ? { unserializableValue: remote.unserializableValue }
    : { objectId: remote.objectId };
  post('Runtime.callFunctionOn', {
    objectId: receiver(), functionDeclaration: 'function (v) { this(v); }', arguments: [argument], silent: true,
  });
  const value = received;
  received = undefined;
  return value;
}

// Calls done({ value }) or done({ thrown }), at once or later. `thrown` is the value thrown.
function evaluate(source, name, done) {
  const params = {
    expression: `${source}\n//# sourceURL=${name}`,
    objectGroup: GROUP, replMode: true, awaitPromise: true, silent: true,
  };
  session.post('Runtime.evaluate', params, (error, answer) => {
    let outcome;
    if (error) {
      // Stopped by SIGINT, ended by process.exit(), or waiting for a promise that the collector found to be unreachable: such a cell waits on.
      if (/terminated|collected|destroyed/.test(error.message)) return;
      outcome = { thrown: new Error(error.message) };
    } else if (answer.exceptionDetails) {
      outcome = { thrown: fetch(answer.exceptionDetails.exception) };
    } else {
      outcome = { value: fetch(answer.result) };
    }
    session.post('Runtime.releaseObjectGroup', { objectGroup: GROUP });
    done(outcome);
  });
}

// SIGINT belongs to Node's watchdog, a thread that stops guarded code and otherwise remembers the signal. It is held from
// the start of the process to its end: whenever the signal comes, it is neither lost nor deadly.
hold_signal();

// Listeners of the user must not take the signal over: Node handles a signal from the first listener for it on.
for (const listener of process.listeners('newListener')) {
  if (listener.name !== 'startListeningIfSignal') continue;
  process.removeListener('newListener', listener);
  process.on('newListener', (type) => {
    if (type !== 'SIGINT') listener(type);
  });
}

// Whether SIGINT has come since the last call and was not used to stop anything.
function take_signal() {
  hold_signal();
  return release_signal();
}

const guard_key = Symbol.for('atoll.guard');
const guard = new vm.Script("globalThis[Symbol.for('atoll.guard')]()", { filename: 'node:guard' });

// Runs `work` so that SIGINT stops it wherever it is. Also runs what it made ready (promise jobs, ticks), so that the
// code after a first `await` can be stopped as well. Returns false if it was stopped.
function interruptible(work) {
  if (depth > 0) {
    work();
    return true;
  }
  Object.defineProperty(globalThis, guard_key, {
    configurable: true,
    value: () => {
      delete globalThis[guard_key];
      work();
      process._tickCallback();
    },
  });
  depth += 1;
  try {
    guard.runInThisContext({ breakOnSigint: true, displayErrors: false });
    return true;
  } catch (error) {
    if (error && error.code !== 'ERR_SCRIPT_EXECUTION_INTERRUPTED') throw error;
    forget_callbacks();
    forget_modules();
    return false;
  } finally {
    depth -= 1;
  }
}

// Modules whose loading was stopped are loaded anew when they are asked for again.
function forget_modules() {
  for (const [name, module_] of Object.entries(Module._cache)) {
    if (!module_.loaded && module_ !== process.mainModule) delete Module._cache[name];
  }
}

// Node keeps a stack of the callbacks that are being executed; those that were stopped are still on it. It is cleared as
// after an uncaught exception.
function forget_callbacks() {
  const own = !process.hasUncaughtExceptionCaptureCallback();
  try {
    if (own) process.setUncaughtExceptionCaptureCallback(() => {});
    process._fatalException(new Error('interrupted'), false);
  } finally {
    if (own) process.setUncaughtExceptionCaptureCallback(null);
  }
}

module.exports = { evaluate, interruptible, is_interruptible: () => depth > 0, take_signal };
