"""Values, declarations, imports, TypeScript, errors."""

import os
import unittest

from node import NodeRunner, NodeTest


class Values(NodeTest):
    def test_result_line(self):
        run = self.ok("x =1; x")
        self.assertEqual(run.results, [{"type": "result", "text": "1", "extra": {}, "is_main_result": True}])
        self.assertEqual(self.text("x += 1; x"), "2")

    def test_formats(self):
        for code, text in {
            "'/home/user'": "/home/user", "42": "42", "1n": "1n", "null": "null", "true": "true", "-0": "-0", "NaN": "NaN",
            "[1,2,{a:3}]": "[ 1, 2, { a: 3 } ]", '({a:1,b:"x"})': "{ a: 1, b: 'x' }", "(function f(){})": "[Function: f]",
            "new (class K {})": "K {}", "new Map([[1,2]])": "Map(1) { 1 => 2 }", "new Date(0)": "1970-01-01T00:00:00.000Z",
            "Symbol('q')": "Symbol(q)", "Promise.resolve(7)": "7", "if (true) { 5 }": "5", "y = 5": "5", "'é😀'": "é😀", "''": "",
            "'\\ud800'": "\\ud800", "Promise.resolve(Promise.resolve('p'))": "p", "'a\"b'": 'a"b',
        }.items():
            with self.subTest(code):
                self.assertEqual(self.text(code), text)

    def test_no_result(self):
        for code in ["", "undefined", "let nothing = 5", "// only words", "function g() {}", "Promise.resolve()", "void 0"]:
            with self.subTest(code):
                self.assertEqual(self.ok(code).results, [])

    def test_await(self):
        self.assertEqual(self.text("\n    await Promise.resolve('Hello World!')\n"), "Hello World!")
        self.assertIsNone(self.text("const w = await new Promise(r => setTimeout(() => r(8), 5))"))
        self.assertEqual(self.text("w + 1"), "9")
        self.assertEqual(self.text("for await (const i of [1, 2]) i * 2"), "4")

    def test_count(self):
        runner = NodeRunner()
        try:
            self.assertEqual([runner.run(code).count for code in ["1", "nosuch", "(", ""]], [1, 2, 3, 4])
        finally:
            runner.close()

    def test_rich(self):
        line = self.ok("({ _toHtml() { return '<b>x</b>' }, _toPng() { return Buffer.from('png') } })").results[0]
        self.assertEqual((line["html"], line["png"], line["is_main_result"]), ("<b>x</b>", "cG5n", True))
        self.assertIn("_toHtml", line["text"])
        line = self.ok("({ _toMime() { return { 'text/plain': 't', 'a/b': { c: 1 }, 'application/json': [1, NaN] } } })").results[0]
        self.assertEqual(line, {"type": "result", "text": "t", "json": [1, None], "extra": {"a/b": {"c": 1}}, "is_main_result": True})
        run = self.ok("$$.display().html('<i>'); $$.html('<p>'); 5")
        self.assertEqual([(r["html"], r["is_main_result"]) for r in run.results], [("<i>", False), ("<p>", True)])
        self.assertEqual(self.error("({ _toMime() { return { 'application/json': { a: 1n } } } })")["name"], "TypeError")


class Declarations(NodeTest):
    def test_persist(self):
        self.ok("let a1 = 1; const b1 = 2; var c1 = 3; class D1 { x = 4 } function e1() { return 5 } const {f1, g1: [h1]} = {f1: 6, g1: [7]}")
        self.assertEqual(self.text("[a1, b1, c1, new D1().x, e1(), f1, h1].join()"), "1,2,3,4,5,6,7")

    def test_every_redeclaration(self):
        kinds = {
            "let": "let %s = %d", "const": "const %s = %d", "var": "var %s = %d", "class": "class %s { static v = %d }",
            "function": "function %s() { return %d }", "import": "import * as %s from 'path'; %d",
        }
        value = "typeof %s === 'function' ? (%s.v ?? %s()) : %s"
        number = 0
        for first in kinds:
            for second in kinds:
                number += 1
                name = f"r{number}"
                with self.subTest(f"{first} then {second}"):
                    self.ok(kinds[first] % (name, 1))
                    self.ok(f"function see_{name}() {{ return {name} }}")
                    self.ok(kinds[second] % (name, 2))
                    if second != "import":
                        self.assertEqual(self.text(value % ((name,) * 4)), "2")
                    self.assertEqual(self.text(f"see_{name}() === {name}"), "true")

    def test_destructuring_over_var(self):
        self.ok("var p1 = 0, p2 = 0")
        self.ok("const {p1, p3} = {p1: 1, p3: 3}, p2 = 2")
        self.assertEqual(self.text("[p1, p2, p3].join()"), "1,2,3")
        self.ok("let k = 1; let n = 0")
        self.ok("for (var k = 0; k < 3; k++) n += k")
        self.assertEqual(self.text("[k, n].join()"), "3,3")

    def test_twice_in_one_cell(self):
        self.assertEqual(self.error("let m = 1; let m = 2")["name"], "SyntaxError")

    def test_constants(self):
        self.ok("const fixed = 1")
        for code in ["fixed = 2", "fixed++", "[fixed] = [2]", "(() => { fixed = 2 })()", "for (fixed of [1]) ;"]:
            with self.subTest(code):
                error = self.error(code)
                self.assertEqual((error["name"], error["value"]), ("TypeError", "Assignment to constant variable."))
        self.assertEqual(self.text("(fixed => { fixed = 3; return fixed })(1) + fixed"), "4")
        self.assertEqual(self.text("let fixed = 5; fixed = 6; fixed"), "6")

    def test_shadowing_a_builtin(self):
        self.ok("const crypto = require('crypto'); let process2 = process; const URL = 5")
        self.assertEqual(len(self.text("crypto.createHash('sha256').update('').digest('hex')")), 64)
        self.assertEqual(self.text("URL"), "5")


class Modules(NodeTest):
    def write(self, path, text):
        path = os.path.join("/home/user", path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def test_import(self):
        self.assertEqual(self.ok("\n    import { readFileSync } from 'fs'\n    console.log(typeof readFileSync)\n").stdout, ["function\n"])
        self.assertEqual(self.text("typeof readFileSync"), "function")
        self.assertEqual(self.text("import os, { EOL as eol } from 'node:os'; import * as p from 'path'; [typeof os.cpus, eol, p.sep].join()"), "function,\\n,/")

    def test_hoisted(self):
        self.assertEqual(self.text("'use strict'; sep2; import { sep as sep2 } from 'path'; sep2"), "/")

    def test_import_only_loads(self):
        self.write("side.js", "globalThis.side = 1")
        self.assertEqual(self.text("import './side.js'; side"), "1")

    def test_esm_packages(self):
        self.write("node_modules/only-esm/package.json", '{"name":"only-esm","type":"module","exports":{"import":"./i.js"}}')
        self.write("node_modules/only-esm/i.js", "export default 'd'; export const named = 'n';")
        self.assertEqual(self.text("import d, { named } from 'only-esm'; d + named"), "dn")
        run = self.ok("(await import('only-esm')).named")
        self.assertEqual((run.text, run.stderr), ("n", []))
        self.write("local.mjs", "export const here = await Promise.resolve('here')")
        self.assertEqual(self.text("import { here } from './local.mjs'; here"), "here")
        self.assertEqual(self.text("import('./local.mjs').then(m => m.here)"), "here")

    def test_packages_of_the_directory(self):
        self.write("node_modules/cjs/index.js", "module.exports = { v: 3 }")
        self.assertEqual(self.text("require('cjs').v"), "3")
        self.write("other/node_modules/there/index.js", "exports.v = 4")
        self.assertEqual(self.text("process.chdir('/home/user/other'); require('there').v"), "4")
        self.assertEqual(self.text("process.chdir('/home/user'); __dirname"), "/home/user")

    def test_global_packages(self):
        root = "/usr/local/lib/node_modules"
        if not os.access(root if os.path.isdir(root) else os.path.dirname(root), os.W_OK):
            self.skipTest("global packages cannot be installed by this user")
        os.makedirs(root + "/everywhere", exist_ok=True)
        with open(root + "/everywhere/index.js", "w") as file:
            file.write("exports.v = 9")
        self.assertEqual(self.text("require('everywhere').v"), "9")
        self.assertEqual(self.text("import { v as v9 } from 'everywhere'; v9"), "9")
        self.assertEqual(self.text("(await import('everywhere')).default.v"), "9")

    def test_missing(self):
        for code in ["import x from 'no-such-package'", "require('no-such-package')", "await import('no-such-package')"]:
            with self.subTest(code):
                self.assertIn("no-such-package", self.error(code)["value"])

    def test_module_objects(self):
        self.assertEqual(self.text("[typeof module, require.main === module, typeof require.resolve, typeof exports].join()"), "object,true,function,object")
        self.assertEqual(self.text("import.meta.dirname"), "/home/user")

    def test_export(self):
        self.ok("export const ex1 = 1; export default function exf() { return 2 }; export { ex1 as other }")
        self.assertEqual(self.text("ex1 + exf()"), "3")


class TypeScript(NodeTest):
    def test_types(self):
        self.assertEqual(self.ok('const message: string = "Hello World!"; console.log(message)').stdout, ["Hello World!\n"])
        self.assertEqual(self.text("message"), "Hello World!")

    def test_syntax(self):
        for code, text in {
            "enum Colour { Red, Green = 5 }; Colour.Green": "5",
            "namespace N { export const x = 3 }; N.x": "3",
            "interface I { a: number }\nconst i: I = { a: 1 };\ni.a": "1",
            "function id<T>(x: T): T { return x }\nid<number>(4)": "4",
            "class P { constructor(private readonly v: number) {} get() { return this.v } }; new P(6).get()": "6",
            "(5 as any as number)!": "5",
            "const tw = await Promise.resolve<number>(2); tw": "2",
            "function twice(f: any, context: any) { return () => f() * 2 }\nclass D { @twice get() { return 4 } }\nnew D().get()": "8",
            "abstract class Q { abstract f(): void }; typeof Q": "function",
            "import type { Stats } from 'fs'; let st: Stats | undefined; typeof st": "undefined",
            "import { type Dirent, sep } from 'path'; const one: number = 1; sep": "/",
        }.items():
            with self.subTest(code):
                self.assertEqual(self.text(code), text)
        self.assertEqual(self.text("id<string>('again')"), "again")

    def test_positions(self):
        error = self.error("interface A { x: number }\n\n\nconst deep: A = { x: 1 };\n  (deep as any).foo.bar")
        self.assertEqual(error["name"], "TypeError")
        self.assertRegex(error["traceback"], r"cell-\d+\.js:5:\d+")

    def test_error(self):
        error = self.error("const n: number = 1;\nlet = = 3;")
        self.assertEqual(error["name"], "SyntaxError")
        self.assertRegex(error["value"], r"(?s)index\.ts: .* \(2:\d+\)\n\n.*> 2 \| let = = 3;\n")


class Errors(NodeTest):
    def test_error(self):
        run = self.run_code("console.log('before')\nnosuch\nconsole.log('after')")
        self.assertEqual(run.stdout, ["before\n"])
        self.assertEqual((run.error["name"], run.error["value"]), ("ReferenceError", "nosuch is not defined"))
        self.assertRegex(run.error["traceback"], r"^ReferenceError: nosuch is not defined    at cell-\d+\.js:2:1$")

    def test_stacks_end_at_the_cell(self):
        for code in ["new Error('v')", "console.log(new Error('v'))", "await 1; console.log(new Error('v').stack)", "console.log((() => { try { nosuch() } catch (e) { return e } })())"]:
            with self.subTest(code):
                run = self.ok(code)
                text = "".join(run.stdout) + (run.text or "")
                self.assertIn("Error: ", text)
                self.assertRegex(text, r"at .*cell-\d+\.js:1:\d+")
                self.assertNotRegex(text, "kernels|inspector|node:guard")

    def test_syntax(self):
        error = self.error("const x = ;")
        self.assertEqual((error["name"], error["value"]),
                         ("SyntaxError", "/home/user/index.ts: Unexpected token (1:10)\n\n> 1 | const x = ;\n    |           ^"))
        self.assertEqual(self.error("return 5")["name"], "SyntaxError")
        self.assertEqual(self.error("(")["name"], "SyntaxError")

    def test_runtime_syntax_error_runs_once(self):
        run = self.run_code("console.log(1); eval('(')")
        self.assertEqual((run.stdout, run.error["name"]), (["1\n"], "SyntaxError"))

    def test_not_errors(self):
        for code, name, value in [("throw 'str'", "string", "'str'"), ("throw {a: 1}", "object", "{ a: 1 }"), ("throw null", "object", "null"),
                                  ("throw undefined", "undefined", "undefined"), ("await Promise.reject(5)", "number", "5")]:
            with self.subTest(code):
                error = self.error(code)
                self.assertEqual((error["name"], error["value"], error["traceback"]), (name, value, ""))

    def test_own_class(self):
        error = self.error("class Mine extends Error { name = 'Mine' }; throw new Mine('über')")
        self.assertEqual((error["name"], error["value"]), ("Mine", "über"))

    def test_rejections(self):
        self.assertEqual(self.error("Promise.reject(new TypeError('no'))")["name"], "TypeError")
        self.assertEqual(self.error("await (async () => { throw new RangeError('r') })()")["name"], "RangeError")

    def test_hostile_values(self):
        self.assertEqual(self.error("({ get [Symbol.toStringTag]() { throw new Error('tag') } })")["value"], "tag")
        self.assertEqual(self.error("const e = new Error('x'); Object.defineProperty(e, 'message', { get() { throw 1 } }); throw e")["name"], "Error")
        self.assertEqual(self.text("1 + 1"), "2")

    def test_deep_recursion(self):
        self.assertEqual(self.error("(function f() { f() })()")["name"], "RangeError")
        self.assertEqual(self.text("1 + 1"), "2")


if __name__ == "__main__":
    unittest.main()
