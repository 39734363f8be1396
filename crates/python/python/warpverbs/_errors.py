"""The exceptions of `warpverbs`."""

from __future__ import annotations


class Error(Exception):
    """A call on an agent or a transfer failed.

    `kind` says who has to act: ``"bad caller"``, ``"bad peer"`` or ``"bad luck"``. `peer` and `path` are the agent
    and the path that the failure belongs to, or `None`. The cause, if there is one, is `__cause__`.
    """

    kind: str = "bad caller"
    peer: str | None = None
    path: str | None = None


class BadInput(Error, ValueError):
    """Something that was given is wrong; the text says what was expected."""


class Unknown(Error, LookupError):
    """No such peer, or no such memory of a peer."""


class Deregistered(Error):
    """The memory is no longer registered."""


class NoPath(Error):
    """No path leads from this memory to that; the text has the reason against each."""


class PeerLost(Error, ConnectionError):
    """The peer ended, does not answer, or has started anew."""


class Timeout(Error, TimeoutError):
    """Time is up."""


class Cancelled(Error):
    """The transfer was cancelled."""


_CLASSES = {
    one.__name__: one
    for one in (Error, BadInput, Unknown, Deregistered, NoPath, PeerLost, Timeout, Cancelled)
}


def _make(name: str, text: str, kind: str, peer: str | None, path: str | None, causes: list[str]) -> Error:
    """The exception of an error of the native half."""
    made = _CLASSES[name](text)
    made.kind, made.peer, made.path = kind, peer, path
    at: BaseException = made
    for cause in causes:
        at.__cause__ = Error(cause)
        at = at.__cause__
    return made
