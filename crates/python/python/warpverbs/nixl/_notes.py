"""What is said once in a process."""

from __future__ import annotations

import threading

from .logging import get_logger

_said: set[str] = set()
_lock = threading.Lock()


def once(key: str, text: str) -> None:
    """Logs a text, unless one of this key was logged before."""
    with _lock:
        if key in _said:
            return
        _said.add(key)
    get_logger("warpverbs").info("%s", text)
