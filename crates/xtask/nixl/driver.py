"""Measures transfers of NIXL's agent between two processes of this machine, by its Python package.

    driver.py --shapes 8,1M,4Kx256 [--ops write,read] [--mem host,gpu,host:gpu] [--gpus A,B]
              [--layouts adjacent,scattered] [--seconds 0.2] [--warmup 5] [--makes 20]

Prints JSON with the rows of `warpverbs perf agent --json`, as far as they are comparable: the same
shapes, layouts, loops and comparison of all bytes. Timed calls go to NIXL's bindings directly, not
through its Python wrapper. Needs numpy and NIXL's wheel on the path; memory of GPUs comes from
libcuda, so torch is not needed. UCX is configured by its variables, such as UCX_TLS.
"""

import argparse
import ctypes
import importlib
import json
import math
import os
import pickle
import subprocess
import sys
import time
from time import perf_counter_ns as now

import numpy as np

os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def nixl():
    missing = []
    for name in ("nixl_cu13", "nixl_cu12", "nixl"):
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
        pickle.dump(answer, answers)
        answers.flush()
        if what == "finish":
            os._exit(0)


class Target:
    def __init__(self):
        command = [sys.executable, os.path.abspath(__file__), "--target"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, *request):
        pickle.dump(request, self.process.stdin)
        self.process.stdin.flush()
        return pickle.load(self.process.stdout)


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


def measure(args):
    api, rows = nixl(), []
    for pair in args.mem.split(","):
        here, _, there = pair.partition(":")
        there = there or here
        gpus = [int(gpu) for gpu in args.gpus.split(",")]
        shapes = [shape(text) for text in args.shapes.split(",")]
        size = max(size * count for size, count in shapes)
        peer = Target()
        agent = agent_of(api, "initiator")
        local = Memory(agent, here, size, gpus[0])
        remote = peer.ask("register", there, size, gpus[-1])
        agent.add_remote_agent(remote[0])
        peer.ask("peer", agent.get_agent_metadata())
        for op in args.ops.split(","):
            for size, count in shapes:
                for layout in args.layouts.split(",") if count > 1 else ["adjacent"]:
                    case = Case(api, agent, op, size, count, layout)
                    case.lists(local, remote)
                    there_data = data(len(rows) + 1, size * count)
                    here_data = case.arranged(there_data)
                    peer.ask("fill", ~there_data if op == "write" else there_data)
                    local.write(here_data if op == "write" else ~here_data)
                    row = {"op": op, "local": here, "remote": there, "bytes": size, "blocks": count, "layout": layout, "threads": 1}
                    row.update(case.making(args.makes))
                    row.update(case.run(args.warmup, args.seconds))
                    if op == "write":
                        peer.ask("compare", there_data)
                    else:
                        compare(local, here_data)
                    rows.append(dict(row, data="equal"))
        peer.ask("finish")
        peer.process.wait(20)
    print(json.dumps({"schema": 1, "command": "nixl", "tls": os.environ.get("UCX_TLS"), "rows": rows}))
    sys.stdout.flush()
    # NIXL's threads may wait for the peer that has ended.
    os._exit(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", action="store_true")
    parser.add_argument("--shapes", default="8,1M,4Kx256,4Kx4096")
    parser.add_argument("--ops", default="write,read")
    parser.add_argument("--mem", default="host")
    parser.add_argument("--gpus", default="0")
    parser.add_argument("--layouts", default="adjacent,scattered")
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--makes", type=int, default=20)
    args = parser.parse_args()
    target() if args.target else measure(args)


main()
