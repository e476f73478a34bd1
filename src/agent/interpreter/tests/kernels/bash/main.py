"""The same stand-in as a language whose runs take no arguments."""
import os
import runpy

runpy.run_path(os.path.dirname(os.path.abspath(__file__)) + "/../python/main.py", run_name="__main__")
