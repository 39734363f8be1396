"""`python -m warpverbs ...` is the program `warpverbs`, which lies in the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "_bin" / "warpverbs"


def main() -> None:
    """Becomes the program."""
    if not PROGRAM.is_file():
        sys.exit(f"{PROGRAM}: not there; the wheel has it, `pip install` of the sources builds it")
    if not os.access(PROGRAM, os.X_OK):
        # Some installers leave the right to execute out.
        PROGRAM.chmod(PROGRAM.stat().st_mode | 0o111)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(PROGRAM, [str(PROGRAM), *sys.argv[1:]])


if __name__ == "__main__":
    main()
