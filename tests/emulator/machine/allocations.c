/* The memory that kernels may touch: a table sorted by address. Everything else is a fault. */
#include "machine.h"

static struct { Allocation *rows; size_t n, room; } table;
u32 allocation_generation = 1;

/* Index of the last allocation that begins at or before an address; -1 where there is none. */
static ptrdiff_t last_before(u64 address) {
    size_t low = 0, high = table.n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table.rows[middle].base <= address) low = middle + 1;
        else high = middle;
    }
    return (ptrdiff_t)low - 1;
}

void allocation_add(u64 base, u64 size, bool read_only, const char *what) {
    if (table.n == table.room) {
        table.room = table.room ? 2 * table.room : 64;
        table.rows = realloc(table.rows, table.room * sizeof *table.rows);
        if (!table.rows) abort();
    }
    size_t at = (size_t)(last_before(base) + 1);
    memmove(table.rows + at + 1, table.rows + at, (table.n - at) * sizeof *table.rows);
    table.rows[at] = (Allocation){base, size, read_only, what};
    table.n++;
    allocation_generation++;
}

bool allocation_remove(u64 base) {
    ptrdiff_t at = last_before(base);
    if (at < 0 || table.rows[at].base != base) return false;
    table.n--;
    memmove(table.rows + at, table.rows + at + 1, (table.n - (size_t)at) * sizeof *table.rows);
    allocation_generation++;
    return true;
}

/* The allocation that holds an address, or the nearest one; NULL where there is none at all. */
const Allocation *allocation_near(u64 address) {
    if (!table.n) return NULL;
    ptrdiff_t at = last_before(address);
    if (at < 0) return table.rows;
    const Allocation *row = table.rows + at;
    if (address - row->base < row->size || (size_t)at + 1 == table.n) return row;
    return address - (row->base + row->size) <= row[1].base - address ? row : row + 1;
}

u8 *global_memory(const Wave *w, const Insn *i, u64 address, u32 n_bytes, int lane, bool write) {
    if (i->generation == allocation_generation && address >= i->base && address <= i->limit) return (u8 *)address;
    const Allocation *row = allocation_near(address);
    if (!row || address < row->base || address - row->base > row->size || row->size - (address - row->base) < n_bytes) {
        if (!row) fault(w, i, "out of bounds", "lane %d at 0x%llx; nothing is allocated", lane, (unsigned long long)address);
        fault(w, i, "out of bounds", "lane %d %s %u bytes at 0x%llx, which is %lld bytes %s the nearest allocation (0x%llx, %llu bytes, %s)",
              lane, write ? "writes" : "reads", n_bytes, (unsigned long long)address,
              (long long)(address < row->base ? row->base - address : address + n_bytes - (row->base + row->size)),
              address < row->base ? "before" : "past the end of", (unsigned long long)row->base,
              (unsigned long long)row->size, row->what);
    }
    if (write && row->read_only) {
        fault(w, i, "out of bounds", "lane %d writes to read-only memory at 0x%llx (%s)", lane, (unsigned long long)address, row->what);
    }
    /* The one place that changes an instruction: where it found its memory, to find it at once the next time. */
    Insn *remember = (Insn *)i;
    remember->generation = allocation_generation;
    remember->base = row->base;
    remember->limit = row->base + row->size - n_bytes;
    return (u8 *)address;
}
