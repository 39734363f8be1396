"""Ray's transport of tensors by NIXL, as Ray has it: actors of one node that give tensors to each other.

Nothing of Ray is left out: a head, workers, and objects whose tensors move by `tensor_transport="nixl"`. The first argument, a
folder, is not needed.
"""

import hashlib
import os
import secrets
import tempfile

# Otherwise Ray makes a token and keeps it in the home folder.
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

import numpy
import ray
import torch

from steps import PATIENCE, SEED, Steps, until, want

#: Tensors of one object: sizes and types that differ, one of them not a whole number of pages.
SHAPES = [((257, 33), torch.float32), ((1 << 20,), torch.uint8), ((5,), torch.int64), ((64, 4096), torch.bfloat16)]


def tensors(seed):
    """Random tensors, the same in every process for one seed."""
    rng = numpy.random.default_rng(seed)
    made = []
    for shape, kind in SHAPES:
        size = int(numpy.prod(shape)) * kind.itemsize
        made.append(torch.from_numpy(rng.integers(0, 256, size, dtype=numpy.uint8)).view(kind).reshape(shape))
    return made


def digests(given):
    return [hashlib.sha256(one.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest() for one in given]


@ray.remote(num_cpus=0, enable_tensor_transport=True)
class Holder:
    """An actor that makes tensors and looks at those of others."""

    @ray.method(tensor_transport="nixl")
    def make(self, seed):
        return tensors(seed)

    def look(self, given):
        return digests(given), [str(one.dtype) for one in given], [tuple(one.shape) for one in given]

    def package(self):
        import nixl
        import nixl._bindings

        return nixl.__file__ or "", nixl._bindings.__name__

    def kept(self):
        from ray.experimental.rdt.util import get_tensor_transport_manager

        transport = get_tensor_transport_manager("NIXL")
        return transport._get_num_managed_meta_nixl(), len(transport._tensor_desc_cache)

    def pid(self):
        return os.getpid()


def get(reference):
    return ray.get(reference, timeout=2 * PATIENCE)


def which(a, _):
    file, _ = get(a.package.remote())
    if os.environ.get("WARPVERBS_AS_NIXL") == "1" and "warpverbs" not in file:
        raise AssertionError(f"the actors' nixl is {file}")
    return file


def between(a, b):
    for seed in range(SEED, SEED + 3):
        seen, kinds, shapes = get(b.look.remote(a.make.remote(seed)))
        want(seen, digests(tensors(seed)), "tensors")
        want(kinds, [str(kind) for _, kind in SHAPES], "types")
        want(shapes, [shape for shape, _ in SHAPES], "shapes")
    # The other way, while the first still holds objects.
    one, other = a.make.remote(SEED), b.make.remote(SEED + 9)
    want(get(b.look.remote(one))[0], digests(tensors(SEED)), "tensors")
    want(get(a.look.remote(other))[0], digests(tensors(SEED + 9)), "tensors the other way")


def to_driver(a, _):
    reference = a.make.remote(SEED)
    want(digests(get(reference)), digests(tensors(SEED)), "tensors in the driver")


def freed(a, b):
    get(b.look.remote(a.make.remote(SEED)))
    until(lambda: get(a.kept.remote()) == (0, 0), "registrations that end with their objects")


def killed(a, b):
    reference = a.make.remote(SEED)
    ray.wait([reference], timeout=PATIENCE, fetch_local=False)
    ray.kill(a)
    try:
        get(b.look.remote(reference))
    except ray.exceptions.GetTimeoutError:
        raise
    except ray.exceptions.RayError as error:
        said = type(error).__name__
    else:
        raise AssertionError("tensors of an actor that was killed arrived")
    successor = Holder.remote()
    want(get(b.look.remote(successor.make.remote(SEED + 1)))[0], digests(tensors(SEED + 1)), "tensors of another")
    return said


def main():
    # Sockets of Ray's are in this folder, and their paths must be short.
    with tempfile.TemporaryDirectory(prefix="wv", dir="/tmp") as folder:
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=128 << 20,
            _temp_dir=folder,
            _node_ip_address="127.0.0.1",
        )
        try:
            steps, pair = Steps(), (Holder.remote(), Holder.remote())
            steps.step("actors import the package", which, *pair)
            steps.step("tensors go from actor to actor", between, *pair)
            steps.step("tensors come to the driver", to_driver, *pair)
            steps.step("registrations end with their objects", freed, *pair)
            steps.step("an actor is killed, and another gives", killed, *pair)
        finally:
            ray.shutdown()
    steps.end()


if __name__ == "__main__":
    main()
