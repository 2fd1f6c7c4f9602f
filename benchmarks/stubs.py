"""Empty modules in place of modules that another program imports but that its training step never calls."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType


class Stub(ModuleType):
    """A module whose every attribute is another stub. Calling a stub returns it."""

    def __init__(self, name: str):
        super().__init__(name)
        self.__path__ = []  # so that submodules can be imported

    def __getattr__(self, name: str) -> Stub:
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(f"{self.__name__}.{name}")

    def __call__(self, *arguments: object, **options: object) -> Stub:
        return self


def importable(name: str) -> bool:
    """Whether a module can be imported."""
    try:
        importlib.import_module(name)
    except Exception:  # an old module may raise anything
        return False
    return True


def stub_if_missing(module: str, *names: str) -> None:
    """Replace a module by a stub if it or one of its `names` cannot be imported; do the same for its parents."""
    parent = module.rpartition(".")[0]
    if parent:
        stub_if_missing(parent)
    whole = importable(module) and all(
        hasattr(sys.modules[module], name) or importable(f"{module}.{name}") for name in names
    )
    if not whole:
        sys.modules[module] = Stub(module)
