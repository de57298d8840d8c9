/* Vector operands of every type: where a row can be used as it lies, no copy is made. */
#include "valu.h"

static const u32 *words(Wave *w, const Insn *i, int n, u32 *room) {
    u32 reg = i->src[n];
    if (reg >= VGPR) {
        const u32 *row = row_of(w, i, reg);
        fetch_check(w, i, ROW(reg));
        return row;
    }
    broadcast(room, (u32)scalar(w, i, n, 1));
    return room;
}

static const u64 *long_words(Wave *w, const Insn *i, int n, u64 *room) {
    u32 reg = i->src[n];
    if (reg >= VGPR) {
        const u32 *low = row_of(w, i, reg), *high = row_of(w, i, reg + 1);
        fetch_check(w, i, ROW(reg));
        fetch_check(w, i, ROW(reg) + 1);
        EACH_LANE(w) room[l] = low[l] | (u64)high[l] << 32;
    } else {
        u64 value = scalar(w, i, n, 2);
        EACH_LANE(w) room[l] = value;
    }
    return room;
}

const u32 *get_U(Wave *w, const Insn *i, int n, u32 *room) { return words(w, i, n, room); }
const i32 *get_I(Wave *w, const Insn *i, int n, i32 *room) { return (const i32 *)words(w, i, n, (u32 *)room); }
const u64 *get_L(Wave *w, const Insn *i, int n, u64 *room) { return long_words(w, i, n, room); }
const i64 *get_K(Wave *w, const Insn *i, int n, i64 *room) { return (const i64 *)long_words(w, i, n, (u64 *)room); }

const f32 *get_F(Wave *w, const Insn *i, int n, f32 *room) {
    const u32 *values = words(w, i, n, (u32 *)room);
    u32 keep = i->abs >> n & 1 ? 0x7fffffff : ~0u, flip = (u32)(i->neg >> n & 1) << 31;
    if (keep == ~0u && !flip) return (const f32 *)values;
    EACH_LANE(w) room[l] = as_f32((values[l] & keep) ^ flip);
    return room;
}

const f64 *get_D(Wave *w, const Insn *i, int n, f64 *room) {
    u64 *bits = (u64 *)room;
    long_words(w, i, n, bits);
    u64 keep = i->abs >> n & 1 ? ~0ull >> 1 : ~0ull, flip = (u64)(i->neg >> n & 1) << 63;
    EACH_LANE(w) bits[l] = (bits[l] & keep) ^ flip;
    return room;
}

static void halves(Wave *w, const Insn *i, int n, u32 *room) {
    const u32 *values = words(w, i, n, room);
    u32 shift = i->opsel >> n & 1 ? 16 : 0;
    EACH_LANE(w) room[l] = values[l] >> shift & 0xffff;
}

static void float_halves(Wave *w, const Insn *i, int n, u32 *room) {
    halves(w, i, n, room);
    u32 keep = i->abs >> n & 1 ? 0x7fff : 0xffff, flip = (u32)(i->neg >> n & 1) << 15;
    EACH_LANE(w) room[l] = (room[l] & keep) ^ flip;
}

const f32 *get_H(Wave *w, const Insn *i, int n, f32 *room) {
    u32 *bits = (u32 *)room;
    float_halves(w, i, n, bits);
    EACH_LANE(w) room[l] = half_to_f32(bits[l]);
    return room;
}

const f32 *get_B(Wave *w, const Insn *i, int n, f32 *room) {
    u32 *bits = (u32 *)room;
    float_halves(w, i, n, bits);
    EACH_LANE(w) room[l] = bf16_to_f32(bits[l]);
    return room;
}

const u32 *get_W(Wave *w, const Insn *i, int n, u32 *room) {
    halves(w, i, n, room);
    return room;
}

const i32 *get_S(Wave *w, const Insn *i, int n, i32 *room) {
    halves(w, i, n, (u32 *)room);
    EACH_LANE(w) room[l] = (i16)room[l];
    return room;
}

/* Writes a row where EXEC allows. */
void put_word(Wave *w, const Insn *i, u32 reg, const u32 *values) {
    u32 *row = row_of(w, i, reg);
    if (w->all_active) memcpy(row, values, w->lanes * sizeof *row);
    else EACH_LANE(w) row[l] = w->mask[l] ? values[l] : row[l];
    written(w, i, ROW(reg));
}

u64 pack_mask(const Wave *w, const u32 *flags) {
    typedef u32 words32 __attribute__((ext_vector_type(32)));
    typedef bool bits32 __attribute__((ext_vector_type(32)));
    u64 all = 0;
    for (u32 block = 0; block < w->lanes; block += 32) {
        words32 x;
        memcpy(&x, flags + block, sizeof x);
        bits32 bits = __builtin_convertvector(x != 0, bits32);
        u32 packed;
        memcpy(&packed, &bits, 4);
        all |= (u64)packed << block;
    }
    return all;
}

static void no_modifiers(Wave *w, const Insn *i) {
    if (i->clamp || i->omod) fault(w, i, "unsupported", "clamp or output modifier on an integer result");
}

void put_U(Wave *w, const Insn *i, const u32 *values) {
    no_modifiers(w, i);
    put_word(w, i, i->dst, values);
}

void put_I(Wave *w, const Insn *i, const i32 *values) { put_U(w, i, (const u32 *)values); }

void put_L(Wave *w, const Insn *i, const u64 *values) {
    _Alignas(64) u32 low[LANES_MAX], high[LANES_MAX];
    no_modifiers(w, i);
    EACH_LANE(w) { low[l] = (u32)values[l]; high[l] = (u32)(values[l] >> 32); }
    put_word(w, i, i->dst, low);
    put_word(w, i, i->dst + 1, high);
}

void put_K(Wave *w, const Insn *i, const i64 *values) { put_L(w, i, (const u64 *)values); }

static const f32 SCALES[] = {1, 2, 4, 0.5f};

static f32 clamped(f32 x) { return x > 0 ? (x < 1 ? x : 1) : 0; }

void put_F(Wave *w, const Insn *i, const f32 *values) {
    if (!i->clamp && !i->omod) {
        put_word(w, i, i->dst, (const u32 *)values);
        return;
    }
    _Alignas(64) u32 out[LANES_MAX];
    EACH_LANE(w) {
        f32 x = values[l] * SCALES[i->omod];
        out[l] = as_u32(i->clamp ? clamped(x) : x);
    }
    put_word(w, i, i->dst, out);
}

void put_D(Wave *w, const Insn *i, const f64 *values) {
    if (i->clamp || i->omod) fault(w, i, "unsupported", "clamp or output modifier on an f64 result");
    put_L(w, i, (const u64 *)values);
}

/* A 16-bit result goes into one half. The other half stays; on CDNA it becomes zero unless the high one is written. */
static void put_half(Wave *w, const Insn *i, const u32 *halves) {
    _Alignas(64) u32 out[LANES_MAX];
    const u32 *row = row_of(w, i, i->dst);
    bool high = i->opsel >> 3 & 1;
    u32 keep = high ? 0xffff : w->launch->module->family == CDNA ? 0 : 0xffff0000;
    EACH_LANE(w) out[l] = (row[l] & keep) | halves[l] << (high ? 16 : 0);
    put_word(w, i, i->dst, out);
}

void put_H(Wave *w, const Insn *i, const f32 *values) {
    _Alignas(64) u32 out[LANES_MAX];
    EACH_LANE(w) {
        f32 x = values[l] * SCALES[i->omod];
        out[l] = f32_to_half(i->clamp ? clamped(x) : x);
    }
    put_half(w, i, out);
}

void put_B(Wave *w, const Insn *i, const f32 *values) {
    _Alignas(64) u32 out[LANES_MAX];
    EACH_LANE(w) out[l] = f32_to_bf16(values[l]);
    put_half(w, i, out);
}

void put_W(Wave *w, const Insn *i, const u32 *values) {
    _Alignas(64) u32 out[LANES_MAX];
    no_modifiers(w, i);
    EACH_LANE(w) out[l] = values[l] & 0xffff;
    put_half(w, i, out);
}

void put_S(Wave *w, const Insn *i, const i32 *values) { put_W(w, i, (const u32 *)values); }
