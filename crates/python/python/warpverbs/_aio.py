"""`await` of transfers: one descriptor for each event loop, no thread."""

from __future__ import annotations

import asyncio
import itertools
import weakref

from ._native import Ready


class _Waiting:
    """The transfers that one event loop waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ready = Ready()
        self.numbers = itertools.count()
        self.futures: dict[int, tuple] = {}
        self.loop = weakref.ref(loop)

    def watch(self) -> None:
        loop = self.loop()
        if loop is not None and not loop.is_closed():
            loop.add_reader(self.ready.fileno(), self.fire)

    def unwatch(self) -> None:
        loop = self.loop()
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self.ready.fileno())

    def fire(self) -> None:
        for number in self.ready.take():
            self.look(number)

    def look(self, number: int) -> None:
        found = self.futures.get(number)
        if found is None or found[0].done():
            return
        future, pending = found
        try:
            if pending.poll(self.ready, number):
                future.set_result(None)
        except Exception as error:
            future.set_exception(error)


_LOOPS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


async def wait(transfer):
    """Waits for the end of a transfer; the result is the transfer, the exception the cause of its failure.

    A task that is cancelled meanwhile does not cancel the transfer.
    """
    loop = asyncio.get_running_loop()
    waiting = _LOOPS.get(loop)
    if waiting is None:
        waiting = _LOOPS[loop] = _Waiting(loop)
    number = next(waiting.numbers)
    future = loop.create_future()
    if not waiting.futures:
        waiting.watch()
    waiting.futures[number] = (future, transfer._pending())
    try:
        waiting.look(number)
        await future
    finally:
        del waiting.futures[number]
        if not waiting.futures:
            waiting.unwatch()
    return transfer
