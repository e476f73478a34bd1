// Runs main(arguments) of a program. stdin is the body of POST /run; argv: the directory to work in, the file for the
// report. The report is the peak of memory in kB and, if main() returned, a line end and its value as JSON.
'use strict';
{
  const fs = require('fs');
  const path = require('path');
  const vm = require('vm');
  const Module = require('module');
  const { pathToFileURL } = require('url');

  const directory = path.resolve(process.argv[1]);
  const reportFile = process.argv[2];
  const request = JSON.parse(fs.readFileSync(0, 'utf8'));
  fs.closeSync(0);
  fs.openSync('/dev/null', 'r'); // the lowest free number: stdin
  fs.mkdirSync(path.join(directory, 'artifacts'), { recursive: true });
  process.chdir(directory);
  const code = Buffer.from(request.code_b64, 'base64').toString('utf8').replace(/^\ufeff/, '');
  const file = path.join(directory, 'main.js');
  fs.writeFileSync(file, code);
  process.argv.splice(1, Infinity, file);

  const report = (value) => {
    const used = String(process.resourceUsage().maxRSS);
    fs.writeFileSync(reportFile + '.new', value === undefined ? used : used + '\n' + value);
    fs.renameSync(reportFile + '.new', reportFile);
  };
  const fail = (message) => {
    report();
    process.exitCode = 1;
    fs.writeSync(2, message + '\n');
    process.exit(1);
  };
  // As the code's own stack: what is below it is ours.
  const shown = (error) =>
    error instanceof Error && error.stack ? error.stack.replace(/\n    at [^\n]*\[eval\][^]*$/, '') : 'Uncaught ' + String(error);

  // A main that is declared and not exported is seen by a line behind the last one of the code.
  const hook = '__main_' + require('crypto').randomBytes(8).toString('hex');
  let declared;
  Object.defineProperty(globalThis, hook, { configurable: true, enumerable: false, value: (f) => { declared = f; } });
  const seen = code + `\n;${hook}(typeof main === 'undefined' ? undefined : main);`;

  const isModule = () => {
    try {
      vm.compileFunction(code.replace(/^#!/, '//'), ['exports', 'require', 'module', '__filename', '__dirname'], { filename: file });
      return false;
    } catch (error) {
      if (error instanceof SyntaxError && /^\s*(import|export)\b|\bawait\b|import\.meta/m.test(code)) return true;
      throw error;
    }
  };
  const load = async () => {
    if (isModule()) {
      const moduleFile = path.join(directory, 'main.mjs');
      fs.writeFileSync(moduleFile, seen);
      return import(pathToFileURL(moduleFile));
    }
    const loaded = new Module(file, null);
    loaded.filename = file;
    loaded.paths = Module._nodeModulePaths(directory);
    Module._cache[file] = loaded;
    loaded._compile(seen, file);
    loaded.loaded = true;
    return loaded.exports;
  };
  const find = (exported) => {
    const all = [exported?.main, exported, declared, exported?.default?.main, exported?.default];
    return all.find((one) => typeof one === 'function');
  };
  const expressible = (key, value) => {
    if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError(`${value} is not a number of JSON`);
    if (typeof value === 'string' && !value.isWellFormed()) throw new TypeError('a text is not Unicode');
    return value;
  };

  let settled = false;
  const run = async () => {
    const exported = await load();
    delete globalThis[hook];
    const main = find(exported);
    if (!main) return fail('Error: the code must define a function main()');
    const value = await main(request.arguments ?? {});
    settled = true;
    if (value === undefined) return fail('Error: main() must return a value: use null for an empty result');
    let text;
    try {
      text = JSON.stringify(value, expressible);
    } catch (error) {
      return fail('Error: main() must return a value that JSON can express: ' + error.message);
    }
    if (text === undefined) return fail(`Error: main() must return a value that JSON can express, not a ${typeof value}`);
    report(text);
  };
  process.on('exit', () => {
    if (!fs.existsSync(reportFile)) report();
  });
  process.on('beforeExit', () => {
    if (!settled) fail('Error: main() never finished: nothing is left that could settle its promise');
  });
  run().catch((error) => fail(shown(error)));
}
