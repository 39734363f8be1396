"""vLLM's transports of blocks, between two processes: of its KV cache's peer tier, which writes, and of its encoder
cache, which reads. Then the peer is stopped, killed, and started again under its name.

The classes run as vLLM has them; the folder of its sources is the first argument.
"""

import logging
import signal
import sys
import time

import numpy

from bare import bare
from steps import PATIENCE, SEED, Other, Steps, blocks, data, digests, serve, text, until, want

COUNT, LENGTH = 256, 16384
TIER = "vllm.v1.kv_offload.tiering.p2p.data"
ENCODER = "vllm.distributed.ec_transfer.ec_connector.cpu.data"


def packages(*names):
    """The names and all packages above them, from the top."""
    prefixes = {}
    for name in names:
        words = name.split(".")
        prefixes.update({".".join(words[:end]): None for end in range(1, len(words) + 1)})
    return list(prefixes)


def load(folder):
    bare(folder, *packages(TIER, ENCODER))
    sys.path.insert(0, folder)
    import importlib

    tier = importlib.import_module(TIER + ".nixl").NixlTransport
    encoder = importlib.import_module(ENCODER + ".nixl").NixlDataTransport
    return tier, encoder


class Tier:
    """A transport over blocks of its own."""

    def __init__(self, folder, name, seed):
        self.array = blocks(seed, COUNT, LENGTH)
        self.transport = load(folder)[0](name, memoryview(self.array))

    def address(self):
        transport = self.transport
        metadata = text(transport.get_agent_metadata())
        return [metadata, transport.base_addr, transport.num_blocks, transport.block_len]

    def add(self, peer, address):
        metadata, *where = address
        self.transport.add_remote_peer(peer, data(metadata), *where)


class Encoder:
    def __init__(self, folder, name, seed):
        self.array = blocks(seed, COUNT, LENGTH)
        self.transport = load(folder)[1](
            name, self.array.ctypes.data, COUNT, LENGTH, COUNT * LENGTH
        )

    def address(self):
        transport = self.transport
        return [text(transport.get_agent_metadata()), text(transport.get_mem_descriptor())]


def other(kind, folder, name, seed):
    """The second process: has blocks, and says what they are and who has sent messages."""
    one = {"tier": Tier, "encoder": Encoder}[kind](folder, name, int(seed))

    def answer(ask):
        if ask == "digests":
            return digests(one.array)
        found = until(one.transport.get_new_notifs, "a message")
        return {name: [each.decode() for each in all] for name, all in found.items()}

    serve(one.address, answer)


class Warnings(logging.Handler):
    """The texts that the transport logs: what an operator sees of an error."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


class Run:
    """Steps that share a transport and its peer, blocks and the model of what the peer's blocks must be."""

    def __init__(self, folder):
        self.folder = folder
        self.tier = Tier(folder, "prefill", SEED + 1)
        self.numbers = numpy.random.default_rng(SEED)
        self.seed = SEED + 1
        self.warnings = Warnings()
        logging.getLogger(TIER + ".nixl").addHandler(self.warnings)

    def begin(self):
        self.seed += 1
        self.peer = Other("tier", self.folder, "decode", self.seed)
        self.model = blocks(self.seed, COUNT, LENGTH)
        self.tier.add("decode:1", self.peer.hello)

    def send(self, count):
        """Begins to write random blocks to random ones; how long that took."""
        here = self.numbers.permutation(COUNT)[:count]
        there = self.numbers.permutation(COUNT)[:count]
        begin = time.monotonic()
        number = self.tier.transport.write_blocks("decode:1", here.tolist(), there.tolist())
        if number is not None:
            self.model[there] = self.tier.array[here]
        return number, time.monotonic() - begin

    def fate(self, number, patience=PATIENCE):
        """The last word of polls on a write."""

        def ask():
            result = self.tier.transport.poll("decode:1")
            over = number in result.done or number in result.failed
            return (result, number in result.done) if over or result.peer_fault else None

        return until(ask, f"write {number} is done, has failed, or its peer is at fault", patience)

    def written(self):
        for count in (1, 17, COUNT):
            number, _ = self.send(count)
            want(number is not None, True, "the write has begun")
            want(self.fate(number)[1], True, "the write is done")
        want(self.peer.ask(ask="digests"), digests(self.model), "blocks of the peer")
        return f"{1 + 17 + COUNT} blocks of {LENGTH} bytes equal"

    def stopped(self):
        """While the peer is stopped nothing hangs; once it goes on, all that is said to be done is there."""
        self.peer.signal(signal.SIGSTOP)
        try:
            number, took = self.send(64)
            want(took < 5, True, f"write_blocks returned after {took:.1f} s, in under 5 s")
            # A path without the peer's processor may end; any other must go on to answer polls.
            end, longest, done = time.monotonic() + 2, 0.0, False
            while time.monotonic() < end and not done:
                begin = time.monotonic()
                done = number in self.tier.transport.poll("decode:1").done
                longest = max(longest, time.monotonic() - begin)
                time.sleep(0.001)
            want(longest < 1, True, f"a poll took {longest:.1f} s, under 1 s")
        finally:
            self.peer.signal(signal.SIGCONT)
        if not done:
            want(self.fate(number)[1], True, "the write is done once the peer goes on")
        want(self.peer.ask(ask="digests"), digests(self.model), "blocks of the peer")
        return f"{'done while it was stopped' if done else 'done when it went on'}, poll <= {longest:.3f} s"

    def killed(self):
        """The peer is at fault within a second, and what is logged says why."""
        self.warnings.texts.clear()
        self.peer.signal(signal.SIGKILL)
        begin = time.monotonic()
        while not (fault := self.tier.transport.poll("decode:1").peer_fault):
            number, _ = self.send(1)
            if number is not None:
                result, done = self.fate(number)
                want(done, False, "a write to a killed peer is done")
            want(time.monotonic() - begin < PATIENCE, True, "the peer is at fault in time")
        took = time.monotonic() - begin
        want(took < 1, True, f"at fault after {took:.2f} s, within 1 s")
        known = self.tier.transport._agent.check_remote_metadata("decode")
        want(known, False, "check_remote_metadata of the killed peer")
        return f"{fault} after {took * 1000:.0f} ms"

    def named(self):
        """The error's own text has the peer's name, beyond what vLLM adds in front of it."""
        errors = [each.split("failed", 1)[-1] for each in self.warnings.texts if "failed" in each]
        errors = [each.split(": ", 1)[-1] for each in errors]
        want(any("decode" in each for each in errors), True, f"one of {errors} names the peer")
        return errors[0]

    def healed(self, first):
        """A new process under the old name: its metadata are enough, whether the old ones were taken away or not."""
        if first:
            self.tier.transport.remove_remote_peer("decode:1")
            self.begin()
        else:
            self.peer.signal(signal.SIGKILL)
            self.begin()
        return self.written()


def encoder(folder):
    """Reads blocks of the other process and tells it so."""
    here = Encoder(folder, "consumer", SEED + 100)
    peer = Other("encoder", folder, "producer", SEED + 101)
    name = here.transport.add_remote_peer(*map(data, peer.hello))
    theirs = blocks(SEED + 101, COUNT, LENGTH)
    numbers = numpy.random.default_rng(SEED)
    into, out = (numbers.permutation(COUNT)[:48].tolist() for _ in range(2))
    handle = here.transport.post_read(into, name, out, b"request 7")
    until(lambda: here.transport.check_xfer_state(handle) == "DONE", "the read is done")
    here.transport.release_xfer_handle(handle)
    want(digests(here.array[into]), digests(theirs[out]), "blocks read")
    want(peer.ask(ask="messages"), {"consumer": ["request 7"]}, "messages at the producer")
    here.transport.remove_remote_peer(name)
    here.transport.deregister()
    peer.end()
    return f"48 blocks of {LENGTH} bytes equal, message received"


def main(folder):
    steps = Steps()
    steps.step("encoder cache reads", encoder, folder)
    run = Run(folder)
    if steps.step("peer tier begins", run.begin):
        steps.step("peer tier writes", run.written)
        steps.step("peer stopped", run.stopped)
        if steps.step("peer killed", run.killed):
            steps.step("the error names the peer", run.named)
        steps.step("peer restarted, old one removed", run.healed, True)
        steps.step("peer restarted, old one not removed", run.healed, False)
        steps.step("ends", lambda: (run.peer.end(), run.tier.transport.close()) and "")
    steps.end()


if __name__ == "__main__":
    other(*sys.argv[2:]) if sys.argv[1] == "--other" else main(*sys.argv[1:])
