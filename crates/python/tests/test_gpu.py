"""Tensors of a GPU, by both interfaces; skipped where there is none."""

import os

import pytest
from conftest import Child, finish

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

import warpverbs  # noqa: E402
from warpverbs.nixl import nixl_agent, nixl_agent_config  # noqa: E402

BLOCKS, SIZE = 1024, 4096


def pool(seed):
    """A paged cache of random bytes on the GPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (BLOCKS, SIZE), dtype=torch.uint8, generator=generator).cuda()


def test_own_interface_between_two_agents():
    torch.cuda.init()
    with warpverbs.Agent("a") as a, warpverbs.Agent("b") as b:
        here, there = pool(1), pool(2)
        ours, theirs = a.register(here, "pool"), b.register(there, "pool")
        a.load(b.metadata())
        remote = a.remote("b", "pool")
        order = torch.randperm(BLOCKS)[:256].tolist()
        mine, far = a.prepare(ours.blocks(SIZE)), a.prepare(remote.blocks(SIZE))
        a.transfer("read", mine, far, list(range(256)), order).post().wait(30)
        assert torch.equal(here[:256].cpu(), there[order].cpu())
        print(a.explain(ours, remote))
        ours.close()
        theirs.close()


TARGET = """
import sys, torch
sys.path.insert(0, sys.argv[2])
from test_gpu import pool
from warpverbs.nixl import nixl_agent
agent, cache = nixl_agent("target"), pool(int(sys.argv[1]))
agent.register_memory(cache)
print(cache.data_ptr(), agent.get_agent_metadata().hex(), flush=True)
sys.stdin.read()
"""


def target(seed):
    """Another process with a pool of this seed."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return Child(TARGET, str(seed), folder, env={**os.environ, "NIXL_LOG_LEVEL": "ERROR"})


def test_blocks_of_another_process_by_nixl(rng):
    seed = rng.randrange(1 << 31)
    with target(seed) as other:
        addr, metadata = other.line().split()
        agent, cache = nixl_agent("initiator", nixl_agent_config(capture_telemetry=True)), pool(7)
        registered = agent.register_memory(cache)
        name = agent.add_remote_agent(bytes.fromhex(metadata))
        device = cache.get_device()
        rows = lambda base: [(base + i * SIZE, SIZE, device) for i in range(BLOCKS)]
        local = agent.prep_xfer_dlist("", rows(cache.data_ptr()), "VRAM")
        remote = agent.prep_xfer_dlist(name, rows(int(addr)), "VRAM")
        order = torch.randperm(BLOCKS)[:500].tolist()
        handle = agent.make_prepped_xfer("READ", local, list(range(500)), remote, order)
        finish(agent, handle)
        assert torch.equal(cache[:500].cpu(), pool(seed)[order].cpu())
        took = []
        for _ in range(20):
            finish(agent, handle)
            took.append(agent.get_xfer_telemetry(handle).xferDuration)
        cost = agent.get_xfer_telemetry(handle)
        print(f"500 x 4 KiB, GPU to GPU: {sorted(took)[10]} us, paths {cost.paths}")
        agent.deregister_memory(registered)
        cache.fill_(3)
        with pytest.raises(Exception, match="NOT_FOUND"):
            agent.transfer(handle)
        assert (cache == 3).all()


def test_gpu_and_host_memory_in_one_agent():
    a, b = nixl_agent("a"), nixl_agent("b")
    device, host = pool(1), torch.zeros((BLOCKS, SIZE), dtype=torch.uint8)
    b.register_memory(device)
    a.register_memory(host)
    a.add_remote_agent(b.get_agent_metadata())
    handle = a.initialize_xfer("READ", a.get_xfer_descs(host), a.get_xfer_descs(device), "b")
    finish(a, handle)
    assert torch.equal(host, device.cpu())
    # The host first, a GPU later, in one agent.
    late = pool(9)
    a.register_memory(late)
    handle = a.initialize_xfer("WRITE", a.get_xfer_descs(late), a.get_xfer_descs(device), "b")
    finish(a, handle)
    assert torch.equal(late.cpu(), device.cpu())


def test_wrong_gpu_memory_is_refused():
    a = nixl_agent("a")
    host = torch.zeros(64)
    with pytest.raises(Exception, match="NIXL_ERR"):
        a.register_memory([(host.data_ptr(), 64, 0, "")], "VRAM")
    with pytest.raises(Exception, match="NIXL_ERR"):
        a.register_memory([(torch.zeros(64).cuda().data_ptr(), 256, 99, "")], "VRAM")
