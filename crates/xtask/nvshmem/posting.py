"""Prints the rows of posting.sh: millions of puts a second by NVSHMEM and by this project, the best of their
turns, the ratio, and our worst turn; and the latency of a lone put."""

import glob
import json
import os
import sys


def lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.startswith("{")]


def load(path):
    with open(path) as file:
        return json.load(file)


def main(folder):
    ours = {}
    for path in glob.glob(f"{folder}/ours.[0-9]*"):
        if os.path.getsize(path) == 0:
            continue
        for row in load(path)["rows"]:
            name = row["qps"], row["blocks"], row["threads"]
            ours.setdefault(name, []).append(row["wqes_per_s"] / 1e6)
    theirs, lone = {}, {}
    for path in glob.glob(f"{folder}/theirs.*.0"):
        qps = int(path.split(".")[-2])
        for row in lines(path):
            if "p50_ns" in row:
                lone[qps] = row["p50_ns"]
            else:
                theirs[qps, row["blocks"], row["threads"]] = row["per_s"] / 1e6
    print("millions of puts a second")
    print(f"{'QPs':>3} {'grid':>11} {'NVSHMEM':>9} {'ours':>9} ratio {'worst':>9}")
    for name in sorted({*ours, *theirs}):
        rates, other = ours.get(name), theirs.get(name)
        cells = [other, rates and max(rates), other and rates and max(rates) / other, rates and min(rates)]
        text = " ".join(f"{value:{width}.2f}" if value else " " * (width - 1) + "-" for value, width in zip(cells, (9, 9, 5, 9)))
        print(f"{name[0]:3} {name[1]:4} x {name[2]:<4} {text}")
    if os.path.getsize(f"{folder}/ours.latency") == 0:
        return
    rows = load(f"{folder}/ours.latency")["rows"]
    mine = next(row["time"]["p50_ns"] for row in rows if "only consumes" in row["what"])
    for qps, p50 in sorted(lone.items()):
        print(f"a lone put to its completion, {qps} QPs, p50: NVSHMEM {p50 / 1e3:.2f} us, ours {mine / 1e3:.2f} us, {mine / p50:.2f}")


main(sys.argv[1])
