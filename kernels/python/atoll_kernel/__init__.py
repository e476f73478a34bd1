"""The Python runner: cells in, lines of kernels/protocol.md out."""
