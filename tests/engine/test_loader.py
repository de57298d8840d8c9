"""A load holds the file as long as the model lives, and nothing once it failed."""

from pathlib import Path

import attrs
import pytest
from scripted_device import ScriptedDevice, scripted_loader

from hipfire.engine.loader import Loader
from hipfire.errors import DeviceError, InvalidRequest, OutOfMemory
from hipfire.formats.checkpoint import Checkpoint
from hipfire.wire.messages import Load


class WatchedFile:
    """A loader's files, and how many of them are open."""

    def __init__(self, device: ScriptedDevice) -> None:
        loader = scripted_loader(device)
        self._open = loader.open_checkpoint
        self.n_open = 0
        self.loader: Loader = attrs.evolve(loader, open_checkpoint=self.open)

    def open(self, path: Path) -> Checkpoint:
        self.n_open += 1
        return attrs.evolve(self._open(path), close=self._close)

    def _close(self) -> None:
        self.n_open -= 1


def ignore(fraction: float) -> None:
    """Progress that nobody wants to hear of."""


def test_the_file_is_open_until_the_model_is_closed():
    device = ScriptedDevice()
    files = WatchedFile(device)
    model = files.loader.load(Load(path="scripted"), ignore)
    assert files.n_open == 1
    model.close()
    assert files.n_open == 0
    assert device.loaded[-1].is_closed


def test_a_device_that_fails_leaves_no_file_open():
    device = ScriptedDevice(free_nbytes=1 << 40)

    def fail(*_, **__):
        raise DeviceError("broken")

    device.load = fail
    files = WatchedFile(device)
    with pytest.raises(DeviceError, match="broken"):
        files.loader.load(Load(path="scripted"), ignore)
    assert files.n_open == 0


def test_a_want_of_memory_leaves_no_file_open():
    files = WatchedFile(ScriptedDevice(free_nbytes=1))
    with pytest.raises(OutOfMemory):
        files.loader.load(Load(path="scripted", max_seq=64), ignore)
    assert files.n_open == 0


@pytest.mark.parametrize("load", [Load(path="x", max_concurrent=0), Load(path="x", max_seq=0)])
def test_numbers_that_make_no_sense_open_nothing(load):
    files = WatchedFile(ScriptedDevice())
    with pytest.raises(InvalidRequest):
        files.loader.load(load, ignore)
    assert files.n_open == 0


class WatchedPages:
    """Stands in for a mapped file; counts how often its memory was given back."""

    def __init__(self) -> None:
        self.n_drops = 0

    def drop_pages(self) -> None:
        self.n_drops += 1


def test_what_was_placed_on_the_device_is_not_kept_in_memory_twice():
    loader = scripted_loader(ScriptedDevice())
    pages = WatchedPages()
    drops_at: list[int] = []
    watched = attrs.evolve(
        loader, open_checkpoint=lambda path: attrs.evolve(loader.open_checkpoint(path), files=[pages])
    )
    watched.load(Load(path="scripted"), lambda fraction: drops_at.append(pages.n_drops))
    # Piece by piece: at no time are all of the file's pages held.
    assert drops_at == list(range(1, len(drops_at) + 1))
    assert len(drops_at) > 1
