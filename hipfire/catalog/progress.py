"""How a pull tells what it is doing. Knows no terminal."""

import enum
from collections.abc import Callable


class Phase(enum.Enum):
    """What a pull is doing, as it is shown."""

    WAIT = "waiting for another download of it"
    DOWNLOAD = "downloading"
    UNPACK = "unpacking"
    CHECK = "checking"


OnProgress = Callable[[Phase, int, int], None]
"""Called with the phase, and the bytes done and in all."""
