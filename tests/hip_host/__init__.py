"""The GPU kernels' sources compiled for this CPU, as a libamdhip64 that hipfire can load: `build_library`.

Finds faults of an algorithm in milliseconds, for architectures that no emulator knows; says nothing of machine code.
"""

import subprocess
from pathlib import Path

from hipfire.kernels.build import zig_path
from hipfire.kernels.hip_table import KERNELS, SOURCES

HERE = Path(__file__).resolve().parent
_C_TYPES = {"p": "void *", "i": "int", "f": "float"}


def build_library(folder: Path, *, arch: str, wave_size: int) -> Path:
    """Compile folder/libamdhip64.so, whose one GPU says that it is an `arch`."""
    import hipfire.kernels.build_hip as build_hip

    zig = zig_path()
    (folder / "trampolines.c").write_text(trampolines())
    environment = {"ZIG_GLOBAL_CACHE_DIR": str(folder / "cache"), "ZIG_LOCAL_CACHE_DIR": str(folder / "cache")}
    library = folder / "libamdhip64.so"
    flags = ["-O2", "-fPIC", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti", f"-DWAVE_SIZE={wave_size}"]
    objects = []
    for source in SOURCES:
        objects.append(folder / f"{source}.o")
        command = [zig, "cc", "-x", "c++", "-std=c++20", *flags, "-DHIPFIRE_HOST", "-I", HERE, "-I", build_hip.HERE]
        subprocess.run([*command, "-c", build_hip.HIP / f"{source}.hip", "-o", objects[-1]], env=environment, check=True)
    command = [zig, "cc", "-shared", "-fPIC", "-O2", f"-DWAVE_SIZE={wave_size}", f'-DARCH="{arch}"', HERE / "runtime.c"]
    subprocess.run([*command, folder / "trampolines.c", *objects, "-lm", "-o", library], env=environment, check=True)
    return library


def trampolines() -> str:
    """C that calls each kernel with the arguments as they lie in memory."""
    lines, rows = [], []
    for name, kernel in KERNELS.items():
        kinds = [part.partition(":")[0] for part in kernel.signature.split()]
        types = ", ".join(_C_TYPES[kind] for kind in kinds)
        values = ", ".join(
            f"*({_C_TYPES[kind]}*)(a + {getattr(kernel.arguments, field).offset})"
            for kind, (field, *_) in zip(kinds, kernel.arguments._fields_, strict=True)
        )
        lines.append(f"void {name}({types});\nstatic void run_{name}(const char *a) {{ {name}({values}); }}")
        rows.append(f'    {{"{name}", run_{name}}},')
    table = "struct host_kernel { const char *name; void (*run)(const char *); };\nconst struct host_kernel host_kernels[] = {\n"
    return "\n".join([*lines, table, *rows, "    {0, 0}};\n"])
