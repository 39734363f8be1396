"""Handles of transfers and of prepared lists."""

from __future__ import annotations

from .logging import get_logger

logger = get_logger(__name__)


class _handle:
    """A number that the lower layer knows, given back once."""

    __slots__ = ("_handle", "_agent", "_released")

    def __init__(self, agent, value: int) -> None:
        self._handle = int(value)
        self._agent = agent
        self._released = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(0x{self._handle:x}, released={self._released})"

    def _give_back(self) -> None:
        raise NotImplementedError

    def release(self) -> None:
        """Gives it back; the second time nothing happens."""
        if not self._released:
            self._give_back()
            self._released = True


class nixl_prepped_dlist_handle(_handle):
    """A list that `prep_xfer_dlist` prepared."""

    __slots__ = ()

    def _give_back(self) -> None:
        self._agent.releasedDlistH(self._handle)

    def __del__(self) -> None:
        try:
            self.release()
        except Exception as error:
            _complain(self, error)


class nixl_xfer_handle(_handle):
    """A transfer. Releasing one that is in progress cancels it."""

    __slots__ = ()

    def _give_back(self) -> None:
        self._agent.releaseXferReq(self._handle)

    def __del__(self) -> None:
        try:
            self.release()
        except Exception as error:
            _complain(self, error)
            try:
                self._agent._leaked_xfer_handles.append(self._handle)
            except Exception:
                pass  # The lower layer keeps it until the agent ends.


def _complain(handle: _handle, error: Exception) -> None:
    try:
        logger.error("%r could not be released: %s", handle, error)
    except Exception:
        pass  # The interpreter is ending.
