"""Agents, memory and random bytes for tests. Every wait has a deadline."""

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from warpverbs.nixl import nixl_agent, nixl_agent_config

DEADLINE = 20.0


def pytest_report_header():
    return f"WARPVERBS_SEED={SEED}"


SEED = int(os.environ.get("WARPVERBS_SEED", random.SystemRandom().randrange(1 << 32)))


@pytest.fixture
def rng(request):
    """Random numbers that the seed in the report's first lines makes again."""
    return random.Random(f"{SEED} {request.node.name}")


class Memory:
    """Bytes with an address."""

    def __init__(self, content):
        self.content = ctypes.create_string_buffer(bytes(content), len(content))
        self.addr = ctypes.addressof(self.content)
        self.size = len(content)

    def bytes(self):
        return self.content.raw

    def reg(self, meta=b""):
        return (self.addr, self.size, 0, meta)


def until(what, check):
    """Waits until `check` gives something true, and returns it."""
    end = time.monotonic() + DEADLINE
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < end, f"no {what} in {DEADLINE} s"


def stop(pid):
    """Stops a process, and waits until all of its threads stand: the signal reaches one, which stops the others."""
    os.kill(pid, signal.SIGSTOP)

    def stands():
        states = [one.read_text().rpartition(")")[2].split()[0] for one in Path(f"/proc/{pid}/task").glob("*/stat")]
        return states and all(state == "T" for state in states)

    until("stop", stands)


class Child:
    """A Python program with arguments that answers each line of its input with one. It is killed at the end."""

    def __init__(self, program, *words, env=None):
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", program, *words]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)

    def line(self):
        return self.process.stdout.readline()

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.line()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def finish(agent, handle):
    """Posts a transfer and waits for its end."""
    if agent.transfer(handle) != "DONE":
        until("end of the transfer", lambda: agent.check_xfer_state(handle) == "DONE")


def new_agent(**config):
    return nixl_agent(f"agent-{uuid.uuid4()}", nixl_agent_config(**config))


class Pair:
    """Two agents that know each other's memory of `size` random bytes."""

    def __init__(self, rng, size, **config):
        self.a, self.b = new_agent(**config), new_agent(**config)
        self.here, self.there = Memory(rng.randbytes(size)), Memory(rng.randbytes(size))
        self.regs = (
            self.a.register_memory([self.here.reg()], "DRAM"),
            self.b.register_memory([self.there.reg(b"meta")], "DRAM"),
        )
        self.a.add_remote_agent(self.b.get_agent_metadata())

    def close(self):
        for agent, reg in zip((self.a, self.b), self.regs):
            agent.deregister_memory(reg)


@pytest.fixture
def pair(rng):
    made = Pair(rng, 1 << 16)
    yield made
    made.close()
