"""The plugin POSIX: files by descriptor and by path, as storage tiers of inference engines use it."""

import os

import pytest

from conftest import Memory, finish, new_agent
from warpverbs.nixl import _bindings as b

SIZE = 1 << 16


@pytest.fixture
def agent():
    return new_agent(backends=["POSIX"])


def test_blocks_go_to_files_and_back(rng, agent, tmp_path):
    memory, block = Memory(rng.randbytes(SIZE)), 4096
    content = memory.bytes()
    files = [os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT) for number in range(2)]
    regs = [
        agent.register_memory([memory.reg()], "DRAM"),
        agent.register_memory([(0, SIZE, file, "") for file in files], "FILE"),
    ]
    count = SIZE // block
    order = rng.sample(range(count), count)
    here = agent.get_xfer_descs([(memory.addr + k * block, block, 0) for k in order], "DRAM")
    places = [(rng.randrange(2), k * block) for k in range(count)]
    there = agent.get_xfer_descs([(offset, block, files[file]) for file, offset in places], "FILE")
    handle = agent.initialize_xfer("WRITE", here, there, agent.name, backends=["POSIX"])
    finish(agent, handle)
    for k, (file, offset) in zip(order, places):
        assert os.pread(files[file], block, offset) == content[k * block : (k + 1) * block]
    memory.content.raw = rng.randbytes(SIZE)
    finish(agent, agent.initialize_xfer("READ", here, there, agent.name))
    assert memory.bytes() == content
    assert agent.query_xfer_backend(handle) == "POSIX"
    handle.release()
    for reg in regs:
        agent.deregister_memory(reg)
    for file in files:
        os.close(file)


def test_prepared_files(rng, agent, tmp_path):
    memory, block = Memory(rng.randbytes(SIZE)), 512
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    agent.register_memory([memory.reg()], "DRAM")
    agent.register_memory([(0, SIZE, file, "")], "FILE")
    count = SIZE // block
    left = agent.prep_xfer_dlist("", [(memory.addr + k * block, block, 0) for k in range(count)], "DRAM")
    right = agent.prep_xfer_dlist(agent.name, [(k * block, block, file) for k in range(count)], "FILE")
    picked, to = rng.sample(range(count), 20), rng.sample(range(count), 20)
    finish(agent, agent.make_prepped_xfer("WRITE", left, picked, right, to))
    for k, place in zip(picked, to):
        assert os.pread(file, block, place * block) == memory.bytes()[k * block : (k + 1) * block]
    os.close(file)


def test_files_are_asked(agent, tmp_path):
    path = tmp_path / "there"
    path.write_bytes(b"x" * 77)
    found = agent.query_memory([(0, 0, 0, str(path)), (0, 0, 0, str(tmp_path / "not"))], "POSIX", "FILE")
    assert found[0]["size"] == "77" and set(found[0]) == {"size", "mode", "mtime"} and found[1] is None
    assert agent.query_memory(b.nixlRegDList(b.FILE_SEG), "POSIX") == []


def test_a_failure_names_what_failed(rng, agent, tmp_path):
    memory = Memory(rng.randbytes(4096))
    (tmp_path / "file").write_bytes(b"")
    file = os.open(tmp_path / "file", os.O_RDONLY)
    agent.register_memory([memory.reg()], "DRAM")
    agent.register_memory([(0, 4096, file, "")], "FILE")
    here = agent.get_xfer_descs([(memory.addr, 4096, 0)], "DRAM")
    there = agent.get_xfer_descs([(0, 4096, file)], "FILE")
    with pytest.raises(b.nixlNotAllowedError, match="reading alone"):
        agent.initialize_xfer("WRITE", here, there, agent.name)
    # The file is empty: there is nothing to be read.
    with pytest.raises(b.nixlBackendError, match="NIXL_ERR_BACKEND: .+"):
        finish(agent, agent.initialize_xfer("READ", here, there, agent.name))
    os.close(file)
    with pytest.raises(b.nixlNotFoundError):
        agent.initialize_xfer("READ", here, agent.get_xfer_descs([(8192, 1, file)], "FILE"), agent.name)
