"""NIXL's Python interface over warpverbs' agents.

Programs run on it unchanged: `python -m warpverbs.nixl PROGRAM ...`, or WARPVERBS_AS_NIXL=1 in the
environment, or `warpverbs.nixl.install()` before their first `import nixl`.
"""

from .._switch import install
from ._api import (
    DEFAULT_COMM_PORT,
    nixl_agent,
    nixl_agent_config,
    nixl_backend_handle,
    nixl_prepped_dlist_handle,
    nixl_thread_sync_t,
    nixl_xfer_handle,
)

__all__ = [
    "DEFAULT_COMM_PORT",
    "install",
    "nixl_agent",
    "nixl_agent_config",
    "nixl_backend_handle",
    "nixl_prepped_dlist_handle",
    "nixl_thread_sync_t",
    "nixl_xfer_handle",
]
