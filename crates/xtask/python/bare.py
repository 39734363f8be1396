"""Lets one module of a large program be imported without the whole of it.

A package's `__init__` may import models, servers and kernels, though the module that is meant needs none of them.
`bare` enters such packages with their folder only: their modules are found and run unchanged, their `__init__` is not.
"""

import importlib.machinery
import sys
import types
from pathlib import Path


def bare(folder, *names):
    """Enters the packages `names`, whose files are below `folder`, without running their `__init__`."""
    for name in names:
        path = Path(folder, *name.split("."))
        if not path.is_dir():
            raise SystemExit(f"no package {name} below {folder}: expected the folder {path}")
        module = types.ModuleType(name)
        module.__path__ = [str(path)]
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        module.__spec__.submodule_search_locations = module.__path__
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)


def stand_in(name, **values):
    """A module that has just these values."""
    module = types.ModuleType(name)
    module.__dict__.update(values)
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, module)
    return module
