"""The GPU kernels' sources compiled for this CPU, as a libamdhip64 that hipfire can load.

Finds faults of an algorithm in milliseconds, for architectures that no emulator knows too; says nothing of machine
code.
"""

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hipfire.kernels.build import zig_path
from hipfire.kernels.build_hip import HERE as KERNELS_FOLDER
from hipfire.kernels.build_hip import HIP
from hipfire.kernels.hip_table import KERNELS, SOURCES

HERE = Path(__file__).resolve().parent
FLAGS = ("-O2", "-fPIC", "-ffp-contract=off")
_C_TYPES = {"p": "void *", "i": "int", "f": "float"}


def compile_kernels(folder: Path) -> list[Path]:
    """Object files of all kernels, and of what calls them."""
    (folder / "trampolines.c").write_text(trampolines())
    objects = {source: folder / f"{source}.o" for source in SOURCES}
    flags = (
        "-x",
        "c++",
        "-std=c++20",
        "-DHIPFIRE_HOST",
        "-fno-exceptions",
        "-fno-rtti",
        "-I",
        HERE,
        "-I",
        KERNELS_FOLDER,
    )
    with ThreadPoolExecutor(max_workers=2) as pool:
        jobs = [
            pool.submit(_compile, folder, *flags, "-c", HIP / f"{source}.hip", "-o", target)
            for source, target in objects.items()
        ]
        for job in jobs:
            job.result()
    calls = folder / "trampolines.o"
    _compile(folder, "-c", folder / "trampolines.c", "-o", calls)
    return [*objects.values(), calls]


def link_library(folder: Path, objects: Sequence[Path], *, arch: str, wave_size: int) -> Path:
    """folder/libamdhip64.so; its one GPU says that it is an `arch`."""
    folder.mkdir()
    library = folder / "libamdhip64.so"
    defines = (f"-DWAVE_SIZE={wave_size}", f'-DARCH="{arch}"')
    _compile(folder, *defines, "-shared", HERE / "runtime.c", HERE / "graph.c", *objects, "-lm", "-o", library)
    return library


def _compile(folder: Path, *arguments: str | Path) -> None:
    cache = str(folder / "cache")
    environment = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    subprocess.run([zig_path(), "cc", *FLAGS, *arguments], env=environment, check=True)


def trampolines() -> str:
    """C that calls each kernel with the arguments as they lie in memory."""
    lines, rows = ["struct host_kernel { const char *name; void (*run)(const char *); };"], []
    for name, kernel in KERNELS.items():
        kinds = [part.partition(":")[0] for part in kernel.signature.split()]
        types = ", ".join(_C_TYPES[kind] for kind in kinds)
        values = ", ".join(
            f"*({_C_TYPES[kind]}*)(a + {getattr(kernel.arguments, field).offset})"
            for kind, (field, *_) in zip(kinds, kernel.arguments._fields_, strict=True)
        )
        lines.append(f"void {name}({types});")
        lines.append(f"static void run_{name}(const char *a) {{ {name}({values}); }}")
        rows.append(f'    {{"{name}", run_{name}}},')
    return "\n".join([*lines, "const struct host_kernel host_kernels[] = {", *rows, "    {0, 0}};\n"])
