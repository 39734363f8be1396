"""Enumerations of `nixl._bindings`, with NIXL's numbers."""

from __future__ import annotations

from enum import IntEnum


class _Flat(IntEnum):
    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class nixl_thread_sync_t(_Flat):
    """How threads share an agent. Any thread may call ours at any time: all mean the same."""

    NIXL_THREAD_SYNC_NONE = 0
    NIXL_THREAD_SYNC_STRICT = 1
    NIXL_THREAD_SYNC_RW = 2
    NIXL_THREAD_SYNC_DEFAULT = 0


class nixl_mem_t(_Flat):
    """Kinds of memory."""

    DRAM_SEG = 0
    VRAM_SEG = 1
    BLK_SEG = 2
    OBJ_SEG = 3
    FILE_SEG = 4


class nixl_xfer_op_t(_Flat):
    """Directions of a transfer."""

    NIXL_READ = 0
    NIXL_WRITE = 1


class nixl_cost_t(_Flat):
    """How a cost was estimated."""

    NIXL_COST_ANALYTICAL_BACKEND = 0


class nixl_status_t(_Flat):
    """States and failures of a call."""

    NIXL_IN_PROG = 1
    NIXL_SUCCESS = 0
    NIXL_ERR_NOT_POSTED = -1
    NIXL_ERR_INVALID_PARAM = -2
    NIXL_ERR_BACKEND = -3
    NIXL_ERR_NOT_FOUND = -4
    NIXL_ERR_MISMATCH = -5
    NIXL_ERR_NOT_ALLOWED = -6
    NIXL_ERR_REPOST_ACTIVE = -7
    NIXL_ERR_UNKNOWN = -8
    NIXL_ERR_NOT_SUPPORTED = -9


# Members are names of the module, too.
for _members in (nixl_thread_sync_t, nixl_mem_t, nixl_xfer_op_t, nixl_cost_t, nixl_status_t):
    globals().update(_members.__members__)
