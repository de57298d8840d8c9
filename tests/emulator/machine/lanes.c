/* Instructions that move data between lanes: DPP, SDWA, permutes, swizzles, and lanes to and from scalars. */
#include "valu.h"

/* The lane that a DPP control reads for lane `l`, or -1 where there is none. */
static int dpp_source(u32 control, int l, int lanes) {
    int row = l & ~15, in = l & 15, n = control & 15;
    if (control <= 0xff) return (l & ~3) | (int)(control >> 2 * (l & 3) & 3);
    switch (control & 0x1f0) {
    case 0x100: return in + n < 16 ? l + n : -1;                    /* row_shl */
    case 0x110: return in - n >= 0 ? l - n : -1;                    /* row_shr */
    case 0x120: return row | ((in - n) & 15);                       /* row_ror */
    case 0x150: return row | n;                                     /* row_share, row_newbcast */
    case 0x160: return row | (in ^ n);                              /* row_xmask */
    default: break;
    }
    switch (control) {
    case 0x130: return l + 1 < lanes ? l + 1 : -1;                  /* wave_shl */
    case 0x134: return (l + 1) % lanes;                             /* wave_rol */
    case 0x138: return l - 1;                                       /* wave_shr */
    case 0x13c: return (l + lanes - 1) % lanes;                     /* wave_ror */
    case 0x140: return row | (15 - in);                             /* row_mirror */
    case 0x141: return (l & ~7) | (7 - (l & 7));                    /* row_half_mirror */
    case 0x142: return l >= 16 ? (row - 1) : -1;                    /* row_bcast15 */
    case 0x143: return l >= 32 ? 31 : -1;                           /* row_bcast31 */
    default: return -2;
    }
}

/* Runs the instruction with source 0 permuted, and only in lanes whose source exists and which the masks allow. */
static void run_dpp(Wave *w, const Insn *i) {
    const u32 *from = row_of(w, i, i->src[0]);
    u32 *to = row_of(w, i, TEMP);
    u64 enabled = 0, undefined = w->undefined[ROW(i->src[0])], exec = w->exec, moved = 0;
    u64 taint = w->taint;
    fetch_check(w, i, ROW(i->src[0]));
    w->taint = taint; /* only lanes that are really read count */
    for (int l = 0; l < (int)w->lanes; l++) {
        int source = i->variant == DPP8 ? (l & ~7) | (int)(i->extra >> 3 * (l & 7) & 7) : dpp_source(i->dpp, l, (int)w->lanes);
        if (source == -2) fault(w, i, "unsupported", "DPP control 0x%x", i->dpp);
        bool masked = i->variant == DPP16 && !(i->sel[0] >> (l >> 4 & 3) & 1 && i->sel[1] >> (l >> 2 & 3) & 1);
        bool valid = source >= 0 && (exec >> source & 1 || i->flags & DPP_FETCH_INACTIVE);
        to[l] = valid ? from[source] : 0;
        if (valid) moved |= (undefined >> source & 1) << l;
        if (!masked && (valid || i->flags & DPP_BOUND)) enabled |= 1ull << l;
    }
    w->undefined[ROW(TEMP)] = moved;
    w->ready[ROW(TEMP)] = 0;
    Insn plain = *i;
    plain.variant = PLAIN;
    plain.src[0] = TEMP;
    set_exec(w, exec & enabled);
    plain.run(w, &plain);
    set_exec(w, exec);
}

static u32 sdwa_part(u32 x, u32 select, bool sign) {
    if (select == 6) return x;
    u32 bits = select < 4 ? 8 : 16, shift = select < 4 ? 8 * select : 16 * (select - 4);
    u32 part = x >> shift & ((1u << bits) - 1);
    return sign ? (u32)((i32)(part << (32 - bits)) >> (32 - bits)) : part;
}

/* Runs the instruction on parts of its sources, and puts the result into a part of the destination. */
static void run_sdwa(Wave *w, const Insn *i) {
    Insn plain = *i;
    plain.variant = PLAIN;
    for (int n = 0; n < 2; n++) {
        if (i->src[n] == NUL) continue;
        u32 *to = row_of(w, i, TEMP + (u32)n);
        _Alignas(64) u32 room[LANES_MAX];
        Insn source = *i;
        const u32 *from = get_U(w, &source, n, room);
        for (u32 l = 0; l < w->lanes; l++) to[l] = sdwa_part(from[l], i->sel[1 + n], i->extra >> n & 1);
        w->undefined[ROW(TEMP) + n] = i->src[n] >= VGPR ? w->undefined[ROW(i->src[n])] : 0;
        w->ready[ROW(TEMP) + n] = 0;
        plain.src[n] = (u16)(TEMP + n);
        plain.opsel &= (u8)~(1u << n);
    }
    if (i->sel[0] == 6 || i->dst < VGPR) {
        plain.run(w, &plain);
        return;
    }
    plain.dst = TEMP + 2;
    plain.run(w, &plain);
    const u32 *result = row_of(w, i, TEMP + 2);
    const u32 *old = row_of(w, i, i->dst);
    u32 bits = i->sel[0] < 4 ? 8 : 16, shift = i->sel[0] < 4 ? 8 * i->sel[0] : 16 * (i->sel[0] - 4u);
    u32 field = (bits == 8 ? 0xffu : 0xffffu) << shift;
    _Alignas(64) u32 out[LANES_MAX];
    for (u32 l = 0; l < w->lanes; l++) {
        u32 value = result[l] << shift & field;
        u32 rest = i->sel[3] == 2 ? old[l] & ~field : 0;
        if (i->sel[3] == 1 && value >> (shift + bits - 1) & 1) rest = ~((2u << (shift + bits - 1)) - 1);
        out[l] = value | rest;
    }
    put_word(w, i, i->dst, out);
}

void run_with_variant(Wave *w, const Insn *i) {
    if (i->variant == SDWA) run_sdwa(w, i);
    else run_dpp(w, i);
}

static u32 lane_value(Wave *w, const Insn *i, int lane) {
    u32 reg = i->src[0];
    if (reg < VGPR) return (u32)scalar(w, i, 0, 1);
    fetch_check(w, i, ROW(reg));
    w->taint = w->undefined[ROW(reg)] >> lane & 1 ? ~0ull : 0;
    return row_of(w, i, reg)[lane];
}
OP(V_READFIRSTLANE_B32) { set_scalar(w, i, i->dst, lane_value(w, i, w->exec ? __builtin_ctzll(w->exec) : 0), 1); }
REGISTER(V_READFIRSTLANE_B32)
OP(V_READLANE_B32) { set_scalar(w, i, i->dst, lane_value(w, i, (int)(scalar(w, i, 1, 1) & (w->lanes - 1))), 1); }
REGISTER(V_READLANE_B32)
OP(V_WRITELANE_B32) {
    u32 lane = (u32)scalar(w, i, 1, 1) & (w->lanes - 1), *row = row_of(w, i, i->dst);
    row[lane] = (u32)scalar(w, i, 0, 1);
    w->undefined[ROW(i->dst)] &= ~(1ull << lane);
}
REGISTER(V_WRITELANE_B32)

static void count_below(Wave *w, const Insn *i, int first) {
    GET(U, 0, mask) GET(U, 1, base)
    _Alignas(64) u32 out[LANES_MAX];
    for (int l = 0; l < (int)w->lanes; l++) {
        int n = l - first;
        u32 below = n <= 0 ? 0 : n >= 32 ? ~0u : (1u << n) - 1;
        out[l] = v_base[l] + (u32)__builtin_popcount(v_mask[l] & below);
    }
    put_U(w, i, out);
}
OP(V_MBCNT_LO_U32_B32) { count_below(w, i, 0); }
REGISTER(V_MBCNT_LO_U32_B32)
OP(V_MBCNT_HI_U32_B32) { count_below(w, i, 32); }
REGISTER(V_MBCNT_HI_U32_B32)

/* Gathers a word per lane from the lane that `source` names; what an inactive lane holds is not defined. */
#define GATHER(NAME, N_SELECT, SOURCE) OP(NAME) { \
    GET(U, 0, from) \
    u64 undefined = i->src[0] >= VGPR ? w->undefined[ROW(i->src[0])] : 0, select = 0; \
    if (N_SELECT) select = scalar(w, i, 1, 1) | scalar(w, i, 2, 1) << 32; \
    _Alignas(64) u32 out[LANES_MAX]; \
    (void)select; \
    w->taint = 0; \
    for (u32 l = 0; l < w->lanes; l++) { \
        u32 s = (SOURCE) & (w->lanes - 1); \
        out[l] = v_from[s]; \
        if (!ACTIVE(w, s) && !(i->opsel & 1)) undefined |= 1ull << s; \
        w->taint |= (undefined >> s & 1) << l; \
    } \
    put_U(w, i, out); \
} REGISTER(NAME)
GATHER(V_PERMLANE16_B32, 1, (l & ~15u) | (u32)(select >> 4 * (l & 15) & 15))
GATHER(V_PERMLANEX16_B32, 1, ((l & ~15u) ^ 16) | (u32)(select >> 4 * (l & 15) & 15))
GATHER(V_PERMLANE64_B32, 0, l ^ 32)

OP(V_SWAP_B32) {
    u32 *a = row_of(w, i, i->dst), *b = row_of(w, i, i->src[0]);
    fetch_check(w, i, ROW(i->dst));
    fetch_check(w, i, ROW(i->src[0]));
    EACH_LANE(w) { u32 x = a[l], y = b[l]; a[l] = w->mask[l] ? y : x; b[l] = w->mask[l] ? x : y; }
    written(w, i, ROW(i->dst));
    written(w, i, ROW(i->src[0]));
}
REGISTER(V_SWAP_B32)

/* The LDS unit's exchanges between lanes; they touch no memory but count as LDS operations. */
static void put_exchanged(Wave *w, const Insn *i, const u32 *out) {
    put_word(w, i, i->dst, out);
    w->ready[ROW(i->dst)] = issue(w, LDS_OPS, false);
}
OP(DS_BPERMUTE_B32) {
    GET(U, 0, address) GET(U, 1, data)
    _Alignas(64) u32 out[LANES_MAX];
    u64 undefined = w->undefined[ROW(i->src[1])], taint = w->undefined[ROW(i->src[0])];
    u32 span = w->launch->module->family == CDNA ? 64 : 32;
    for (u32 l = 0; l < w->lanes; l++) {
        u32 s = (v_address[l] + (u32)i->offset) / 4 % span;
        out[l] = ACTIVE(w, s) ? v_data[s] : 0;
        if (ACTIVE(w, s)) taint |= (undefined >> s & 1) << l;
    }
    w->taint = taint;
    put_exchanged(w, i, out);
}
REGISTER(DS_BPERMUTE_B32)
OP(DS_PERMUTE_B32) {
    GET(U, 0, address) GET(U, 1, data)
    _Alignas(64) u32 out[LANES_MAX] = {0};
    u32 span = w->launch->module->family == CDNA ? 64 : 32;
    for (u32 l = 0; l < w->lanes; l++) {
        if (ACTIVE(w, l)) out[(v_address[l] + (u32)i->offset) / 4 % span] = v_data[l];
    }
    put_exchanged(w, i, out);
}
REGISTER(DS_PERMUTE_B32)
static u32 swizzle_source(u32 control, u32 l) {
    if (control >= 0xe000) return ~0u;
    if (control >= 0xc000) { /* rotate within 32 lanes */
        u32 amount = control >> 5 & 31, keep = control & 31, to = (control >> 10 & 1 ? l - amount : l + amount) & 31;
        return (l & 32) | (l & keep) | (to & ~keep & 31);
    }
    if (control & 0x8000) return (l & ~3u) | (control >> 2 * (l & 3) & 3);
    return (l & 32) | ((((l & 31 & control) | (control >> 5 & 31)) ^ (control >> 10 & 31)) & 31);
}
OP(DS_SWIZZLE_B32) {
    GET(U, 1, data)
    _Alignas(64) u32 out[LANES_MAX];
    u64 undefined = w->undefined[ROW(i->src[1])];
    w->taint = 0;
    for (u32 l = 0; l < w->lanes; l++) {
        u32 s = swizzle_source(i->extra, l);
        if (s == ~0u) fault(w, i, "unsupported", "swizzle 0x%x", i->extra);
        out[l] = ACTIVE(w, s) ? v_data[s] : 0;
        if (ACTIVE(w, s)) w->taint |= (undefined >> s & 1) << l;
    }
    put_exchanged(w, i, out);
}
REGISTER(DS_SWIZZLE_B32)
