"""SGLang's NixlKVManager between two processes, over pages of several layers on the host: it registers them, prepares
strided lists of them and writes pages by their numbers; its peer is killed, and it goes on with another.

The class's own methods run as SGLang has them; what its constructor takes from the server (its arguments, its bootstrap
by ZeroMQ) is not there. The folder that has SGLang's package is the first argument.
"""

import importlib
import signal
import sys
import types

import numpy

from bare import bare, stand_in
from steps import SEED, Other, Steps, blocks, data, digests, serve, text, until, want

LAYERS, PAGES, LENGTH = 4, 64, 8192
DISAGGREGATION = "sglang.srt.disaggregation"


def anything(name):
    """A module that has every name, each a class: for names that only annotations and base classes use."""
    stand_in(name, __getattr__=lambda each: type(each, (), {}) if each[0] != "_" else None)


def load(folder):
    bare(folder, "sglang", "sglang.srt", "sglang.srt.utils", DISAGGREGATION)
    bare(folder, *(f"{DISAGGREGATION}.{each}" for each in ("base", "common", "nixl")))
    for name in ("server_args", "runtime_context", "utils.common"):
        anything(f"sglang.srt.{name}")
    for name in ("common.conn", "common.staging_handler", "common.utils", "utils"):
        anything(f"{DISAGGREGATION}.{name}")
    sys.path.insert(0, folder)
    return importlib.import_module(DISAGGREGATION + ".nixl.conn")


class Pages:
    """A manager over pages of its own, which stand layer after layer."""

    def __init__(self, folder, seed):
        module = load(folder)
        api = importlib.import_module("nixl._api")
        self.array = blocks(seed, LAYERS * PAGES, LENGTH)
        self.aux = numpy.zeros(4096, numpy.uint8)
        layers = [self.array[layer * PAGES].ctypes.data for layer in range(LAYERS)]
        manager = object.__new__(module.NixlKVManager)
        manager.kv_args = types.SimpleNamespace(
            kv_data_ptrs=layers,
            kv_data_lens=[PAGES * LENGTH] * LAYERS,
            kv_item_lens=[LENGTH] * LAYERS,
            kv_data_mem_kinds=["DRAM"] * LAYERS,
            aux_data_ptrs=[self.aux.ctypes.data],
            aux_data_lens=[self.aux.nbytes],
            state_data_ptrs=[],
            state_data_lens=[],
            gpu_id=0,
        )
        strict = api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
        config = api.nixl_agent_config(backends=[], num_threads=8, sync_mode=strict)
        manager.agent = api.nixl_agent(f"manager-{seed}", config)
        manager.agent.create_backend("UCX", {"num_threads": "8"})
        manager.prep_handles, manager.decode_kv_args_table = {}, {}
        manager._use_strided_descs, manager._num_slots_src = True, PAGES
        manager.register_buffer_to_engine()
        self.manager = manager

    def address(self):
        agent = self.manager.agent
        return [agent.name, text(agent.get_agent_metadata()), self.manager.kv_args.kv_data_ptrs]


def other(folder, seed):
    one = Pages(folder, int(seed))
    serve(one.address, lambda ask: digests(one.array))


class Run:
    def __init__(self, folder):
        self.folder, self.seed = folder, SEED + 10
        self.here = Pages(folder, SEED + 9)
        self.numbers = numpy.random.default_rng(SEED)
        args = self.here.manager.kv_args
        self.here.manager._init_equal_tp_prep_handle("", args.kv_data_ptrs, 0, mem_kind="DRAM")

    def begin(self):
        self.seed += 1
        self.model = blocks(self.seed, LAYERS * PAGES, LENGTH)
        self.peer = Other(self.folder, self.seed)
        self.name, metadata, self.layers = self.peer.hello
        manager = self.here.manager
        manager.agent.add_remote_agent(data(metadata))
        manager._init_equal_tp_prep_handle(self.name, self.layers, 0, mem_kind="DRAM")
        manager.decode_kv_args_table[self.name] = types.SimpleNamespace(dst_num_slots=PAGES)
        want(manager._use_strided_descs, True, "strided lists are taken")

    def post(self, out, into):
        args = self.here.manager.kv_args
        return self.here.manager._send_kvcache_generic(
            self.name, args.kv_data_ptrs, self.layers, args.kv_item_lens, out, into, 0
        )

    def send(self):
        for count in (1, 13, PAGES):
            out, into = (self.numbers.permutation(PAGES)[:count].astype(numpy.int32) for _ in "oi")
            handle = self.post(out, into)
            want(self.here.manager._await_handles([handle], failure_seen=False), (True, False), "it")
            for layer in range(LAYERS):
                self.model[layer * PAGES + into] = self.here.array[layer * PAGES + out]
        want(self.peer.ask(ask="digests"), digests(self.model), "pages of the peer")
        return f"{(1 + 13 + PAGES) * LAYERS} pages of {LENGTH} bytes equal"

    def killed(self):
        """The next posts fail with one of the errors that the manager takes as the transport's."""
        module = sys.modules[DISAGGREGATION + ".nixl.conn"]
        self.peer.signal(signal.SIGKILL)
        page = numpy.zeros(1, numpy.int32)

        def fails():
            try:
                handle = self.post(page, page)
                settled, failed = self.here.manager._await_handles([handle], failure_seen=False)
                return failed and "failed while it was awaited"
            except module._NixlPostError as error:
                want(isinstance(error.__cause__, module._NIXL_TRANSPORT_ERRORS), True, repr(error))
                return str(error)

        said = until(fails, "a post to a killed peer fails", 5)
        want(self.here.manager.agent.check_remote_metadata(self.name), False, "its metadata are known")
        return said


def main(folder):
    steps = Steps()
    made = []
    if steps.step("the manager begins", lambda: made.append(Run(folder))):
        run = made[0]
        for name in ("a peer", "another peer"):
            if steps.step(f"{name} begins", run.begin):
                steps.step(f"{name} gets pages", run.send)
                steps.step(f"{name} is killed", run.killed)
    steps.end()


if __name__ == "__main__":
    other(*sys.argv[2:]) if sys.argv[1] == "--other" else main(*sys.argv[1:])
