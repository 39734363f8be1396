"""Measures the Python package of this project and NIXL's beside each other, in turns, two processes of this machine.

    python.py [--turns 3] [--seconds 0.2] [--gpus A,B] [--json FILE]

Both packages must be installed for this Python: ours under its own name, to which WARPVERBS_AS_NIXL=1 points the
name `nixl`. The same calls run on both, those of `nixl_agent`, as programs make them. Of several turns the median
counts. A bound that is missed is said, and is no failure.
"""

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from time import perf_counter_ns as now

import numpy as np
from ends import DEADLINE, Case, Memory, Target, agent_of, nixl, notified, order, shape

# Of all agents here; those of our own interface have none that is the same for all.
os.environ.setdefault("WARPVERBS_TOKEN", os.urandom(16).hex())
KIB = 1 << 10
SIZE = 64 << 20
BLOCKS = 4096
PACKAGES = ("ours", "NIXL")

# Rows in their order: unit, and what is wanted of ours: a figure, and a part of NIXL's. Of shares and rates more is better.
ROWS = {
    "8 B WRITE, post to done": ("us", 2.0, 0.5),
    "8 B READ, post to done": ("us", 2.0, 0.5),
    "8 B WRITE by warpverbs.Transfer.post": ("us", None, None),
    "8 B WRITE by it, to memory of Agent.alloc": ("us", None, None),
    "4 KiB WRITE, post to done": ("us", None, None),
    "4 KiB READ, post to done": ("us", None, None),
    "64 KiB WRITE, post to done": ("us", None, None),
    "64 KiB READ, post to done": ("us", None, None),
    "1 MiB WRITE, post to done": ("us", None, None),
    "1 MiB READ, post to done": ("us", None, None),
    "4096 x 256 B scattered, WRITE": ("us", None, None),
    "4096 x 256 B scattered, READ": ("us", None, None),
    "4096 x 4 KiB scattered, WRITE": ("us", None, None),
    "4096 x 4 KiB scattered, READ": ("us", None, None),
    "GPU: 8 B WRITE, post to done": ("us", None, None),
    "GPU: 4096 x 4 KiB scattered, WRITE": ("us", None, 0.01),
    "GPU: 4096 x 4 KiB scattered, READ": ("us", None, 0.01),
    "list of 4096 by tuples": ("us", None, None),
    "list of 4096 by Nx3": ("us", None, None),
    "prep of 4096, local": ("us", None, None),
    "prep of 4096, remote": ("us", None, None),
    "prep of 10^6 by Nx5, local": ("us", 1000.0, None),
    "prep of 10^6 by Nx5, remote": ("us", 1000.0, None),
    "make of 4096 by array": ("us", 60.0, None),
    "make of 4096 by list": ("us", None, None),
    "initialize_xfer of one": ("us", None, None),
    "notification there and back": ("us", None, None),
    "import": ("ms", 50.0, None),
    "agent and its first registration": ("ms", 20.0, None),
    "add_remote_agent and first transfer": ("ms", 2.0, None),
    "4 KiB WRITE by 2 threads of one agent": ("/s", None, None),
    "4 KiB WRITE by 8 threads of one agent": ("/s", None, None),
    "another thread's speed while one waits for a transfer": ("%", 95.0, None),
    "another thread's speed while one waits for a notification": ("%", 95.0, None),
    "another thread's speed while one polls a transfer": ("%", 75.0, None),
    "another thread's speed while one polls for notifications": ("%", 75.0, None),
    "peer killed, to the exception": ("ms", None, None),
    "installed": ("MB", 15.0, None),
}
MORE_IS_BETTER = ("%", "/s")

# A process of its own: what an import costs is known once per process. The agent is used, since it may be made late.
BEGIN = """
import os, sys
from time import perf_counter_ns as now
start = now()
import {package}._api as api
imported = now()
agent = api.nixl_agent("begin", api.nixl_agent_config(backends=["UCX"]))
memory = bytearray(4096)
import ctypes
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
agent.register_memory([(address, 4096, 0, "")], "DRAM")
print(imported - start, now() - imported, flush=True)
os._exit(0)
"""


def median_us(times):
    return statistics.median(times) / 1e3


class Package:
    """One package's rows."""

    def __init__(self, args):
        self.args, self.rows, self.api = args, {}, nixl()
        self.ours = os.environ.get("WARPVERBS_AS_NIXL") == "1"

    def put(self, row, value):
        unit = ROWS[row][0]
        self.rows[row] = value
        print(f"{PACKAGES[not self.ours]:6}{row:60}{value:14.2f} {unit}", file=sys.stderr)

    def timed(self, call, undo=lambda made: None):
        """The median time of a call in microseconds."""
        times, end = [], now() + self.args.seconds * 1e9
        while len(times) < 5 or (now() < end and len(times) < 1000):
            start = now()
            made = call()
            times.append(now() - start)
            undo(made)
        return median_us(times)

    def connect(self, kind, size, gpus):
        self.agent, self.peer = agent_of(self.api, "initiator"), Target()
        self.local = Memory(self.agent, kind, size, gpus[0])
        self.remote = self.peer.ask("register", kind, size, gpus[-1])
        self.agent.add_remote_agent(self.remote[0])
        self.peer.ask("peer", self.agent.get_agent_metadata())

    def case(self, op, text, layout="scattered"):
        size, count = shape(text)
        case = Case(self.api, self.agent, op, size, count, layout if count > 1 else "adjacent")
        case.lists(self.local, self.remote)
        return case

    def transfers(self, rows):
        for tag, (row, op, text) in enumerate(rows):
            case = self.case(op, text)
            case.making(1)
            case.fill(self.peer, self.local, tag)
            # Several of few bytes between two looks at the clock, whose cost is none of theirs.
            lot = max(1, min(64, 16 * KIB // case.size // case.count))
            took = self.timed(lambda: self.finish(case.handle, times=lot)) / lot
            case.check(self.peer, self.local)
            self.put(row, took)

    def sizes(self):
        rows = []
        for what, text in (("8 B", "8"), ("4 KiB", "4K"), ("64 KiB", "64K"), ("1 MiB", "1M")):
            rows += [(f"{what} {op}, post to done", op, text) for op in ("WRITE", "READ")]
        for what, text in (("4096 x 256 B", "256x4096"), ("4096 x 4 KiB", "4Kx4096")):
            rows += [(f"{what} scattered, {op}", op, text) for op in ("WRITE", "READ")]
        self.transfers(rows)

    def own(self):
        """Ours alone: the interface of our own, to memory that the peer has brought and to memory that it has allocated."""
        import warpverbs

        with warpverbs.Agent("own", token=os.environ["WARPVERBS_TOKEN"].encode()) as agent:
            memory = agent.register(np.full(64, 7, np.uint8), "here")
            places = (("by warpverbs.Transfer.post", self.remote[0], "DRAM"), ("by it, to memory of Agent.alloc", self.peer.ask("alloc", 4096), "allocated"))
            for row, metadata, label in places:
                there = agent.remote(agent.load(metadata), label)[:8]
                post, lot = agent.write(memory[:8], there).wait(timeout=DEADLINE).post, range(64)
                self.put(f"8 B WRITE {row}", self.timed(lambda: [post() for _ in lot]) / len(lot))

    def lists(self):
        agent, case = self.agent, self.case("WRITE", f"4Kx{BLOCKS}")
        at = (self.remote[1] + case.order * 4 * KIB).astype(np.uint64)
        array = np.stack([at, np.full(BLOCKS, 4 * KIB, np.uint64), np.zeros(BLOCKS, np.uint64)], axis=1)
        tuples = [tuple(row) for row in array.tolist()]
        self.put("list of 4096 by tuples", self.timed(lambda: agent.get_xfer_descs(tuples, "DRAM")))
        self.put("list of 4096 by Nx3", self.timed(lambda: agent.get_xfer_descs(array, "DRAM")))
        release = agent.release_dlist_handle
        sides = (("local", "NIXL_INIT_AGENT", case.local, self.local.address), ("remote", "target", case.remote, self.remote[1]))
        for name, side, descs, base in sides:
            self.put(f"prep of 4096, {name}", self.timed(lambda: agent.prep_xfer_dlist(side, descs), release))
            # 64 layers, each of blocks at equal distances, with gaps between them.
            rows, each = 64, 10**6 // 64
            begins = base + np.array(order("scattered", rows)) * (each * 64)
            strided = np.stack([begins, *(np.full(rows, value) for value in (32, 0, 64, each))], axis=1).astype(np.uint64)
            prepare = lambda: agent.prep_xfer_dlist(side, strided, "DRAM")
            self.put(f"prep of 10^6 by Nx5, {name}", self.timed(prepare, release))

    def makes(self):
        agent, case = self.agent, self.case("WRITE", f"4Kx{BLOCKS}", "adjacent")
        here, there = agent.prep_xfer_dlist("NIXL_INIT_AGENT", case.local), agent.prep_xfer_dlist("target", case.remote)
        # Blocks of a cache: in order on one side, anywhere on the other.
        anywhere = np.array(order("scattered", BLOCKS), dtype=np.int32)
        for name, indices in (("array", (np.arange(BLOCKS, dtype=np.int32), anywhere)), ("list", (list(range(BLOCKS)), anywhere.tolist()))):
            make = lambda: agent.make_prepped_xfer("WRITE", here, indices[0], there, indices[1])
            self.put(f"make of 4096 by {name}", self.timed(make, agent.release_xfer_handle))
        one = self.case("WRITE", "8")
        initialize = lambda: agent.initialize_xfer("WRITE", one.local, one.remote, "target")
        self.put("initialize_xfer of one", self.timed(initialize, agent.release_xfer_handle))

    def notifications(self):
        def exchange(question):
            self.agent.send_notif("target", question)
            notified(self.agent)

        self.peer.begin("echo", "initiator")
        self.put("notification there and back", self.timed(lambda: exchange(b"question")))
        exchange(b"last")
        self.peer.answer()

    def begins(self):
        """Import and agent in new processes; a first transfer of new agents of this one."""
        program = BEGIN.format(package=self.api.__name__.removesuffix("._api"))
        found = []
        for _ in range(5):
            run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
            if not run.stdout.strip():
                raise RuntimeError(f"no import: {run.stderr}")
            found.append([int(each) / 1e6 for each in run.stdout.split("\n")[-2].split()])
        imports, agents = zip(*found)
        self.put("import", statistics.median(imports))
        self.put("agent and its first registration", statistics.median(agents))
        times = []
        for number in range(5):
            agent = agent_of(self.api, f"first {number}")
            memory = Memory(agent, "host", 4 * KIB, 0)
            here = agent.get_xfer_descs([(memory.address, 8, 0)], "DRAM")
            there = agent.get_xfer_descs([(self.remote[1], 8, 0)], "DRAM")
            start = now()
            agent.add_remote_agent(self.remote[0])
            handle = agent.initialize_xfer("READ", here, there, "target")
            self.finish(handle, agent)
            times.append(now() - start)
        self.put("add_remote_agent and first transfer", statistics.median(times) / 1e6)

    def finish(self, handle, agent=None, times=1):
        agent = agent or self.agent
        for _ in range(times):
            state = agent.transfer(handle)
            while state == "PROC":
                state = agent.check_xfer_state(handle)
            if state != "DONE":
                raise RuntimeError(f"transfer ended with {state}")

    def threads(self):
        seconds = max(self.args.seconds, 0.5)
        for threads in (2, 8):
            counts, handles, stop = [0] * threads, [], threading.Event()
            for _ in range(threads):
                case = self.case("WRITE", "4K")
                case.making(1)
                handles.append(case.handle)

            def work(number):
                while not stop.is_set():
                    self.finish(handles[number])
                    counts[number] += 1

            workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
            start = now()
            for worker in workers:
                worker.start()
            time.sleep(seconds)
            stop.set()
            for worker in workers:
                worker.join()
            self.put(f"4 KiB WRITE by {threads} threads of one agent", sum(counts) / ((now() - start) / 1e9))

    def beside(self, row, work):
        """Another thread's speed while this one works, beside its speed while this one sleeps, in turns."""
        worker, window, shares = Counter(), 0.1, []
        worker.start()
        for _ in range(max(int(self.args.seconds * 50), 5)):
            alone = worker.speed(lambda end: time.sleep(window), window)
            shares.append(100 * worker.speed(work, window) / alone)
        worker.over = True
        worker.join()
        self.put(row, min(statistics.median(shares), 100.0))

    def polls(self):
        case = self.case("READ", "1Mx64")
        case.making(1)

        def transfer(end):
            while now() < end:
                self.finish(case.handle)

        def notifications(end):
            while now() < end:
                self.agent.get_new_notifs()

        self.beside("another thread's speed while one polls a transfer", transfer)
        self.beside("another thread's speed while one polls for notifications", notifications)

    def waits(self):
        """Ours alone: NIXL's interface has no call that waits."""
        import warpverbs

        with warpverbs.Agent("waits", token=os.environ["WARPVERBS_TOKEN"].encode()) as agent:
            peer = agent.load(self.remote[0])
            there = agent.remote(peer, "DRAM").blocks(1 << 20, 64)
            memory = agent.register(np.zeros(SIZE, np.uint8), "here")
            here = memory.blocks(1 << 20, 64)

            def transfer(end):
                while now() < end:
                    agent.read(here, there).wait(timeout=DEADLINE)

            def notification(end):
                try:
                    agent.wait_notification(timeout=max(end - now(), 0) / 1e9)
                except warpverbs.Timeout:
                    pass

            self.beside("another thread's speed while one waits for a transfer", transfer)
            self.beside("another thread's speed while one waits for a notification", notification)

    def kill(self):
        case = self.case("WRITE", "8")
        case.making(1)
        self.finish(case.handle)
        self.peer.process.kill()
        start = now()
        while now() - start < DEADLINE * 1e9:
            try:
                self.finish(case.handle)
            except Exception as error:
                self.put("peer killed, to the exception", (now() - start) / 1e6)
                print(f"      {type(error).__name__}: {error}", file=sys.stderr)
                return
        print("      no exception", file=sys.stderr)

    def installed(self):
        # Without what it depends on: torch and numpy of NIXL's, nothing of ours.
        name = "warpverbs" if self.ours else self.api.__package__.partition(".")[0].replace("_", "-")
        files = [file.locate() for file in importlib.metadata.files(name) or () if "__pycache__" not in file.parts]
        self.put("installed", sum(os.path.getsize(file) for file in files if os.path.exists(file)) / 1e6)

    def all(self):
        self.installed()
        self.connect("host", SIZE, [0])
        if self.ours:
            self.own()
        for part in (self.sizes, self.lists, self.makes, self.notifications, self.begins, self.threads, self.polls):
            part()
        if self.ours:
            self.waits()
        self.kill()
        if self.args.gpus:
            self.connect("gpu", SIZE, [int(gpu) for gpu in self.args.gpus.split(",")])
            rows = [("GPU: 8 B WRITE, post to done", "WRITE", "8")]
            rows += [(f"GPU: 4096 x 4 KiB scattered, {op}", op, f"4Kx{BLOCKS}") for op in ("WRITE", "READ")]
            self.transfers(rows)
            self.peer.end()


class Counter(threading.Thread):
    """A thread that only counts."""

    def __init__(self):
        super().__init__(daemon=True)
        self.count, self.over = 0, False

    def run(self):
        while not self.over:
            self.count += 1

    def waited(self):
        """Nanoseconds for which it could run and had no processor: other programs' doing."""
        with open(f"/proc/self/task/{self.native_id}/schedstat") as file:
            return int(file.read().split()[1])

    def speed(self, work, seconds):
        start, before, waited = now(), self.count, self.waited()
        work(start + seconds * 1e9)
        return (self.count - before) / (now() - start - (self.waited() - waited))


def one(args):
    package = Package(args)
    package.all()
    json.dump(package.rows, sys.stdout)
    sys.stdout.flush()
    # NIXL's threads may wait for the peer that has ended, and its libraries fail at the end of a process.
    os._exit(0)


def turn(args, package):
    env = {name: value for name, value in os.environ.items() if name != "WARPVERBS_AS_NIXL"}
    if package == "ours":
        env["WARPVERBS_AS_NIXL"] = "1"
    command = [sys.executable, os.path.abspath(__file__), "--one", "--seconds", str(args.seconds)]
    command += ["--gpus", args.gpus] if args.gpus else []
    run = subprocess.run(command, env=env, stdout=subprocess.PIPE, timeout=300, check=True)
    # NIXL's log is there too.
    return json.loads(run.stdout.split(b"\n")[-1])


def verdicts(unit, ours, theirs, most, part):
    """Each thing that is wanted, and whether it is met."""
    more = unit in MORE_IS_BETTER
    if most is not None:
        yield f"{'>=' if more else '<='} {most:g} {unit}", ours >= most if more else ours <= most
    if part is not None and theirs is not None:
        yield f"<= {part:g} x NIXL", ours <= part * theirs


def table(turns):
    """Prints a line for each row; returns them, and the findings."""
    rows, findings = [], []
    print(f"{'medians of ' + str(len(turns)) + ' turns':60}{'ours':>12}{'NIXL':>12}{'ratio':>8}   wanted")
    for name, (unit, most, part) in ROWS.items():
        found = {package: [each[package][name] for each in turns if name in each[package]] for package in PACKAGES}
        ours, theirs = (statistics.median(found[package]) if found[package] else None for package in PACKAGES)
        if ours is None:
            continue
        ratio = ours / theirs if theirs else None
        judged = list(verdicts(unit, ours, theirs, most, part))
        said = ", ".join(f"{wanted}: {'met' if met else 'MISSED'}" for wanted, met in judged)
        show = lambda value: "-" if value is None else f"{value:.2f}" if value < 1000 else f"{value:.0f}"
        print(f"{name + ', ' + unit:60}{show(ours):>12}{show(theirs):>12}{show(ratio):>8}   {said}".rstrip())
        row = {"name": name, "unit": unit, "ours": found["ours"], "theirs": found["NIXL"], "beside": "NIXL"}
        rows.append(dict(row, ratios=[mine / other for mine, other in zip(*found.values()) if other], ratio=ratio))
        findings += [{"what": name, "value": ours, "wanted": wanted, "met": met} for wanted, met in judged]
    return rows, findings


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--gpus")
    parser.add_argument("--json")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args)
    turns = [{package: turn(args, package) for package in PACKAGES} for _ in range(args.turns)]
    rows, findings = table(turns)
    if args.json:
        setting = {"contenders": list(PACKAGES), "rounds": args.turns, "cores": len(os.sched_getaffinity(0))}
        version = importlib.metadata.version("warpverbs")
        document = {"schema": 1, "version": version, "command": "bench-nixl --python", "setting": setting, "rows": rows, "findings": findings}
        with open(args.json, "w") as file:
            json.dump(document, file, indent=1)


main()
