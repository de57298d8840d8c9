"""What hipfire says of GPUs that are there, as far as the emulated library shows them."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from devices.random_model import RandomModel

from emulator.conftest import ARCHS
from emulator.gpu import Gpu
from hipfire.devices.base import Limits
from hipfire.devices.gpu_report import report
from hipfire.devices.hip import HipDevice
from hipfire.hip.device_list import list_devices
from hipfire.hip.library import HipLibrary
from hipfire.kernels.select import load_variant, machine_variants


def output_of(library: Path, folder: Path, arch: str, *arguments: str) -> str:
    """Of a Python for which the library is the system's."""
    (folder / "libamdhip64.so").symlink_to(library)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "HIP_EMULATOR_ARCH": arch}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout


def found_by_name(library: Path, folder: Path, arch: str) -> dict[str, object]:
    """What the report's program prints."""
    found: dict[str, object] = json.loads(output_of(library, folder, arch, "-m", "hipfire.devices.gpu_report"))
    return found


def test_cards_and_whether_there_are_kernels(emulated_library: Path, tmp_path: Path) -> None:
    found = found_by_name(emulated_library, tmp_path, "gfx1201,gfx90c")
    assert (found["library"], found["version"]) == (str(emulated_library), "6.3.0")
    assert found["problem"] is found["advice"] is None
    devices = found["devices"]
    assert isinstance(devices, list)
    assert [(row["index"], row["arch"], row["pci"], row["covered"]) for row in devices] == [
        (0, "gfx1201", "0000:03:00.0", True),
        (1, "gfx90c", "0000:04:00.0", False),
    ]
    assert devices[0]["total_nbytes"] == 16 << 30


def test_a_card_without_kernels_is_not_chosen(emulated_library: Path, tmp_path: Path) -> None:
    program = "from hipfire.devices.hip import HipDevice; print(HipDevice.open(None, 1).description)"
    printed = output_of(emulated_library, tmp_path, "gfx90c,gfx1100", "-c", program)
    assert printed == "hip:1 (Emulated gfx1100, gfx1100)\n"


def test_a_runtime_without_cards(emulated_library: Path, tmp_path: Path) -> None:
    found = found_by_name(emulated_library, tmp_path, "")
    assert (found["problem"], found["devices"]) == ("no AMD GPU was found", [])
    assert found["library"] == str(emulated_library)
    assert found["advice"]


def test_who_else_uses_a_card(gpu: Gpu, emulated_library: Path, tmp_path: Path) -> None:
    node, process = tmp_path / "topology/nodes/1", tmp_path / "proc/77"
    for folder in (node, process):
        folder.mkdir(parents=True)
    (node / "gpu_id").write_text("4242")
    (node / "properties").write_text("location_id 768\ndomain 0\n")
    (process / "vram_4242").write_text("2000000000")
    devices = report([str(emulated_library)], tmp_path)["devices"]
    assert isinstance(devices, list)
    assert [row["other_users"] for row in devices] == [{"77": 2_000_000_000}, *[{}] * (len(ARCHS) - 1)]


def test_loading_beside_another_warns(
    gpu: Gpu, emulated_library: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hipfire.devices.hip.other_users", {"0000:03:00.0": {77: 2_000_000_000}}.__getitem__)
    library = HipLibrary(str(emulated_library))
    device = HipDevice(library, list_devices(library)[0], load_variant(machine_variants()[0]), 1)
    program, tensors = RandomModel(n_layers=1).build()
    limits = Limits(max_tokens=1, max_outputs=1, n_slots=1, max_seq=32)
    with caplog.at_level(logging.WARNING, "hipfire.engine"):
        device.load(program, tensors, limits, on_progress=lambda fraction: None).close()
    assert caplog.messages == ["process 77 has 2.0 GB of hip:0 (Emulated gfx1100, gfx1100) too: both will be slow"]
