"""Dynamo's `nixl_connect` between two processes: a Connector here reads, writes and cancels, the other's waits.

The module runs as Dynamo has it; the folder that has its package is the first argument.
"""

import asyncio
import importlib
import sys

import numpy

from bare import bare
from steps import PATIENCE, SEED, Other, Steps, blocks, digests, serve, want

COUNT, LENGTH = 24, 1 << 20


def load(folder):
    bare(folder, "dynamo")
    return importlib.import_module("dynamo.nixl_connect")


class Loop:
    """Runs one coroutine after the other, each within a time."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()

    def __call__(self, coroutine):
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, PATIENCE))


def descriptors(connect, array):
    return [connect.Descriptor((row, "cpu")) for row in array]


def other(folder, seed):
    """The second process: offers its blocks for reading or writing, then waits until that is done."""
    connect, run = load(folder), Loop()
    connector = connect.Connector("passive")
    array = blocks(int(seed), COUNT, LENGTH)
    offered = {}

    def answer(ask, kind=None, rows=None):
        if ask == "offer":
            offer = connector.create_readable if kind == "read" else connector.create_writable
            offered[kind] = run(offer(descriptors(connect, [array[row] for row in rows])))
            return offered[kind].metadata().model_dump()
        if ask == "wait":
            operation = offered.pop(kind)
            run(operation.wait_for_completion())
            return operation.status.name
        if ask == "withdraw":
            with offered.pop(kind):
                return "withdrawn"
        return digests(array)

    serve(lambda: "ready", answer)


class Run:
    def __init__(self, folder):
        self.connect, self.run = load(folder), Loop()
        self.connector = self.connect.Connector("active")
        self.peer = Other(folder, SEED + 2)
        self.model = blocks(SEED + 2, COUNT, LENGTH)
        self.numbers = numpy.random.default_rng(SEED)

    def offer(self, kind, rows):
        said = self.peer.ask(ask="offer", kind=kind, rows=rows)
        return self.connect.RdmaMetadata.model_validate(said)

    def rows(self, count):
        return self.numbers.permutation(COUNT)[:count].tolist()

    def read(self, count):
        rows = self.rows(count)
        into = numpy.zeros((count, LENGTH), numpy.uint8)

        async def all(metadata):
            with await self.connector.begin_read(metadata, descriptors(self.connect, into)) as read:
                await read.wait_for_completion()
                return read.status.name

        want(self.run(all(self.offer("read", rows))), "COMPLETE", "the read")
        want(self.peer.ask(ask="wait", kind="read"), "COMPLETE", "the other's side")
        want(digests(into), digests(self.model[rows]), "blocks read")
        return f"{count} blocks of {LENGTH} bytes equal"

    def write(self, count):
        rows = self.rows(count)
        out = blocks(SEED + 3, count, LENGTH)

        async def all(metadata):
            local = descriptors(self.connect, out)
            with await self.connector.begin_write(local, metadata) as write:
                await write.wait_for_completion()
                return write.status.name

        want(self.run(all(self.offer("write", rows))), "COMPLETE", "the write")
        want(self.peer.ask(ask="wait", kind="write"), "COMPLETE", "the other's side")
        self.model[rows] = out
        want(self.peer.ask(ask="digests"), digests(self.model), "blocks of the other")
        return f"{count} blocks of {LENGTH} bytes equal"

    def cancel(self):
        """A read is cancelled before or while bytes move; the memory is ours again when cancel returns."""
        into = numpy.zeros((COUNT, LENGTH), numpy.uint8)

        async def all(metadata):
            with await self.connector.begin_read(metadata, descriptors(self.connect, into)) as read:
                # The first look at the state begins the transfer.
                began = read.status.name
                read.cancel()
                want(read.status.name, "CANCELLED", "the read")
                return began

        began = self.run(all(self.offer("read", list(range(COUNT)))))
        into[:] = 255
        want(self.peer.ask(ask="withdraw", kind="read"), "withdrawn", "the other")
        self.read(COUNT)
        want(bool((into == 255).all()), True, "nothing lands after cancel")
        return f"state before: {began}"


def main(folder):
    steps = Steps()
    made = []
    if steps.step("connectors begin", lambda: made.append(Run(folder))):
        run = made[0]
        steps.step("reads one block", run.read, 1)
        steps.step("reads many", run.read, COUNT)
        steps.step("writes one block", run.write, 1)
        steps.step("writes many", run.write, COUNT)
        steps.step("cancels", run.cancel)
        steps.step("writes after it", run.write, COUNT // 2)
        steps.step("ends", lambda: run.peer.end() and "")
    steps.end()


if __name__ == "__main__":
    other(*sys.argv[2:]) if sys.argv[1] == "--other" else main(*sys.argv[1:])
