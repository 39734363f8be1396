"""Scattered blocks of GPU and host memory between named agents.

>>> import numpy, warpverbs
>>> with warpverbs.Agent("target") as target, warpverbs.Agent("initiator") as initiator:
...     theirs = target.register(numpy.arange(4096, dtype=numpy.uint8), "cache")
...     ours = initiator.register(numpy.zeros(4096, dtype=numpy.uint8), "ours")
...     peer = initiator.load(target.metadata())
...     cache = initiator.remote(peer, "cache")
...     read = initiator.read(ours.blocks(256, 8), cache.blocks(256, 8, stride=512), notify=b"8 blocks")
...     done = read.wait(timeout=10)
...     print(target.wait_notification(timeout=10), initiator.explain(ours, cache).path)
('initiator', b'8 blocks') same process

`warpverbs.nixl` is NIXL's Python interface over the same agents. `python -m warpverbs doctor` says what this
machine has, `python -m warpverbs perf` measures it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import nixl as nixl
    from ._errors import (
        BadInput as BadInput,
        Cancelled as Cancelled,
        Deregistered as Deregistered,
        Error as Error,
        NoPath as NoPath,
        PeerLost as PeerLost,
        Timeout as Timeout,
        Unknown as Unknown,
    )
    from ._native import (
        Agent as Agent,
        Blocks as Blocks,
        Counters as Counters,
        Explanation as Explanation,
        Memory as Memory,
        Moved as Moved,
        Prepared as Prepared,
        RemoteMemory as RemoteMemory,
        Telemetry as Telemetry,
        Transfer as Transfer,
        Undone as Undone,
        __version__ as __version__,
    )

# Imported when asked for: the start-up hook imports this package in every process.
_WHERE = {
    **dict.fromkeys(
        "Agent Blocks Counters Explanation Memory Moved Prepared RemoteMemory Telemetry Transfer Undone"
        " __version__".split(),
        "._native",
    ),
    **dict.fromkeys(
        "BadInput Cancelled Deregistered Error NoPath PeerLost Timeout Unknown".split(), "._errors"
    ),
}

__all__ = sorted([*_WHERE, "nixl"])


def __getattr__(name: str):
    if name == "nixl":
        return importlib.import_module(".nixl", __name__)
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
