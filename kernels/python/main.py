"""The Python runner, started cold by the agent: descriptor 3 is the control socket (kernels/protocol.md)."""

import sys

sys.dont_write_bytecode = True
# The directory of this script is no place for the imports of cells; the current one is.
_here, sys.path[0] = sys.path[0], ""
sys.argv[:] = [""]


def main():
    sys.path.insert(0, _here)
    from atoll_kernel.kernel import Kernel

    sys.path.remove(_here)
    sys.dont_write_bytecode = False
    kernel = Kernel()
    kernel.attach(3)
    kernel.serve()


if __name__ == "__main__":
    main()
