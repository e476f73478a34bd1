"""Runs the tests named on the command line (module, module.Class, module.Class.test), or all."""

import os
import sys
import unittest

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "../../js/tests"), os.path.join(here, "../../python/tests")]

if __name__ == "__main__":
    names = sys.argv[1:] or sorted(f[:-3] for f in os.listdir(here) if f.startswith("test_") and f.endswith(".py"))
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    sys.exit(not result.wasSuccessful())
