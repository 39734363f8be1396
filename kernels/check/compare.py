"""Compares the memory operations found in PTX or SASS with those expected. Prints what differs.

compare.py EXPECTED FOUND [some]: with `some`, kernels that are not expected do not count."""

import difflib
import sys


def read(path):
    """Kernel -> (whether only the set counts, its operations)."""
    kernels, name = {}, None
    for line in open(path):
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith(" "):
            kernels[name][1].append(line.strip())
        else:
            *kind, name = line.split()
            kernels[name] = (kind == ["set"], [])
    return kernels


def main(expected_path, found_path, kernels="all"):
    expected, found = read(expected_path), read(found_path)
    if kernels == "some":
        found = {name: found[name] for name in found.keys() & expected.keys()}
    bad = [f"{name}: not in both" for name in expected.keys() ^ found.keys()]
    for name in expected.keys() & found.keys():
        only_set, wanted = expected[name]
        there = found[name][1]
        if only_set:
            wanted, there = sorted(set(wanted)), sorted(set(there))
        if wanted != there:
            diff = difflib.unified_diff(wanted, there, "expected", "found", lineterm="", n=1)
            bad.append(f"{name}:\n  " + "\n  ".join(diff))
    print("\n".join(sorted(bad)), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
