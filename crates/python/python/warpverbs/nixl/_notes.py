"""Lines for the log that a process writes once."""

from __future__ import annotations

import os
import sys
import threading

from .logging import get_logger

# Options that programs tune UCX by, and their values that ask for nothing.
IGNORED = {"num_threads": ("", "0"), "num_workers": ("", "1"), "device_list": ("",)}

_said: set[str] = set()
_lock = threading.Lock()


def once(key: str, text: str) -> None:
    """Logs a text, unless one of this key was logged before."""
    with _lock:
        if key in _said:
            return
        _said.add(key)
    get_logger("warpverbs").info("%s", text)


def listening(port: int) -> None:
    """Says on which port an agent listens, as NIXL's library does with NIXL_LOG_LEVEL=INFO or finer."""
    if os.environ.get("NIXL_LOG_LEVEL", "").upper() in ("TRACE", "DEBUG", "INFO"):
        print(f"warpverbs: MD listener is listening on port {port}", file=sys.stderr, flush=True)


def backend(name: str, options: dict[str, str]) -> None:
    """Says once what the name of a backend means here, and which of its options mean nothing."""
    if name == "UCX":
        once("UCX", "UCX is the name of warpverbs' own paths here; the library UCX is not used")
    tuned = sorted(key for key, value in options.items() if key in IGNORED and value not in IGNORED[key])
    if tuned:
        once(f"{name} {tuned}", f"{name}: {', '.join(tuned)} is accepted and has no effect")
