"""Builds wheels: the program `warpverbs` and its library first, then the rest by maturin.

`pip wheel crates/python` and `pip install crates/python` call it; both need cargo and a C++20 compiler.
"""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from maturin import *  # noqa: F403 (the hooks that are not changed)
import maturin

HERE = Path(__file__).resolve().parent.parent
PROGRAM = ("warpverbs", "libwarpverbs_preload.so")


def _build(settings) -> Path:
    """Builds the program as maturin is told to build the module, as in `-C build-args="--profile dev"`."""
    words = shlex.split((settings or {}).get("build-args", ""))
    after = lambda word: words[words.index(word) + 1] if word in words else None  # noqa: E731
    root = HERE.parent.parent
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    # As fast where bytes move, and smaller.
    profile = after("--profile") or "release"
    profile = "wheel" if profile == "release" else profile
    cargo = [os.environ.get("CARGO", "cargo"), "zigbuild" if "--zig" in words else "build"]
    if triple := after("--target"):
        # zig links for the C library of a version.
        glibc = (after("--compatibility") or "").removeprefix("manylinux_").replace("_", ".")
        cargo += ["--target", f"{triple}.{glibc}" if "--zig" in words else triple]
        target /= triple
    cargo += ["--locked", "--profile", profile, "-p", "warpverbs-cli", "-p", "warpverbs-preload"]
    subprocess.run(cargo, cwd=root, check=True)
    return target / ("debug" if profile == "dev" else profile)


def _program(settings) -> None:
    """Puts the program and the library that it preloads where the package looks for them."""
    # Ready ones, where a build of the whole workspace has just made them.
    built = os.environ.get("WARPVERBS_PROGRAM_DIR") or _build(settings)
    folder = HERE / "python" / "warpverbs" / "_bin"
    folder.mkdir(exist_ok=True)
    for name in PROGRAM:
        # Beside the old file, then over it: a program that runs keeps its own.
        shutil.copy2(Path(built) / name, folder / f".{name}")
        os.replace(folder / f".{name}", folder / name)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _program(config_settings)
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _program(config_settings)
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)
