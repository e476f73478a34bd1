"""A runner that is told that it is a copy of another one."""

from node import NodeTest

A, B = "a1" * 32, "b2" * 32


class Copies(NodeTest):
    def draw(self, code, seed, **more):
        self.runner.send({"op": "forked", "seed": seed, **more})
        return self.text(code)

    def test_math_random(self):
        code = "[Math.random(), Math.random()]"
        first = self.draw(code, A)
        self.assertNotEqual(first, self.text(code))
        self.assertEqual(first, self.draw(code, A))
        self.assertNotEqual(first, self.draw(code, B))

    def test_its_numbers_are_spread_over_the_unit_interval(self):
        self.draw("", A)
        code = "let low = 0, sum = 0, bad = 0; for (let i = 0; i < 1e5; i++) { const x = Math.random(); low += x < 0.1; sum += x; bad += !(x >= 0 && x < 1); } "
        self.assertEqual(self.text(code + "bad === 0 && Math.abs(low - 1e4) < 500 && Math.abs(sum / 1e5 - 0.5) < 0.01"), "true")
        self.assertEqual(self.text("Math.random.name + Math.random.length + Object.keys(Math).length"), "random00")

    def test_function_of_the_user_stays(self):
        self.assertEqual(self.draw("const kept = Math.random; Math.random = () => 4; 0", A), "0")
        self.assertEqual(self.draw("Math.random()", B), "4")
        self.text("Math.random = kept; 0")

    def test_openssl_is_reached(self):
        code = "process.on('warning', (w) => console.log(w.message)); const { randomUUID } = require('crypto'); randomUUID()"
        self.text(code)
        for seed in (A, B, A):
            self.assertNotEqual(self.draw("randomUUID()", seed), self.text("randomUUID()"))
        self.assertEqual(self.ok("await new Promise((r) => setTimeout(r, 50))").stdout, [])

    def test_variables_stay(self):
        show = "process.env.E2B_SANDBOX_ID"
        self.assertEqual(self.draw(show, A, env={"E2B_SANDBOX_ID": "i2"}), "i2")
        self.assertEqual(self.text(show, env={"E2B_SANDBOX_ID": "lent"}), "lent")
        self.assertEqual(self.text(show), "i2")
