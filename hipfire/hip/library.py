"""Finds libamdhip64 and calls it: an error becomes an exception with HIP's own name for it."""

import ctypes
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from hipfire.errors import DeviceError
from hipfire.hip.functions import NO_DEVICE, declare

KFD = Path("/dev/kfd")
"""The kernel driver's door to compute."""


class HipError(DeviceError):
    """A HIP function failed. `status` is its `hipError_t`."""

    def __init__(self, message: str, *, status: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class NoHip(DeviceError):
    """The runtime library is not there, or cannot be used."""


class HipLibrary:
    """One loaded runtime library."""

    def __init__(self, path: str) -> None:
        """`path` may be a bare name, for the system's loader to find. Raises NoHip."""
        try:
            self._functions = declare(ctypes.CDLL(path))
        except OSError as error:
            raise NoHip(f"{path} cannot be loaded: {error}", hint="install ROCm's HIP runtime") from error
        except AttributeError as error:
            raise NoHip(
                f"{path} is no HIP runtime that we know: {error}", hint="ROCm 5.2 or later is needed"
            ) from error
        self.path = path

    def has(self, name: str) -> bool:
        """Whether an optional function is there."""
        return name in self._functions

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises HipError."""
        status = self.status(name, *arguments)
        if status:
            raise self.error(name, status)

    def status(self, name: str, *arguments: Any) -> int:
        """Call a function whose failure changes nothing; its `hipError_t`."""
        return int(self._functions[name](*arguments))

    def address(self, name: str) -> int:
        """A function's address, for native code to call."""
        address = ctypes.cast(self._functions[name], ctypes.c_void_p).value
        assert address is not None
        return address

    def error(self, name: str, status: int) -> HipError:
        """The exception for what a function returned."""
        code = self._text("hipGetErrorName", status)
        return HipError(f"{name}: {code}: {self._text('hipGetErrorString', status)}", status=status)

    def _text(self, name: str, status: int) -> str:
        text: bytes | None = self._functions[name](status)
        return (text or b"unknown error").decode(errors="replace")

    def version(self) -> tuple[int, int, int]:
        """The runtime's own, such as 6.3.42131. Raises HipError."""
        number = ctypes.c_int()
        self.call("hipRuntimeGetVersion", ctypes.byref(number))
        major, rest = divmod(number.value, 10_000_000)
        return major, rest // 100_000, rest % 100_000

    def loaded_path(self) -> str:
        """The file that the loader found; the name it was loaded by where the system does not tell."""
        name = Path(self.path).name
        try:
            lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return self.path
        mapped = (line[line.index("/") :] for line in lines if name.partition(".so")[0] in line and "/" in line)
        return next(mapped, self.path)

    def n_devices(self) -> int:
        """How many GPUs the runtime offers: 0 without one, or without the right to use it. Raises HipError."""
        count = ctypes.c_int()
        try:
            self.call("hipInit", 0)
            self.call("hipGetDeviceCount", ctypes.byref(count))
        except HipError as error:
            if error.status in {NO_DEVICE, _INVALID_DEVICE}:
                return 0
            raise
        return count.value


_INVALID_DEVICE = 101
"""What ROCm 5's hipInit says where there is no device."""


def open_library(paths: Iterable[str]) -> HipLibrary:
    """The first library that loads. Raises NoHip with the last one's reason where none does."""
    reason = NoHip("no HIP runtime library was found", hint="install ROCm's HIP runtime, or use --device cpu")
    for path in paths:
        try:
            return HipLibrary(path)
        except NoHip as error:
            # A bare name that the loader does not find says nothing; a file that is there and fails does.
            if Path(path).is_absolute():
                reason = error
    raise reason


@attrs.frozen(kw_only=True)
class _Layout:
    """Where a system has the library: its names, newest first; folders of installations, with a star for their
    versions, and folders in those; folders in which pip's packages have it: ROCm's own, and PyTorch built for ROCm.
    """

    names: tuple[str, ...]
    installations: tuple[str, ...]
    inner: tuple[str, ...]
    in_packages: tuple[str, ...]


_LAYOUTS = {
    "linux": _Layout(
        names=("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"),
        installations=("opt/rocm", "opt/rocm-*"),
        inner=("lib", "lib64", "hip/lib"),
        in_packages=("_rocm_sdk_core/lib", "torch/lib"),
    ),
    "win32": _Layout(
        names=("amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"),
        installations=("Program Files/AMD/ROCm/*",),
        inner=("bin",),
        in_packages=("_rocm_sdk_core/bin", "torch/lib"),
    ),
}


def library_paths(
    platform: str = sys.platform, root: Path = Path("/"), packages: Sequence[Path] | None = None
) -> Iterator[str]:
    """Where the library may be, likeliest first: what the loader finds (LD_LIBRARY_PATH, ld.so.conf, the driver's on
    Windows), what is installed under `root`, newest first, and `packages`, folders of pip; None: this Python's.
    """
    layout = _LAYOUTS.get(platform)
    if layout is None:
        return
    yield from layout.names
    if packages is None:
        packages = sorted({Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")})
    found = [sorted(root.glob(pattern), key=_version_of, reverse=True) for pattern in layout.installations]
    folders = [place / inner for places in found for place in places for inner in layout.inner]
    folders += [package / inner for inner in layout.in_packages for package in packages]
    for folder in folders:
        for name in layout.names:
            if (folder / name).is_file():
                yield str(folder / name)


def _version_of(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in path.name.removeprefix("rocm-").split(".") if part.isdigit())


def why_no_device(kfd: Path = KFD) -> str:
    """What to do where the runtime offers no GPU."""
    if sys.platform != "linux":
        return "install AMD's driver"
    if not kfd.exists():
        return "the amdgpu kernel driver offers none: no /dev/kfd"
    if not os.access(kfd, os.R_OK | os.W_OK):
        return f"{kfd} may not be opened: add yourself to the groups render and video, then log in again"
    return "HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES may hide it; rocminfo shows what the driver offers"
