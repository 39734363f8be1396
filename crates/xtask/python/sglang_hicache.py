"""SGLang's HiCacheNixl over files: its pages are set, found, read back, and found again by a second cache.

The class runs as SGLang has it, with a raw agent of its own making in place of the wrapped one; the folder that has
its package is the first argument.
"""

import importlib
import sys
import tempfile
import types

import numpy

from bare import bare, stand_in
from steps import SEED, Steps, want

PAGES, PAGE = 32, 16
STORAGE = "sglang.srt.mem_cache.storage.nixl"


def load(folder):
    names = ["sglang", "sglang.srt", "sglang.srt.mem_cache", "sglang.srt.mem_cache.storage"]
    bare(folder, *names, STORAGE)
    # It names this class in annotations only; its module needs kernels for GPUs.
    stand_in("sglang.srt.mem_cache.pool_host", HostKVCache=type("HostKVCache", (), {}))
    sys.path.insert(0, folder)
    return importlib.import_module(STORAGE + ".hicache_nixl")


class Pool:
    """A pool of pages on the host, as the cache asks for it: one contiguous buffer, page after page."""

    page_size, pin_memory = PAGE, False

    def __init__(self, torch, layout, seed):
        generator = torch.Generator().manual_seed(seed)
        self.layout = layout
        # Aligned to pages of memory, as direct input and output need it.
        size = PAGES * PAGE * 1024
        raw = torch.empty(size + 4096, dtype=torch.uint8)
        begin = -raw.data_ptr() % 4096
        self.kv_buffer = raw[begin : begin + size].view(PAGES * PAGE, 1024)
        values = torch.randint(0, 256, self.kv_buffer.shape, generator=generator)
        self.kv_buffer.copy_(values)
        self.torch = torch

    def is_stride_page_aligned(self, alignment):
        return (PAGE * 1024) % alignment == 0 and self.kv_buffer.data_ptr() % alignment == 0

    def get_dummy_flat_data_page(self):
        return self.torch.zeros(PAGE * 1024, dtype=self.torch.uint8)

    def get_data_page(self, index, flat=True):
        return self.kv_buffer[index : index + PAGE].flatten()

    def set_from_flat_data_page(self, index, page):
        self.kv_buffer[index : index + PAGE] = page.view(PAGE, 1024)

    def get_page_buffer_meta(self, indices):
        begins = indices[::PAGE].tolist()
        pointers = [self.kv_buffer[begin].data_ptr() for begin in begins]
        return pointers, [PAGE * 1024] * len(begins)


def cache(module, folder, **more):
    config = types.SimpleNamespace(
        tp_rank=0,
        tp_size=1,
        model_name="model",
        is_mla_model=True,
        extra_config={"plugin": {"posix": {"active": True}}, "l3_cleaner_enabled": False, **more},
    )
    return module.HiCacheNixl(config, file_path=folder)


def pages(module, direct, layout):
    import torch

    with tempfile.TemporaryDirectory() as folder:
        pool = Pool(torch, layout, SEED)
        kept = pool.kv_buffer.clone()
        first = cache(module, folder, use_direct_io=direct)
        first.register_mem_pool_host(pool)
        keys = [f"page{number}" for number in numpy.random.default_rng(SEED).permutation(PAGES)]
        indices = torch.arange(PAGES * PAGE)
        want(first.batch_exists(keys), 0, "pages found before any is set")
        want(all(first.batch_set_v1(keys, indices)), True, "all pages are set")
        want(first.batch_exists(keys), PAGES, "pages found")
        pool.kv_buffer.zero_()
        want(all(first.batch_get_v1(keys, indices)), True, "all pages are got")
        want(torch.equal(pool.kv_buffer, kept), True, "their bytes are equal")
        first.close()
        second, again = cache(module, folder, use_direct_io=direct), Pool(torch, layout, SEED + 1)
        second.register_mem_pool_host(again)
        want(second.batch_exists(keys + ["none"]), PAGES, "pages found by another cache")
        want(all(second.batch_get_v1(keys, indices)), True, "the other cache gets all")
        want(torch.equal(again.kv_buffer, kept), True, "and its bytes are equal")
        mode = second.agent.agent is not None and type(second.agent.agent).__module__
        second.close()
        return f"{PAGES} pages of {PAGE * 1024} bytes equal twice, raw agent of {mode}"


def main(folder):
    steps = Steps()
    made = []
    if steps.step("imports", lambda: made.append(load(folder))):
        for layout in ("page_first", "layer_first"):
            steps.step(f"{layout}, buffered", pages, made[0], False, layout)
            steps.step(f"{layout}, direct", pages, made[0], True, layout)
    steps.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
