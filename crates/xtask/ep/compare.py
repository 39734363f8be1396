"""Prints the rows of run.sh: each peer's times, ours, and their ratio. Of several turns the best median counts."""

import glob
import json
import sys

# By peer: which of our rows are beside its own, by layout and combine.
BESIDE = {"flashinfer": [("rank", None)], "deepep": [("expert", "reduced"), ("expert", "exact")]}
PARTS = ("dispatch", "combine", "pair")


def best(rows, name, times):
    known = rows.setdefault(name, times)
    for part in PARTS:
        known[part] = min(known[part], times[part])


def theirs(folder, peer):
    rows = {}
    for path in glob.glob(f"{folder}/{peer}.[0-9]"):
        with open(path) as file:
            for row in map(json.loads, file):
                times = {part: row[part]["p50_ns"] / 1e3 for part in PARTS[:2]}
                best(rows, row["tokens"], times | {"pair": row["pair_ns"] / 1e3})
    return rows


def ours(folder):
    rows = {}
    for path in glob.glob(f"{folder}/ours.[0-9]"):
        with open(path) as file:
            for row in json.load(file)["rows"]:
                combine = None if row["layout"] == "rank" else row["combine"]
                times = {"dispatch": row["dispatch"]["time"]["p50_ns"] / 1e3, "combine": row["back"]["time"]["p50_ns"] / 1e3}
                best(rows, (row["layout"], combine, row["tokens"]), times | {"pair": row["pair_ns"] / 1e3})
    return rows


def main(folder):
    mine = ours(folder)
    print(f"{'peer':11}{'layout':8}{'combine':9}{'tokens':>7}" + "".join(f"{part + ' us: peer, ours, ratio':>32}" for part in PARTS))
    for peer, layouts in BESIDE.items():
        for layout, combine in layouts:
            for tokens, other in sorted(theirs(folder, peer).items()):
                row = mine.get((layout, combine, tokens))
                if row is None:
                    continue
                cells = (f"{other[part]:16.1f}{row[part]:9.1f}{row[part] / other[part]:7.2f}" for part in PARTS)
                print(f"{peer:11}{layout:8}{combine or 'summed':9}{tokens:7}" + "".join(cells))


main(sys.argv[1])
