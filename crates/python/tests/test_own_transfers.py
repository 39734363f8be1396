"""Transfers of the package's own interface: posted, waited for, awaited, refused."""

import asyncio
import threading
import time

import numpy
import pytest

import warpverbs


@pytest.fixture
def pair():
    """Two agents with a MiB each, and the remote memory."""
    rng = numpy.random.default_rng()
    with warpverbs.Agent("a") as a, warpverbs.Agent("b") as b:
        here = rng.integers(0, 256, 1 << 20, dtype=numpy.uint8)
        there = rng.integers(0, 256, 1 << 20, dtype=numpy.uint8)
        ours, theirs = a.register(here, "ours"), b.register(there, "theirs")
        assert a.load(b.metadata()) == "b"
        yield a, b, here, there, ours, a.remote("b", "theirs"), theirs


def test_blocks_arrive_where_they_belong(pair):
    a, b, here, there, ours, remote, _ = pair
    expected = here.copy()
    for i in range(64):
        expected[i * 4096 : i * 4096 + 512] = there[i * 1024 : i * 1024 + 512]
    into, source = ours.blocks(512, 64, stride=4096), remote.blocks(512, 64, stride=1024)
    read = a.read(into, source, notify=b"64 \0 blocks")
    assert read.wait(10) is read and read.done
    assert (here == expected).all()
    assert b.wait_notification(10) == ("a", b"64 \0 blocks")
    assert read.telemetry().nbytes == read.nbytes == 64 * 512
    assert repr(read) == "<Transfer: read of 32768 bytes from b by same process, done>"

    local, far = a.prepare(ours.blocks(256)), a.prepare(remote.blocks(256))
    order = numpy.random.default_rng().permutation(4096)[:100]
    write = a.transfer("write", local, far, order, order[::-1].copy())
    with pytest.raises(warpverbs.BadInput, match="not been posted"):
        write.wait(1)
    expected = there.copy()
    for source, to in zip(order, order[::-1]):
        expected[to * 256 : to * 256 + 256] = here[source * 256 : source * 256 + 256]
    for _ in range(3):
        write.post().wait(10)
    assert (there == expected).all()


def test_transfers_are_awaited(pair):
    a, b, here, there, ours, remote, _ = pair

    async def several():
        writes = [
            a.write(ours[i * 1000 : i * 1000 + 1000], remote[i * 1000 : i * 1000 + 1000])
            for i in range(200)
        ]
        done = await asyncio.gather(*writes)
        assert done == writes
        # Again, in the same loop, and one at a time.
        for write in writes:
            await write.post()

    asyncio.run(several())
    asyncio.run(several())
    assert (there[:200_000] == here[:200_000]).all()


def test_a_failure_is_the_exception_of_an_await(pair):
    a, b, *_, ours, remote, theirs = pair

    async def failing():
        write = a.transfer("write", ours[:100], remote[:100])
        theirs.close()
        with pytest.raises(warpverbs.Deregistered, match="theirs"):
            await write.post()
        with pytest.raises(warpverbs.BadInput):
            await a.transfer("write", ours[:100], remote[:100])

    asyncio.run(failing())


def test_errors_say_who_and_what(pair):
    a, b, *_, ours, remote, _ = pair
    with pytest.raises(warpverbs.Unknown) as caught:
        a.remote("nobody", "x")
    assert caught.value.peer == "nobody" and isinstance(caught.value, LookupError)
    with pytest.raises(warpverbs.BadInput) as caught:
        a.read(ours[:10], remote[:11])
    assert caught.value.kind == "bad caller" and "10 bytes here, 11 at the peer" in str(caught.value)
    with pytest.raises(ValueError):
        a.load(b"no metadata")
    with pytest.raises(warpverbs.Timeout):
        a.wait_notification(0.01)
    with pytest.raises(TimeoutError):
        a.wait_notification(0.0)
    with pytest.raises(ValueError, match="expected one of same process"):
        warpverbs.Agent("c", require="pigeon")
    with pytest.raises(ValueError, match="HOST:PORT"):
        warpverbs.Agent("c", listen="nowhere")
    with pytest.raises(ValueError, match="seconds"):
        warpverbs.Agent("c", deadline=-1)
    with pytest.raises(warpverbs.BadInput, match="name"):
        warpverbs.Agent("")
    with pytest.raises(ValueError, match='"read" or "write"'):
        a.transfer("steal", ours[:1], remote[:1])
    with pytest.raises(TypeError):
        a.transfer("read", ours[:1], a.prepare(remote[:1]))


def test_a_path_that_is_required_is_taken_or_refused():
    with warpverbs.Agent("a", require="tcp") as a, warpverbs.Agent("b") as b:
        ours, theirs = a.register(bytearray(1 << 20)), b.register(bytearray(b"x" * (1 << 20)))
        a.load(b.metadata())
        explained = a.explain(ours, a.remote("b"))
        assert explained.path == "TCP" and explained.rate > 0
        assert str(explained).startswith("TCP by 2 sockets")
        assert ("process copy", "excluded by the configuration") in explained.not_better
        assert theirs.nbytes == 1 << 20
        every = ["same process", "mapped_memory", "process-copy", "network", "tcp"]
        with warpverbs.Agent("c", without=every) as c:
            c.load(b.metadata())
            mine = c.register(bytearray(8))
            with pytest.raises(warpverbs.NoPath, match="excluded by the configuration"):
                c.read(mine[:], c.remote("b")[:8])


def test_a_wait_leaves_the_interpreter_to_others(pair):
    a, *_ = pair
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        with pytest.raises(warpverbs.Timeout):
            a.wait_notification(0.3)
        assert counted[0] > 1000
    finally:
        stop.set()
        thread.join()


def test_progress_is_told(pair):
    a, b, *_ = pair
    # A path that takes a while: its peer's sockets, and memory that is long.
    with warpverbs.Agent("far", require="tcp") as far:
        far.load(b.metadata())
        mine = far.register(bytearray(1 << 20))
        seen = []
        read = far.transfer("read", mine[:], far.remote("b", "theirs")[:])
        assert read.moved == 0
        read.post().wait(10, progress=lambda done, total: seen.append((done, total)))
        assert seen[-1] == (1 << 20, 1 << 20) and read.moved == read.nbytes
        assert all(later[0] >= earlier[0] for earlier, later in zip(seen, seen[1:]))
        assert {total for _, total in seen} == {1 << 20}


def test_threads_share_an_agent(pair):
    a, _, here, there, ours, remote, _ = pair
    failed = []

    def work(i):
        try:
            at = slice(i * 1000, i * 1000 + 1000)
            for _ in range(50):
                a.write(ours[at], remote[at]).wait(10)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failed
    assert (there[:8000] == here[:8000]).all()


def test_metadata_by_address_need_a_token():
    with warpverbs.Agent("a", token=b"secret") as a, warpverbs.Agent("b", token=b"secret") as b:
        memory = b.register(bytearray(b"0123456789"), "ten")
        assert a.fetch(b.address) == "b"
        a.send(b.address)
        assert b.knows("a") and a.remote("b", "ten").nbytes == memory.nbytes
        with warpverbs.Agent("c") as c, pytest.raises(warpverbs.Error, match="token"):
            c.fetch(b.address)
    began = time.monotonic()
    with warpverbs.Agent("d", token=b"secret") as d, pytest.raises(warpverbs.Error):
        d.fetch("127.0.0.1:1", timeout=0.2)
    assert time.monotonic() - began < 10


def test_the_example_of_the_package_runs():
    import doctest

    found = doctest.testmod(warpverbs)
    assert found.attempted > 0 and found.failed == 0
