"""Prints the rows of run.sh, and writes them into rows.json of its folder: each peer's times, ours, and ours over theirs,
and the memory that each takes for a channel. Of several turns the best median counts."""

import glob
import json
import sys

# By peer: which of our rows are beside its own, by layout and combine.
BESIDE = {"flashinfer": [("rank", "summed")], "deepep": [("expert", "reduced"), ("expert", "exact")]}
PARTS = ("dispatch", "combine", "pair")


def best(rows, name, times):
    known = rows.setdefault(name, times)
    for part in PARTS:
        known[part] = min(known[part], times[part])


def of(row, dispatch, combine, memory):
    times = {"dispatch": dispatch["p50_ns"] / 1e3, "combine": combine["p50_ns"] / 1e3, "pair": row["pair_ns"] / 1e3}
    return times | {"megabytes": row[memory] / 1e6}


def theirs(folder, peer):
    rows = {}
    for path in glob.glob(f"{folder}/{peer}.[0-9]"):
        with open(path) as file:
            for row in map(json.loads, file):
                best(rows, row["tokens"], of(row, row["dispatch"], row["combine"], "bytes"))
    return rows


def ours(folder):
    rows = {}
    for path in glob.glob(f"{folder}/ours.[0-9]"):
        with open(path) as file:
            for row in json.load(file)["rows"]:
                combine = "summed" if row["layout"] == "rank" else row["combine"]
                times = of(row, row["dispatch"]["time"], row["back"]["time"], "channel_bytes")
                best(rows, (row["layout"], combine, row["tokens"]), times)
    return rows


def main(folder):
    mine, rows = ours(folder), []
    for peer, layouts in BESIDE.items():
        for layout, combine in layouts:
            for tokens, other in sorted(theirs(folder, peer).items()):
                own = mine.get((layout, combine, tokens))
                if own is None:
                    continue
                row = {"peer": peer, "layout": layout, "combine": combine, "tokens": tokens}
                times = {part: {"peer_us": other[part], "ours_us": own[part], "ratio": own[part] / other[part]} for part in PARTS}
                memory = {"peer_mb": other["megabytes"], "ours_mb": own["megabytes"]}
                rows.append(row | {"times": times, "memory": memory})
    if not rows:
        sys.exit(f"{folder}: no row of a peer has one of ours beside it")
    print(f"{'peer':11}{'layout':8}{'combine':9}{'tokens':>7}" + "".join(f"{part + ' us: peer, ours, ratio':>32}" for part in PARTS) + f"{'MB: peer, ours':>20}")
    for row in rows:
        cells = (f"{one['peer_us']:16.1f}{one['ours_us']:9.1f}{one['ratio']:7.2f}" for one in row["times"].values())
        print(f"{row['peer']:11}{row['layout']:8}{row['combine']:9}{row['tokens']:7}" + "".join(cells) + "{peer_mb:13.1f}{ours_mb:7.1f}".format(**row["memory"]))
    with open(f"{folder}/rows.json", "w") as file:
        json.dump({"rows": rows}, file, indent=1)


main(sys.argv[1])
