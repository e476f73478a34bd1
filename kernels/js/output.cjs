'use strict';
// The control socket (descriptor 3) and the two output streams that write to it.
//
// During a run the descriptor is in blocking mode and every line is handed to libuv in one native call. V8 can stop
// JavaScript (SIGINT) only before or after such a call, so a line is never cut; and a reader that does not read blocks
// the program. Between runs the descriptor is non-blocking, because that is when lines are read.

const net = require('net');
const { Writable } = require('stream');
const { StringDecoder } = require('string_decoder');
const { WriteWrap } = process.binding('stream_wrap');

const MAX_CHUNK = 64 * 1024;
const RealDate = Date;
const stringify = JSON.stringify;

const socket = new net.Socket({ fd: 3, readable: true, writable: true });
const handle = socket._handle;
let open = false; // a run is going on

function escape_char(c) {
  return '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0');
}

// JSON text of ASCII characters. JSON.stringify escapes only unpaired surrogates by itself; they become U+FFFD.
function ascii_json(value) {
  let text = stringify(value);
  if (text.includes('\\ud')) {
    text = text.replace(/\\(?:u(d[89a-f])[0-9a-f]{2}|.)/g, (m, lone) => (lone ? '\\ufffd' : m));
  }
  return /[^\x00-\x7e]/.test(text) ? text.replace(/[^\x00-\x7e]/g, escape_char) : text;
}

function noop() {}

// The text of a line, for messages whose parts come from the user: this is where they can fail.
function encode(message) {
  return ascii_json(message) + '\n';
}

// Sends a message, or the text of one.
function send(message) {
  const request = new WriteWrap();
  request.handle = handle;
  request.oncomplete = noop;
  request.async = false;
  const status = handle.writeLatin1String(request, typeof message === 'string' ? message : encode(message));
  if (status !== 0) process.reallyExit(1);
}

function timestamp() {
  return new RealDate().toISOString().slice(0, -1) + '000+00:00';
}

// One message, or several if the text is long. A surrogate pair is not divided.
function send_text(type, text) {
  if (!open) return;
  for (let at = 0; at < text.length; ) {
    let end = at + MAX_CHUNK;
    if (end < text.length && (text.charCodeAt(end - 1) & 0xfc00) === 0xd800) end -= 1;
    send({ type, text: at === 0 && end >= text.length ? text : text.slice(at, end), timestamp: timestamp() });
    at = end;
  }
}

function begin() {
  handle.setBlocking(true);
  open = true;
}

function end() {
  open = false;
  handle.setBlocking(false);
}

// `process.stdout` and `process.stderr`. write() bypasses the queue of Writable, whose state an interrupt could leave
// half-way; ending or destroying the stream does nothing.
class OutputStream extends Writable {
  constructor(type, fd) {
    super({ decodeStrings: false });
    this.fd = fd;
    this._type = type;
    this._isStdio = true;
    this._decoder = new StringDecoder('utf8');
  }

  write(chunk, encoding, callback) {
    if (typeof encoding === 'function') {
      callback = encoding;
      encoding = undefined;
    }
    let text;
    if (typeof chunk === 'string') {
      text = encoding && !/^utf-?8$/i.test(encoding) ? this._decoder.write(Buffer.from(chunk, encoding)) : chunk;
    } else if (chunk instanceof Uint8Array) {
      text = this._decoder.write(chunk);
    } else {
      const error = new TypeError(
        'The "chunk" argument must be of type string or an instance of Buffer or Uint8Array.');
      error.code = 'ERR_INVALID_ARG_TYPE';
      throw error;
    }
    send_text(this._type, text);
    if (typeof callback === 'function') process.nextTick(callback);
    return true;
  }

  _write(chunk, encoding, callback) {
    this.write(chunk, encoding, callback);
  }

  end(chunk, encoding, callback) {
    for (const argument of [chunk, encoding, callback]) {
      if (typeof argument === 'function') process.nextTick(argument);
    }
    if (chunk !== undefined && chunk !== null && typeof chunk !== 'function') this.write(chunk);
    return this;
  }

  destroy() {
    return this;
  }
}

// Calls `on_line` with each message of the agent; the process ends with the socket.
function read_lines(on_line) {
  let rest = [];
  socket.on('data', (data) => {
    let from = 0;
    for (let nl = data.indexOf(10); nl >= 0; nl = data.indexOf(10, from)) {
      rest.push(data.subarray(from, nl));
      from = nl + 1;
      const line = Buffer.concat(rest).toString('utf8');
      rest = [];
      on_line(JSON.parse(line));
    }
    if (from < data.length) rest.push(data.subarray(from));
  });
  socket.on('end', () => process.reallyExit(0));
  socket.on('error', () => process.reallyExit(0));
}

function install_streams() {
  for (const [name, fd] of [['stdout', 1], ['stderr', 2]]) {
    const stream = new OutputStream(name, fd);
    Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => stream });
  }
}

module.exports = { encode, send, send_text, begin, end, read_lines, install_streams };
