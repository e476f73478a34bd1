'use strict';
// Values as `result` lines, thrown values as `error` lines, and the `$$` helper.

const { inspect, types } = require('util');

const FIELDS = {
  'text/plain': 'text', 'text/html': 'html', 'text/markdown': 'markdown', 'image/svg+xml': 'svg', 'image/png': 'png',
  'image/jpeg': 'jpeg', 'application/pdf': 'pdf', 'text/latex': 'latex', 'application/json': 'json',
  'application/javascript': 'javascript', 'e2b/data': 'data', 'e2b/chart': 'chart',
};
const METHODS = {
  _toHtml: 'text/html', _toSvg: 'image/svg+xml', _toPng: 'image/png', _toJpeg: 'image/jpeg', _toMarkdown: 'text/markdown',
};
const MAX_ERROR_TEXT = 1 << 20;

function trim_quotes(text) {
  const quote = text[0];
  return text.length > 1 && (quote === "'" || quote === '"') && text.endsWith(quote) ? text.slice(1, -1) : text;
}

function payload(mime, data) {
  if (data instanceof Uint8Array) {
    return Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString(mime.startsWith('text/') ? 'utf8' : 'base64');
  }
  return mime === 'application/json' || typeof data === 'object' ? data : String(data);
}

// A `result` line from an object of MIME types.
function bundle(data, is_main_result) {
  const line = { type: 'result' };
  const extra = {};
  for (const [mime, value] of Object.entries(data)) {
    if (value === undefined || value === null && mime !== 'application/json') continue;
    const field = FIELDS[mime];
    if (field === 'text') line.text = trim_quotes(String(value));
    else if (field) line[field] = payload(mime, value);
    else extra[mime] = payload(mime, value);
  }
  line.extra = extra;
  line.is_main_result = is_main_result;
  return line;
}

// MIME types of a value: always text, and what its `_to…` methods offer.
function describe(value) {
  const data = { 'text/plain': inspect(value) };
  if (value !== null && (typeof value === 'object' || typeof value === 'function') && !types.isProxy(value)) {
    for (const [method, mime] of Object.entries(METHODS)) {
      if (typeof value[method] === 'function') data[mime] = value[method]();
    }
    if (typeof value._toMime === 'function') Object.assign(data, value._toMime());
  }
  return data;
}

function cut(text) {
  return text.length > MAX_ERROR_TEXT ? text.slice(0, MAX_ERROR_TEXT) + '…' : text;
}

function attempt(read, otherwise) {
  try {
    return String(read());
  } catch {
    return otherwise;
  }
}

function is_error(value) {
  return types.isNativeError(value) || attempt(() => value instanceof Error) === 'true';
}

const RUNNER_FILE = /^(?:node:inspector|node:guard|node:vm)$|\/kernels\/js\/\w+\.cjs$/;
const TASK_QUEUE = 'node:internal/process/task_queues';

// Stacks end where the runner begins. The text is the one that Node makes when there is no such hook.
function install_stack_filter() {
  const { toString } = Error.prototype;
  const hook = (error, sites) => {
    let end = sites.findIndex((site) => RUNNER_FILE.test(site.getFileName()));
    if (end < 0) end = sites.length;
    const kept = sites.slice(0, end).filter((site) => site.getFileName() !== TASK_QUEUE);
    const head = attempt(() => toString.call(error), '<error>');
    return [head, ...kept].join('\n    at ');
  };
  Object.defineProperty(Error, 'prepareStackTrace', { value: hook, configurable: true, writable: true, enumerable: false });
}

// The text that Node would print for an uncaught error.
function stack_text(value) {
  if (!is_error(value)) return attempt(() => inspect(value), 'unprintable value');
  const stack = attempt(() => value.stack, '');
  return cut(stack || attempt(() => `${value.name}: ${value.message}`, 'Error'));
}

function error_line(value, map_stack) {
  if (!is_error(value)) {
    return { type: 'error', name: typeof value, value: cut(attempt(() => inspect(value), '')), traceback: '' };
  }
  let stack = attempt(() => value.stack ?? '', '');
  if (map_stack) stack = map_stack(stack);
  return {
    type: 'error', name: attempt(() => value.name, 'Error'), value: cut(attempt(() => value.message, '')),
    traceback: cut(stack.replaceAll('\n', '')),
  };
}

// JSON text of what main() returned, or undefined if it has none.
function json_text(value) {
  if (value === undefined) return 'null';
  return JSON.stringify(value, (key, item) => {
    if (typeof item === 'number' && !Number.isFinite(item)) throw new TypeError(`${item} has no form in JSON`);
    if (typeof item === 'function' || typeof item === 'symbol') throw new TypeError(`A ${typeof item} has no form in JSON`);
    return item;
  });
}

// `$$.html(x)` and its kind send a result; `$$.display().html(x)` sends one that is not the main result.
function make_helper(emit) {
  const methods = (main) => {
    const send = (data) => emit(data, main);
    return {
      text: (x) => send({ 'text/plain': String(x) }), html: (x) => send({ 'text/html': x }),
      svg: (x) => send({ 'image/svg+xml': x }), png: (x) => send({ 'image/png': x }), jpeg: (x) => send({ 'image/jpeg': x }),
      markdown: (x) => send({ 'text/markdown': x }), latex: (x) => send({ 'text/latex': x }),
      json: (x) => send({ 'application/json': JSON.parse(JSON.stringify(x ?? null)) }), mime: (x) => send({ ...x }),
    };
  };
  return Object.freeze({ ...methods(true), display: () => Object.freeze(methods(false)) });
}

module.exports = {
  install_stack_filter, bundle, describe, error_line, stack_text, json_text, make_helper,
};
