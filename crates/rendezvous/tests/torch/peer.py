"""The ends that PyTorch plays in tests/it/torch.rs. Says one line for each step; fails loudly."""

import datetime
import sys
import traceback

from torch.distributed import PrefixStore, TCPStore

HOST = "127.0.0.1"
PATIENCE = datetime.timedelta(seconds=60)
SHORT = datetime.timedelta(milliseconds=150)


def say(*words):
    print(*words, flush=True)


def equal(got, expected):
    assert got == expected, f"got {got!r}, expected {expected!r}"


def fails(call):
    try:
        call()
    except Exception as error:  # PyTorch's own types differ between versions.
        return str(error)
    raise AssertionError("did not fail")


def client(port, libuv, workers=None):
    join = workers is not None
    return TCPStore(HOST, port, workers, False, PATIENCE, wait_for_workers=join, use_libuv=libuv)


def exercise(store):
    """Every call of PyTorch's process groups, and more, against a store of ours."""
    store.set("k", "one")
    equal(store.get("k"), b"one")
    equal(store.compare_set("k", "two", "x"), b"one")
    equal(store.compare_set("k", "one", "two"), b"two")
    equal(store.compare_set("absent", "y", "x"), b"y")
    equal(store.add("n", 5), 5)
    equal(store.add("n", -7), -2)
    equal(store.get("n"), b"-2")
    equal(store.check(["k", "n"]), True)
    equal(store.check(["k", "z"]), False)
    store.wait(["k", "n"])
    assert "z" in fails(lambda: store.wait(["k", "z"], SHORT))
    store.append("k", "+")
    equal(store.get("k"), b"two+")
    store.multi_set(["a", "b"], ["1", ""])
    equal(store.multi_get(["b", "a"]), [b"", b"1"])
    equal(store.has_extended_api(), True)
    big = bytes(range(256)) * 4096
    store.set("big", big)
    equal(store.get("big"), big)
    equal(store.delete_key("big"), True)
    equal(store.delete_key("big"), False)
    equal(store.num_keys(), 5)  # a, b, k, n and PyTorch's own count of workers
    store.set("done", "1")


def clients(ports):
    """PyTorch as client of the stores at these ports, with each backend's client."""
    for port, libuv in zip(ports, (True, False)):
        exercise(client(int(port), libuv, workers=1))
        say("exercised", libuv)


def rank(port):
    """PyTorch as rank 1 of a world of ours, by the layout that src/world/mod.rs documents."""
    store = PrefixStore("warpverbs/torch/0", client(int(port), True))
    equal(store.get("world"), b"1 2")
    store.set("barrier/join/0/1", "1")
    store.wait(["barrier/join/0/0"])
    store.set("exchange/handle/0/1", "from python")
    say("met", store.get("exchange/handle/0/0").decode())
    store.set("left/1", "1")


def servers():
    """PyTorch as server, with both backends, of a job in which the other worker is of ours."""
    for libuv in (True, False):
        lone = TCPStore(HOST, 0, None, True, PATIENCE, wait_for_workers=False, use_libuv=libuv)
        say("port", lone.port)
        lone.wait(["from rust"])
        equal(lone.get("from rust"), bytes(range(256)))
        equal(lone.multi_get(["a", "b"]), [b"1", b""])
        lone.set("from python", "hello")
        lone.wait(["done"])
        equal(sys.stdin.readline(), "next\n")
        # The constructor returns once two workers have joined.
        say("port", PORTS[libuv])
        pair = TCPStore(HOST, PORTS[libuv], 2, True, PATIENCE, use_libuv=libuv)
        pair.set("met", "1")
        equal(sys.stdin.readline(), "next\n")


PORTS = {}


def main(mode, *arguments):
    if mode == "import":
        import torch

        say(torch.__version__)
    elif mode == "clients":
        clients(arguments)
    elif mode == "rank":
        rank(*arguments)
    elif mode == "servers":
        PORTS.update({True: int(arguments[0]), False: int(arguments[1])})
        servers()
    else:
        raise SystemExit(f"unknown mode {mode}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BaseException:
        say("failed", traceback.format_exc().replace("\n", " | "))
        raise
