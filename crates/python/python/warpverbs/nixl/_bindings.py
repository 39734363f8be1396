"""NIXL's lower layer: `nixlAgent`, lists of descriptors, enumerations and exceptions.

Programs look names up in this module, and some put their own there.
"""

from __future__ import annotations

from datetime import timedelta

from .._native import (
    nixlAgent,
    nixlBackendError,
    nixlCancelledError,
    nixlInvalidParamError,
    nixlMismatchError,
    nixlNotAllowedError,
    nixlNotFoundError,
    nixlNotPostedError,
    nixlNotSupportedError,
    nixlNoTelemetryError,
    nixlRegDList,
    nixlRemoteDisconnectError,
    nixlRemoteDList,
    nixlRepostActiveError,
    nixlUnknownError,
    nixlXferDList,
    nixlXferTelemetry,
)
from ._enums import *  # noqa: F403 (every member is a name of this module)
from ._enums import nixl_thread_sync_t

NIXL_INIT_AGENT = ""
DEFAULT_COMM_PORT = 8888
# The device interface of UCX, into which NIXL's kernels are compiled; ours is another.
HAVE_UCX_GPU_DEVICE_API = False


class nixlAgentConfig:
    """Settings of an agent."""

    __slots__ = (
        "useProgThread",
        "useListenThread",
        "listenPort",
        "syncMode",
        "pthrDelay",
        "lthrDelay",
        "captureTelemetry",
        "etcdWatchTimeout",
    )

    def __init__(
        self,
        use_prog_thread: bool = False,
        use_listen_thread: bool = False,
        port: int = DEFAULT_COMM_PORT,
        sync_mode: nixl_thread_sync_t = nixl_thread_sync_t.NIXL_THREAD_SYNC_DEFAULT,
        num_workers: int = 1,
        pthr_delay_us: int = 0,
        lthr_delay_us: int = 100_000,
        capture_telemetry: bool = False,
        /,
    ) -> None:
        # Programs of older releases give a number of workers in fifth place.
        del num_workers
        self.useProgThread = use_prog_thread
        self.useListenThread = use_listen_thread
        self.listenPort = port
        self.syncMode = sync_mode
        self.pthrDelay = pthr_delay_us
        self.lthrDelay = lthr_delay_us
        self.captureTelemetry = capture_telemetry
        self.etcdWatchTimeout = timedelta(seconds=5)


def _list_of(name: str, kind: int, rows: bytes):
    """The list of a pickle that was made while `nixl` was not ours."""
    classes = {each.__name__: each for each in (nixlXferDList, nixlRegDList, nixlRemoteDList)}
    if name not in classes:
        raise ValueError(f"{name!r} is no list of descriptors")
    return classes[name](kind, rows)

