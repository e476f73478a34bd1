"""A kernel that is told that it is a copy of another one."""

import unittest

from client import Runner, RunnerTest

A, B = "a1" * 32, "b2" * 32


class Copies(RunnerTest):
    def draw(self, code, seed, **more):
        self.runner.send({"op": "forked", "seed": seed, **more})
        return self.ok(code).text

    def check(self, code):
        first = self.draw(code, A)
        self.assertNotEqual(first, self.ok(code).text)
        self.assertEqual(first, self.draw(code, A))
        self.assertNotEqual(first, self.draw(code, B))

    def test_random(self):
        self.ok("import random\nrandom.seed(1)")
        self.check("random.random(), random.randint(0, 10**9)")

    def test_numpy(self):
        self.ok("import numpy as np\nnp.random.seed(1)")
        self.check("np.random.rand(3).tolist()")

    def test_names_of_temporary_files(self):
        self.ok("import tempfile\nnames = tempfile._get_candidate_names()")
        self.draw("", A)
        self.assertEqual(self.ok("names is tempfile._get_candidate_names()").text, "False")

    def test_openssl_gets_the_seed(self):
        """Its generator shows nothing of what it was given, so the call itself is looked at."""
        self.ok("import _ssl\nadded = []\nreal, _ssl.RAND_add = _ssl.RAND_add, lambda *given: added.append(given)")
        self.draw("", A)
        self.assertEqual(self.ok("_ssl.RAND_add = real\n[(seed.hex(), entropy) for seed, entropy in added]").text, f"[('{A}', 32.0)]")

    def test_generators_with_a_seed_of_their_own_keep_it(self):
        code = "own = random.Random(5); same = np.random.default_rng(5)"
        self.ok("import random\nimport numpy as np\n" + code)
        draws = "own.random(), same.random()"
        first = self.ok(draws).text
        self.ok(code)
        self.assertEqual(self.draw(draws, A), first)

    def test_variables_stay(self):
        show = "import os; os.environ['E2B_SANDBOX_ID']"
        self.assertEqual(self.draw(show, A, env={"E2B_SANDBOX_ID": "i2"}), "i2")
        self.assertEqual(self.ok(show, env={"E2B_SANDBOX_ID": "lent"}).text, "lent")
        self.assertEqual(self.ok(show).text, "i2")

    def test_before_its_next_run(self):
        self.ok("import random, time")
        self.runner.begin("time.sleep(0.3)\nrandom.seed(1)")
        self.runner.send({"op": "forked", "seed": A})
        self.runner.finish()
        after = self.ok("random.random()").text
        self.assertEqual(after, self.draw("random.random()", A))

    def test_what_a_cell_has_broken(self):
        runner = Runner()
        try:
            runner.run("import random\nrandom._inst = None\nimport _ssl\n_ssl.RAND_add = None")
            runner.send({"op": "forked", "seed": A})
            self.assertEqual(runner.run("1 + 1").text, "2")
        finally:
            runner.close()


class BeforeStart(unittest.TestCase):
    def test_seed_before_start(self):
        runner = Runner(start=False)
        try:
            runner.send({"op": "forked", "seed": A, "env": {"X": "1"}})
            runner.start()
            self.assertEqual(runner.run("import os; os.environ.get('X')").text, None)
        finally:
            runner.close()
