"""Builds wheels: the program `warpverbs` and its library first, then the rest by maturin.

`pip wheel crates/python` and `pip install crates/python` call it; both need cargo and a C++20 compiler.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from maturin import *  # noqa: F403 (the hooks that are not changed)
import maturin

HERE = Path(__file__).resolve().parent.parent
PROGRAM = ("warpverbs", "libwarpverbs_preload.so")

# The functions that unwind stacks, by the versions of their symbols.
UNWINDER = {
    "GCC_3.0": "DeleteException GetDataRelBase GetGR GetIP GetLanguageSpecificData GetRegionStart GetTextRelBase"
    " RaiseException Resume SetGR SetIP",
    "GCC_3.3": "Backtrace FindEnclosingFunction GetCFA Resume_or_Rethrow",
    "GCC_4.2.0": "GetIPInfo",
}


def _after(words, word):
    return words[words.index(word) + 1] if word in words else None


def _with_unwinder(triple: str, glibc: str, folder: Path) -> None:
    """Lets zig link for the C library's unwinder, which every system has, instead of its own.

    Up to Python 3.13 a thread that wants the interpreter while that ends is unwound by the C library. With another
    unwinder in the module this crashes. zig brings no library to link with: one that has its symbols is enough.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = {version: [f"_Unwind_{name}" for name in text.split()] for version, text in UNWINDER.items()}
    code = "".join(f"void {name}(void) {{}}\n" for all in names.values() for name in all)
    versions = "".join(f"{version} {{ {'; '.join(all)}; }};\n" for version, all in names.items())
    source, script, library = folder / "names.c", folder / "versions.map", folder / "libgcc_s.so.1"
    source.write_text(code)
    script.write_text(versions)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{triple.split('-')[0]}-linux-gnu.{glibc}"]
    link = ["-shared", "-nostdlib", f"-Wl,-soname,{library.name}", f"-Wl,--version-script={script}"]
    subprocess.run([*zig, *link, source, "-o", library], check=True)
    name = f"CARGO_TARGET_{triple.upper().replace('-', '_')}_RUSTFLAGS"
    os.environ[name] = f"{os.environ.get(name, '')} -C link-arg={library}".strip()


def _build(settings) -> Path:
    """Builds the program as maturin is told to build the module, as in `-C build-args="--profile dev"`."""
    words = shlex.split((settings or {}).get("build-args", ""))
    root = HERE.parent.parent
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    # As fast where bytes move, and smaller.
    profile = _after(words, "--profile") or "release"
    profile = "wheel" if profile == "release" else profile
    zig, triple, compatibility = "--zig" in words, _after(words, "--target"), _after(words, "--compatibility")
    cargo = [os.environ.get("CARGO", "cargo"), "zigbuild" if zig else "build"]
    if zig and not (triple and compatibility):
        raise SystemExit("build-args has --zig, and expects --target TRIPLE and --compatibility manylinux_X_Y with it")
    if triple:
        target /= triple
        # zig links for the C library of a version.
        glibc = (compatibility or "").removeprefix("manylinux_").replace("_", ".")
        cargo += ["--target", f"{triple}.{glibc}" if zig else triple]
        if zig:
            _with_unwinder(triple, glibc, target / "unwinder")
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
