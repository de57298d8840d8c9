import re
import shutil
import subprocess
from pathlib import Path

import pytest

CONTRIB = Path(__file__).resolve().parents[1] / "contrib"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    # What it runs must be there.
    unit = (CONTRIB / "hipfire.service").read_text().replace("%h/.venv/bin/hipfire", "/bin/true")
    path = tmp_path / "hipfire.service"
    path.write_text(unit)
    done = subprocess.run(
        ["systemd-analyze", "--user", "--man=no", "verify", str(path)],
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_container_s_last_stage_runs_as_nobody_special_and_is_watched() -> None:
    text = (CONTRIB / "Containerfile").read_text()
    last = re.split(r"^FROM ", text, flags=re.MULTILINE)[-1]
    assert last.index("USER hipfire") < last.index("ENTRYPOINT")
    assert "HEALTHCHECK" in last
    for source in re.findall(r"^COPY (?!--)(.+) \S+$", text, flags=re.MULTILINE):
        assert all((CONTRIB.parent / name).exists() for name in source.split())
