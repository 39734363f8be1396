"""Ends: of the interpreter, of peers, of forked children; threads; the switch that makes `nixl` ours."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from conftest import Memory, Pair, finish, new_agent, stop, until
from warpverbs.nixl import _bindings as b

PAIR = """
    import ctypes, os, sys, threading, time
    from warpverbs.nixl import nixl_agent, nixl_agent_config, _bindings as b
    agents = [nixl_agent(name) for name in ("one", "two")]
    size = 1 << 24
    memory = [ctypes.create_string_buffer(size) for _ in agents]
    rows = [(ctypes.addressof(each), size, 0) for each in memory]
    regs = [a.register_memory([row + (b"",)], "DRAM") for a, row in zip(agents, rows)]
    agents[0].add_remote_agent(agents[1].get_agent_metadata())
    lists = [agents[0].get_xfer_descs([row], "DRAM") for row in rows]
    handle = agents[0].initialize_xfer("WRITE", *lists, "two")
"""


def python(code, timeout=30, **env):
    """Runs a program; it must end well."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert run.returncode == 0, f"exit code {run.returncode}\n{run.stdout}{run.stderr}"
    return run.stdout


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "del agents", "agents[0].deregister_memory(regs[0])"])
def test_the_interpreter_ends_during_a_transfer(end):
    python(PAIR + f"    agents[0].transfer(handle)\n    {end}\n")


def test_destructors_that_run_after_the_interpreter_has_ended_agents_do_not_fail():
    said = python(
        PAIR
        + """
    class Holder:
        def __init__(self):
            self.kept = agents[0], handle, regs[0], os.write
        def __del__(self):
            agent, handle, registered, write = self.kept
            agent.release_xfer_handle(handle)
            agent.remove_remote_agent("two")
            agent.deregister_memory(registered)
            write(1, b"given back")
    holder = Holder()
"""
    )
    assert said.endswith("given back")


def test_the_interpreter_ends_while_threads_poll():
    python(
        PAIR
        + """
    def poll():
        while True:
            agents[1].get_new_notifs()
            agents[0].transfer(handle)
            while agents[0].check_xfer_state(handle) != "DONE": pass
    threading.Thread(target=poll, daemon=True).start()
    time.sleep(0.3)
"""
    )


def test_a_forked_child_is_refused_and_ends():
    python(
        PAIR
        + """
    child = os.fork()
    if child == 0:
        for call in (agents[0].get_agent_metadata, lambda: agents[0].transfer(handle), lambda: agents[0].check_xfer_state(handle)):
            try:
                call()
                os._exit(3)
            except b.nixlNotAllowedError as error:
                if "fork" not in str(error): os._exit(4)
        fresh = nixl_agent("of the child")
        fresh.register_memory([rows[0] + (b"",)], "DRAM")
        del agents, handle, fresh
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    agents[0].transfer(handle)
    while agents[0].check_xfer_state(handle) != "DONE": pass
"""
    )


CHILD = """
    import ctypes, sys, time
    from warpverbs.nixl import nixl_agent
    agent = nixl_agent("peer")
    memory = ctypes.create_string_buffer(1 << 16)
    agent.register_memory([(ctypes.addressof(memory), 1 << 16, 0, b"")], "DRAM")
    sys.stdout.write(f"{ctypes.addressof(memory)} {agent.get_agent_metadata().hex()}\\n")
    sys.stdout.flush()
    time.sleep(60)
"""


def peer():
    env = {**os.environ, "NIXL_LOG_LEVEL": "ERROR"}
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD)], stdout=subprocess.PIPE, text=True, env=env
    )
    addr, metadata = child.stdout.readline().split()
    return child, int(addr), bytes.fromhex(metadata)


def test_a_peer_that_is_killed_and_comes_again(rng):
    agent, memory = new_agent(), Memory(rng.randbytes(1 << 16))
    agent.register_memory([memory.reg()], "DRAM")
    local = agent.get_xfer_descs([(memory.addr, memory.size, 0)], "DRAM")

    def write(addr):
        remote = agent.get_xfer_descs([(addr, memory.size, 0)], "DRAM")
        handle = agent.initialize_xfer("WRITE", local, remote, "peer", b"n")
        finish(agent, handle)
        return handle

    child, addr, metadata = peer()
    try:
        agent.add_remote_agent(metadata)
        handle = write(addr)
        child.kill()
        child.wait(10)
        with pytest.raises(b.nixlRemoteDisconnectError, match="peer"):
            end = time.monotonic() + 20
            while time.monotonic() < end:
                finish(agent, handle)
        assert not agent.check_remote_metadata("peer")
        handle.release()
        child, addr, metadata = peer()
        assert agent.add_remote_agent(metadata) == b"peer" and agent.check_remote_metadata("peer")
        write(addr)
    finally:
        child.kill()
        child.wait(10)


def test_a_peer_that_stands_still_does_not_stop_others(rng, monkeypatch):
    monkeypatch.setenv("WARPVERBS_TRANSFER_DEADLINE", "1")
    child, addr, metadata = peer()
    try:
        made = Pair(rng, 4096)
        made.a.add_remote_agent(metadata)
        remote = made.a.get_xfer_descs([(addr, 4096, 0)], "DRAM")
        local = made.a.get_xfer_descs([(made.here.addr, 4096, 0)], "DRAM")
        handle = made.a.initialize_xfer("WRITE", local, remote, "peer", b"n")
        finish(made.a, handle)
        stop(child.pid)
        made.a.transfer(handle)
        good = made.a.get_xfer_descs([(made.there.addr, 4096, 0)], "DRAM")
        finish(made.a, made.a.initialize_xfer("WRITE", local, good, made.b.name))
        assert made.there.bytes() == made.here.bytes()
        # Its notification cannot arrive.
        with pytest.raises(Exception, match="peer"):
            until("end", lambda: made.a.check_xfer_state(handle) == "DONE")
        handle.release()
        made.close()
    finally:
        os.kill(child.pid, signal.SIGCONT)
        child.kill()
        child.wait(10)


def test_the_interpreter_is_free_while_one_waits_for_a_peer(rng, monkeypatch):
    monkeypatch.setenv("WARPVERBS_DEADLINE", "1")
    child, addr, metadata = peer()
    try:
        agent, memory, turns = new_agent(), Memory(rng.randbytes(64)), [0]
        agent.register_memory([memory.reg()], "DRAM")
        agent.add_remote_agent(metadata)
        stop(child.pid)
        lists = [agent.get_xfer_descs([(each, 64, 0)], "DRAM") for each in (memory.addr, addr)]

        def count(over):
            while not over.is_set():
                turns[0] += 1
                over.wait(0.001)

        over = threading.Event()
        thread = threading.Thread(target=count, args=(over,))
        thread.start()
        start = time.monotonic()
        with pytest.raises(b.nixlBackendError, match="peer"):
            agent.initialize_xfer("WRITE", *lists, "peer")
        took = time.monotonic() - start
        over.set()
        thread.join(10)
        assert 0.5 < took < 15 and turns[0] > 100 * took
    finally:
        os.kill(child.pid, signal.SIGCONT)
        child.kill()
        child.wait(10)


def test_threads_share_an_agent(rng):
    made, count, failures = Pair(rng, 1 << 16), 8, []

    def work(number):
        try:
            part = made.here.size // count
            for _ in range(100):
                rows = [[(m.addr + number * part, part, 0)] for m in (made.here, made.there)]
                lists = [made.a.get_xfer_descs(each, "DRAM") for each in rows]
                finish(made.a, made.a.initialize_xfer("WRITE", *lists, made.b.name, str(number)))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    seen = []
    until("800", lambda: seen.extend(made.b.get_new_notifs().get(made.a.name, [])) or failures or len(seen) == 100 * count)
    for thread in threads:
        thread.join(20)
    assert not failures and made.there.bytes() == made.here.bytes()
    assert all(seen.count(str(number).encode()) == 100 for number in range(count))
    made.close()


def test_nothing_is_left_behind(rng):
    made = Pair(rng, 4096)
    lists = [made.a.get_xfer_descs([(m.addr, 64, 0)], "DRAM") for m in (made.here, made.there)]
    counts = lambda: (len(os.listdir("/proc/self/fd")), threading.active_count(), sys.getrefcount(lists[0]))

    def work():
        for _ in range(300):
            finish(made.a, made.a.initialize_xfer("WRITE", *lists, made.b.name))
            memory = Memory(b"x" * 100)
            made.a.deregister_memory(made.a.register_memory([memory.reg()], "DRAM"))

    # A descriptor may be opened once, by a thread of the agents at a time of its own; a leak adds to every round.
    seen = [counts()]
    while len(seen) < 3 or seen[-1] != seen[-2]:
        assert len(seen) < 8, f"descriptors, threads and references grow with each round: {seen}"
        work()
        seen.append(counts())
    made.close()


def test_install_makes_nixl_ours():
    out = python(
        """
        import warpverbs.nixl, importlib.util, importlib.metadata, pickle, sys
        warpverbs.nixl.install()
        warpverbs.nixl.install()
        assert sys.modules["nixl"].__file__ == warpverbs.nixl.__file__
        import nixl, nixl._api, nixl._bindings as b, nixl._utils, nixl.logging
        from nixl._api import nixl_agent
        assert nixl_agent is warpverbs.nixl.nixl_agent is nixl.nixl_agent and nixl.nixlXferDList is b.nixlXferDList
        assert nixl.malloc_passthru and importlib.util.find_spec("nixl") is not None
        assert "nixl" not in importlib.metadata.packages_distributions()
        made = b.nixlXferDList(b.DRAM_SEG, [(1, 2, 3)])
        data = pickle.dumps(made)
        assert b"nixl._bindings" in data and b"warpverbs" not in data and pickle.loads(data) == made
        assert warpverbs.nixl._api.__spec__.name == "warpverbs.nixl._api"
        try:
            import nixl.nothing
        except ModuleNotFoundError:
            print("good")
        """
    )
    assert out.endswith("good\n")


def test_the_variable_makes_nixl_ours_in_spawned_workers(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, sys\n"
        "def work(queue):\n    import nixl._api\n    queue.put(nixl._api.nixl_agent.__module__)\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n    queue = context.Queue()\n"
        "    child = context.Process(target=work, args=(queue,))\n    child.start()\n"
        "    print(queue.get(timeout=20), sys.argv[1:])\n    child.join(20)\n"
    )
    expected = "warpverbs.nixl._api ['a', '-b']\n"
    for command, env in (([], {"WARPVERBS_AS_NIXL": "1"}), (["-m", "warpverbs.nixl"], {})):
        run = subprocess.run(
            [sys.executable, *command, str(program), "a", "-b"],
            env={**os.environ, **env}, capture_output=True, text=True, timeout=60,
        )
        assert run.stdout == expected, run.stdout + run.stderr


def test_without_the_variable_nothing_is_changed():
    python(
        """
        import sys
        assert not any("warpverbs" in type(each).__module__ for each in sys.meta_path)
        assert not any(name.startswith("warpverbs") for name in sys.modules)
        """,
        WARPVERBS_AS_NIXL="0",
    )


def test_import_brings_neither_numpy_nor_torch():
    python("import sys, warpverbs.nixl; assert not {'numpy', 'torch'} & set(sys.modules)")


def test_a_nixl_that_is_imported_already_is_not_replaced():
    python(
        """
        import sys, types, warpverbs.nixl
        sys.modules["nixl"] = types.ModuleType("nixl")
        try:
            warpverbs.nixl.install()
        except RuntimeError as error:
            assert "imported already" in str(error)
        else:
            sys.exit("not refused")
        """
    )


def test_the_program():
    run = subprocess.run([sys.executable, "-m", "warpverbs", "--version"], capture_output=True, text=True, timeout=30)
    import warpverbs

    assert run.stdout.split() == ["warpverbs", warpverbs.__version__]
    bad = subprocess.run([sys.executable, "-m", "warpverbs", "nonsense"], capture_output=True, text=True, timeout=30)
    assert bad.returncode == 2 and "nonsense" in bad.stderr


INTERRUPTED = """
import os, signal, subprocess, sys, threading, time
import warpverbs.nixl as nixl
# A shell may have started the tests in the background, where the signal is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
target = subprocess.Popen([sys.executable, "-c",
    "import sys; import warpverbs.nixl as nixl\\n"
    "a = nixl.nixl_agent('target'); print(a.get_agent_metadata().hex(), flush=True); sys.stdin.read()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
agent = nixl.nixl_agent("initiator")
agent.add_remote_agent(bytes.fromhex(target.stdout.readline()))
agent.send_notif("target", b"hello")
os.kill(target.pid, signal.SIGSTOP)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
began = time.monotonic()
try:
    # More than the connection takes without its other end.
    while True:
        agent.send_notif("target", b"x" * 60000)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - began < 5)
finally:
    os.kill(target.pid, signal.SIGCONT)
    target.kill()
    target.wait()
"""


def test_an_interrupt_ends_a_call_that_waits_for_a_peer():
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60,
        env={**os.environ, "WARPVERBS_DEADLINE": "20", "NIXL_LOG_LEVEL": "ERROR"},
    )
    assert (run.returncode, run.stdout) == (0, "interrupted True\n"), run
