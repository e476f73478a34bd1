"""Builtins of our own. A module that takes `__builtins__` from here, before it defines anything, does not notice when a cell
replaces `len` or `isinstance` in the real ones."""

import builtins

__builtins__ = dict(vars(builtins))


def repair():
    """Puts the real ones back, for IPython's sake. Names that a cell added stay."""
    for name, value in __builtins__.items():
        if name not in ("_", "__builtins__"):
            setattr(builtins, name, value)
