"""Cells, values, output, errors: the rows of the wire reference that need no library."""

import unittest

from client import Runner, RunnerTest


class Cells(RunnerTest):
    def test_value(self):
        run = self.ok("x = 1; x")
        self.assertEqual(run.text, "1")
        self.assertEqual(run.results, [{"type": "result", "text": "1", "extra": {}, "is_main_result": True}])

    def test_state(self):
        self.ok("x = 1")
        self.assertEqual(self.ok("x += 1; x").text, "2")

    def test_print_is_one_chunk(self):
        self.assertEqual(self.ok('print("hello")').stdout, ["hello\n"])

    def test_stderr(self):
        run = self.ok("import sys; print('bad', file=sys.stderr)")
        self.assertEqual((run.stdout, run.stderr), ([], ["bad\n"]))

    def test_error(self):
        run = self.run_code("print('before')\nxyz\nprint('after')")
        self.assertEqual(run.stdout, ["before\n"])
        self.assertEqual(run.error["name"], "NameError")
        self.assertEqual(run.error["value"], "name 'xyz' is not defined")
        self.assertTrue(run.error["traceback"].startswith("-" * 75 + "NameError "), run.error["traceback"])
        self.assertTrue(run.error["traceback"].endswith("NameError: name 'xyz' is not defined"))
        self.assertIn("Traceback (most recent call last)Cell In[", run.error["traceback"])


if __name__ == "__main__":
    unittest.main()
