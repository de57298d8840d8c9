/* Dot products and matrix instructions. Products are exact or rounded once each and summed in the order of K in f32;
 * hardware may sum in another order. */
#include "valu.h"

static inline i32 byte_of(u32 x, int n, bool sign) { return sign ? (i32)(x << (24 - 8 * n)) >> 24 : (i32)(x >> 8 * n & 255); }
static inline i32 nibble_of(u32 x, int n, bool sign) { return sign ? (i32)(x << (28 - 4 * n)) >> 28 : (i32)(x >> 4 * n & 15); }

/* Sums of products of the parts of two words, added to a third. Which sources are signed is known when it is compiled. */
#define DOT(NAME, N, PART, SIGN_A, SIGN_B) \
    static void NAME(const Wave *w, const u32 *a, const u32 *b, i32 *out) { \
        EACH_LANE(w) { \
            i32 sum = 0; \
            _Pragma("clang loop unroll(full)") for (int n = 0; n < N; n++) sum += PART(a[l], n, SIGN_A) * PART(b[l], n, SIGN_B); \
            out[l] = sum; \
        } \
    }
#define DOTS(NAME, N, PART) \
    DOT(NAME##_uu, N, PART, false, false) DOT(NAME##_su, N, PART, true, false) \
    DOT(NAME##_us, N, PART, false, true) DOT(NAME##_ss, N, PART, true, true) \
    static void NAME(const Wave *w, const u32 *a, const u32 *b, u32 is_signed, i32 *out) { \
        if (is_signed == 0) NAME##_uu(w, a, b, out); \
        else if (is_signed == 1) NAME##_su(w, a, b, out); \
        else if (is_signed == 2) NAME##_us(w, a, b, out); \
        else NAME##_ss(w, a, b, out); \
    }
DOTS(dot4, 4, byte_of)
DOTS(dot8, 8, nibble_of)

/* Integer dot products accumulate, and saturate where CLAMP says so. */
#define INTEGER_DOT(NAME, DOT, SIGNED_SOURCES, LOW, HIGH) OP(NAME) { \
    Insn source = *i; \
    _Alignas(64) u32 room[3][LANES_MAX], out[LANES_MAX]; \
    _Alignas(64) i32 product[LANES_MAX]; \
    source.clamp = source.neg = 0; \
    const u32 *a = get_U(w, &source, 0, room[0]), *b = get_U(w, &source, 1, room[1]), *c = get_U(w, &source, 2, room[2]); \
    DOT(w, a, b, SIGNED_SOURCES, product); \
    if (i->clamp) for (u32 l = 0; l < w->lanes; l++) { \
        i64 sum = (i64)product[l] + (LOW == 0 ? (i64)c[l] : (i64)(i32)c[l]); \
        out[l] = (u32)(sum < LOW ? LOW : sum > HIGH ? HIGH : sum); \
    } else EACH_LANE(w) out[l] = c[l] + (u32)product[l]; \
    put_word(w, i, i->dst, out); \
} REGISTER(NAME)
INTEGER_DOT(V_DOT4_I32_IU8, dot4, i->neg & 3, (i64)INT32_MIN, (i64)INT32_MAX)
INTEGER_DOT(V_DOT4_I32_I8, dot4, 3, (i64)INT32_MIN, (i64)INT32_MAX)
INTEGER_DOT(V_DOT4_U32_U8, dot4, 0, 0, (i64)UINT32_MAX)
INTEGER_DOT(V_DOT8_I32_IU4, dot8, i->neg & 3, (i64)INT32_MIN, (i64)INT32_MAX)
INTEGER_DOT(V_DOT8_I32_I4, dot8, 3, (i64)INT32_MIN, (i64)INT32_MAX)
INTEGER_DOT(V_DOT8_U32_U4, dot8, 0, 0, (i64)UINT32_MAX)

#define FLOAT_DOT(NAME, VALUE) OP(NAME) { \
    _Alignas(64) u32 room[2][LANES_MAX]; \
    _Alignas(64) f32 sum_room[LANES_MAX], out[LANES_MAX]; \
    Insn source = *i; \
    source.neg = i->neg & 4; \
    source.abs = 0; \
    const u32 *a = get_U(w, i, 0, room[0]), *b = get_U(w, i, 1, room[1]); \
    const f32 *c = get_F(w, &source, 2, sum_room); \
    u32 flip_a = (u32)(i->neg & 1) << 15 | (u32)(i->neg_hi & 1) << 31, flip_b = (u32)(i->neg >> 1 & 1) << 15 | (u32)(i->neg_hi >> 1 & 1) << 31; \
    EACH_LANE(w) { \
        u32 x = a[l] ^ flip_a, y = b[l] ^ flip_b; \
        out[l] = c[l] + VALUE(x & 0xffff) * VALUE(y & 0xffff) + VALUE(x >> 16) * VALUE(y >> 16); \
    } \
    put_F(w, i, out); \
} REGISTER(NAME)
FLOAT_DOT(V_DOT2_F32_F16, half_to_f32)
FLOAT_DOT(V_DOT2_F32_BF16, bf16_to_f32)

/* Matrices. `extra` names M, N, K in its bytes and the types: bits 24.. hold the element type of A and B, bit 28
 * whether the result is 16 bits wide. Twin of `shape` in encode.py. */
enum { OF_F16, OF_BF16, OF_I8, OF_F32, OF_F64 };
typedef struct { u32 rows, k, type; bool narrow; } Shape;
static Shape shape_of(const Insn *i) {
    return (Shape){i->extra & 255, i->extra >> 8 & 255, i->extra >> 24 & 15, i->extra >> 28 & 1};
}
static u32 element_bytes(u32 type) { return type == OF_I8 ? 1 : type == OF_F32 ? 4 : type == OF_F64 ? 8 : 2; }

enum { K_MAX = 64, SIDE_MAX = 32 };
/* Along K first: the products of a row of A with all of B's are one loop without a reduction. */
typedef struct { f32 value[K_MAX][SIDE_MAX]; } Operand;
typedef union { f32 number[SIDE_MAX][SIDE_MAX]; i32 integer[SIDE_MAX][SIDE_MAX]; } Tile;

/* One element along K of a group of lanes: a part of each one's word. */
static void convert(u32 type, const u32 *from, u32 shift, bool sign, f32 *to, u32 n) {
    switch (type) {
    case OF_F16: for (u32 r = 0; r < n; r++) to[r] = half_to_f32(from[r] >> shift); break;
    case OF_BF16: for (u32 r = 0; r < n; r++) to[r] = bf16_to_f32(from[r] >> shift & 0xffff); break;
    case OF_F32: for (u32 r = 0; r < n; r++) to[r] = as_f32(from[r]); break;
    default:
        if (sign) for (u32 r = 0; r < n; r++) to[r] = (f32)((i32)(from[r] << (24 - shift)) >> 24);
        else for (u32 r = 0; r < n; r++) to[r] = (f32)(from[r] >> shift & 255);
    }
}

/* Reads A or B: a group of s.rows lanes holds a row (or column) each, and of it `per_lane` elements along K. Where the
 * wave has more lanes than that takes, the rest must hold the same again. */
static void read_operand(Wave *w, const Insn *i, int n, Shape s, u32 per_lane, bool sign, Operand *to) {
    u32 size = element_bytes(s.type), n_rows = (per_lane * size + 3) / 4, n_groups = s.k / per_lane;
    for (u32 r = 0; r < n_rows; r++) (void)row_of(w, i, i->src[n] + r), fetch_check(w, i, ROW(i->src[n]) + r);
    const u32 *rows = row_of(w, i, i->src[n]);
    for (u32 e = 0; e < per_lane; e++) {
        const u32 *words = rows + e * size / 4 * w->lanes;
        for (u32 group = 0; group < w->lanes / s.rows; group++) {
            const u32 *from = words + group * s.rows, *first = words + group % n_groups * s.rows;
            if (group < n_groups) {
                convert(s.type, from, e * size % 4 * 8, sign, to->value[group * per_lane + e], s.rows);
                continue;
            }
            for (u32 r = 0; r < s.rows; r++) {
                if (from[r] == first[r]) continue;
                fault(w, i, "bad matrix operand", "lanes %u and %u must hold the same row, and differ in register %u",
                      group % n_groups * s.rows + r, group * s.rows + r, e * size / 4);
            }
        }
    }
}

/* Row and column of the result that register r of lane l holds. */
static u32 wmma_row(Family family, u32 lanes, u32 r, u32 l) {
    if (family == RDNA4) return r + 8 * (l / 16); /* 32 lanes */
    return lanes == 32 ? 2 * r + l / 16 : 4 * r + l / 16;
}
static u32 mfma_row(u32 side, u32 r, u32 l) { return side == 16 ? 4 * (l / 16) + r : 8 * (r / 4) + 4 * (l / 32) + r % 4; }

static void accumulate(Shape s, const Operand *a, const Operand *b, Tile *tile) {
    for (u32 row = 0; row < s.rows; row++) {
        /* Rows of their own, so that the compiler sees that nothing else changes them. */
        f32 number[SIDE_MAX];
        i32 integer[SIDE_MAX];
        memcpy(number, tile->number[row], sizeof number);
        memcpy(integer, tile->integer[row], sizeof integer);
        for (u32 k = 0; k < s.k; k++) {
            f32 x = a->value[k][row];
            const f32 *y = b->value[k];
            if (s.type == OF_I8) for (u32 c = 0; c < SIDE_MAX; c++) integer[c] += (i32)x * (i32)y[c];
            else for (u32 c = 0; c < SIDE_MAX; c++) number[c] += x * y[c];
        }
        if (s.type == OF_I8) memcpy(tile->integer[row], integer, sizeof integer);
        else memcpy(tile->number[row], number, sizeof number);
    }
}

/* Where register r of lane l of the result lies: in which register, at which bit, which row of the tile. */
typedef struct { u32 reg, shift, row; } Place;
static Place place_of(const Wave *w, const Insn *i, Shape s, bool mfma, u32 r, u32 l) {
    Family family = w->launch->module->family;
    Place p = {r, 0, mfma ? mfma_row(s.rows, r, l) : wmma_row(family, w->lanes, r, l)};
    if (s.narrow && family == RDNA4) {
        p.reg = r / 2;
        p.shift = r % 2 * 16;
    } else if (s.narrow && i->opsel >> 2 & 1) {
        p.shift = 16;
    }
    return p;
}

static void multiply(Wave *w, const Insn *i, Shape s, u32 per_lane, bool mfma) {
    static Operand a, b;
    static Tile tile;
    read_operand(w, i, 0, s, per_lane, mfma || i->neg & 1, &a);
    read_operand(w, i, 1, s, per_lane, mfma || i->neg >> 1 & 1, &b);
    u32 n_out = s.rows * s.rows / w->lanes, n_regs = s.narrow && w->launch->module->family == RDNA4 ? n_out / 2 : n_out;
    u32 constant = i->src[2] < VGPR ? (u32)scalar(w, i, 2, 1) : 0;
    for (u32 r = 0; i->src[2] >= VGPR && r < n_regs; r++) (void)row_of(w, i, i->src[2] + r), fetch_check(w, i, ROW(i->src[2]) + r);
    for (u32 r = 0; r < n_out; r++) {
        for (u32 l = 0; l < w->lanes; l++) {
            Place p = place_of(w, i, s, mfma, r, l);
            u32 bits = i->src[2] < VGPR ? constant : row_of(w, i, i->src[2] + p.reg)[l] >> p.shift;
            f32 start = !s.narrow ? as_f32(bits) : s.type == OF_F16 ? half_to_f32(bits) : bf16_to_f32(bits & 0xffff);
            if (!mfma && i->neg_hi & 4) start = fabsf(start);
            if (!mfma && i->neg & 4) start = -start;
            if (s.type == OF_I8) tile.integer[p.row][l % s.rows] = (i32)bits;
            else tile.number[p.row][l % s.rows] = start;
        }
    }
    accumulate(s, &a, &b, &tile);
    for (u32 r = 0; r < n_out; r++) {
        for (u32 l = 0; l < w->lanes; l++) {
            Place p = place_of(w, i, s, mfma, r, l);
            f32 sum = tile.number[p.row][l % s.rows];
            u32 bits = !s.narrow ? as_u32(sum) : s.type == OF_F16 ? f32_to_half(sum) : f32_to_bf16(sum);
            u32 *to = row_of(w, i, i->dst + p.reg) + l, field = s.narrow ? 0xffffu << p.shift : ~0u;
            if (s.type == OF_I8) bits = (u32)tile.integer[p.row][l % s.rows];
            *to = (*to & ~field) | (bits << p.shift & field);
        }
    }
    for (u32 r = 0; r < n_regs; r++) written(w, i, ROW(i->dst) + r);
}

static void full_exec(const Wave *w, const Insn *i) {
    u64 all = w->lanes == 64 ? ~0ull : 0xffffffffull;
    if (w->exec != all) fault(w, i, "bad matrix operand", "EXEC is 0x%llx, and a matrix instruction needs every lane", (unsigned long long)w->exec);
}
/* RDNA3: each of the 16 rows is whole in a lane, and again in the lanes 16 further. RDNA4: half of K in each. */
OP(V_WMMA) {
    Shape s = shape_of(i);
    full_exec(w, i);
    if ((i->neg | i->neg_hi) & 3 && s.type != OF_I8) fault(w, i, "unsupported", "negated matrix operand");
    multiply(w, i, s, w->launch->module->family == RDNA4 ? s.k * 16 / w->lanes : s.k, false);
}
REGISTER(V_WMMA)
OP(V_MFMA) {
    Shape s = shape_of(i);
    full_exec(w, i);
    multiply(w, i, s, s.k * s.rows / w->lanes, true);
}
REGISTER(V_MFMA)
