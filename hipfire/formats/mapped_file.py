"""A file's bytes, mapped into memory rather than read. Knows no format."""

import contextlib
import mmap
import stat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hipfire.errors import ModelFileError, ModelNotFound, NotAModelFile, TruncatedFile

# What to do about a file whose bytes are wrong or missing.
DAMAGED = "the file is damaged: download it again"
INCOMPLETE = "the download is incomplete: download it again"


class MappedFile:
    """A regular, non-empty file, mapped read-only.

    Raises ModelNotFound, NotAModelFile (a directory, a pipe), TruncatedFile (empty), ModelFileError (unreadable).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Before opening it: to open a pipe would wait for a writer.
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
                raise NotAModelFile(f"{path} is {kind}", hint="give the path of a model file")
            if status.st_size == 0:
                raise TruncatedFile(f"{path} is empty", hint=INCOMPLETE)
            with path.open("rb") as file:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise ModelNotFound(f"{path} does not exist", hint="check the path") from error
        except OSError as error:
            raise ModelFileError(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error
        self.nbytes = len(self.data)

    def bytes_at(self, offset: int, nbytes: int) -> NDArray[np.uint8]:
        """A read-only view; the caller has checked that the range lies within the file."""
        return np.frombuffer(self.data, np.uint8, count=nbytes, offset=offset)

    def drop_pages(self) -> None:
        """Give back the memory of what was read; what is read again comes from the file again.

        It then lies in the system's cache of files only, which has it as long as nobody needs the memory.
        """
        if hasattr(mmap, "MADV_DONTNEED"):
            self.data.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap, or leave that to the last view that is still in use. Idempotent."""
        # BufferError: unmapping under a view would be a segmentation fault at its next use. Without references
        # to it the mapping goes away by itself.
        with contextlib.suppress(BufferError):
            self.data.close()
