"""Scattered blocks of GPU and host memory between named agents.

`warpverbs.nixl` is NIXL's Python interface over them. `python -m warpverbs doctor` says what this
machine has, `python -m warpverbs perf` measures it.
"""

from __future__ import annotations

__all__ = ["__version__", "nixl"]


def __getattr__(name: str):
    # Imported when asked for: the start-up hook imports this package in every process.
    if name == "__version__":
        from ._native import __version__

        return __version__
    if name == "nixl":
        import importlib

        return importlib.import_module(".nixl", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
