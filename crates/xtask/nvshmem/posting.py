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
    for (qps, blocks, threads), rates in sorted(ours.items()):
        best, other = max(rates), theirs.get((qps, blocks, threads))
        beside = (f"{other:9.2f}", f"{best / other:5.2f}") if other else (f"{'-':>9}", f"{'-':>5}")
        print(f"{qps:3} {blocks:4} x {threads:<4} {beside[0]} {best:9.2f} {beside[1]} {min(rates):9.2f}")
    rows = load(f"{folder}/ours.latency")["rows"]
    mine = next(row["time"]["p50_ns"] for row in rows if "only consumes" in row["what"])
    for qps, p50 in sorted(lone.items()):
        print(f"a lone put to its completion, {qps} QPs, p50: NVSHMEM {p50 / 1e3:.2f} us, ours {mine / 1e3:.2f} us, {mine / p50:.2f}")


main(sys.argv[1])
