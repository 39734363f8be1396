"""Memory of Python's objects: what can be registered, what is refused, what keeps it."""

import array
import ctypes
import gc
import mmap
import sys
import weakref

import numpy
import pytest

import warpverbs


@pytest.fixture
def agent():
    with warpverbs.Agent("owner") as made:
        yield made


@pytest.fixture
def peer(agent):
    with warpverbs.Agent("peer") as made:
        yield made


def read_all(agent, peer, memory):
    """All bytes of `memory` of `agent`, as `peer` reads them."""
    peer.load(agent.metadata())
    into = numpy.zeros(memory.nbytes, dtype=numpy.uint8)
    with peer.register(into) as mine:
        remote = peer.remote("owner", memory.label)
        peer.read(mine[:], remote[:]).wait(10)
    return into.tobytes()


class OnlyDlpack:
    """A tensor of a library that has nothing else."""

    def __init__(self, value):
        self.value = value

    def __dlpack__(self, *args, **kwargs):
        return self.value.__dlpack__(*args, **kwargs)


def made(kind, data):
    if kind == "numpy":
        return numpy.frombuffer(bytearray(data), dtype=numpy.uint8)
    if kind == "numpy float32":
        return numpy.frombuffer(bytearray(data), dtype=numpy.float32).reshape(-1, 16)
    if kind == "numpy transposed":
        return numpy.frombuffer(bytearray(data), dtype=numpy.int16).reshape(64, -1).T
    if kind == "bytearray":
        return bytearray(data)
    if kind == "memoryview":
        return memoryview(bytearray(data)).cast("H")
    if kind == "array":
        return array.array("d", data)
    if kind == "ctypes":
        return (ctypes.c_char * len(data)).from_buffer(bytearray(data))
    if kind == "dlpack":
        return OnlyDlpack(numpy.frombuffer(bytearray(data), dtype=numpy.int64))
    if kind == "mmap":
        pages = mmap.mmap(-1, len(data))
        pages[:] = data
        return pages
    raise AssertionError(kind)


KINDS = [
    "numpy", "numpy float32", "numpy transposed", "bytearray", "memoryview", "array", "ctypes", "dlpack", "mmap",
]


@pytest.mark.parametrize("kind", KINDS)
def test_objects_are_registered_by_their_memory(agent, peer, kind):
    data = numpy.random.default_rng().bytes(4096)
    held = made(kind, data)
    memory = agent.register(held, kind)
    assert memory.nbytes == len(data)
    assert read_all(agent, peer, memory) == data
    memory.close()


def test_a_torch_tensor_is_registered(agent, peer):
    torch = pytest.importorskip("torch")
    data = torch.randint(0, 256, (64, 64), dtype=torch.uint8)
    memory = agent.register(data, "tensor")
    assert read_all(agent, peer, memory) == data.numpy().tobytes()
    with pytest.raises(ValueError, match="not contiguous"):
        agent.register(data[:, ::2])


@pytest.mark.parametrize(
    ("what", "error", "text"),
    [
        (b"constant", ValueError, "read-only"),
        (numpy.zeros(8)[::2], ValueError, "not contiguous"),
        (numpy.zeros(0), ValueError, "0 bytes"),
        (bytearray(), ValueError, "0 bytes"),
        (17, TypeError, "no memory that can be registered"),
        (None, TypeError, "NoneType"),
        ("text", TypeError, "no memory"),
    ],
)
def test_what_is_no_writable_memory_is_refused(agent, what, error, text):
    with pytest.raises(error, match=text):
        agent.register(what)


def test_a_constant_array_is_refused(agent):
    constant = numpy.zeros(64)
    constant.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        agent.register(constant)


class Liar:
    """Describes memory that nothing has."""

    def __init__(self, **interface):
        good = {"shape": (8,), "typestr": "|u1", "data": (4096, False), "version": 3}
        self.__array_interface__ = {**good, **interface}


@pytest.mark.parametrize(
    "interface",
    [
        {"shape": (2**63, 4)},
        {"shape": "wrong"},
        {"shape": (-1,)},
        {"typestr": "x"},
        {"data": None},
        {"data": (0, False)},
        {"strides": (1, 1)},
    ],
)
def test_wrong_interfaces_are_exceptions(agent, interface):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        agent.register(Liar(**interface))


def test_registered_memory_keeps_its_object(agent, peer):
    class Owned(numpy.ndarray):
        pass

    held = numpy.arange(4096, dtype=numpy.uint8).view(Owned)
    data, gone = held.tobytes(), weakref.ref(held)
    memory = agent.register(held, "held")
    del held
    gc.collect()
    assert gone() is not None
    assert read_all(agent, peer, memory) == data
    memory.close()
    gc.collect()
    assert gone() is None


def test_what_is_registered_is_not_resized(agent):
    buffer = bytearray(64)
    memory = agent.register(buffer)
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    memory.close()
    buffer.extend(b"more")


def test_references_are_given_back(agent):
    held = numpy.zeros(4096, dtype=numpy.uint8)
    before = sys.getrefcount(held)
    for _ in range(100):
        agent.register(held).close()
    gc.collect()
    assert sys.getrefcount(held) == before


def test_blocks_are_those_that_were_asked_for(agent):
    memory = agent.register(bytearray(1000))
    assert len(memory.blocks(100)) == 10
    assert len(memory.blocks(100, offset=1)) == 9
    assert len(memory.blocks(100, stride=300)) == 4
    assert memory.blocks(100, 3).nbytes == 300
    assert memory[10:20].nbytes == 10
    assert memory[-10:].nbytes == 10
    assert len(memory.blocks_at([0, 5, 900], 100)) == 3
    assert len(memory.blocks_at(numpy.array([0, 5, 900]), 100)) == 3
    assert len(memory.blocks(100) + memory[0:1]) == 11
    listed = memory.blocks(100, 3, stride=200)
    assert warpverbs.Blocks.from_bytes(listed.to_bytes()) == listed
    import pickle

    assert pickle.loads(pickle.dumps(listed)) == listed
    assert repr(listed) == "<Blocks: 3 of owner, 300 bytes>"
    for wrong in [
        lambda: memory.blocks(0),
        lambda: memory.blocks(1001),
        lambda: memory.blocks(100, 11),
        lambda: memory.blocks(100, 2**40),
        lambda: memory[5:5],
        lambda: memory[0:10:2],
        lambda: memory.blocks_at([901], 100),
        lambda: memory.blocks_at([-1], 100),
        lambda: memory.read(990, 11),
        lambda: memory.write(b"x" * 1001),
        lambda: warpverbs.Blocks.from_bytes(b"no list"),
    ]:
        with pytest.raises((ValueError, OverflowError)):
            wrong()
    with pytest.raises(ValueError):
        _ = listed + warpverbs.Agent("other").register(bytearray(8))[:]


def test_closed_memory_and_agents_say_so(agent):
    memory = agent.register(bytearray(64), "short-lived")
    with memory:
        assert len(memory) == 64
    memory.close()
    with pytest.raises(RuntimeError, match="short-lived.*closed"):
        memory.blocks(8)
    assert "closed" in repr(memory)
    other = warpverbs.Agent("brief")
    other.close()
    with pytest.raises(RuntimeError, match="brief.*closed"):
        other.register(bytearray(8))
    assert "closed" in repr(other)


def test_memory_of_ours_is_an_array(agent, peer):
    memory = agent.alloc(4096, "alloc", host=True)
    view = numpy.asarray(memory)
    view[:] = numpy.random.default_rng().integers(0, 256, 4096, dtype=numpy.uint8)
    assert memory.read() == view.tobytes()
    memory.write(b"abc", 100)
    assert view[100:103].tobytes() == b"abc"
    assert read_all(agent, peer, memory) == view.tobytes()
    with pytest.raises(TypeError, match="registered memory already"):
        agent.register(memory)
    # The array outlives the registration.
    data = view.tobytes()
    memory.close()
    del memory
    gc.collect()
    assert view.tobytes() == data
