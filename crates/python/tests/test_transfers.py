"""Transfers of both layers, against a model in Python."""

import pytest

from conftest import Memory, Pair, finish, new_agent, until
from warpverbs.nixl import _bindings as b


def blocks(rng, memory, count, length):
    """Addresses of blocks that do not overlap, in random order, and their offsets."""
    places = rng.sample(range(memory.size // length), count)
    return [place * length for place in places], [(memory.addr + place * length, length, 0) for place in places]


def index_array(rng, np, order):
    """Of any type, in order or with gaps."""
    gaps = rng.choice([1, 3])
    whole = np.zeros(gaps * len(order), rng.choice(["i4", "u4", "i8", "u8", "u2", ">i4", ">u8"]))
    whole[::gaps] = order
    return whole[::gaps]


@pytest.mark.parametrize("op", ["READ", "WRITE"])
@pytest.mark.parametrize("way", ["lists", "prepared", "arrays"])
def test_blocks_arrive(rng, pair, op, way):
    length, count = rng.choice([1, 3, 64, 256]), rng.randrange(1, 60)
    here, local = blocks(rng, pair.here, count, length)
    there, remote = blocks(rng, pair.there, count, length)
    mine, theirs = pair.here.bytes(), pair.there.bytes()
    a, name = pair.a, pair.b.name
    order = list(range(count))
    if way == "lists":
        handle = a.initialize_xfer(op, a.get_xfer_descs(local, "DRAM"), a.get_xfer_descs(remote, "DRAM"), name)
    else:
        if way == "arrays":
            np = pytest.importorskip("numpy")
            local, remote = np.array(local, "i8"), np.array(remote, "u8")
        rng.shuffle(order)
        indices = index_array(rng, np, order) if way == "arrays" else order
        left = a.prep_xfer_dlist(rng.choice(["", "NIXL_INIT_AGENT"]), local, "DRAM")
        right = a.prep_xfer_dlist(rng.choice([name, name.encode()]), remote, "DRAM")
        handle = a.make_prepped_xfer(op, left, indices, right, indices)
    finish(a, handle)
    source, target = (mine, bytearray(theirs)) if op == "WRITE" else (theirs, bytearray(mine))
    for k in order:
        from_, to = (here[k], there[k]) if op == "WRITE" else (there[k], here[k])
        target[to : to + length] = source[from_ : from_ + length]
    changed, kept = (pair.there, pair.here) if op == "WRITE" else (pair.here, pair.there)
    assert changed.bytes() == bytes(target) and kept.bytes() == source
    a.release_xfer_handle(handle)
    a.release_xfer_handle(handle)


@pytest.mark.parametrize("dtype", ["u8", "i8"])
def test_strided_arrays(rng, pair, dtype):
    np = pytest.importorskip("numpy")
    length, stride, count, runs = 32, 48, 20, 3
    local, remote, pairs = [], [], []
    for run in range(runs):
        start = run * 2048
        local.append((pair.here.addr + start, length, 0, stride, count))
        remote.append((pair.there.addr + start + 16, length, 0, stride + 8, count))
        pairs += [(start + k * stride, start + 16 + k * (stride + 8)) for k in range(count)]
    left = pair.a.prep_xfer_dlist("", np.array(local, dtype), "DRAM")
    right = pair.a.prep_xfer_dlist(pair.b.name, np.array(remote, dtype), "DRAM")
    picked = rng.sample(range(runs * count), 25)
    expected = bytearray(pair.there.bytes())
    for k in picked:
        expected[pairs[k][1] : pairs[k][1] + length] = pair.here.bytes()[pairs[k][0] : pairs[k][0] + length]
    finish(pair.a, pair.a.make_prepped_xfer("WRITE", left, picked, right, picked))
    assert pair.there.bytes() == bytes(expected)
    with pytest.raises(ValueError, match="mem_type"):
        pair.a.prep_xfer_dlist("", np.array(local, dtype))


def test_notifications(rng, pair):
    a, c = pair.a, pair.b
    message = rng.randbytes(200) + b"\0end"
    descs = [a.get_xfer_descs([(m.addr, 8, 0)], "DRAM") for m in (pair.here, pair.there)]
    handle = a.initialize_xfer("WRITE", *descs, c.name, b"of make")
    finish(a, handle)
    finish_with = a.transfer(handle, message)
    assert finish_with in ("DONE", "PROC")
    a.send_notif(c.name, "text ü")
    seen = []
    until("notifications", lambda: seen.extend(c.get_new_notifs().get(a.name, [])) or len(seen) == 3)
    assert sorted(seen) == sorted([b"of make", message, "text ü".encode()])
    for text in (b"one", b"", b"two"):
        a.send_notif(c.name, text)
    until("three more", lambda: len(c.update_notifs().get(a.name, [])) == 3)
    assert not c.check_remote_xfer_done(a.name, b"wo")
    assert c.check_remote_xfer_done(a.name, b"wo", tag_is_prefix=False)
    assert c.check_remote_xfer_done(a.name, b"") and c.check_remote_xfer_done(a.name, b"")
    assert not c.check_remote_xfer_done(a.name, b"")


def test_many_notifications_wait_for_a_receiver_that_never_looks(pair):
    # More than any window: a sender is not stopped by a receiver that does not look.
    for number in range(2000):
        pair.a.send_notif(pair.b.name, str(number))
    seen = []
    until("2000", lambda: seen.extend(pair.b.get_new_notifs().get(pair.a.name, [])) or len(seen) == 2000)
    assert seen == [str(number).encode() for number in range(2000)]


def test_states_and_misuse(pair):
    a = pair.a
    descs = [a.get_xfer_descs([(m.addr, 8, 0)], "DRAM") for m in (pair.here, pair.there)]
    handle = a.initialize_xfer("WRITE", *descs, pair.b.name)
    with pytest.raises(b.nixlNotPostedError, match="NIXL_ERR_NOT_POSTED: "):
        a.check_xfer_state(handle)
    finish(a, handle)
    assert a.check_xfer_state(handle) == "DONE" and a.query_xfer_backend(handle) == "UCX"
    with pytest.raises(b.nixlNoTelemetryError, match="capture_telemetry"):
        a.get_xfer_telemetry(handle)
    duration, margin, method = a.estimate_xfer_cost(handle)
    assert duration > 0 and margin >= 0 and method in ("ANALYTICAL_BACKEND", "UNKNOWN")
    handle.release()
    with pytest.raises(b.nixlInvalidParamError, match="no transfer"):
        a.check_xfer_state(handle)
    two = a.get_xfer_descs([(pair.here.addr, 8, 0), (pair.here.addr + 8, 8, 0)], "DRAM")
    short = a.get_xfer_descs([(pair.here.addr, 4, 0)], "DRAM")
    for local, remote, peer, error in (
        (two, descs[1], pair.b.name, b.nixlInvalidParamError),
        (short, descs[1], pair.b.name, b.nixlInvalidParamError),
        (descs[0], descs[1], "nobody", b.nixlNotFoundError),
        (descs[0], a.get_xfer_descs([(64, 8, 0)], "DRAM"), pair.b.name, b.nixlNotFoundError),
        (a.get_xfer_descs([((1 << 64) - 4, 8, 0)], "DRAM"), descs[1], pair.b.name, b.nixlInvalidParamError),
    ):
        with pytest.raises(error):
            a.initialize_xfer("WRITE", local, remote, peer)
    with pytest.raises(KeyError):
        a.initialize_xfer("WR", *descs, pair.b.name)
    with pytest.raises(KeyError):
        a.initialize_xfer("READ", *descs, pair.b.name, backends=["POSIX"])
    left = a.prep_xfer_dlist("", descs[0])
    right = a.prep_xfer_dlist(pair.b.name, descs[1])
    for indices in ([-1], [1], [1 << 40]):
        with pytest.raises(b.nixlInvalidParamError, match="index"):
            a.make_prepped_xfer("READ", left, indices, right, indices)
    np = pytest.importorskip("numpy")
    for dtype, value, error in (
        ("i4", -1, ValueError),
        ("i4", 1, b.nixlInvalidParamError),
        ("u4", (1 << 32) - 1, b.nixlInvalidParamError),
        ("i8", -1, b.nixlInvalidParamError),
        ("u8", 1 << 32, b.nixlInvalidParamError),
    ):
        with pytest.raises(error, match="index|negative"):
            a.make_prepped_xfer("READ", left, [0], right, np.array([value], dtype))
    with pytest.raises(b.nixlInvalidParamError):
        a.make_prepped_xfer("READ", left, [0], right, [0, 0])


def test_telemetry(rng):
    made = Pair(rng, 4096, capture_telemetry=True)
    descs = [made.a.get_xfer_descs([(m.addr, 100, 0), (m.addr + 200, 28, 0)], "DRAM") for m in (made.here, made.there)]
    handle = made.a.initialize_xfer("READ", *descs, made.b.name)
    finish(made.a, handle)
    cost = made.a.get_xfer_telemetry(handle)
    assert (cost.totalBytes, cost.descCount) == (128, 2) and cost.startTime > 1_700_000_000_000_000
    assert 0 < cost.postDuration <= cost.xferDuration and len(cost.paths) == 1
    made.close()


def test_lower_layer(rng):
    """The raw agent, as programs that leave the upper layer out call it."""
    one, two = b.nixlAgent("raw one", b.nixlAgentConfig()), b.nixlAgent("raw two", b.nixlAgentConfig(True, False))
    first, second = one.createBackend("UCX", {}), two.createBackend("UCX", {"num_threads": "4"})
    here, there = Memory(rng.randbytes(512)), Memory(rng.randbytes(512))
    for agent, memory, backend in ((one, here, first), (two, there, second)):
        descs = b.nixlRegDList(b.DRAM_SEG, [memory.reg("dead")])
        assert agent.registerMem(descs, [backend]) == b.NIXL_SUCCESS
    assert one.loadRemoteMD(two.getLocalMD()) == b"raw two"
    lists = [b.nixlXferDList(b.DRAM_SEG, [(m.addr, 512, 0)]) for m in (here, there)]
    left = one.prepXferDlist(lists[0], [first])
    right = one.prepXferDlist(agent_name="raw two", descs=lists[1])
    handle = one.makeXferReq(b.NIXL_WRITE, left, [0], right, [0], "n\0te", [first], True)
    status = one.postXferReq(handle)
    until("end", lambda: status == b.NIXL_SUCCESS or one.getXferStatus(handle) == b.NIXL_SUCCESS)
    notifs = until("notification", lambda: two.getNotifs({}))
    assert notifs == {"raw one": [b"n\0te"]} and there.bytes() == here.bytes()
    assert one.queryXferBackend(handle) == first
    assert one.checkRemoteMD("raw two", lists[1]) == b.NIXL_SUCCESS
    assert one.checkRemoteMD("raw two", b.nixlXferDList(b.DRAM_SEG, [(1, 1, 0)])) == b.NIXL_ERR_NOT_FOUND
    with pytest.raises(b.nixlInvalidParamError):
        one.registerMem(b.nixlRegDList(b.DRAM_SEG), [77])
    for arguments in ((), ("raw two",), ("raw two", lists[1], [], 3), ("raw two", b.DRAM_SEG, lists[1])):
        with pytest.raises(TypeError, match="prepXferDlist takes"):
            one.prepXferDlist(*arguments)
    with pytest.raises(TypeError, match="prepXferDlist takes"):
        one.prepXferDlist(lists[0], nonsense=1)
    assert one.releaseXferReq(handle) == b.NIXL_SUCCESS and one.releasedDlistH(left) == b.NIXL_SUCCESS
    assert one.invalidateRemoteMD("raw two") == b.NIXL_SUCCESS
    assert one.invalidateRemoteMD("raw two") == b.NIXL_ERR_NOT_FOUND
    with pytest.raises(b.nixlNotSupportedError):
        one.prepMemView(lists[0])


def test_handles_of_another_agent_are_refused(pair):
    other = new_agent()
    left = pair.a.prep_xfer_dlist("", [(pair.here.addr, 8, 0)], "DRAM")
    with pytest.raises(b.nixlInvalidParamError, match="no prepared list of this agent"):
        other.make_prepped_xfer("READ", left, [0], left, [0])
