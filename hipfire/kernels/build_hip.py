"""Compiles the GPU kernels for every architecture: `python -m hipfire.kernels.build_hip`.

The objects are committed, so that nobody needs a compiler to use them. MANIFEST says what each was made from; the
tests rebuild and compare. The compiler is the clang of the ziglang wheel, with neither ROCm's headers nor its device
library. Each kernel is checked against its row in `hip_table`: arguments, threads, no scratch memory, no spills.
"""

import argparse
import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hipfire.kernels.build import BuildError, zig_path
from hipfire.kernels.code_object import KernelInfo, read_kernels
from hipfire.kernels.hip_table import KERNELS, SOURCES, TARGETS
from hipfire.kernels.hsaco import FOLDER

HERE = Path(__file__).resolve().parent
HIP = HERE / "hip"
MANIFEST = FOLDER / "MANIFEST"

MAX_LDS_NBYTES = 64 << 10

_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)

CLANG_FLAGS = (
    "-triple", "amdgcn-amd-amdhsa", "-x", "hip", "-std=c++20", "-fcuda-is-device", "-ffreestanding", "-O3",
    # The same bits from every kernel that computes the same thing: no multiply-add that the source does not ask for.
    "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror",
)  # fmt: skip


def compile_object(source: str, target: str, out: Path) -> None:
    """One source for one architecture. Raises BuildError."""
    zig = zig_path()
    include = zig.parent / "lib" / "include"
    relocatable = out.with_suffix(".o")
    # Relative names and an empty environment keep what is elsewhere on the machine out of the result.
    _run([zig, "clang", "-cc1", *CLANG_FLAGS, "-target-cpu", target, "-internal-isystem", include,
          "-emit-obj", f"{source}.hip", "-o", relocatable])  # fmt: skip
    _run([zig, "ld.lld", "-shared", "--strip-all", relocatable, "-o", out])
    relocatable.unlink()
    check(source, target, read_kernels(out.read_bytes()))


def _run(command: Sequence[str | Path]) -> None:
    cache = HERE.parents[1] / "build" / "zig-cache"
    done = subprocess.run(
        command,
        cwd=HIP,
        env={"ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{' '.join(map(str, command[:3]))}: the compiler failed\n{done.stderr}")


def check(source: str, target: str, kernels: dict[str, KernelInfo]) -> None:
    """Raise BuildError where an object does not hold just the kernels that the table promises."""
    promised = {name: kernel for name, kernel in KERNELS.items() if kernel.source == source}
    if kernels.keys() != promised.keys():
        differ = ", ".join(sorted(kernels.keys() ^ promised.keys()))
        raise BuildError(f"{source} for {target}: hip_table and the source differ in {differ}")
    for name, info in kernels.items():
        kernel = promised[name]
        expected = [
            (getattr(kernel.arguments, field).offset, getattr(kernel.arguments, field).size)
            for field, *_ in kernel.arguments._fields_
        ]
        if list(info.arguments) != expected:
            raise BuildError(f"{name} for {target}: its arguments are {info.arguments}, the table says {expected}")
        if info.n_threads != kernel.n_threads:
            raise BuildError(f"{name} for {target}: workgroups of {info.n_threads}, the table says {kernel.n_threads}")
        if info.scratch_nbytes or info.n_spills:
            raise BuildError(f"{name} for {target}: {info.scratch_nbytes} bytes of scratch, {info.n_spills} spills")
        if info.lds_nbytes > MAX_LDS_NBYTES:
            raise BuildError(f"{name} for {target}: {info.lds_nbytes} bytes of LDS")


def source_hash(source: str) -> str:
    """Of everything that decides what comes out: the source, its headers, flags, the compiler's version."""
    digest = hashlib.sha256(f"{' '.join(CLANG_FLAGS)} {importlib.metadata.version('ziglang')}".encode())
    for path in _with_headers(HIP / f"{source}.hip"):
        content = path.read_bytes()
        digest.update(f"\n{path.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _with_headers(path: Path) -> list[Path]:
    """A file and all of ours that it includes, each once."""
    found = [path]
    for includer in found:
        for name in _INCLUDE.findall(includer.read_text()):
            header = (includer.parent / name).resolve()
            # hip_host.h, which only tests include, is not there.
            if header.exists() and header not in found:
                found.append(header)
    return found


def build(targets: Sequence[str], folder: Path, *, fresh: Container[str] = ()) -> None:
    """Compile all sources for the architectures into folder/ARCHITECTURE, but for the `fresh`. Raises BuildError."""
    for target in targets:
        (folder / target).mkdir(parents=True, exist_ok=True)
    names = [(source, target, f"{target}/{source}.hsaco") for target in targets for source in SOURCES]
    jobs = [(source, target, folder / name) for source, target, name in names if name not in fresh]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for job in [pool.submit(compile_object, *job) for job in jobs]:
            job.result()


def manifest_lines(folder: Path) -> Iterator[str]:
    """What MANIFEST says of the objects in a folder."""
    yield f"compiler ziglang {importlib.metadata.version('ziglang')}"
    for source in SOURCES:
        yield f"{source_hash(source)}  {source}.hip"
        for target in TARGETS:
            yield _object_line(folder, f"{target}/{source}.hsaco")


def _object_line(folder: Path, name: str) -> str:
    return f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}"


def fresh_objects() -> set[str]:
    """Those in the package that MANIFEST says were made from the sources as they are, and that it knows."""
    lines = set(MANIFEST.read_text().splitlines())
    sources = [source for source in SOURCES if f"{source_hash(source)}  {source}.hip" in lines]
    names = [f"{target}/{source}.hsaco" for source in sources for target in TARGETS]
    return {name for name in names if (FOLDER / name).exists() and _object_line(FOLDER, name) in lines}


def main(argv: Sequence[str] | None = None) -> int:
    """Build the objects that are stale, of every architecture, and write MANIFEST; or see whether any are."""
    parser = argparse.ArgumentParser(prog="python -m hipfire.kernels.build_hip", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="build all into a folder of its own and compare")
    options = parser.parse_args(argv)
    try:
        if options.check:
            with tempfile.TemporaryDirectory() as folder:
                build(TARGETS, Path(folder))
                if MANIFEST.read_text().splitlines() != list(manifest_lines(Path(folder))):
                    raise BuildError("the objects are stale: run python -m hipfire.kernels.build_hip")
            return 0
        build(TARGETS, FOLDER, fresh=fresh_objects())
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    MANIFEST.write_text("".join(f"{line}\n" for line in manifest_lines(FOLDER)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
