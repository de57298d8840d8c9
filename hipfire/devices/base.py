"""What every device offers. Knows Programs and bytes; no model, no file format, no sampling."""

from collections.abc import Callable, Mapping
from typing import Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.devices.logits import MAX_BEST, MAX_SCORES, Logits, RowMath
from hipfire.errors import DeviceError
from hipfire.program.operands import Buffer, Weight
from hipfire.program.program import Program

Progress = Callable[[float], None]
"""Called now and then with the fraction done, 0..1."""


@attrs.frozen(kw_only=True, eq=False)
class Step:
    """The numbers that change from step to step, all int32. Rows of several sequences may be mixed.

    A row's key and value are written before any row of the step attends, so a prompt's chunk is one step.
    """

    token_ids: NDArray[np.int32]
    positions: NDArray[np.int32]
    slots: NDArray[np.int32]
    output_rows: NDArray[np.int32]
    """Indices of the rows whose logits are wanted."""
    n_best: int = 0
    """How many of each output row's highest logits are wanted, 0..MAX_BEST; no more come than there are."""
    whole: bool = True
    """Whether the output rows are wanted whole."""

    def check(self, limits: "Limits", *, n_vocab: int) -> None:
        """Raise ValueError for a step that an executable loaded with these limits cannot hold.

        Native code trusts these numbers as indices; whoever made a step that fails here has a fault.
        """
        n_tokens = len(self.token_ids)
        if not 0 <= self.n_best <= MAX_BEST:
            raise ValueError(f"the {self.n_best} highest logits of a row, which are at most {MAX_BEST}")
        if not 0 < n_tokens <= limits.max_tokens or len(self.output_rows) > limits.max_outputs:
            raise ValueError(f"{n_tokens} rows and {len(self.output_rows)} outputs do not fit {limits}")
        if len(self.positions) != n_tokens or len(self.slots) != n_tokens:
            raise ValueError(f"{len(self.positions)} positions and {len(self.slots)} slots for {n_tokens} rows")
        for name, indices, end in (
            ("token id", self.token_ids, n_vocab),
            ("position", self.positions, limits.max_seq),
            ("slot", self.slots, limits.n_slots),
            ("output row", self.output_rows, n_tokens),
        ):
            if indices.dtype != np.int32 or (indices.size and not 0 <= indices.min() <= indices.max() < end):
                raise ValueError(f"a {name} that is no int32 of 0..{end - 1}")


@attrs.frozen(kw_only=True)
class Limits:
    """The largest step and state that an executable must hold."""

    max_tokens: int
    """Rows in one step."""
    max_outputs: int
    n_slots: int
    """Sequences whose state is kept at once."""
    max_seq: int
    """Positions in a slot."""
    kv_cache: str = "auto"
    """Element type of the state: auto, f32, f16, q16, q8."""
    graphs: bool = True
    """Whether a GPU may replay steps as graphs."""


def check_vocabulary(program: Program) -> None:
    """Raise DeviceError for more logits in a row than a token can be chosen from."""
    if program.logits.width > MAX_SCORES:
        raise DeviceError(f"a vocabulary of {program.logits.width} tokens, more than {MAX_SCORES}")


def raw_bytes(weight: Weight, tensors: Mapping[str, NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """A weight's bytes, contiguous, and as many as its shape needs: native code reads no others.

    Raises DeviceError where they were not given or are not that many.
    """
    data = tensors.get(weight.name)
    if data is None:
        raise DeviceError(f"the Program uses {weight.name}, which was not given")
    n_blocks, rest = divmod(weight.n_elements, weight.dtype.block)
    if rest or data.shape != (n_blocks * weight.dtype.block_nbytes,):
        raise DeviceError(f"{weight.name}: {data.shape} bytes for {weight.shape} elements of {weight.dtype.name}")
    return np.ascontiguousarray(data)


class CancelFlag:
    """Set from any thread, polled by a running step (native code reads the int32 at `address`)."""

    def __init__(self) -> None:
        self._cell = np.zeros(1, np.int32)

    @property
    def address(self) -> int:
        return int(self._cell.ctypes.data)

    def set(self) -> None:
        self._cell[0] = 1

    def clear(self) -> None:
        self._cell[0] = 0

    def is_set(self) -> bool:
        return bool(self._cell[0])


class Executable(Protocol):
    """A Program with its weights and state in place on a device. Used by one thread at a time."""

    @property
    def memory_nbytes(self) -> int:
        """Bytes of weights, state and activations held."""
        ...

    @property
    def kv_cache(self) -> str:
        """The state's element type that was chosen."""
        ...

    def run(self, step: Step, cancel: CancelFlag) -> Logits:
        """Run one step; return what it wants of the logits.

        Raises StepCancelled soon after `cancel` was set; the state that the step's rows wrote is then undefined.
        """
        ...

    def copy_state(self, source: int, target: int, n_positions: int) -> None:
        """Make the first positions of slot `target` what those of slot `source` are, bit for bit, for every state.

        What `target` held in other positions is undefined afterwards. Raises DeviceError.
        """
        ...

    def read(self, buffer: Buffer) -> NDArray[np.float32]:
        """What the last step left in a buffer, for differential tests. Needs `keep_buffers` at load."""
        ...

    def close(self) -> None:
        """Free everything. Idempotent."""
        ...


class Device(Protocol):
    """`description` is for a person; `native` is whether compiled kernels run.

    `row_math` is for rows in the host's memory.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def native(self) -> bool: ...

    @property
    def row_math(self) -> RowMath: ...

    def free_nbytes(self) -> int | None:
        """Bytes that can still be had on the device; None where nobody knows."""
        ...

    def load_nbytes(self, program: Program, limits: Limits) -> int:
        """Bytes that `load` would take. Raises DeviceError for what the device cannot do at all."""
        ...

    def load(
        self,
        program: Program,
        tensors: Mapping[str, NDArray[np.uint8]],
        limits: Limits,
        *,
        on_progress: Progress,
        keep_buffers: bool = False,
    ) -> Executable:
        """Take the weights' raw bytes by name, in the layout of their dtype, and make the Program ready to run.

        `keep_buffers` gives every buffer memory of its own, so that `read` finds it after the step.
        Raises OutOfMemory, DeviceError.
        """
        ...
