"""Prints the rows of run.sh, each with the best of its turns: NVSHMEM's, ours, and their ratio."""

import glob
import json
import sys

# Our rows beside one of exchange.cu, where they are not of the same name.
OURS = {
    "put_signal, there and back": ["put_signal, there and back", "mail, there and back"],
    "8 puts, 8 signals, a put back": ["8 puts, 8 signals, a mail back"],
}


def rows(paths):
    """The best figure of each row, with its unit."""
    best = {}
    for path in paths:
        with open(path) as file:
            text = file.read()
        if "theirs" in path:
            found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        else:
            found = json.loads(text)["rows"]
        for row in found:
            unit = "us" if row.get("us") is not None else "gb_per_s"
            name = row["what"], row["by"], row["blocks"], row["threads"], row["bytes"]
            value, known = row[unit], best.get(name)
            if known is None or (value < known[0] if unit == "us" else value > known[0]):
                best[name] = value, unit
    return best


def main(folder):
    theirs = rows(sorted(glob.glob(f"{folder}/theirs.*.0")))
    ours = rows(sorted(glob.glob(f"{folder}/ours.*")))
    print(f"{'what':38} {'by':6} {'blocks':>6} {'threads':>7} {'bytes':>9} {'NVSHMEM':>9} {'ours':>9} ratio")
    for (what, by, blocks, threads, size), (value, unit) in theirs.items():
        for name in OURS.get(what, [what]):
            mine = ours.get((name, by, blocks, threads, size))
            if mine is None:
                continue
            label = f"{name}, {'us' if unit == 'us' else 'GB/s'}"
            print(
                f"{label:38} {by:6} {blocks:6} {threads:7} {size:9} {value:9.2f} {mine[0]:9.2f}"
                f" {mine[0] / value:5.2f}"
            )


main(sys.argv[1])
