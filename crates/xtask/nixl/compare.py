"""Prints the rows of run.sh: NIXL's, ours, and their ratio. Of several turns the best median counts."""

import glob
import json
import os
import sys

TITLES = {
    "host": "host memory of two processes; NIXL by the transports that UCX takes",
    "sockets": "sockets: NIXL with UCX_TLS=tcp, this project's software NIC by RoCEv2 over UDP",
    "tcp": "sockets: NIXL with UCX_TLS=tcp, this project's TCP path",
    "gpu": "memory of two GPUs",
    "one": "memory of one GPU, two processes: for correctness",
    "mixed": "host memory and memory of a GPU",
}
# Tables of ours that have the rows of another beside them.
BESIDE = {"tcp": "sockets"}
# Kinds of ours beside those of NIXL.
KIND = {"host": "host", "shared": "host", "pinned": "host", "gpu": "gpu", "malloc": "gpu"}


def rows(paths):
    best = {}
    for path in paths:
        with open(path) as file:
            text = file.read()
        try:
            document = json.loads(text)
        except ValueError:
            # Of a program that failed, which the script has said.
            continue
        for row in document["rows"]:
            name = row["op"], row["local"], row["remote"], row["bytes"], row["blocks"], row["layout"]
            known = best.setdefault(name, dict(row))
            for part in ("prepare", "make", "initialize", "post", "transfer"):
                if row[part]["p50_ns"] < known[part]["p50_ns"]:
                    known[part] = row[part]
    return best


def size(count):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"


def table(folder, name):
    nixl = rows(sorted(glob.glob(f"{folder}/{BESIDE.get(name, name)}.nixl.*")))
    ours = rows(sorted(glob.glob(f"{folder}/{name}.ours.*")))
    if not ours:
        return
    print(f"\n{TITLES[name]}; medians in us: NIXL, ours, ratio")
    print(f"{'op':6}{'memory':14}{'list':16}{'layout':10} {'path':15}{'post to done':>28}{'GB/s':>7}{'make':>22}{'initialize':>24}")
    for (op, local, remote, length, blocks, layout), mine in ours.items():
        other = nixl.get((op, KIND[local], KIND[remote], length, blocks, layout))

        def pair(part, width):
            value = mine[part]["p50_ns"] / 1e3
            if other is None:
                return f"{'-':>{width}} {value:9.2f}     -"
            beside = other[part]["p50_ns"] / 1e3
            return f"{beside:{width}.2f} {value:9.2f} {value / beside:5.2f}"

        what = f"{blocks} x {size(length)}" if blocks > 1 else size(length)
        rate = length * blocks / mine["transfer"]["p50_ns"]
        print(
            f"{op:6}{local + ':' + remote:14}{what:16}{layout if blocks > 1 else '':10} {mine['path']:15}"
            f"{pair('transfer', 12)}{rate:7.1f} {pair('make', 5)} {pair('initialize', 7)}"
        )


for name in TITLES:
    table(sys.argv[1], name)
print("\nJSON of each turn:", os.path.abspath(sys.argv[1]))
