"""Lets `import nixl` find `warpverbs.nixl`.

The start-up hook of the wheel calls `on` in every process that has WARPVERBS_AS_NIXL=1, so that workers
that a program spawns have it too. No distribution `nixl` is claimed: programs that look for its version
find none, or that of the NIXL which is installed beside.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

OURS = "warpverbs.nixl"
SUBMODULES = ("_api", "_bindings", "_utils", "logging")


class _Package(Loader):
    """Makes the module `nixl`, with the public names of all submodules."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = "NIXL's Python interface, by warpverbs."
        module.__warpverbs__ = True  # type: ignore[attr-defined]
        # Programs print it, to see which package they have.
        module.__file__ = importlib.import_module(OURS).__file__
        # Names that the upper layer makes only when asked, such as `np`.
        module.__getattr__ = importlib.import_module(f"{OURS}._api").__getattr__  # type: ignore[method-assign]
        for name in SUBMODULES:
            found = importlib.import_module(f"{module.__name__}.{name}")
            setattr(module, name, found)
            for public in dir(found):
                if not public.startswith("_"):
                    setattr(module, public, getattr(found, public))


class _Alias(Loader):
    """Gives a module of ours under another name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.name)
        # The import system writes its own into the module before it calls `exec_module`.
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        if name == "nixl":
            return ModuleSpec(name, _Package(), origin=OURS, is_package=True)
        package, _, rest = name.partition(".")
        if package == "nixl" and rest in SUBMODULES:
            return ModuleSpec(name, _Alias(f"{OURS}.{rest}"), origin=OURS)
        return None


def on() -> None:
    """From now on `import nixl` finds ours."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def install() -> None:
    """From now on `nixl` and its submodules are ours.

    Raises RuntimeError if another `nixl` is imported already: whoever imported it keeps it.
    """
    present = sys.modules.get("nixl")
    if present is not None and not getattr(present, "__warpverbs__", False):
        place = getattr(present, "__file__", None) or "an unknown place"
        raise RuntimeError(f"nixl is imported already, from {place}; install() must come first")
    on()
    importlib.import_module("nixl")
