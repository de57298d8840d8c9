/* Dot products and matrix instructions. Products are exact or rounded once each and summed in the order of K in f32;
 * hardware may sum in another order. */
#include "valu.h"

static i32 byte_of(u32 x, int n, bool sign) { return sign ? (i8)(x >> 8 * n) : (i32)(x >> 8 * n & 255); }
static i32 nibble_of(u32 x, int n, bool sign) { return sign ? (i32)(x << (28 - 4 * n)) >> 28 : (i32)(x >> 4 * n & 15); }
static i32 dot4(u32 a, u32 b, bool sign_a, bool sign_b) {
    i32 sum = 0;
    for (int n = 0; n < 4; n++) sum += byte_of(a, n, sign_a) * byte_of(b, n, sign_b);
    return sum;
}
static i32 dot8(u32 a, u32 b, bool sign_a, bool sign_b) {
    i32 sum = 0;
    for (int n = 0; n < 8; n++) sum += nibble_of(a, n, sign_a) * nibble_of(b, n, sign_b);
    return sum;
}

/* Integer dot products accumulate, and saturate where CLAMP says so. NEG holds which sources are signed. */
#define INTEGER_DOT(NAME, DOT, SIGN_A, SIGN_B, LOW, HIGH) OP(NAME) { \
    Insn source = *i; \
    _Alignas(64) u32 room[3][LANES_MAX], out[LANES_MAX]; \
    source.clamp = source.neg = 0; \
    const u32 *a = get_U(w, &source, 0, room[0]), *b = get_U(w, &source, 1, room[1]), *c = get_U(w, &source, 2, room[2]); \
    bool sign_a = SIGN_A, sign_b = SIGN_B; \
    if (i->clamp) EACH_LANE(w) { \
        i64 sum = (i64)DOT(a[l], b[l], sign_a, sign_b) + (LOW == 0 ? (i64)c[l] : (i64)(i32)c[l]); \
        out[l] = (u32)(sum < LOW ? LOW : sum > HIGH ? HIGH : sum); \
    } else EACH_LANE(w) out[l] = c[l] + (u32)DOT(a[l], b[l], sign_a, sign_b); \
    put_word(w, i, i->dst, out); \
} REGISTER(NAME)
INTEGER_DOT(V_DOT4_I32_IU8, dot4, i->neg & 1, i->neg >> 1 & 1, (i64)INT32_MIN, (i64)INT32_MAX)
INTEGER_DOT(V_DOT4_I32_I8, dot4, true, true, (i64)INT32_MIN, (i64)INT32_MAX)
INTEGER_DOT(V_DOT4_U32_U8, dot4, false, false, 0, (i64)UINT32_MAX)
INTEGER_DOT(V_DOT8_I32_IU4, dot8, i->neg & 1, i->neg >> 1 & 1, (i64)INT32_MIN, (i64)INT32_MAX)
INTEGER_DOT(V_DOT8_I32_I4, dot8, true, true, (i64)INT32_MIN, (i64)INT32_MAX)
INTEGER_DOT(V_DOT8_U32_U4, dot8, false, false, 0, (i64)UINT32_MAX)

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
typedef struct { f32 value[SIDE_MAX][K_MAX]; } Operand;

/* Reads A or B: row (or column) l % side is in lane l, `per_lane` elements along K from `first` of the lane. */
static void read_operand(Wave *w, const Insn *i, int n, Shape s, u32 per_lane, bool sign, Operand *to) {
    u32 size = element_bytes(s.type), n_rows = (per_lane * size + 3) / 4;
    for (u32 r = 0; r < n_rows; r++) (void)row_of(w, i, i->src[n] + r), fetch_check(w, i, ROW(i->src[n]) + r);
    const u32 *rows = row_of(w, i, i->src[n]);
    u32 groups = s.k / per_lane;
    for (u32 l = 0; l < w->lanes; l++) {
        u32 group = l / s.rows;
        for (u32 e = 0; e < per_lane; e++) {
            u32 word = rows[e * size / 4 * w->lanes + l], shift = e * size % 4 * 8;
            f32 x = s.type == OF_F16 ? half_to_f32(word >> shift) : s.type == OF_BF16 ? bf16_to_f32(word >> shift & 0xffff)
                  : s.type == OF_F32 ? as_f32(word) : (f32)byte_of(word, (int)shift / 8, sign);
            f32 *at = &to->value[l % s.rows][group % groups * per_lane + e];
            if (group >= groups && memcmp(at, &x, 4)) {
                fault(w, i, "bad matrix operand", "lanes %u and %u must hold the same row, and differ in register %u",
                      l % s.rows, l, e * size / 4);
            }
            *at = x;
        }
    }
}

/* Row and column of the result that register r of lane l holds. */
static u32 wmma_row(Family family, u32 lanes, u32 r, u32 l) {
    if (family == RDNA4) return r + 8 * (l / 16); /* 32 lanes */
    return lanes == 32 ? 2 * r + l / 16 : 4 * r + l / 16;
}
static u32 mfma_row(u32 side, u32 r, u32 l) { return side == 16 ? 4 * (l / 16) + r : 8 * (r / 4) + 4 * (l / 32) + r % 4; }

static void multiply(Wave *w, const Insn *i, Shape s, u32 per_lane, bool mfma) {
    static Operand a, b;
    bool integer = s.type == OF_I8;
    read_operand(w, i, 0, s, per_lane, mfma || i->neg & 1, &a);
    read_operand(w, i, 1, s, per_lane, mfma || i->neg >> 1 & 1, &b);
    Family family = w->launch->module->family;
    u32 n_out = s.rows * s.rows / w->lanes;
    bool packed = s.narrow && family == RDNA4;
    static u32 out[16][LANES_MAX];
    u32 high = s.narrow && !packed && i->opsel >> 2 & 1 ? 16 : 0;
    for (u32 r = 0; r < n_out; r++) {
        u32 reg = packed ? r / 2 : r, shift = packed ? r % 2 * 16 : high;
        u32 constant = i->src[2] < VGPR ? (u32)scalar(w, i, 2, 1) : 0;
        const u32 *c = i->src[2] < VGPR ? NULL : row_of(w, i, i->src[2] + reg);
        if (c) fetch_check(w, i, ROW(i->src[2]) + reg);
        for (u32 l = 0; l < w->lanes; l++) {
            u32 row = mfma ? mfma_row(s.rows, r, l) : wmma_row(family, w->lanes, r, l), column = l % s.rows;
            const f32 *x = a.value[row], *y = b.value[column];
            u32 start = c ? c[l] : constant;
            if (integer) {
                i32 sum = (i32)start;
                for (u32 k = 0; k < s.k; k++) sum += (i32)x[k] * (i32)y[k];
                out[r][l] = (u32)sum;
                continue;
            }
            f32 sum = !s.narrow ? as_f32(start) : s.type == OF_F16 ? half_to_f32(start >> shift) : bf16_to_f32(start >> shift & 0xffff);
            if (i->neg_hi & 4) sum = fabsf(sum);
            if (i->neg & 4 && !mfma) sum = -sum;
            for (u32 k = 0; k < s.k; k++) sum += x[k] * y[k];
            out[r][l] = !s.narrow ? as_u32(sum) : s.type == OF_F16 ? f32_to_half(sum) : f32_to_bf16(sum);
        }
    }
    for (u32 r = 0; r < n_out; r++) {
        u32 reg = packed ? r / 2 : r, shift = packed ? r % 2 * 16 : high, *to = row_of(w, i, i->dst + reg);
        u32 field = s.narrow ? 0xffffu << shift : ~0u;
        for (u32 l = 0; l < w->lanes; l++) to[l] = (to[l] & ~field) | out[r][l] << shift;
    }
    for (u32 reg = 0; reg < (packed ? n_out / 2 : n_out); reg++) written(w, i, ROW(i->dst) + reg);
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
