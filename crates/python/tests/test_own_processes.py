"""Agents of several processes: killed, stopped, restarted, interrupted, forked, ended in the middle."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
from conftest import Child, stop

import warpverbs

RUNS = int(os.environ.get("WARPVERBS_RUNS", "10"))
SIZE = 1 << 16

# Registers memory, says its metadata, and then does what it is told.
TARGET = """
import sys, numpy, warpverbs
seed = int(sys.argv[1])
agent = warpverbs.Agent("target", require=sys.argv[2] or None)
data = numpy.random.default_rng(seed).integers(0, 256, 1 << 16, dtype=numpy.uint8)
memory = agent.register(data, "data")
print(agent.metadata().hex(), flush=True)
for line in sys.stdin:
    if line.strip() == "wait":
        print(agent.wait_notification(30), flush=True)
"""


class Target(Child):
    """A process with an agent."""

    def __init__(self, seed, require=""):
        super().__init__(TARGET, str(seed), require)
        self.metadata = bytes.fromhex(self.line())
        self.data = numpy.random.default_rng(seed).integers(0, 256, SIZE, dtype=numpy.uint8)


@pytest.mark.parametrize("path", ["process copy", "tcp"])
def test_blocks_of_another_process(path):
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    with Target(seed) as target, warpverbs.Agent("a", require=path) as a:
        into = numpy.zeros(SIZE, dtype=numpy.uint8)
        ours = a.register(into)
        a.load(target.metadata)
        remote = a.remote("target", "data")
        a.read(ours.blocks(64), remote.blocks(64), notify=b"all").wait(20)
        assert (into == target.data).all()
        assert target.ask("wait") == "('a', b'all')\n"


def counted():
    """Descriptors, threads and mappings of this process."""
    folder = Path("/proc/self")
    maps = len((folder / "maps").read_bytes().splitlines())
    return len(os.listdir(folder / "fd")), len(os.listdir(folder / "task")), maps


def test_a_killed_peer_is_named_and_its_successor_taken():
    seeds = [int.from_bytes(os.urandom(4), "little") for _ in range(RUNS)]
    print("seeds", seeds)
    with warpverbs.Agent("a", deadline=20) as a:
        into = numpy.zeros(SIZE, dtype=numpy.uint8)
        ours, before = a.register(into), None
        for run, seed in enumerate(seeds):
            with Target(seed, ["process copy", "tcp"][run % 2]) as target:
                a.load(target.metadata)
                remote = a.remote("target", "data")
                read = a.transfer("read", ours.blocks(256), remote.blocks(256)).post().wait(20)
                assert (into == target.data).all() and a.knows("target")
                if run % 3:
                    time.sleep(0.003 * (run % 7))
                target.process.kill()
                began = time.monotonic()
                with pytest.raises(warpverbs.PeerLost, match="target") as caught:
                    while True:
                        read.post().wait(20)
                assert time.monotonic() - began < 10
                assert caught.value.kind == "bad peer" and caught.value.peer.startswith("target")
                assert not a.knows("target")
            if run == 3:
                before = counted()
        if before is not None:
            after = counted()
            assert after[0] <= before[0] + 4 and after[1] <= before[1] + 2, (before, after)
            assert after[2] <= before[2] + 40, (before, after)


def test_a_stopped_peer_is_late_and_goes_on():
    with Target(7) as target, warpverbs.Agent("a", require="tcp") as a:
        ours = a.register(numpy.zeros(SIZE, dtype=numpy.uint8))
        a.load(target.metadata)
        remote = a.remote("target", "data")
        a.read(ours[:], remote[:]).wait(20)
        stop(target.process.pid)
        try:
            read, seen = a.read(ours[:], remote[:], timeout=20), []
            with pytest.raises(TimeoutError, match=f"read of {SIZE} bytes from target, 0 done, in progress"):
                read.wait(0.2, progress=lambda *bytes: seen.append(bytes))
            assert read.state == "in progress" and set(seen) == {(0, SIZE)}
            late = a.read(ours[:], remote[:], timeout=0.1)
            with pytest.raises(TimeoutError, match="in progress"):
                late.wait(0.3)
        finally:
            os.kill(target.process.pid, signal.SIGCONT)
        assert read.wait(20).done and read.moved == SIZE
        # It was over only when its peer went on; by then its bytes may have come.
        with pytest.raises(warpverbs.Timeout, match=rf"target.*, \d+ of {SIZE} bytes done: not done after 100ms"):
            late.wait(20)
        assert target.process.poll() is None


INTERRUPTED = """
import os, signal, sys, threading, time, numpy, warpverbs
# A shell may have started the tests in the background, where the signal is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
a = warpverbs.Agent("a")
what = sys.argv[1]
def interrupt():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
began = time.monotonic()
try:
    if what == "notification":
        a.wait_notification(30)
    else:
        # Nobody answers there: what listens never accepts.
        import socket
        silent = socket.create_server(("127.0.0.1", 0), backlog=1)
        b = warpverbs.Agent("b", token=b"t")
        b.fetch("127.0.0.1:%d" % silent.getsockname()[1], timeout=8)
except KeyboardInterrupt:
    print("interrupted after", time.monotonic() - began < 5)
"""


@pytest.mark.parametrize("what", ["notification", "fetch"])
def test_an_interrupt_ends_a_wait(what):
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, what], capture_output=True, text=True, timeout=60
    )
    assert run.stdout == "interrupted after True\n", run
    assert run.returncode == 0, run


FORKED = """
import os, numpy, warpverbs
a, b = warpverbs.Agent("a"), warpverbs.Agent("b")
ours, theirs = a.register(bytearray(64)), b.register(bytearray(64))
a.load(b.metadata())
write = a.write(ours[:], a.remote("b")[:]).wait(10)
child = os.fork()
if child == 0:
    said = 0
    for call in [lambda: a.metadata(), lambda: write.post(), lambda: ours[:], lambda: a.register(bytearray(8))]:
        try:
            call()
        except RuntimeError as error:
            said += "parent process" in str(error)
    # An agent of its own is fine.
    with warpverbs.Agent("c") as c:
        c.load(b"") if False else None
        said += c.register(bytearray(8)).nbytes == 8
    a.close()
    del write, ours, a, b, theirs
    os._exit(said)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
write.post().wait(10)
print("parent goes on")
"""


def test_a_forked_child_is_refused():
    run = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60)
    assert run.stdout == "parent goes on\n" and run.returncode == 0, run


EXITING = """
import logging, sys, threading, numpy, warpverbs
logging.getLogger("warpverbs").setLevel("ERROR")
a, b = warpverbs.Agent("a", require=sys.argv[1]), warpverbs.Agent("b")
here = numpy.zeros(64 << 20, dtype=numpy.uint8)
ours, theirs = a.register(here, "x"), b.register(bytearray(64 << 20), "y")
a.load(b.metadata())
write = a.transfer("write", ours[:], a.remote("b", "y")[:])
def post():
    while True:
        try:
            write.post().wait(5)
        except warpverbs.Error:
            return
threading.Thread(target=post, daemon=True).start()
threading.Thread(target=lambda: a.wait_notification(), daemon=True).start()
import time
time.sleep(0.2)
if sys.argv[2] == "exception":
    raise SystemExit(3)
"""


@pytest.mark.parametrize("path", ["same process", "tcp"])
@pytest.mark.parametrize("how", ["end", "exception"])
def test_the_interpreter_ends_during_transfers(path, how):
    for _ in range(3):
        run = subprocess.run(
            [sys.executable, "-c", EXITING, path, how], capture_output=True, text=True, timeout=120
        )
        assert run.returncode == (3 if how == "exception" else 0), run
        assert run.stderr == "", run


LOGGING = """
import logging, sys, warpverbs
if sys.argv[1] == "records":
    seen = []
    class Keep(logging.Handler):
        def emit(self, record):
            seen.append((record.name, record.levelname, record.getMessage()))
    logging.getLogger("warpverbs").addHandler(Keep())
    logging.getLogger("warpverbs").setLevel(logging.INFO)
a, b = warpverbs.Agent("a"), warpverbs.Agent("b")
ours, theirs = a.register(bytearray(8)), b.register(bytearray(8))
a.load(b.metadata())
a.read(ours[:], a.remote("b")[:]).wait(10)
if sys.argv[1] == "records":
    import time
    end = time.monotonic() + 10
    while not any("path chosen" in text for _, _, text in seen):
        assert time.monotonic() < end, seen
        time.sleep(0.01)
    name, level, text = next(line for line in seen if "path chosen" in line[2])
    assert name.startswith("warpverbs.agent") and level == "INFO" and "peer=b" in text, (name, level, text)
"""


@pytest.mark.parametrize("what", ["records", "silence"])
def test_the_log_is_that_of_python(what):
    run = subprocess.run([sys.executable, "-c", LOGGING, what], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", ""), run
