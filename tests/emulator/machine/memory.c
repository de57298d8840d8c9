/* Loads, stores and atomics in every address space, and the checks on LDS. */
#include "valu.h"

enum { GLOBAL, FLAT, SCRATCH, BUFFER, LDS };
enum { READ, WRITE, UPDATE };
#define OUT_OF_RANGE (~0ull)

/* Bytes of a shadow word, tested and set four at a time. */
static bool others_in(u32 who, u32 me, u32 bytes) {
    if (((who ^ me) & bytes) == 0 || (who & bytes) == bytes) return false;
    for (u32 n = 0; n < 32; n += 8) {
        u32 one = who >> n & 255;
        if (bytes >> n & 1 && one != NOBODY && one != (me & 255)) return true;
    }
    return false;
}

static const char *who_in(u32 who, u32 me, u32 bytes, char *room, size_t size) {
    for (u32 n = 0; n < 32; n += 8) {
        u32 one = who >> n & 255;
        if (!(bytes >> n & 1) || one == NOBODY || one == (me & 255)) continue;
        if (one == SEVERAL) return "several waves";
        if (one == ATOMIC) return "an atomic operation";
        snprintf(room, size, "wave %u", one);
        break;
    }
    return room;
}

static u32 with_reader(u32 readers, u32 me, u32 bytes) {
    if ((readers & bytes) == bytes || ((readers ^ me) & bytes) == 0) return (readers & ~bytes) | (me & bytes);
    for (u32 n = 0; n < 32; n += 8) {
        u32 one = readers >> n & 255, byte = 255u << n;
        if (!(bytes & byte)) continue;
        readers = (readers & ~byte) | (one == NOBODY || one == (me & 255) ? me & byte : (u32)SEVERAL << n);
    }
    return readers;
}

/* Two waves may touch the same byte of LDS between two barriers only if neither writes it. */
static void race_check(Wave *w, const Insn *i, u32 address, u32 n_bytes, int lane, int kind) {
    Launch *launch = w->launch;
    u32 me = w->id * 0x01010101u;
    for (u32 at = address & ~3u; at < address + n_bytes; at += 4) {
        Shadow *s = &launch->shadow[at / 4];
        if (s->epoch != launch->epoch) *s = (Shadow){launch->epoch, ~0u, ~0u};
        u32 bytes = ~0u;
        if (at < address) bytes &= ~0u << 8 * (address - at);
        if (at + 4 > address + n_bytes) bytes &= ~0u >> 8 * (at + 4 - address - n_bytes);
        u32 writer = kind == UPDATE ? ATOMIC * 0x01010101u : me;
        char room[32] = "";
        if (others_in(s->writers, writer, bytes)) {
            fault(w, i, "race in LDS", "lane %d of wave %u %s byte 0x%x, which %s wrote since the last barrier", lane, w->id,
                  kind == READ ? "reads" : "writes", address, who_in(s->writers, writer, bytes, room, sizeof room));
        }
        if (kind != READ && others_in(s->readers, me, bytes)) {
            fault(w, i, "race in LDS", "lane %d of wave %u writes byte 0x%x, which %s read since the last barrier", lane, w->id,
                  address, who_in(s->readers, me, bytes, room, sizeof room));
        }
        if (kind == READ) s->readers = with_reader(s->readers, me, bytes);
        else s->writers = (s->writers & ~bytes) | (writer & bytes);
    }
}

static u8 *lds_memory(Wave *w, const Insn *i, u64 address, u32 n_bytes, int lane, int kind) {
    const Launch *launch = w->launch;
    if (address + n_bytes > launch->lds_bytes) {
        fault(w, i, "out of bounds", "lane %d %s %u bytes of LDS at 0x%llx; the workgroup has 0x%x bytes", lane,
              kind == READ ? "reads" : "writes", n_bytes, (unsigned long long)address, launch->lds_bytes);
    }
    if (address % (n_bytes < 4 ? n_bytes : 4)) {
        fault(w, i, "misaligned", "lane %d: %u bytes of LDS at 0x%llx", lane, n_bytes, (unsigned long long)address);
    }
    if (launch->n_waves > 1) race_check(w, i, (u32)address, n_bytes, lane, kind);
    return launch->lds + address;
}

static u8 *scratch_memory(const Wave *w, const Insn *i, u64 address, u32 n_bytes, int lane) {
    u32 size = w->launch->kernel->scratch_bytes;
    if (address + n_bytes > size) {
        fault(w, i, "out of bounds", "lane %d: %u bytes of scratch at 0x%llx; a lane has 0x%x bytes", lane, n_bytes,
              (unsigned long long)address, size);
    }
    return w->launch->scratch + ((size_t)w->id * w->lanes + (size_t)lane) * size + address;
}

static u8 *reach(Wave *w, const Insn *i, int space, u64 address, u32 n_bytes, int lane, int kind) {
    if (space == FLAT && address - SHARED_APERTURE < APERTURE_SIZE) {
        return lds_memory(w, i, address - SHARED_APERTURE, n_bytes, lane, kind);
    }
    if (space == FLAT && address - PRIVATE_APERTURE < APERTURE_SIZE) {
        return scratch_memory(w, i, address - PRIVATE_APERTURE, n_bytes, lane);
    }
    if (space == LDS) return lds_memory(w, i, address, n_bytes, lane, kind);
    if (space == SCRATCH) return scratch_memory(w, i, address, n_bytes, lane);
    if (kind == UPDATE && address % n_bytes) {
        fault(w, i, "misaligned", "lane %d: atomic of %u bytes at 0x%llx", lane, n_bytes, (unsigned long long)address);
    }
    return global_memory(w, i, address, n_bytes, lane, kind != READ);
}

/* Buffer addressing: a resource of four scalar registers at source 2, an offset that is scalar at source 3. */
static void buffer_addresses(Wave *w, const Insn *i, u64 *to) {
    u32 at = i->src[2];
    for (u32 n = 0; n < 4; n++) scalar_check(w, i, at + n);
    u64 base = w->s[at] | (u64)(w->s[at + 1] & 0xffff) << 32;
    u32 stride = w->s[at + 1] >> 16 & 0x3fff, n_records = w->s[at + 2];
    u32 scalar_offset = (u32)scalar(w, i, 3, 1), row = i->src[0];
    const u32 *index = NULL, *offset = NULL;
    if (i->flags & HAS_INDEX) { index = row_of(w, i, row); fetch_check(w, i, ROW(row)); row++; }
    if (i->flags & HAS_VADDR) { offset = row_of(w, i, row); fetch_check(w, i, ROW(row)); }
    for (u32 l = 0; l < w->lanes; l++) {
        u64 in = (u64)(u32)i->offset + (offset ? offset[l] : 0), at_index = index ? index[l] : 0;
        bool outside = stride ? at_index >= n_records || in + i->n_bytes > stride : in + i->n_bytes > n_records;
        to[l] = outside ? OUT_OF_RANGE : base + scalar_offset + in + at_index * stride;
    }
}

static void addresses(Wave *w, const Insn *i, int space, u64 *to) {
    if (space == BUFFER) {
        buffer_addresses(w, i, to);
    } else if (space == LDS || (space == SCRATCH && i->flags & HAS_VADDR) || i->flags & HAS_SADDR) {
        u64 base = i->flags & HAS_SADDR ? scalar(w, i, 2, space == SCRATCH ? 1 : 2) : 0;
        if (space == LDS || i->flags & HAS_VADDR) {
            const u32 *v = row_of(w, i, i->src[0]);
            fetch_check(w, i, ROW(i->src[0]));
            for (u32 l = 0; l < w->lanes; l++) to[l] = base + v[l] + (u64)(i64)i->offset;
        } else {
            for (u32 l = 0; l < w->lanes; l++) to[l] = base + (u64)(i64)i->offset;
        }
        if (space == SCRATCH) for (u32 l = 0; l < w->lanes; l++) to[l] = (u32)to[l];
    } else if (space == SCRATCH) {
        for (u32 l = 0; l < w->lanes; l++) to[l] = (u64)(u32)i->offset;
    } else {
        _Alignas(64) u64 room[LANES_MAX];
        const u64 *v = get_L(w, i, 0, room);
        for (u32 l = 0; l < w->lanes; l++) to[l] = v[l] + (u64)(i64)i->offset;
    }
    must_be_written(w, i, "addresses memory");
}

/* Begins an operation in the counters that its space counts in; returns the token of the loaded registers. */
static u64 begin(Wave *w, int space, bool loads) {
    if (space == LDS) {
        u64 token = issue(w, LDS_OPS, false);
        if (!loads) w->lds_stores = w->counters[LDS_OPS].issued;
        return token;
    }
    if (space == FLAT) issue(w, LDS_OPS, true);
    return issue(w, loads || w->launch->module->family == CDNA ? LOADS : STORES, false);
}

static void arrive(Wave *w, const Insn *i, u32 reg, u32 n_rows, u64 token) {
    for (u32 n = 0; n < n_rows; n++) {
        /* Loads of one kind return in order, so the second may follow the first into a register. */
        if (w->ready[ROW(reg) + n] >> 32 == token >> 32) w->ready[ROW(reg) + n] = 0;
        written(w, i, ROW(reg) + n);
        w->ready[ROW(reg) + n] = token;
    }
}

/* Whether every active lane stays in the allocation that the instruction touched last. */
static bool all_inside(const Wave *w, const Insn *i, const u64 *at) {
    if (i->generation != allocation_generation) return false;
    u64 base = i->base, span = i->limit - i->base, outside = 0;
    for (u32 l = 0; l < w->lanes; l++) outside |= (u64)(at[l] - base > span) << l;
    return (outside & w->exec) == 0;
}

/* Global loads of whole words, where the bounds are known to hold. */
static void load_words(const Wave *w, const u64 *from, u32 n_rows, u32 *rows) {
    for (u32 l = 0; l < w->lanes; l++) {
        if (!ACTIVE(w, l)) continue;
        const u8 *at = (const u8 *)from[l];
        for (u32 n = 0; n < n_rows; n++) memcpy(rows + n * w->lanes + l, at + 4 * n, 4);
    }
}

static void load_at(Wave *w, const Insn *i, int space, const u64 *from, u32 reg) {
    u32 n_rows = i->n_bytes < 4 ? 1 : i->n_bytes / 4, *rows = row_of(w, i, reg + n_rows - 1) - (n_rows - 1) * w->lanes;
    if (space == GLOBAL && i->n_bytes >= 4 && all_inside(w, i, from)) {
        load_words(w, from, n_rows, rows);
        return;
    }
    for (u32 l = 0; l < w->lanes; l++) {
        if (!ACTIVE(w, l)) continue;
        u32 word[4] = {0};
        if (from[l] != OUT_OF_RANGE) memcpy(word, reach(w, i, space, from[l], i->n_bytes, (int)l, READ), i->n_bytes);
        if (i->n_bytes >= 4) {
            for (u32 n = 0; n < n_rows; n++) rows[n * w->lanes + l] = word[n];
            continue;
        }
        u32 value = word[0];
        if (i->flags & SIGNED) value = i->n_bytes == 1 ? (u32)(i8)value : (u32)(i16)value;
        if (i->flags & D16_HI) value = (rows[l] & 0xffff) | value << 16;
        else if (i->flags & D16) value = (rows[l] & 0xffff0000) | (value & 0xffff);
        rows[l] = value;
    }
}

static void load(Wave *w, const Insn *i, int space) {
    u64 from[LANES_MAX];
    u32 n_rows = i->n_bytes < 4 ? 1 : i->n_bytes / 4;
    addresses(w, i, space, from);
    u64 token = begin(w, space, true);
    load_at(w, i, space, from, i->dst);
    if (i->flags & TWO_ADDRESSES) {
        for (u32 l = 0; l < w->lanes; l++) from[l] += (u64)i->extra - (u64)(i64)i->offset;
        load_at(w, i, space, from, i->dst + n_rows);
        n_rows *= 2;
    }
    arrive(w, i, i->dst, n_rows, token);
}

static void store_at(Wave *w, const Insn *i, int space, const u64 *to, u32 reg) {
    u32 n_rows = i->n_bytes < 4 ? 1 : i->n_bytes / 4;
    const u32 *rows = row_of(w, i, reg + n_rows - 1) - (n_rows - 1) * w->lanes;
    for (u32 n = 0; n < n_rows; n++) fetch_check(w, i, ROW(reg) + n);
    must_be_written(w, i, "fills memory");
    for (u32 l = 0; l < w->lanes; l++) {
        if (!ACTIVE(w, l) || to[l] == OUT_OF_RANGE) continue;
        u32 word[4];
        for (u32 n = 0; n < n_rows; n++) word[n] = rows[n * w->lanes + l];
        if (i->flags & D16_HI) word[0] >>= 16;
        memcpy(reach(w, i, space, to[l], i->n_bytes, (int)l, WRITE), word, i->n_bytes);
    }
}

static void store(Wave *w, const Insn *i, int space) {
    u64 to[LANES_MAX];
    addresses(w, i, space, to);
    begin(w, space, false);
    store_at(w, i, space, to, i->src[1]);
    if (i->flags & TWO_ADDRESSES) {
        for (u32 l = 0; l < w->lanes; l++) to[l] += (u64)i->extra - (u64)(i64)i->offset;
        store_at(w, i, space, to, i->src[3]);
    }
}

/* Twin of ATOMICS in encode.py. */
enum { SWAP, CMPSWAP, ADD, SUB, MIN_I, MIN_U, MAX_I, MAX_U, AND, OR, XOR, INC, DEC, ADD_F, MIN_F, MAX_F, PK_ADD_F16, PK_ADD_BF16 };

static u32 add_pair(u32 a, u32 b, bool bf16) {
    u32 out = 0;
    for (int n = 0; n < 32; n += 16) {
        f32 x = bf16 ? bf16_to_f32(a >> n & 0xffff) + bf16_to_f32(b >> n & 0xffff) : half_to_f32(a >> n) + half_to_f32(b >> n);
        out |= (bf16 ? f32_to_bf16(x) : f32_to_half(x)) << n;
    }
    return out;
}

static u64 updated(const Wave *w, const Insn *i, u64 old, u64 data, u64 compare, bool wide) {
    i64 signed_old = wide ? (i64)old : (i32)old, signed_data = wide ? (i64)data : (i32)data;
    f64 x = wide ? as_f64(old) : as_f32((u32)old), y = wide ? as_f64(data) : as_f32((u32)data);
    f64 number;
    switch (i->extra) {
    case SWAP: return data;
    case CMPSWAP: return old == compare ? data : old;
    case ADD: return old + data;
    case SUB: return old - data;
    case MIN_I: return signed_old < signed_data ? old : data;
    case MAX_I: return signed_old > signed_data ? old : data;
    case MIN_U: return old < data ? old : data;
    case MAX_U: return old > data ? old : data;
    case AND: return old & data;
    case OR: return old | data;
    case XOR: return old ^ data;
    case INC: return old >= data ? 0 : old + 1;
    case DEC: return old == 0 || old > data ? data : old - 1;
    case ADD_F: number = wide ? x + y : (f32)x + (f32)y; break;
    case MIN_F: number = fmin(x, y); break;
    case MAX_F: number = fmax(x, y); break;
    case PK_ADD_F16: return add_pair((u32)old, (u32)data, false);
    case PK_ADD_BF16: return add_pair((u32)old, (u32)data, true);
    default: fault(w, i, "unsupported", "atomic operation %u", i->extra);
    }
    return wide ? as_u64(number) : as_u32((f32)number);
}

/* One lane after the other, as if each were alone. Data is at source 1; what to compare with follows it, or in LDS
 * is at source 3. */
static void atomic(Wave *w, const Insn *i, int space) {
    u64 at[LANES_MAX];
    u32 n_words = i->n_bytes / 4, reg = i->src[1], n_data = n_words * (i->extra == CMPSWAP && space != LDS ? 2 : 1);
    addresses(w, i, space, at);
    const u32 *data = row_of(w, i, reg + n_data - 1) - (n_data - 1) * w->lanes, *other = data + n_words * w->lanes;
    for (u32 n = 0; n < n_data; n++) fetch_check(w, i, ROW(reg) + n);
    if (i->extra == CMPSWAP && space == LDS) {
        other = row_of(w, i, i->src[3] + n_words - 1) - (n_words - 1) * w->lanes;
        for (u32 n = 0; n < n_words; n++) fetch_check(w, i, ROW(i->src[3]) + n);
    }
    must_be_written(w, i, "updates memory");
    bool returns = i->flags & RETURNS, wide = n_words == 2;
    u64 token = begin(w, space, returns);
    u32 *to = returns ? row_of(w, i, i->dst) : NULL;
    for (u32 l = 0; l < w->lanes; l++) {
        if (!ACTIVE(w, l) || at[l] == OUT_OF_RANGE) continue;
        u8 *memory = reach(w, i, space, at[l], i->n_bytes, (int)l, UPDATE);
        u64 old = 0, value = data[l], compare = 0;
        memcpy(&old, memory, i->n_bytes);
        if (wide) value |= (u64)data[w->lanes + l] << 32;
        if (i->extra == CMPSWAP) compare = other[l] | (wide ? (u64)other[w->lanes + l] << 32 : 0);
        u64 now = updated(w, i, old, value, compare, wide);
        memcpy(memory, &now, i->n_bytes);
        if (returns) to[l] = (u32)old;
        if (returns && wide) to[w->lanes + l] = (u32)(old >> 32);
    }
    if (returns) arrive(w, i, i->dst, n_words, token);
}

#define SPACES(NAME, RUN) \
    OP(GLOBAL_##NAME) { RUN(w, i, GLOBAL); } REGISTER(GLOBAL_##NAME) \
    OP(FLAT_##NAME) { RUN(w, i, FLAT); } REGISTER(FLAT_##NAME) \
    OP(SCRATCH_##NAME) { RUN(w, i, SCRATCH); } REGISTER(SCRATCH_##NAME) \
    OP(BUFFER_##NAME) { RUN(w, i, BUFFER); } REGISTER(BUFFER_##NAME) \
    OP(DS_##NAME) { RUN(w, i, LDS); } REGISTER(DS_##NAME)
SPACES(LOAD, load)
SPACES(STORE, store)
SPACES(ATOMIC, atomic)

static void scalar_load(Wave *w, const Insn *i, u64 base, u64 limit) {
    u64 offset = (u64)(i64)i->offset + (i->src[1] == NUL ? 0 : scalar(w, i, 1, 1)), address = base + offset;
    u64 token = issue(w, SCALAR_LOADS, true);
    must_be_written(w, i, "addresses memory");
    if (i->n_bytes >= 4 && address % 4) fault(w, i, "misaligned", "scalar load at 0x%llx", (unsigned long long)address);
    u32 words[16] = {0};
    if (offset + i->n_bytes <= limit) memcpy(words, global_memory(w, i, address, i->n_bytes, 0, false), i->n_bytes);
    if (i->n_bytes < 4 && i->flags & SIGNED) words[0] = i->n_bytes == 1 ? (u32)(i8)words[0] : (u32)(i16)words[0];
    u32 n_words = i->n_bytes < 4 ? 1 : i->n_bytes / 4;
    for (u32 n = 0; n < n_words; n++) {
        set_scalar(w, i, i->dst + n, words[n], 1);
        if (i->dst != NUL) w->s_ready[i->dst + n] = token;
    }
}
OP(S_LOAD) { scalar_load(w, i, scalar(w, i, 0, 2), ~0ull); }
REGISTER(S_LOAD)
OP(S_BUFFER_LOAD) {
    u64 base = scalar(w, i, 0, 2) & 0xffffffffffffull;
    scalar_check(w, i, i->src[0] + 2u);
    u32 stride = w->s[i->src[0] + 1] >> 16 & 0x3fff, n_records = w->s[i->src[0] + 2];
    scalar_load(w, i, base, stride ? (u64)stride * n_records : n_records);
}
REGISTER(S_BUFFER_LOAD)

/* A clock, for kernels that time themselves. */
OP(S_MEMTIME) {
    set_scalar(w, i, i->dst, w->launch->n_executed, 2);
    w->s_ready[i->dst] = w->s_ready[i->dst + 1] = issue(w, SCALAR_LOADS, true);
}
REGISTER(S_MEMTIME)
