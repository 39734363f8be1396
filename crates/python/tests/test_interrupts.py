"""Ctrl-C while a call waits for a peer that stands still: the exception comes long before the call's own deadline, and the
agent goes on."""

import inspect
import os
import signal
import subprocess
import sys

import pytest
from conftest import stop, until

TARGET = """
import sys, numpy, warpverbs
agent = warpverbs.Agent("target", require=sys.argv[1] or None, token=b"job")
data = numpy.arange(1 << 14, dtype=numpy.uint32)
memory = agent.register(data, "data")
print(agent.metadata().hex(), data.ctypes.data, flush=True)
sys.stdin.read()
"""


def threads(pid):
    """The names of a process' threads."""
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/comm") as name:
                yield name.read().strip()
        except OSError:
            pass  # It has ended meanwhile.


# Says that it begins, and is interrupted then.
CALLER = '''
import os, signal, sys, threading, time, numpy, warpverbs
from warpverbs.nixl import nixl_agent, nixl_agent_config
# A shell may have started the tests in the background, where the signal is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
def no_calls():
    """Waits until no thread of a call is left."""
    end = time.monotonic() + 20
    while any(name == "wv-call" for name in threads("self")):
        assert time.monotonic() < end, list(threads("self"))
        time.sleep(0.01)
what, metadata, address, path = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
into = numpy.zeros(1 << 14, dtype=numpy.uint32)
if what.startswith("nixl"):
    a = nixl_agent("caller", nixl_agent_config())
    regs = a.register_memory([(into.ctypes.data, into.nbytes, 0, "")], "DRAM")
    a.add_remote_agent(metadata)
    here = a.get_xfer_descs([(into.ctypes.data, into.nbytes, 0)], "DRAM")
    there = a.get_xfer_descs([(address, into.nbytes, 0)], "DRAM")
    sides = a.prep_xfer_dlist("", here), a.prep_xfer_dlist("target", there)
    def make():
        if what == "nixl make":
            return a.make_prepped_xfer("READ", sides[0], [0], sides[1], [0])
        return a.initialize_xfer("READ", here, there, "target")
    def call():
        a.send_notif("target", b"hello") if what == "nixl notify" else make()
    def run():
        handle = make()
        state = a.transfer(handle)
        while state == "PROC":
            state = a.check_xfer_state(handle)
else:
    a = warpverbs.Agent("caller", deadline=60, require=path or None, token=b"job")
    ours, peer = a.register(into), a.load(metadata)
    remote = a.remote(peer, "data")
    lists = a.prepare(ours[:]), a.prepare(remote[:])
    if what == "post":
        # While the peer stands, its sockets are given up: the next post makes new ones.
        made = a.transfer("read", ours[:], remote[:])
        made.post().wait(20)
        print("made", flush=True)
        sys.stdin.readline()
        try:
            made.post(timeout=0.05).wait(7)
        except warpverbs.Timeout:
            pass
    def call():
        if what == "post":
            a.read(ours[:], remote[:])
        elif what == "prepared":
            a.transfer("read", *lists)
        elif what == "notify":
            a.notify(peer, b"hello")
        else:
            a.transfer("read", ours[:], remote[:])
    def run():
        a.read(ours[:], remote[:]).wait(20)
no_calls()
began = time.monotonic()
try:
    print("begins", flush=True)
    call()
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted after", time.monotonic() - began < 20, flush=True)
sys.stdin.readline()
run()
assert (into == numpy.arange(1 << 14)).all()
no_calls()
print("goes on", flush=True)
'''

# Of agents of NIXL's interface.
SETTINGS = {"WARPVERBS_DEADLINE": "60", "WARPVERBS_TOKEN": "job", "NIXL_LOG_LEVEL": "ERROR"}
CALLS = ["read", "prepared", "notify", "post", "nixl create", "nixl make", "nixl notify"]


@pytest.mark.parametrize("what", CALLS)
def test_a_call_that_waits_for_a_peer_is_interrupted(what):
    path = "tcp" if what == "post" else ""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", TARGET, path], **pipes) as target:
        metadata, address = target.stdout.readline().split()
        words = [sys.executable, "-c", inspect.getsource(threads) + CALLER, what, metadata, address, path]
        environment = {**os.environ, **SETTINGS}
        with subprocess.Popen(words, stderr=subprocess.PIPE, env=environment, **pipes) as caller:
            try:
                if what == "post":
                    assert caller.stdout.readline() == "made\n"
                stop(target.pid)
                if what == "post":
                    caller.stdin.write("\n")
                    caller.stdin.flush()
                assert caller.stdout.readline() == "begins\n"
                until("thread of a call", lambda: "wv-call" in threads(caller.pid))
                os.kill(caller.pid, signal.SIGINT)
                assert caller.stdout.readline() == "interrupted after True\n"
                os.kill(target.pid, signal.SIGCONT)
                said, complaints = caller.communicate("\n", timeout=60)
                assert said == "goes on\n", complaints
                assert caller.returncode == 0 and complaints == ""
            finally:
                caller.kill()
                target.kill()
