"""What a forked kernel must not share with its siblings, or remember of the zygote.

Forked twice over: by the zygote (`renew`), and as a copy of a whole sandbox (`reseed`).
"""

import gc
import os
import random
import sys
import tempfile


def generators():
    """Before the fork: every generator of random numbers that exists, whichever library owns it."""
    kinds = [random.Random]
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        kinds.append(numpy.RandomState)
    found = [o for o in gc.get_objects() if isinstance(o, tuple(kinds)) and not isinstance(o, random.SystemRandom)]
    global_state = getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
    if global_state is not None and not any(o is global_state for o in found):
        found.append(global_state)
    if not any(o is random._inst for o in found):
        found.append(random._inst)
    return found


def renew(generators):
    """After it, before anything else."""
    os.environ.clear()
    for generator in generators:
        generator.seed()
    tempfile.tempdir = None
    tempfile._name_sequence = None
    _uuid()
    _multiprocessing()
    try:
        _matplotlib()
    except AttributeError:
        pass  # a version that keeps its directories elsewhere


def reseed(seed):
    """With 32 bytes: the generators that are everybody's. Those that a user made with a seed of their own keep it."""
    for part in (_random, _numpy, _openssl, _names, _uuid):
        try:
            part(seed) if part in _SEEDED else part()
        except Exception:
            pass  # a cell has put something else in its place


def _random(seed):
    random._inst.seed(seed + b"random")


def _numpy(seed):
    state = getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
    if state is not None:
        state.seed([int.from_bytes(seed[at : at + 4], "little") for at in range(0, 32, 4)])


def _openssl(seed):
    """Its shared generator fetches entropy of its own besides; those of threads follow before their next number."""
    ssl = sys.modules.get("_ssl")
    if ssl is not None:
        ssl.RAND_add(seed, 32.0)


_SEEDED = (_random, _numpy, _openssl)


def _names():
    tempfile._name_sequence = None


def _uuid():
    uuid = sys.modules.get("uuid")
    if uuid is not None:
        uuid._node = uuid._last_timestamp = None


def _multiprocessing():
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        current = process.current_process()
        current._config["authkey"] = process.AuthenticationString(os.urandom(32))


def _matplotlib():
    """Its directories were the zygote's; they are looked for again, in the sandbox's home, when something wants them."""
    matplotlib = sys.modules.get("matplotlib")
    if matplotlib is None:
        return
    again = matplotlib._get_config_or_cache_dir
    for name, find in (("get_configdir", matplotlib._get_xdg_config_dir), ("get_cachedir", matplotlib._get_xdg_cache_dir)):
        setattr(matplotlib, name, _once(again, find))
    style = sys.modules.get("matplotlib.style.core")
    if style is not None:
        style.USER_LIBRARY_PATHS[:] = [os.path.expanduser("~/.config/matplotlib/stylelib")]


def _once(function, *arguments):
    known = []

    def call():
        if not known:
            known.append(function(*arguments))
        return known[0]

    return call
