"""Where a Program's buffers lie in one piece of memory. Knows no device."""

from collections.abc import Callable, Collection, Mapping

import attrs

from hipfire.program.operands import Buffer
from hipfire.program.program import Program

ALIGNMENT = 64


@attrs.frozen(kw_only=True)
class Region:
    """Bytes of the arena that hold one form of a buffer."""

    offset: int
    nbytes: int


@attrs.frozen(kw_only=True, eq=False)
class Plan:
    """Where in one arena of `nbytes` each buffer's floats lie, and its other form: each where a kernel reads it."""

    floats: Mapping[str, Region]
    quantised: Mapping[str, Region]
    nbytes: int


def plan_buffers(
    program: Program,
    n_rows: Callable[[Buffer], int],
    quantised_row_nbytes: Callable[[Buffer], int] | None = None,
    *,
    without_floats: Collection[str] = (),
    keep: bool,
) -> Plan:
    """Place the buffers: two share memory when the one's last reader is before the other's writer, unless `keep`.

    `quantised_row_nbytes`: bytes of a row of a buffer in a second form that kernels read, 0 where none does.
    None: there is no such form. `without_floats`: names of buffers of which only that form is read; unless `keep`,
    their floats get no place.
    """
    last_reads = program.last_reads
    arena = _Arena()
    floats: dict[str, Region] = {}
    quantised: dict[str, Region] = {}
    for index, op in enumerate(program.ops):
        if not keep:
            arena.free_before(index)
        until = last_reads[op.out.name]
        rows = n_rows(op.out)
        if keep or op.out.name not in without_floats:
            floats[op.out.name] = arena.place(rows * op.out.width * 4, until)
        if quantised_row_nbytes is not None and (row_nbytes := quantised_row_nbytes(op.out)):
            quantised[op.out.name] = arena.place(rows * row_nbytes, until)
    return Plan(floats=floats, quantised=quantised, nbytes=arena.nbytes)


class _Arena:
    """First fit over the regions that are still wanted."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._live: list[tuple[Region, int]] = []

    def free_before(self, index: int) -> None:
        self._live = [(region, until) for region, until in self._live if until >= index]

    def place(self, nbytes: int, until: int) -> Region:
        size = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        offset = 0
        for region, _ in sorted(self._live, key=lambda entry: entry[0].offset):
            if offset + size <= region.offset:
                break
            offset = max(offset, region.offset + region.nbytes)
        placed = Region(offset=offset, nbytes=size)
        self._live.append((placed, until))
        self.nbytes = max(self.nbytes, offset + size)
        return placed
