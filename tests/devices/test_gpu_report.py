"""The report for `hipfire diag` where there is no GPU; with one: tests/emulator/test_emulated_report.py."""

from pathlib import Path

from hipfire.devices.gpu_report import report


def test_no_library_is_said() -> None:
    found = report(["libamdhip64_nowhere.so"])
    assert found["problem"] == "no HIP runtime library was found"
    assert "use --device cpu" in str(found["advice"])
    assert (found["library"], found["version"], found["devices"]) == (None, None, [])


def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    path = tmp_path / "libamdhip64.so"
    path.write_text("no library")
    found = report([str(path)])
    assert str(found["problem"]).startswith(f"{path} cannot be loaded: ")
