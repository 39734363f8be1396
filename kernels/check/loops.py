"""Looks whether loops that take a lock also give it back, in gfx assembly of check/lockstep.cu.

loops.py ASSEMBLY. The operation that takes a lock returns the word's old value (atomic or, swap); the one
that gives it back is a store, or an atomic or, to the same offset. Lanes that have the lock and left the loop
would wait for those that are still in it, which wait for the lock."""

import re
import sys

# Kernel -> operations that take, those that give back, and loops around those that take which do not count.
POLL = (r"atomic_or(_x2|_b64)\b.*(sc0|glc|TH_ATOMIC_RETURN)", r"store_(dwordx2|b64)\b", 0)
LOCKS = {
    "lanes_wait": POLL,
    "lanes_poll": POLL,
    "lanes_receive": POLL,
    # A slot is taken by compare-and-swap, again where another thread took one in the same moment.
    "lanes_fetch": (r"atomic_cmpswap(_x2|_b64)\b", r"atomic_or(_x2|_b64)\b", 1),
    "lanes_lock": (r"atomic_(swap|swap_b32)\b", r"store_(dword|b32)\b", 0),
}


def blocks(path):
    """(kernel, loops around it from the outermost, instructions) of every basic block."""
    found, kernel, loops, lines = [], None, [], []

    def close():
        if kernel:
            found.append((kernel, list(loops), list(lines)))

    for line in open(path):
        entry = re.match(r"([A-Za-z_]\w*):", line)
        label = re.match(r"\.L(BB\d+_\d+):|; %bb\.\d+:", line)
        if entry or label:
            close()
            loops, lines = [], []
            kernel = entry.group(1) if entry else kernel
            own = label.group(1) if label and label.group(1) else None
        if kernel is None:
            continue
        around = re.search(r"Parent Loop (BB\d+_\d+) Depth=", line) or re.search(r"in Loop: Header=(BB\d+_\d+)", line)
        if around:
            loops.append(around.group(1))
        if "Loop Header" in line:
            loops.append(own)
        lines.append(line.split(";")[0].strip())
    close()
    return found


def offset(instruction):
    named = re.search(r"offset:(\d+)", instruction)
    return int(named.group(1)) if named else 0


def operations(found, kernel, pattern):
    for name, loops, lines in found:
        if name == kernel:
            for line in lines:
                if re.search(pattern, line):
                    yield loops, offset(line)


def main(path):
    found, bad = blocks(path), []
    # A block says which loop it is in; the loops around that one stand at its header.
    around = {loops[-1]: loops for _, loops, lines in found if loops and len(loops) > 1}
    for kernel, (take, give, inner) in LOCKS.items():
        gives = [(around.get(loops[-1], loops) if loops else [], at) for loops, at in operations(found, kernel, give)]
        locks = {at for _, at in gives}
        takes = [(around.get(loops[-1], loops), at) for loops, at in operations(found, kernel, take) if loops and at in locks]
        if not takes:
            bad.append(f"{kernel}: no loop takes a lock")
        for loops, at in takes:
            loop = loops[max(len(loops) - 1 - inner, 0)]
            if not any(loop in other for other, place in gives if place == at):
                bad.append(f"{kernel}: the loop {loop} takes the lock at offset {at} and does not give it back")
    print("\n".join(sorted(set(bad))), end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
