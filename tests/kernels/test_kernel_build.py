"""The build of the C kernels: what is rebuilt, what comes out, and what is said when it cannot be done."""

import importlib.util
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hipfire.kernels import build
from hipfire.kernels.select import machine_variants

VARIANT = build.VARIANTS[0]
SOURCE = '__attribute__((visibility("default"))) int answer(void) { return %d; }\nconst char *where = __FILE__;\n'


def write_source(folder: Path, value: int) -> list[Path]:
    folder.mkdir(exist_ok=True)
    source = folder / "answer.c"
    source.write_text(SOURCE % value)
    return [source]


def test_library_is_rebuilt_only_when_a_source_or_header_changes(tmp_path: Path) -> None:
    sources, out = write_source(tmp_path / "c", 1), tmp_path / "answer.so"
    build.compile_library(VARIANT, sources, out)
    first = out.stat()
    build.compile_library(VARIANT, sources, out)
    assert out.stat() == first
    write_source(tmp_path / "c", 2)
    build.compile_library(VARIANT, sources, out)
    second = out.stat()
    assert second != first
    (tmp_path / "c" / "answer.h").write_text("")
    build.compile_library(VARIANT, sources, out)
    assert out.stat() != second


def test_two_builds_of_one_library_do_not_disturb_each_other(tmp_path: Path) -> None:
    sources, out = write_source(tmp_path / "c", 1), tmp_path / "answer.so"
    with ThreadPoolExecutor(max_workers=2) as pool:
        builds = [pool.submit(build.compile_library, VARIANT, sources, out) for _ in range(2)]
        for done in builds:
            done.result()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer.so", "answer.so.key", "c"]


def test_same_sources_give_the_same_bytes_wherever_they_are(tmp_path: Path) -> None:
    libraries = []
    for folder in (tmp_path / "here", tmp_path / "somewhere else"):
        sources = write_source(folder, 1)
        build.compile_library(VARIANT, sources, folder / "answer.so")
        libraries.append((folder / "answer.so").read_bytes())
    assert libraries[0] == libraries[1]
    assert str(tmp_path).encode() not in libraries[0]


def test_warning_of_the_compiler_fails_the_build_and_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "wrong.c"
    source.write_text("int f(int unused) { return 0; }\n")
    with pytest.raises(build.BuildError, match=r"wrong\.c:1:11: error: unused parameter 'unused'"):
        build.compile_library(VARIANT, [source], tmp_path / "wrong.so")
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.c"]


def test_missing_compiler_is_said_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(build.BuildError, match=r"need the ziglang package.*pip install"):
        build.compile_library(VARIANT, write_source(tmp_path, 1), tmp_path / "answer.so")


def test_unknown_target_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--target", "sparc64-linux-gnu", "--out", str(tmp_path)]) == 1
    assert "nothing to build for sparc64" in capsys.readouterr().err


def test_the_best_variant_that_the_cpu_has_is_among_those_tested() -> None:
    """Every test of the kernels runs for each variant of `machine_variants`: none may be missed where it would run."""
    cpuinfo = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not cpuinfo.exists():
        pytest.skip("tells of x86-64 under Linux only")
    flags = set(cpuinfo.read_text().split("flags\t\t: ")[1].splitlines()[0].split())
    avx2 = {"avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"}
    avx512 = avx2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"}
    needs = {"x86_64_avx512": avx512, "x86_64_avxvnni": avx2 | {"avx_vnni"}, "x86_64_avx2": avx2}
    expected = [name for name, needed in needs.items() if needed <= flags]
    assert machine_variants() == (*expected, "x86_64")


def test_hook_names_the_platform_in_the_wheels_tag() -> None:
    architecture = build.host_architecture()
    if architecture is None:
        pytest.skip("no compiled kernels for this machine")
    config: Any = None  # the hook reads nothing of the project's
    hook = build.KernelBuildHook(str(build.HERE.parents[1]), {}, config, config, "", "wheel")
    build_data: dict[str, Any] = {}
    hook.initialize("standard", build_data)
    assert build_data == {"pure_python": False, "tag": f"py3-none-manylinux_2_17_{architecture}"}
    assert sorted(build.LIBRARIES.glob("*.so"))
