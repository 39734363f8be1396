"""Peers that are killed, stopped or started again under their name and address, in both interfaces: no call hangs, the error
names the peer, new metadata heal, and no reference, descriptor, thread or mapping is left behind. `WARPVERBS_RUNS` multiplies them."""

import gc
import hashlib
import os
import random
import signal
import socket
import sys
import time
import tracemalloc
from pathlib import Path

import numpy
import pytest
from conftest import DEADLINE, SEED, Child, stop

import warpverbs
from warpverbs.nixl import _bindings, nixl_agent

RUNS = int(os.environ.get("WARPVERBS_RUNS", "10"))
SMALL, LARGE = 1 << 16, 64 << 20
# From this run on nothing may be added: what is made once has been made.
WARM = 4

# Registers memory, says where it is and its metadata, and for each line the hash of its bytes.
TARGET = """
import ctypes, hashlib, sys
front, size, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
memory = bytearray(size)
addr = ctypes.addressof((ctypes.c_char * size).from_buffer(memory))
if front == "own":
    import warpverbs
    agent = warpverbs.Agent("target", listen=f"127.0.0.1:{port}")
    held = agent.register(memory, "data")
    metadata = agent.metadata()
else:
    from warpverbs.nixl import nixl_agent, nixl_agent_config
    agent = nixl_agent("target", nixl_agent_config(enable_listen_thread=True, listen_port=port))
    held = agent.register_memory([(addr, size, 0, b"")], "DRAM")
    metadata = agent.get_agent_metadata()
print(addr, metadata.hex(), flush=True)
for line in sys.stdin:
    print(hashlib.sha256(memory).hexdigest(), flush=True)
"""


class Target(Child):
    """A process with an agent called "target", which listens at a port, if one is given."""

    def __init__(self, front, size, port=0):
        env = {**os.environ, "NIXL_LOG_LEVEL": "ERROR"}
        env.pop("WARPVERBS_REQUIRE", None)
        super().__init__(TARGET, front, str(size), str(port), env=env)
        addr, metadata = self.line().split()
        self.addr, self.metadata, self.size, self.port = int(addr), bytes.fromhex(metadata), size, port

    def hash(self):
        return self.ask("hash").strip()


class Own:
    """An agent of the package's own interface that writes an array to a target."""

    name, lost = "own", warpverbs.PeerLost

    def __init__(self, path):
        self.agent = warpverbs.Agent("a", require=path, deadline=DEADLINE)

    def register(self, array):
        self.memory = self.agent.register(array)

    def deregister(self):
        self.memory.close()
        del self.memory

    def meet(self, target):
        assert self.agent.load(target.metadata) == "target"
        remote = self.agent.remote("target", "data")
        return self.agent.transfer("write", self.memory[:], remote[:])

    def post(self, write):
        write.post(timeout=DEADLINE)

    def wait(self, write, timeout=DEADLINE):
        write.wait(timeout)

    def release(self, write):
        write.cancel()

    def knows(self):
        return self.agent.knows("target")

    def close(self):
        self.agent.close()


class Nixl:
    """The same by NIXL's interface."""

    name, lost = "nixl", _bindings.nixlRemoteDisconnectError

    def __init__(self, path):
        os.environ["WARPVERBS_REQUIRE"] = path.replace(" ", "-")
        try:
            self.agent = nixl_agent("a")
            # It is made at its first use.
            self.agent.get_agent_metadata()
        finally:
            del os.environ["WARPVERBS_REQUIRE"]

    def register(self, array):
        self.row = (array.ctypes.data, array.nbytes, 0)
        self.memory = self.agent.register_memory([(*self.row, b"")], "DRAM")

    def deregister(self):
        self.agent.deregister_memory(self.memory)
        del self.memory

    def meet(self, target):
        assert self.agent.add_remote_agent(target.metadata) == b"target"
        here = self.agent.get_xfer_descs([self.row], "DRAM")
        there = self.agent.get_xfer_descs([(target.addr, target.size, 0)], "DRAM")
        return self.agent.initialize_xfer("WRITE", here, there, "target")

    def post(self, write):
        self.agent.transfer(write)

    def wait(self, write, timeout=DEADLINE):
        end = time.monotonic() + timeout
        while self.agent.check_xfer_state(write) != "DONE":
            if time.monotonic() > end:
                raise TimeoutError("in progress")

    def release(self, write):
        self.agent.release_xfer_handle(write)

    def knows(self):
        return self.agent.check_remote_metadata("target")

    def close(self):
        self.agent = None


FRONTS = pytest.mark.parametrize("front", [Own, Nixl], ids=["own", "nixl"])


def until_lost(front, write, posted=False):
    """Waits and posts until the peer's end is an error, which must name the peer."""
    end = time.monotonic() + DEADLINE
    with pytest.raises(front.lost, match="target"):
        while time.monotonic() < end:
            if not posted:
                front.post(write)
            posted = False
            front.wait(write)
    assert not front.knows()


def free_port(rng):
    """A port that the system gives to no connection by itself."""
    for _ in range(100):
        with socket.socket() as one:
            try:
                port = rng.randrange(10_000, 30_000)
                one.bind(("", port))
                return port
            except OSError:
                continue
    raise AssertionError("100 ports are taken")


def counted():
    """Descriptors, threads and mappings of this process."""
    folder = Path("/proc/self")
    maps = len((folder / "maps").read_bytes().splitlines())
    return len(os.listdir(folder / "fd")), len(os.listdir(folder / "task")), maps


def allocated():
    """Bytes of Python's objects that were made in the package's files or in this one, since tracemalloc began."""
    gc.collect()
    ours = [tracemalloc.Filter(True, "*/warpverbs/*"), tracemalloc.Filter(True, __file__)]
    snapshot = tracemalloc.take_snapshot().filter_traces(ours)
    return sum(one.size for one in snapshot.statistics("filename"))


def moved(front, target, array):
    """Writes all bytes, and looks whether they came; the write, which can be posted again."""
    write = front.meet(target)
    front.post(write)
    front.wait(write)
    assert target.hash() == hashlib.sha256(array).hexdigest()
    return write


def one_run(front, rng, way):
    """A peer that goes while it is written to, in one of three ways, and what it leaves in this process."""
    array = numpy.frombuffer(bytearray(rng.randbytes(SMALL)), dtype=numpy.uint8)
    references = sys.getrefcount(array)
    front.register(array)
    with Target(front.name, SMALL, free_port(rng)) as target:
        write = moved(front, target, array)
        if way == "stopped":
            stop(target.process.pid)
        if way == "restarted":
            # Its successor is met while it still runs.
            with Target(front.name, SMALL) as successor:
                second = moved(front, successor, array)
                with pytest.raises(Exception, match="target"):
                    front.post(write)
                    front.wait(write)
        else:
            time.sleep(rng.random() * 0.01)
            target.process.kill()
            until_lost(front, write)
            with Target(front.name, SMALL, target.port) as successor:
                second = moved(front, successor, array)
    front.release(second)
    del second
    front.release(write)
    del write
    front.deregister()
    assert sys.getrefcount(array) == references


@FRONTS
@pytest.mark.timeout(120 + 8 * RUNS)
def test_peers_that_are_killed_leave_nothing_behind(front):
    rng = random.Random(f"{SEED} kills {front.name}")
    agents = {path: front(path) for path in ("process copy", "tcp")}
    ways = [(way, path) for way in ("killed", "stopped", "restarted") for path in agents]
    try:
        for run in range(max(RUNS, WARM + 1)):
            if run == WARM:
                tracemalloc.start()
                before, began = counted(), allocated()
            way, path = ways[run % len(ways)]
            one_run(agents[path], rng, way)
        grown = allocated() - began
        # Of the last peers, some are still about to be closed.
        most = [count + more for count, more in zip(before, (4, 2, 40))]
        end = time.monotonic() + DEADLINE
        while any(now > limit for now, limit in zip(counted(), most)):
            assert time.monotonic() < end, (before, counted())
            time.sleep(0.05)
    finally:
        tracemalloc.stop()
        [agent.close() for agent in agents.values()]
    # Of any number of runs no more than of a few: 200 runs must not keep 200 bytes each.
    assert grown < 16 << 10, f"{grown} bytes more"


def large(rng):
    array = numpy.frombuffer(bytearray(LARGE), dtype=numpy.uint8)
    array[:] = numpy.random.default_rng(rng.randrange(1 << 32)).integers(0, 256, LARGE, dtype=numpy.uint8)
    return array


@FRONTS
@pytest.mark.parametrize("path", ["process copy", "tcp"])
@pytest.mark.timeout(300)
def test_a_peer_that_is_killed_during_a_large_write(front, path):
    rng = random.Random(f"{SEED} large {front.name} {path}")
    agent, array = front(path), large(rng)
    references = sys.getrefcount(array)
    agent.register(array)
    for _ in range(3):
        with Target(front.name, LARGE) as target:
            write = agent.meet(target)
            agent.post(write)
            time.sleep(rng.random() * 0.02)
            target.process.kill()
            until_lost(agent, write, posted=True)
            agent.release(write)
            del write
    # One that comes after it under its name has all bytes.
    with Target(front.name, LARGE) as target:
        write = moved(agent, target, array)
        agent.release(write)
        del write
    agent.deregister()
    assert sys.getrefcount(array) == references
    agent.close()


@FRONTS
@pytest.mark.timeout(300)
def test_a_peer_that_is_stopped_during_a_large_write_and_killed(front):
    rng = random.Random(f"{SEED} stopped {front.name}")
    agent, array = front("tcp"), large(rng)
    references = sys.getrefcount(array)
    agent.register(array)
    with Target(front.name, LARGE) as target:
        write = agent.meet(target)
        agent.post(write)
        agent.wait(write)
        stop(target.process.pid)
        agent.post(write)
        with pytest.raises(TimeoutError, match="in progress"):
            agent.wait(write, 0.3)
        if rng.random() < 0.5:
            os.kill(target.process.pid, signal.SIGCONT)
            agent.wait(write)
            assert target.hash() == hashlib.sha256(array).hexdigest()
            stop(target.process.pid)
            agent.post(write)
        target.process.kill()
        until_lost(agent, write, posted=True)
        agent.release(write)
        del write
    agent.deregister()
    assert sys.getrefcount(array) == references
    agent.close()
