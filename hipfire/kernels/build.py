"""Builds the CPU kernels with the compiler in the ziglang wheel.

It is hatchling's build hook, and `python -m hipfire.kernels.build` in a checkout. pip runs the hook where nothing
but the build requirements is installed, so this file imports nothing of hipfire. It knows no kernel: every C file
in `cpu/` goes into one library for each row of VARIANTS, and the loader picks a library by what the CPU can do.
"""

import argparse
import hashlib
import importlib.util
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "cpu"
LIBRARIES = HERE / "lib"
CACHE = HERE.parents[1] / "build" / "zig-cache"

GLIBC = "2.17"
"""The oldest C library that the wheels run on; it is in their tag too."""

C_FLAGS = (
    "-std=c11",
    "-O3",
    "-g0",
    # The same bits from every kernel that computes the same thing: no multiply-add that the source does not ask for.
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
)


class Variant(NamedTuple):
    """One library to build: the same sources for one level of a CPU architecture."""

    name: str
    architecture: str
    cpu: str


VARIANTS = (
    Variant(name="x86_64", architecture="x86_64", cpu="x86_64"),
    Variant(name="x86_64_avx2", architecture="x86_64", cpu="x86_64_v3"),
    Variant(name="x86_64_avxvnni", architecture="x86_64", cpu="x86_64_v3+avxvnni"),
    # The widest registers for what is written with vectors of 512 bits: the level's own tuning splits them.
    Variant(name="x86_64_avx512", architecture="x86_64", cpu="x86_64_v4+avx512vnni+fast_dpwssd-prefer_256_bit"),
    Variant(name="aarch64", architecture="aarch64", cpu="generic"),
)


class BuildError(Exception):
    """The kernels cannot be built; the message says why and, where it can, what to do."""


def host_architecture() -> str | None:
    """The architecture to build for on this machine; None where no variant is meant to run."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine())
    is_glibc = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
    return machine if is_glibc and any(row.architecture == machine for row in VARIANTS) else None


def compile_library(variant: Variant, sources: Sequence[Path], out: Path) -> None:
    """Compile C files into a shared library for `variant`, unless `out` was built from just these bytes before."""
    link = ("-shared", "-fPIC", "-s", "-lm", "-lpthread")
    _compile(variant, f"{variant.architecture}-linux-gnu.{GLIBC}", sources, out, link)


def compile_executable(variant: Variant, sources: Sequence[Path], out: Path) -> None:
    """Compile C files into a program for `variant` that is linked statically, so that an emulator needs no sysroot."""
    _compile(variant, f"{variant.architecture}-linux-musl", sources, out, ("-static", "-s"))


def build(architecture: str, out_dir: Path) -> list[Path]:
    """Build every library for an architecture; returns their paths."""
    variants = [row for row in VARIANTS if row.architecture == architecture]
    sources = sorted(SOURCES.glob("*.c"))
    if not variants or not sources:
        raise BuildError(f"nothing to build for {architecture}: {len(variants)} variants, {len(sources)} C files")
    libraries = [out_dir / f"hipfire_cpu-{variant.name}.so" for variant in variants]
    with ThreadPoolExecutor(max_workers=2) as pool:
        jobs = [
            pool.submit(compile_library, variant, sources, library)
            for variant, library in zip(variants, libraries, strict=True)
        ]
        for job in jobs:
            job.result()
    return libraries


def _compile(variant: Variant, target: str, sources: Sequence[Path], out: Path, link: Iterable[str]) -> None:
    zig = zig_path()
    flags = ("-target", target, f"-mcpu={variant.cpu}", *C_FLAGS, *link)
    key = _key(zig, flags, sources)
    key_file = out.with_name(f"{out.name}.key")
    if out.exists() and key_file.exists() and key_file.read_text() == key:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    key_file.unlink(missing_ok=True)
    # A process may have the old library mapped: it keeps the old file, the name gets a new one. Another build of the
    # same library may be under way: each has a folder of its own.
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".build-") as folder:
        partial = Path(folder) / out.name
        # Relative names and an environment of its own keep what is elsewhere on the machine out of the result.
        done = subprocess.run(
            [zig, "cc", *flags, *_relative(sources), "-o", partial],
            cwd=sources[0].parent,
            env={"ZIG_GLOBAL_CACHE_DIR": str(CACHE), "ZIG_LOCAL_CACHE_DIR": str(CACHE)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BuildError(f"{out.name}: the compiler failed\n{done.stderr}")
        partial.replace(out)
    key_file.write_text(key)


def _relative(sources: Sequence[Path]) -> list[str]:
    folder = sources[0].parent
    return [str(source.relative_to(folder) if source.is_relative_to(folder) else source) for source in sources]


def zig_path() -> Path:
    """The compiler inside the ziglang wheel: never one that happens to be on PATH."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise BuildError("the C kernels need the ziglang package to be built: pip install '.[test]'")
    return Path(spec.origin).parent / "zig"


def _key(zig: Path, flags: Iterable[str], sources: Sequence[Path]) -> str:
    """A hash of all that decides what comes out: compiler, flags, sources and every header that they may include."""
    headers = {header for folder in (HERE, *(source.parent for source in sources)) for header in folder.glob("*.h")}
    digest = hashlib.sha256(f"{zig.stat().st_size} {' '.join(flags)}".encode())
    for path in (*sources, *sorted(headers)):
        content = path.read_bytes()
        digest.update(f"\n{path.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


class KernelBuildHook(BuildHookInterface[Any]):
    """Called by hatchling before it packs a wheel, an editable one too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version  # "standard" and "editable" need the same libraries
        architecture = host_architecture()
        if architecture is None:
            self.app.display_warning(
                f"No compiled kernels for {platform.platform()}:"
                " hipfire will run on its reference device, which is slow."
            )
            return
        try:
            build(architecture, LIBRARIES)
        except BuildError as error:
            self.app.abort(str(error))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{GLIBC.replace('.', '_')}_{architecture}"


def main(argv: Sequence[str] | None = None) -> int:
    """Build the libraries for this machine, or for another architecture."""
    parser = argparse.ArgumentParser(prog="python -m hipfire.kernels.build", description=main.__doc__)
    parser.add_argument("--target", default=None, help="such as aarch64-linux-gnu; this machine's if left out")
    parser.add_argument("--out", type=Path, default=LIBRARIES, help="the folder to put the libraries in")
    options = parser.parse_args(argv)
    architecture = options.target.split("-")[0] if options.target else host_architecture()
    try:
        if architecture is None:
            raise BuildError("no variant is meant to run on this machine; see VARIANTS, and --target")
        libraries = build(architecture, options.out)
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for library in libraries:
        sys.stdout.write(f"{library}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
