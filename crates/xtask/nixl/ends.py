"""The two ends of a measurement with NIXL's Python interface: agents, registered memory, the process at the
other end, and summaries of times. Run as a program it is that process.

The package is NIXL's, or ours where WARPVERBS_AS_NIXL=1 is set. Memory of GPUs comes from libcuda, so torch is
not needed.
"""

import ctypes
import importlib
import math
import os
import pickle
import subprocess
import sys
import time
from time import perf_counter_ns as now

import numpy as np

os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
DEADLINE = 20
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def nixl():
    ours = os.environ.get("WARPVERBS_AS_NIXL") == "1"
    missing = []
    # NIXL's own package of the name `nixl` looks for torch, whose CUDA it takes.
    for name in ("nixl",) if ours else ("nixl_cu13", "nixl_cu12", "nixl"):
        try:
            return importlib.import_module(name + "._api")
        except ImportError as error:
            missing.append(f"{name}: {error}")
    raise ImportError("; ".join(missing))


def shape(text):
    size, _, count = text.partition("x")
    unit = UNITS.get(size[-1])
    return (int(size[:-1]) * unit if unit else int(size)), int(count or 1)


def order(layout, count):
    """As `Layout::order` of perf agent."""
    if layout == "adjacent":
        return list(range(count))
    step = max(int(count * 0.618), 1)
    while step < count and (math.gcd(step, count) != 1 or (step == 1 and count >= 3)):
        step += 1
    step = step if step < count else 1
    return [(i * step + 1) % count for i in range(count)]


class Cuda:
    """Memory of one GPU by the driver's own calls."""

    def __init__(self, ordinal):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *args):
        code = getattr(self.lib, name)(*args)
        if code != 0:
            raise RuntimeError(f"{name}: CUDA error {code}")

    def alloc(self, size):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def write(self, address, data):
        data = np.ascontiguousarray(data)
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes))
        self.call("cuCtxSynchronize")

    def read(self, address, size):
        data = np.empty(size, dtype=np.uint8)
        self.call("cuMemcpyDtoH_v2", data.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data


class Memory:
    """Registered memory of one end."""

    def __init__(self, agent, kind, size, gpu):
        self.kind, self.size, self.device = kind, size, 0
        if kind == "host":
            self.array = np.zeros(size, dtype=np.uint8)
            self.address, self.segment = self.array.ctypes.data, "DRAM"
        else:
            self.cuda, self.device, self.segment = Cuda(gpu), gpu, "VRAM"
            self.address = self.cuda.alloc(size)
        agent.register_memory(agent.get_reg_descs([(self.address, size, self.device, "")], self.segment))

    def write(self, data):
        if self.kind == "host":
            self.array[: data.size] = data
        else:
            self.cuda.write(self.address, data)

    def read(self, size):
        return self.array[:size].copy() if self.kind == "host" else self.cuda.read(self.address, size)


def data(tag, size):
    return np.random.Generator(np.random.SFC64(tag)).integers(0, 256, size, dtype=np.uint8)


def compare(memory, expected):
    found = memory.read(expected.size)
    wrong = np.flatnonzero(found != expected)
    if wrong.size:
        raise RuntimeError(f"{wrong.size} bytes of {expected.size} differ, the first at {wrong[0]}")


def agent_of(api, name):
    return api.nixl_agent(name, api.nixl_agent_config(backends=["UCX"]))


def notified(agent):
    """Waits for a notification."""
    end = time.monotonic() + DEADLINE
    while not (found := agent.get_new_notifs()):
        if time.monotonic() > end:
            raise RuntimeError(f"no notification in {DEADLINE} s")
    return found


def echo(agent, peer):
    """Answers each notification by another, until one says that it is the last."""
    last = False
    while not last:
        last = b"last" in sum(notified(agent).values(), [])
        agent.send_notif(peer, b"answer")


def target():
    """The other process: does what it is asked for by its input, and answers."""
    api, answers = nixl(), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    agent, memory = agent_of(api, "target"), None
    while True:
        what, *args = pickle.load(sys.stdin.buffer)
        answer = None
        if what == "register":
            memory = Memory(agent, *args)
            answer = (agent.get_agent_metadata(), memory.address, memory.device, memory.segment)
        elif what == "peer":
            agent.add_remote_agent(args[0])
        elif what == "fill":
            memory.write(args[0])
        elif what == "compare":
            compare(memory, args[0])
        elif what == "echo":
            echo(agent, *args)
        elif what == "alloc":
            import warpverbs

            # Kept until the end: the agent and its memory, which other processes can map.
            own = warpverbs.Agent("allocating", token=os.environ["WARPVERBS_TOKEN"].encode())
            allocated = own.alloc(*args, "allocated", host=True)
            answer = own.metadata()
        pickle.dump(answer, answers)
        answers.flush()
        if what == "finish":
            os._exit(0)


class Target:
    def __init__(self):
        command = [sys.executable, os.path.abspath(__file__)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, *request):
        self.begin(*request)
        return self.answer()

    def begin(self, *request):
        """Asks, and does not wait for the answer."""
        pickle.dump(request, self.process.stdin)
        self.process.stdin.flush()

    def answer(self):
        return pickle.load(self.process.stdout)

    def end(self):
        self.ask("finish")
        self.process.wait(DEADLINE)


def summary(times):
    times = sorted(times)
    rank = lambda part: times[max(math.ceil(len(times) * part) - 1, 0)]
    return {"samples": len(times), "min_ns": times[0], "p50_ns": rank(0.5), "p90_ns": rank(0.9), "p99_ns": rank(0.99), "max_ns": times[-1]}


class Case:
    """One row."""

    def __init__(self, api, agent, op, size, count, layout):
        self.api, self.agent, self.op = api, agent, op.upper()
        self.size, self.count, self.layout = size, count, layout
        self.order = np.array(order(layout, count), dtype=np.int64)

    def lists(self, local, remote):
        there = remote[1] + self.order * self.size
        here = local.address + np.arange(self.count, dtype=np.int64) * self.size
        column = lambda value: np.full(self.count, value, dtype=np.int64)
        stack = lambda at, device: np.stack([at, column(self.size), column(device)], axis=1).astype(np.uint64)
        self.local = self.agent.get_xfer_descs(stack(here, local.device), local.segment)
        self.remote = self.agent.get_xfer_descs(stack(there, remote[2]), remote[3])

    def arranged(self, there):
        return there.reshape(self.count, self.size)[self.order].reshape(-1)

    def making(self, makes):
        """Times of prepare, make and initialize; keeps what the last `make` gave."""
        agent, index = self.agent, np.arange(self.count, dtype=np.int32)
        prepare, make, initialize = [], [], []
        for _ in range(makes):
            start = now()
            local = agent.prep_xfer_dlist("NIXL_INIT_AGENT", self.local)
            remote = agent.prep_xfer_dlist("target", self.remote)
            prepare.append(now() - start)
            start = now()
            handle = agent.make_prepped_xfer(self.op, local, index, remote, index, b"")
            make.append(now() - start)
            self.handle = handle
            start = now()
            handle = agent.initialize_xfer(self.op, self.local, self.remote, "target", b"")
            initialize.append(now() - start)
            agent.release_xfer_handle(handle)
        return {"prepare": summary(prepare), "make": summary(make), "initialize": summary(initialize)}

    def fill(self, peer, local, tag):
        """Random bytes at the end that they come from, all of them inverted at the other."""
        self.there = data(tag, self.size * self.count)
        self.here = self.arranged(self.there)
        writes = self.op == "WRITE"
        peer.ask("fill", ~self.there if writes else self.there)
        local.write(self.here if writes else ~self.here)

    def check(self, peer, local):
        if self.op == "WRITE":
            peer.ask("compare", self.there)
        else:
            compare(local, self.here)

    def run(self, warmup, seconds):
        # Of `make`, which merges neighbours; what `initialize` gives does not.
        bind, raw = importlib.import_module(self.api.__package__ + "._bindings"), self.handle._handle
        post_call, status_call = self.agent.agent.postXferReq, self.agent.agent.getXferStatus
        done, in_progress = bind.NIXL_SUCCESS, bind.NIXL_IN_PROG
        post, transfer, taken, begin = [], [], 0, None
        while begin is None or now() - begin < seconds * 1e9:
            if taken == warmup:
                begin = now()
                post, transfer = [], []
            start = now()
            state = post_call(raw, b"")
            posted = now()
            while state == in_progress:
                state = status_call(raw)
            ended = now()
            if state != done:
                raise RuntimeError(f"transfer ended with {state}")
            post.append(posted - start)
            transfer.append(ended - start)
            taken += 1
        took = (now() - begin) / 1e9
        rate = self.size * self.count * len(transfer) / took
        return {"post": summary(post), "transfer": summary(transfer), "bytes_per_s": rate}


if __name__ == "__main__":
    target()
