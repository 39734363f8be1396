"""Agents of the upper layer: backends, lists, registration, metadata."""

import ctypes
import gc
import weakref

import pytest

from conftest import Memory, Pair, finish, new_agent, until
from warpverbs.nixl import _api, _bindings as b
from warpverbs.nixl import nixl_agent, nixl_agent_config, nixl_thread_sync_t


def test_configurations(monkeypatch):
    assert nixl_agent_config().backends == ["UCX"] and nixl_agent_config().port == 8888
    with pytest.raises(TypeError, match="sync_mode must be a nixl_thread_sync_t"):
        nixl_agent_config(sync_mode=1)
    assert nixl_thread_sync_t.NIXL_THREAD_SYNC_DEFAULT is nixl_thread_sync_t.NIXL_THREAD_SYNC_NONE
    seen = []
    real = b.nixlAgent
    monkeypatch.setattr(b, "nixlAgent", lambda name, config: seen.append(config.syncMode) or real(name, config))
    new_agent()
    new_agent(enable_listen_thread=True, listen_port=0)
    new_agent(sync_mode=nixl_thread_sync_t.NIXL_THREAD_SYNC_RW)
    assert seen == [b.NIXL_THREAD_SYNC_NONE, b.NIXL_THREAD_SYNC_STRICT, b.NIXL_THREAD_SYNC_RW]
    with pytest.raises(ValueError):
        nixl_agent("")
    with pytest.raises(ValueError, match="70000"):
        new_agent(enable_listen_thread=True, listen_port=70000)


def test_backends():
    agent = new_agent(backends=["UCX", "GDS"], num_threads=4)
    assert set(agent.get_plugin_list()) == {"UCX", "POSIX"} and list(agent.backends) == ["UCX"]
    assert agent.get_backend_params("UCX")["num_threads"] == "4"
    assert agent.get_plugin_mem_types("UCX") == ["DRAM_SEG", "VRAM_SEG"]
    assert agent.get_plugin_mem_types("UVX") == [] and agent.get_plugin_params("UVX") == {}
    assert agent.get_backend_mem_types("POSIX") == [] and agent.get_backend_params("POSIX") == {}
    with pytest.raises(b.nixlNotFoundError, match="UVX"):
        agent.create_backend("UVX")
    with pytest.raises(b.nixlInvalidParamError):
        agent.create_backend("UCX")
    with pytest.raises(KeyError):
        agent.register_memory(b.nixlRegDList(b.DRAM_SEG), backends=["POSIX"])
    with pytest.raises(ValueError, match="POSIX"):
        agent.query_memory(b.nixlRegDList(b.DRAM_SEG), "POSIX")
    assert new_agent(backends=[]).backends == {}


class Tensor:
    """Behaves as a tensor of torch, which tests may not have."""

    def __init__(self, size, device=-1, contiguous=True):
        self.memory = ctypes.create_string_buffer(size)
        self.size, self.device_number, self.contiguous, self.shape = size, device, contiguous, (size,)

    def data_ptr(self):
        return ctypes.addressof(self.memory)

    def numel(self):
        return self.size // 2

    def element_size(self):
        return 2

    def is_contiguous(self):
        return self.contiguous

    def get_device(self):
        return self.device_number


def test_lists_of_tensors():
    agent = new_agent(backends=[])
    tensors = [Tensor(64), Tensor(128)]
    expected = [(each.data_ptr(), each.size, 0) for each in tensors]
    assert list(agent.get_xfer_descs(tensors)) == expected
    assert list(agent.get_reg_descs(tensors[1])) == [expected[1] + (b"",)]
    gpu = agent.get_xfer_descs(Tensor(64, device=3))
    assert gpu.getType() == b.VRAM_SEG and gpu[0][2] == 3


def test_misuse_gives_none():
    agent = new_agent(backends=[])
    xfer, reg = b.nixlXferDList(b.DRAM_SEG), b.nixlRegDList(b.DRAM_SEG)
    for make, other, good, bad in (
        (agent.get_xfer_descs, reg, [(1, 2, 3)], [(1, 2, 3, "")]),
        (agent.get_reg_descs, xfer, [(1, 2, 3, "")], [(1, 2, 3)]),
    ):
        assert make(other) is None and make(good) is None and make(bad, "DRAM") is None and make(bad) is None
        assert make(Tensor(8, contiguous=False)) is None and make([Tensor(8), Tensor(8, device=0)]) is None
        assert make([Tensor(8), 3]) is None and make(object()) is None and make([]) is None
        assert make([], "DRAM").isEmpty()
        with pytest.raises(KeyError):
            make(good, "V-RAM")
    assert agent.get_remote_descs([(1, 2, 3)], "VRAM") is None and agent.get_remote_descs(7, "VRAM") is None
    assert agent.get_remote_descs([(1, 2, 3, "x")], "VRAM").descCount() == 1


def test_arrays_in_the_upper_layer():
    np = pytest.importorskip("numpy")
    agent = new_agent(backends=[])
    assert agent.get_xfer_descs(np.ones((4, 3), "i4"), "DRAM").descCount() == 4
    assert agent.get_xfer_descs(np.ones((4, 4), "i8"), "DRAM") is None
    assert agent.get_xfer_descs(np.ones((4, 3), "i8")) is None
    assert _api.np is np


def test_a_registered_tensor_lives():
    agent, tensor = new_agent(), Tensor(4096)
    gone = weakref.ref(tensor)
    descs = agent.register_memory(tensor)
    rows = list(descs)
    del tensor, descs
    gc.collect()
    assert gone() is not None
    agent.deregister_memory(agent.get_reg_descs(rows, "DRAM"))
    del agent
    until("end of the tensor", lambda: gc.collect() is not None and gone() is None)


@pytest.mark.parametrize("addr, size", [(64, 4096), (0, 8), ((1 << 64) - 8, 16), (1 << 47, 8)])
def test_memory_that_is_not_there_is_refused(addr, size):
    with pytest.raises(b.nixlInvalidParamError, match="NIXL_ERR_INVALID_PARAM: .*"):
        new_agent().register_memory([(addr, size, 0, "")], "DRAM")


def test_read_only_memory_is_refused():
    import mmap

    with open("/proc/self/exe", "rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ) as mapped:
        np = pytest.importorskip("numpy")
        addr = np.frombuffer(mapped, "u1").__array_interface__["data"][0]
        with pytest.raises(b.nixlInvalidParamError, match="read and written"):
            new_agent().register_memory([(addr, 4096, 0, "")], "DRAM")


def test_registrations(rng):
    agent, memory = new_agent(), Memory(rng.randbytes(256))
    with pytest.raises(b.nixlNotFoundError):
        agent.deregister_memory(agent.get_reg_descs([memory.reg()], "DRAM"))
    for _ in range(3):
        agent.deregister_memory(agent.register_memory([memory.reg()], "DRAM"))
    with pytest.raises(b.nixlNotFoundError, match="no backend"):
        new_agent(backends=[]).register_memory([memory.reg()], "DRAM")


def test_metadata(rng):
    made = Pair(rng, 4096)
    a, c = made.a, made.b
    assert a.check_remote_metadata(c.name) and not a.check_remote_metadata("nobody")
    assert a.check_remote_metadata(c.name, a.get_xfer_descs([(made.there.addr, 4096, 0)], "DRAM"))
    assert not a.check_remote_metadata(c.name, a.get_xfer_descs([(made.there.addr, 4097, 0)], "DRAM"))
    assert c.add_remote_agent(a.get_agent_metadata()) == a.name.encode()
    for junk in (b"", b"junk", rng.randbytes(500), a.get_agent_metadata()[:-3]):
        with pytest.raises(b.nixlMismatchError):
            c.add_remote_agent(junk)
    a.remove_remote_agent(c.name)
    a.remove_remote_agent(c.name)
    assert not a.check_remote_metadata(c.name)
    with pytest.raises(b.nixlNotFoundError):
        a.send_notif(c.name, b"")


def test_partial_metadata(rng):
    agent, peer = new_agent(), new_agent()
    memories = [Memory(rng.randbytes(128)) for _ in range(2)]
    regs = [peer.register_memory([each.reg()], "DRAM") for each in memories]
    has = lambda memory: agent.check_remote_metadata(peer.name, agent.get_xfer_descs([(memory.addr, 128, 0)], "DRAM"))
    agent.add_remote_agent(peer.get_partial_agent_metadata(regs[0], True))
    assert has(memories[0]) and not has(memories[1])
    agent.add_remote_agent(peer.get_partial_agent_metadata(regs[1]))
    assert has(memories[0]) and has(memories[1])


def test_exchange_by_address(capfd, monkeypatch, rng):
    monkeypatch.setenv("NIXL_LOG_LEVEL", "INFO")
    listener, other = new_agent(enable_listen_thread=True, listen_port=0), new_agent()
    port = int(capfd.readouterr().err.split("MD listener is listening on port ")[1].split()[0])
    memory = Memory(rng.randbytes(64))
    listener.register_memory([memory.reg()], "DRAM")
    other.fetch_remote_metadata(listener.name, "127.0.0.1", port)
    other.send_local_metadata("127.0.0.1", port)
    until("metadata of the listener", lambda: other.check_remote_metadata(listener.name))
    until("metadata of the other", lambda: listener.check_remote_metadata(other.name))
    other.invalidate_local_metadata("127.0.0.1", port)
    until("end of the other", lambda: not listener.check_remote_metadata(other.name))
    with pytest.raises(b.nixlInvalidParamError, match="NIXL_TCPSTORE_ENDPOINT"):
        other.send_local_metadata()
    with pytest.raises(ValueError, match="port"):
        other.send_local_metadata("127.0.0.1", 0)


def test_exceptions_are_what_programs_catch():
    names = [name for name in dir(b) if name.endswith("Error") and name.startswith("nixl")]
    assert len(names) == 12
    for name in names:
        assert getattr(b, name).__bases__ == (Exception,) and getattr(b, name).__module__ == "nixl._bindings"


def test_names_are_text():
    with pytest.raises(ValueError, match="text"):
        b.nixlAgent(b"\xff", b.nixlAgentConfig())
    with pytest.raises(TypeError, match="str or bytes"):
        b.nixlAgent(3, b.nixlAgentConfig())


def test_memory_is_free_when_its_agent_is_gone(rng):
    made = Pair(rng, 4096)
    lists = [made.a.get_xfer_descs([(m.addr, 4096, 0)], "DRAM") for m in (made.here, made.there)]
    handle = made.a.initialize_xfer("WRITE", *lists, made.b.name)
    finish(made.a, handle)
    made.b = None
    gc.collect()
    made.there.content.raw = kept = rng.randbytes(4096)
    with pytest.raises((b.nixlNotFoundError, b.nixlRemoteDisconnectError, b.nixlBackendError), match="NIXL_ERR_"):
        finish(made.a, handle)
    assert made.there.bytes() == kept
