"""Work to be done when a cell imports a library: once, right after the module has run."""

import sys
from importlib.util import find_spec


class _Loader:
    """A module's own loader, plus one call at the end."""

    def __init__(self, loader, then):
        self._loader = loader
        self._then = then

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            self._then(module)
        except Exception:
            pass  # a version we do not know: the library works without us


class ImportHooks:
    def __init__(self):
        self._hooks = {}

    def add(self, name, then):
        """Calls then(module) after `name` was imported, or now if it is there."""
        module = sys.modules.get(name)
        if module is not None:
            then(module)
            return
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        self._hooks[name] = then

    def find_spec(self, name, path=None, target=None):
        then = self._hooks.pop(name, None)
        if then is None:
            return None
        spec = find_spec(name)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            self._hooks[name] = then
            return None
        spec.loader = _Loader(spec.loader, then)
        return spec
