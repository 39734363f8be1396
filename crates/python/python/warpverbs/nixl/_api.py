"""NIXL's upper layer: `nixl_agent` over `nixl._bindings.nixlAgent`."""

from __future__ import annotations

from enum import Enum
from typing import Any, Optional

from . import _bindings as nixlBind
from . import _lists
from ._handles import nixl_prepped_dlist_handle, nixl_xfer_handle
from .logging import get_logger

logger = get_logger(__name__)

DEFAULT_COMM_PORT = nixlBind.DEFAULT_COMM_PORT

nixl_backend_handle = int

# Names of this module: a transfer of a few bytes takes hardly longer than looking two up in another.
_DONE, _IN_PROGRESS = nixlBind.NIXL_SUCCESS, nixlBind.NIXL_IN_PROG

# The name of a number of threads in options of each backend.
_THREADS = {"UCX": "num_threads", "OBJ": "num_threads", "LIBFABRIC": "num_threads", "GDS_MT": "thread_count", "UCCL": "num_cpus"}


class nixl_thread_sync_t(Enum):
    """How threads share an agent; with ours any may call it at any time."""

    NIXL_THREAD_SYNC_NONE = nixlBind.NIXL_THREAD_SYNC_NONE
    NIXL_THREAD_SYNC_STRICT = nixlBind.NIXL_THREAD_SYNC_STRICT
    NIXL_THREAD_SYNC_RW = nixlBind.NIXL_THREAD_SYNC_RW
    NIXL_THREAD_SYNC_DEFAULT = nixlBind.NIXL_THREAD_SYNC_DEFAULT


class nixl_agent_config:
    """Settings of an agent."""

    def __init__(
        self,
        enable_prog_thread: bool = True,
        enable_listen_thread: bool = False,
        listen_port: int = DEFAULT_COMM_PORT,
        capture_telemetry: bool = False,
        num_threads: int = 0,
        backends: list[str] = ["UCX"],
        sync_mode: Optional[nixl_thread_sync_t] = None,
    ) -> None:
        if sync_mode is not None and not isinstance(sync_mode, nixl_thread_sync_t):
            raise TypeError(f"sync_mode must be a nixl_thread_sync_t, not {type(sync_mode).__name__}")
        # A copy: the list of the default belongs to all.
        self.backends = list(backends)
        self.enable_pthread = enable_prog_thread
        self.enable_listen = enable_listen_thread
        self.port = listen_port
        self.capture_telemetry = capture_telemetry
        self.num_threads = num_threads
        self.sync_mode = sync_mode


class nixl_agent:
    """Moves blocks between its memory and that of other agents."""

    def __init__(
        self,
        agent_name: str,
        nixl_conf: Optional[nixl_agent_config] = None,
        instantiate_all: bool = False,
    ) -> None:
        if nixl_conf is not None and instantiate_all:
            logger.warning("instantiate_all is ignored: the configuration says which backends")
            instantiate_all = False
        config = nixl_conf or nixl_agent_config()
        self.name = agent_name
        self._leaked_xfer_handles: list[int] = []
        self.notifs: dict[str, list[bytes]] = {}
        self.backends: dict[str, nixl_backend_handle] = {}
        self.backend_mems: dict[str, list[str]] = {}
        self.backend_options: dict[str, dict[str, str]] = {}
        self.plugin_b_options: dict[str, dict[str, str]] = {}
        self.plugin_mem_types: dict[str, list[str]] = {}
        self.nixl_mems = dict(_lists.MEMORY)
        self.nixl_ops = {"WRITE": nixlBind.NIXL_WRITE, "READ": nixlBind.NIXL_READ}
        self.agent = nixlBind.nixlAgent(agent_name, self._lower(config))
        self.plugin_list: list[str] = self.agent.getAvailPlugins()
        if not self.plugin_list:
            raise RuntimeError("the agent has no plugins, and cannot move anything")
        for backend in self.plugin_list if instantiate_all else config.backends:
            if backend not in self.plugin_list:
                logger.warning("Backend %s is skipped: there is no such plugin, only %s", backend, ", ".join(self.plugin_list))
                continue
            options = {}
            if config.num_threads > 0 and backend in _THREADS:
                options[_THREADS[backend]] = str(config.num_threads)
            self.create_backend(backend, options)
        logger.info("Initialized NIXL agent: %s", agent_name)

    @staticmethod
    def _lower(config: nixl_agent_config) -> nixlBind.nixlAgentConfig:
        default = nixl_thread_sync_t.NIXL_THREAD_SYNC_NONE
        if config.enable_listen:
            default = nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
        lower = nixlBind.nixlAgentConfig()
        lower.useProgThread = config.enable_pthread
        lower.useListenThread = config.enable_listen
        lower.listenPort = config.port
        lower.syncMode = (config.sync_mode or default).value
        lower.captureTelemetry = config.capture_telemetry
        return lower

    def __del__(self) -> None:
        for handle in getattr(self, "_leaked_xfer_handles", ()):
            try:
                self.agent.releaseXferReq(handle)
            except Exception:
                pass  # It ends with the agent.

    def _handles(self, backends: Optional[list[str]]) -> list[int]:
        return [self.backends[name] for name in backends] if backends else []

    # Plugins and backends

    def _plugin(self, name: str) -> bool:
        if name in self.plugin_list and name not in self.plugin_mem_types:
            try:
                options, kinds = self.agent.getPluginParams(name)
            except Exception:
                logger.warning("Plugin %s does not say what it takes", name, exc_info=True)
                return False
            self.plugin_b_options[name], self.plugin_mem_types[name] = options, kinds
        if name not in self.plugin_mem_types:
            logger.warning("There is no plugin %s, only %s", name, ", ".join(self.plugin_list))
            return False
        return True

    def get_plugin_list(self) -> list[str]:
        """Names of the plugins."""
        return self.plugin_list

    def get_plugin_mem_types(self, backend: str) -> list[str]:
        """Kinds of memory that a plugin moves."""
        return self.plugin_mem_types[backend] if self._plugin(backend) else []

    def get_plugin_params(self, backend: str) -> dict[str, str]:
        """Options of a plugin, with their defaults."""
        return self.plugin_b_options[backend] if self._plugin(backend) else {}

    def get_backend_mem_types(self, backend: str) -> list[str]:
        """Kinds of memory that a backend of this agent moves."""
        if backend not in self.backend_mems:
            logger.warning("The agent has no backend %s", backend)
        return self.backend_mems.get(backend, [])

    def get_backend_params(self, backend: str) -> dict[str, str]:
        """Options of a backend of this agent."""
        if backend not in self.backend_options:
            logger.warning("The agent has no backend %s", backend)
        return self.backend_options.get(backend, {})

    def create_backend(self, backend: str, initParams: dict[str, str] = {}) -> None:
        """Lets the agent use a plugin, with options."""
        self.backends[backend] = self.agent.createBackend(backend, initParams)
        options, kinds = self.agent.getBackendParams(self.backends[backend])
        self.backend_mems[backend], self.backend_options[backend] = kinds, options
        logger.info("Backend %s was instantiated", backend)

    # Memory

    def get_xfer_descs(self, descs: Any, mem_type: Optional[str] = None) -> Optional[nixlBind.nixlXferDList]:
        """A list of ranges to move, of tuples (address, length, device) or an Nx3 array, both with their
        kind of memory, or of a tensor or tensors of one device. Misuse is logged, and gives None."""
        return _lists.build(nixlBind.nixlXferDList, nixlBind.nixlRegDList, 3, descs, mem_type)

    def get_reg_descs(self, descs: Any, mem_type: Optional[str] = None) -> Optional[nixlBind.nixlRegDList]:
        """A list of ranges to register: as `get_xfer_descs`, tuples have a fourth element, str or bytes."""
        return _lists.build(nixlBind.nixlRegDList, nixlBind.nixlXferDList, 4, descs, mem_type)

    def get_remote_descs(self, descs: Any, mem_type: Optional[str] = None) -> Optional[nixlBind.nixlRemoteDList]:
        """A list of other agents' memory: tuples (address, length, device, agent)."""
        return _lists.remote(descs, mem_type)

    def get_serialized_descs(self, descs: Any) -> bytes:
        """A list as bytes, for `deserialize_descs` of another process."""
        return _lists.dumps(descs)

    def deserialize_descs(self, serialized_descs: bytes) -> Any:
        """The list of `get_serialized_descs`; bytes that make anything else are refused."""
        return _lists.loads(serialized_descs)

    def _reg_descs(self, descs: Any, mem_type: Optional[str]) -> nixlBind.nixlRegDList:
        made = self.get_reg_descs(descs, mem_type)
        if made is None:
            raise TypeError(f"{type(descs).__name__} is no memory; the log says what was expected")
        return made

    def register_memory(
        self, reg_list: Any, mem_type: Optional[str] = None, backends: list[str] = []
    ) -> nixlBind.nixlRegDList:
        """Lets other agents reach memory, and this one move it. Tensors live until it is deregistered;
        memory of an address must be kept by who gives it."""
        descs = self._reg_descs(reg_list, mem_type)
        self.agent.registerMem(descs, self._handles(backends))
        return descs

    def deregister_memory(self, dereg_list: nixlBind.nixlRegDList, backends: list[str] = []) -> None:
        """Ends it. When it returns, nobody reads or writes that memory any more."""
        self.agent.deregisterMem(dereg_list, self._handles(backends))

    def query_memory(
        self, reg_list: Any, backend: str, mem_type: Optional[str] = None
    ) -> list[Optional[dict[str, str]]]:
        """Asks a backend for each range: a file's size, for example, or None."""
        descs = self._reg_descs(reg_list, mem_type)
        if backend not in self.backends:
            raise ValueError(f"the agent has no backend {backend!r}, only {list(self.backends)}")
        return self.agent.queryMem(descs, self.backends[backend])

    # Transfers

    def make_connection(self, remote_agent: str, backends: list[str] = []) -> None:
        """Connects now, so that the first transfer need not."""
        self.agent.makeConnection(remote_agent, self._handles(backends))

    def prep_xfer_dlist(
        self, agent_name: str, xfer_list: Any, mem_type: Optional[str] = None, backends: list[str] = []
    ) -> nixl_prepped_dlist_handle:
        """Looks ranges up once, for transfers that pick some of them by index.

        The name is "" or "NIXL_INIT_AGENT" for the own side, otherwise the agent whose memory it is, which
        may be this one. An Nx5 array (address, length, device, stride, count) is of blocks at equal distances.
        """
        local = agent_name in ("NIXL_INIT_AGENT", "", b"NIXL_INIT_AGENT", b"")
        side = nixlBind.NIXL_INIT_AGENT if local else agent_name
        handles = self._handles(backends)
        if _lists.columns(xfer_list) == 5:
            if mem_type is None:
                raise ValueError("an Nx5 array needs its mem_type")
            handle = self.agent.prepXferDlist(side, self.nixl_mems[mem_type], xfer_list, handles)
        else:
            handle = self.agent.prepXferDlist(side, self.get_xfer_descs(xfer_list, mem_type), handles)
        return nixl_prepped_dlist_handle(self.agent, handle)

    def make_prepped_xfer(
        self,
        operation: str,
        local_xfer_side: nixl_prepped_dlist_handle,
        local_indices: Any,
        remote_xfer_side: nixl_prepped_dlist_handle,
        remote_indices: Any,
        notif_msg: bytes = b"",
        backends: list[str] = [],
        skip_desc_merge: bool = False,
    ) -> nixl_xfer_handle:
        """A transfer between prepared lists: "READ" or "WRITE", and as many indices of each."""
        op = self.nixl_ops[operation]
        handle = self.agent.makeXferReq(
            op,
            local_xfer_side._handle,
            local_indices,
            remote_xfer_side._handle,
            remote_indices,
            notif_msg,
            self._handles(backends),
            skip_desc_merge,
        )
        return nixl_xfer_handle(self.agent, handle)

    def initialize_xfer(
        self,
        operation: str,
        local_descs: nixlBind.nixlXferDList,
        remote_descs: nixlBind.nixlXferDList,
        remote_agent: str,
        notif_msg: bytes = b"",
        backends: list[str] = [],
    ) -> nixl_xfer_handle:
        """A transfer between two lists, range by range."""
        op = self.nixl_ops[operation]
        handle = self.agent.createXferReq(
            op, local_descs, remote_descs, remote_agent, notif_msg, self._handles(backends)
        )
        return nixl_xfer_handle(self.agent, handle)

    def transfer(self, handle: nixl_xfer_handle, notif_msg: bytes = b"") -> str:
        """Begins it: "DONE" or "PROC". A notification here takes the place of the earlier one."""
        status = self.agent.postXferReq(handle._handle, notif_msg)
        if status is _DONE:  # As a rule; to compare numbers takes longer.
            return "DONE"
        return "DONE" if status == _DONE else "PROC" if status == _IN_PROGRESS else "ERR"

    def check_xfer_state(self, handle: nixl_xfer_handle) -> str:
        """Whether it is over: "DONE" or "PROC"; a failure raises."""
        status = self.agent.getXferStatus(handle._handle)
        return "DONE" if status == _DONE else "PROC" if status == _IN_PROGRESS else "ERR"

    def get_xfer_telemetry(self, handle: nixl_xfer_handle) -> nixlBind.nixlXferTelemetry:
        """Times in microseconds, bytes and descriptors of a transfer that is over."""
        return self.agent.getXferTelemetry(handle._handle)

    def estimate_xfer_cost(self, req_handle: nixl_xfer_handle) -> tuple[int, int, str]:
        """How long it will take in microseconds, by how much that may be wrong, and how it was found."""
        duration, margin, method = self.agent.estimateXferCost(req_handle._handle)
        analytical = method == nixlBind.NIXL_COST_ANALYTICAL_BACKEND
        return duration, margin, "ANALYTICAL_BACKEND" if analytical else "UNKNOWN"

    def query_xfer_backend(self, handle: nixl_xfer_handle) -> str:
        """Which backend carries it, by the name under which it was created."""
        found = self.agent.queryXferBackend(handle._handle)
        return next(name for name, each in self.backends.items() if each == found)

    def release_xfer_handle(self, handle: nixl_xfer_handle) -> None:
        """Gives a transfer back; cancels it if it is in progress."""
        handle.release()

    def release_dlist_handle(self, handle: nixl_prepped_dlist_handle) -> None:
        """Gives a prepared list back."""
        handle.release()

    def prep_mem_view(self, dlist: Any, *, backends: Optional[list[str]] = None) -> int:
        """Not supported: kernels of NIXL's have UCX compiled in. warpverbs has views of its own."""
        return self.agent.prepMemView(dlist, self._handles(backends))

    def release_mem_view(self, mvh: int) -> None:
        """Gives a view back."""
        self.agent.releaseMemView(mvh)

    # Notifications

    def get_new_notifs(self, backends: list[str] = []) -> dict[str, list[bytes]]:
        """Notifications that came since the last call, by sender."""
        return self.agent.getNotifs({}, self._handles(backends))

    def update_notifs(self, backends: list[str] = []) -> dict[str, list[bytes]]:
        """All notifications that nobody took out of `notifs`, by sender."""
        self.notifs = self.agent.getNotifs(self.notifs, self._handles(backends))
        return self.notifs

    def check_remote_xfer_done(
        self,
        remote_agent_name: str,
        lookup_tag: bytes,
        backends: list[str] = [],
        tag_is_prefix: bool = True,
    ) -> bool:
        """Whether a notification came that begins with a tag, or has it somewhere; takes that one out."""
        waiting = self.update_notifs(backends).get(remote_agent_name, [])
        for place, message in enumerate(waiting):
            if message.startswith(lookup_tag) if tag_is_prefix else lookup_tag in message:
                del waiting[place]
                return True
        return False

    def send_notif(self, remote_agent_name: str, notif_msg: bytes, backend: Optional[str] = None) -> None:
        """Sends a notification that belongs to no transfer."""
        self.agent.genNotif(remote_agent_name, notif_msg, [] if backend is None else [self.backends[backend]])

    # Metadata

    def get_agent_metadata(self) -> bytes:
        """Bytes by which another agent reaches this one and all its registered memory. Keep them secret:
        their holder may read and write that memory."""
        return self.agent.getLocalMD()

    def get_partial_agent_metadata(
        self, descs: nixlBind.nixlRegDList, inc_conn_info: bool = False, backends: list[str] = []
    ) -> bytes:
        """The same of some memory, with or without how to reach the agent."""
        return self.agent.getLocalPartialMD(descs, inc_conn_info, self._handles(backends))

    def add_remote_agent(self, metadata: bytes) -> bytes:
        """Takes metadata of another agent; returns its name, as bytes."""
        return self.agent.loadRemoteMD(metadata)

    def remove_remote_agent(self, agent: str) -> None:
        """Forgets an agent; of one that is not known, nothing happens."""
        self.agent.invalidateRemoteMD(agent)

    def send_local_metadata(self, ip_addr: str = "", port: int = DEFAULT_COMM_PORT) -> None:
        """Sends the metadata to an agent that listens. It returns at once."""
        self.agent.sendLocalMD(ip_addr, port)

    def send_partial_agent_metadata(
        self,
        descs: nixlBind.nixlRegDList,
        inc_conn_info: bool = False,
        backends: list[str] = [],
        ip_addr: str = "",
        port: int = DEFAULT_COMM_PORT,
        label: str = "",
    ) -> None:
        """Sends metadata of some memory to an agent that listens. It returns at once."""
        self.agent.sendLocalPartialMD(descs, inc_conn_info, self._handles(backends), ip_addr, port, label)

    def fetch_remote_metadata(
        self, remote_agent: str, ip_addr: str = "", port: int = DEFAULT_COMM_PORT, label: str = ""
    ) -> None:
        """Asks an agent that listens for its metadata; `check_remote_metadata` says when it is here."""
        self.agent.fetchRemoteMD(remote_agent, ip_addr, port, label)

    def invalidate_local_metadata(self, ip_addr: str = "", port: int = DEFAULT_COMM_PORT) -> None:
        """Lets an agent that listens forget this one. It returns at once."""
        self.agent.invalidateLocalMD(ip_addr, port)

    def check_remote_metadata(self, agent: str, descs: Optional[nixlBind.nixlXferDList] = None) -> bool:
        """Whether metadata of an agent is here, is not stale, and has all of these ranges."""
        wanted = nixlBind.nixlXferDList(nixlBind.DRAM_SEG) if descs is None else descs
        return self.agent.checkRemoteMD(agent, wanted) == nixlBind.NIXL_SUCCESS


def __getattr__(name: str):
    # Programs find numpy here; this package itself needs none.
    if name == "np":
        import numpy

        return numpy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
