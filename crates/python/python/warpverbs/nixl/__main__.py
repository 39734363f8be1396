"""`python -m warpverbs.nixl PROGRAM ...` runs a program of NIXL's on warpverbs."""

from __future__ import annotations

import os
import runpy
import sys

USAGE = "usage: python -m warpverbs.nixl PROGRAM [ARGUMENT ...]\n       python -m warpverbs.nixl -m MODULE [ARGUMENT ...]"


def main() -> None:
    """Runs the program as `__main__`, and lets the processes that it starts have the same."""
    arguments = sys.argv[1:]
    if arguments[:1] in ([], ["-h"], ["--help"]) or arguments == ["-m"]:
        print(USAGE, file=sys.stderr if not arguments or arguments == ["-m"] else sys.stdout)
        sys.exit(0 if arguments[:1] in (["-h"], ["--help"]) else 2)
    from .._switch import install

    install()
    os.environ["WARPVERBS_AS_NIXL"] = "1"
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    program = arguments[0]
    if not os.path.exists(program):
        sys.exit(f"{program}: no such program")
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
