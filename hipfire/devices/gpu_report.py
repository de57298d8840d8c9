"""The GPUs of this machine and whether there are kernels for them: `python -m hipfire.devices.gpu_report`, as JSON.

A program of its own, for `hipfire diag`: a runtime library that crashes must not take it down with it.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import attrs

from hipfire.errors import DeviceError
from hipfire.hip.card_users import KFD_SYSFS, other_users
from hipfire.hip.device_list import GpuInfo, list_devices
from hipfire.hip.library import library_paths, open_library, why_no_device
from hipfire.kernels.hsaco import is_covered


def report(paths: Iterable[str], kfd: Path = KFD_SYSFS) -> dict[str, object]:
    """`library` is the runtime library's path, None without one. `problem` says why there is no GPU, `advice` what to
    do; both are None where there is one.
    """
    found: dict[str, object] = {"library": None, "version": None, "devices": [], "problem": None, "advice": None}
    try:
        library = open_library(paths)
        found |= {"library": library.loaded_path(), "version": ".".join(map(str, library.version()))}
        gpus = list_devices(library)
    except DeviceError as error:
        return found | {"problem": error.message, "advice": error.hint}
    if not gpus:
        return found | {"problem": "no AMD GPU was found", "advice": why_no_device()}
    return found | {"devices": [_device(gpu, kfd) for gpu in gpus]}


def _device(gpu: GpuInfo, kfd: Path) -> dict[str, object]:
    users = {str(pid): nbytes for pid, nbytes in other_users(gpu.pci, kfd).items()}
    return {**attrs.asdict(gpu), "covered": is_covered(gpu.arch), "other_users": users}


if __name__ == "__main__":
    json.dump(report(library_paths()), sys.stdout)
