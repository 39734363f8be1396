"""Counters of agents: as objects, by HTTP and in files."""

import urllib.request

import pytest

import warpverbs

SIZE = 1 << 16


@pytest.fixture
def used():
    """Two agents, one of which has read, written, failed and notified."""
    with warpverbs.Agent("a", deadline=20) as a, warpverbs.Agent("b", deadline=20) as b:
        ours, theirs = a.register(bytearray(SIZE)), b.register(bytearray(SIZE))
        a.load(b.metadata())
        remote = a.remote("b")
        for _ in range(3):
            a.read(ours[:100], remote[:100]).wait(20)
        a.write(ours[:], remote[:], notify=b"one").wait(20)
        a.notify("b", b"two")
        late = a.transfer("read", ours[:8], remote[:8])
        theirs.close()
        with pytest.raises(warpverbs.Deregistered):
            late.post().wait(20)
        yield a, b


def test_counters_tell_what_was_done(used):
    a, b = used
    counts = a.counters()
    moved = {one.op: one for one in counts.moved}
    assert {one.path for one in counts.moved} == {"same process"} and counts.chosen == {"same process": 1}
    assert (moved["read"].transfers, moved["read"].nbytes) == (3, 300)
    assert (moved["write"].transfers, moved["write"].nbytes) == (1, SIZE)
    assert all(0 < one.seconds < 20 for one in counts.moved)
    (failed,) = counts.undone
    assert (failed.op, failed.cause, failed.transfers) == ("read", "deregistered", 1)
    assert (counts.transfers, counts.nbytes, counts.failed) == (4, 300 + SIZE, 1)
    assert (counts.in_progress, counts.no_path) == (0, 0)
    assert (counts.registrations, counts.registered_bytes) == (1, SIZE)
    assert (counts.peers, counts.peers_lost, counts.connections_out) == (1, 0, 1)
    assert counts.notifications_sent == 2 and counts.agent == "a"
    theirs = b.counters()
    assert (theirs.registrations, theirs.transfers, theirs.connections_in) == (0, 0, 1)
    assert (theirs.notifications_received, theirs.notifications_waiting) == (2, 2)
    assert theirs.notifications_declined == 0 and theirs.moved == theirs.undone == []


def test_counters_print_themselves(used):
    counts = used[0].counters()
    whole = f'<Counters of "a": 4 transfers done, {300 + SIZE} bytes; 1 failed; 0 in progress>'
    assert repr(counts) == whole
    assert repr(counts.moved[0]).startswith("<Moved: 3 read by same process, 300 bytes, 0.")
    assert repr(counts.undone) == "[<Undone: 1 read by same process, deregistered>]"


def test_counters_are_of_their_moment_and_outlive_the_agent(used):
    a, _ = used
    before = a.counters()
    mine = a.register(bytearray(10))
    assert (before.registrations, a.counters().registrations) == (1, 2)
    mine.close()
    a.close()
    assert before.transfers == 4 and "agent_transfers_total" in before.to_prometheus()
    with pytest.raises(RuntimeError, match="closed"):
        a.counters()


def sample(text, name, **labels):
    """The value of a metric in Prometheus' text."""
    for line in text.splitlines():
        left, _, value = line.rpartition(" ")
        if left.startswith(f"warpverbs_agent_{name}{{") and all(f'{k}="{v}"' in left for k, v in labels.items()):
            return float(value)
    raise AssertionError(f"no {name} of {labels} in {text}")


def test_metrics_are_served():
    # A proxy of the environment has no business with loopback.
    http = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with warpverbs.Agent("served", metrics="127.0.0.1:0") as agent:
        assert agent.metrics_file is None
        page = f"http://{agent.metrics_address}/metrics"
        memory = agent.register(bytearray(1234))
        with http.open(page, timeout=20) as answer:
            text = answer.read().decode()
        assert sample(text, "registered_bytes", agent="served") == memory.nbytes == 1234
        assert text == agent.counters().to_prometheus()
        with pytest.raises(warpverbs.Error, match="in use"):
            warpverbs.Agent("second", metrics=agent.metrics_address)
    with pytest.raises(OSError):
        http.open(page, timeout=20)


def test_metrics_are_written(tmp_path):
    for given in (str(tmp_path / "text.prom"), tmp_path / "path.prom"):
        with warpverbs.Agent("written", metrics=given) as agent:
            assert str(agent.metrics_file) == str(given) and agent.metrics_address is None
            memory = agent.register(bytearray(77))
        # A last time when it ends.
        text = (tmp_path / given).read_text()
        assert sample(text, "registered_bytes", agent="written") == memory.nbytes
    each = warpverbs.Agent("each", metrics=tmp_path / "{agent}.{pid}.prom")
    file = each.metrics_file
    assert file.name.startswith("each.") and file.exists()
    each.close()
    assert not file.exists()


def test_without_metrics_there_is_no_place_of_them():
    with warpverbs.Agent("plain") as agent:
        assert agent.metrics_address is None and agent.metrics_file is None


@pytest.mark.parametrize("wrong", ["9400", "localhost:9400", "", "127.0.0.1:99999"])
def test_wrong_places_of_metrics_are_refused(wrong):
    with pytest.raises(ValueError, match="expected ADDRESS:PORT"):
        warpverbs.Agent("a", metrics=wrong)


def test_metrics_that_cannot_be_are_errors(tmp_path):
    with pytest.raises(warpverbs.Error, match="no-such-folder"):
        warpverbs.Agent("a", metrics=tmp_path / "no-such-folder" / "file.prom")
    with pytest.raises(TypeError):
        warpverbs.Agent("a", metrics=9400)
