/* Vector instructions on floating-point numbers. Roots, powers and trigonometry are rounded correctly here, or nearly
 * so; hardware is allowed an error of about one unit in the last place. */
#include "valu.h"

static f32 median(f32 a, f32 b, f32 c) { return fmaxf(fminf(a, b), fminf(fmaxf(a, b), c)); }
static f32 turns_sin(f32 x) { return (f32)sin(2 * M_PI * (f64)(x - truncf(x))); }
static f32 turns_cos(f32 x) { return (f32)cos(2 * M_PI * (f64)(x - truncf(x))); }
/* minimum and maximum that a NaN wins */
static f32 nan_min(f32 a, f32 b) { return a != a ? a : b != b ? b : fminf(a, b); }
static f32 nan_max(f32 a, f32 b) { return a != a ? a : b != b ? b : fmaxf(a, b); }
static i32 to_i32(f64 x) { return x != x ? 0 : x >= 2147483647.0 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : (i32)x; }
static u32 to_u32(f64 x) { return x != x || x <= 0 ? 0 : x >= 4294967295.0 ? UINT32_MAX : (u32)x; }
static i32 to_i16(f32 x) { return x != x ? 0 : x >= 32767 ? 32767 : x <= -32768 ? -32768 : (i32)x; }
static u32 to_u16(f32 x) { return x != x || x <= 0 ? 0 : x >= 65535 ? 65535 : (u32)x; }
static u32 to_u8(f32 x) { return x != x || x <= 0 ? 0 : x >= 255 ? 255 : (u32)x; }
static i32 exponent(f64 x) { int e = 0; if (isfinite(x) && x != 0) (void)frexp(x, &e); return e; }
static f64 mantissa(f64 x) { int e; return isfinite(x) ? frexp(x, &e) : x; }

/* f32 to f16 bits, rounding towards zero. */
static u32 to_half_chopped(f32 x) {
    u32 h = f32_to_half(x);
    if (x != x || isinf(x)) return h;
    return fabsf(half_to_f32(h)) > fabsf(x) ? h - 1 : h;
}

/* a·b + c for f16 values: the sum is rounded to odd in f32, so that rounding it to f16 is a single rounding. */
static f32 fma_half(f32 a, f32 b, f32 c) {
    f32 product = a * b, sum = product + c;
    f32 part = sum - product, error = (product - (sum - part)) + (c - part);
    u32 bits = as_u32(sum);
    if (error != 0 && isfinite(sum)) bits = ((error > 0) == (sum > 0) ? bits : bits - 1) | 1;
    return as_f32(bits);
}

/* Division comes as a Newton iteration between these: the first scales what would over- or underflow on the way. */
static f64 scaled(f64 x, f64 divisor, f64 dividend, int range, int step, bool *flag) {
    int gap = exponent(dividend) - exponent(divisor);
    *flag = false;
    if (dividend == 0 || divisor == 0) return NAN;
    if (gap >= range) {
        *flag = true;
        return x == divisor ? ldexp(x, step) : x;
    }
    if (exponent(divisor) <= (step == 64 ? -125 : -1021)) return ldexp(x, step);
    if (exponent(divisor) >= (step == 64 ? 127 : 1023)) return ldexp(x, -step);
    if (gap <= (step == 64 ? -125 : -1021)) {
        *flag = true;
        return x == dividend ? ldexp(x, step) : x;
    }
    if (exponent(dividend) <= (step == 64 ? -102 : -969)) return ldexp(x, step);
    return x;
}
static f64 fixed_up(f64 quotient, f64 divisor, f64 dividend) {
    if (dividend != dividend) return dividend;
    if (divisor != divisor) return divisor;
    f64 sign = signbit(divisor) != signbit(dividend) ? -1 : 1;
    if ((divisor == 0 && dividend == 0) || (isinf(divisor) && isinf(dividend))) return NAN;
    if (divisor == 0 || isinf(dividend)) return sign * INFINITY;
    if (isinf(divisor) || dividend == 0) return sign * 0.0;
    return copysign(quotient, sign);
}

VOP1(V_CVT_F32_I32, F, I, (f32)a)
VOP1(V_CVT_F32_U32, F, U, (f32)a)
VOP1(V_CVT_I32_F32, I, F, to_i32(a))
VOP1(V_CVT_U32_F32, U, F, to_u32(a))
VOP1(V_CVT_NEAREST_I32_F32, I, F, to_i32(floorf(a + 0.5f)))
VOP1(V_CVT_FLOOR_I32_F32, I, F, to_i32(floorf(a)))
VOP1(V_CVT_F16_F32, H, F, a)
VOP1(V_CVT_F32_F16, F, H, a)
VOP1(V_CVT_F32_BF16, F, B, a)
VOP1(V_CVT_F64_F32, D, F, (f64)a)
VOP1(V_CVT_F32_F64, F, D, (f32)a)
VOP1(V_CVT_F64_I32, D, I, (f64)a)
VOP1(V_CVT_F64_U32, D, U, (f64)a)
VOP1(V_CVT_I32_F64, I, D, to_i32(a))
VOP1(V_CVT_U32_F64, U, D, to_u32(a))
VOP1(V_CVT_F16_I16, H, S, (f32)a)
VOP1(V_CVT_F16_U16, H, W, (f32)a)
VOP1(V_CVT_I16_F16, S, H, to_i16(a))
VOP1(V_CVT_U16_F16, W, H, to_u16(a))
VOP1(V_CVT_F32_UBYTE0, F, U, (f32)(a & 255))
VOP1(V_CVT_F32_UBYTE1, F, U, (f32)(a >> 8 & 255))
VOP1(V_CVT_F32_UBYTE2, F, U, (f32)(a >> 16 & 255))
VOP1(V_CVT_F32_UBYTE3, F, U, (f32)(a >> 24))
VOP1(V_CVT_OFF_F32_I4, F, U, (f32)((i32)(a << 28) >> 28) / 16)

#define ONE_OPERAND(TYPE, T, SUFFIX) \
    VOP1(V_TRUNC_##TYPE, T, T, trunc##SUFFIX(a)) VOP1(V_CEIL_##TYPE, T, T, ceil##SUFFIX(a)) \
    VOP1(V_RNDNE_##TYPE, T, T, rint##SUFFIX(a)) VOP1(V_FLOOR_##TYPE, T, T, floor##SUFFIX(a)) \
    VOP1(V_FRACT_##TYPE, T, T, a - floor##SUFFIX(a)) VOP1(V_RCP_##TYPE, T, T, 1 / a) \
    VOP1(V_SQRT_##TYPE, T, T, sqrt##SUFFIX(a)) VOP1(V_RSQ_##TYPE, T, T, (type_##T)(1 / sqrt((f64)a))) \
    VOP1(V_FREXP_MANT_##TYPE, T, T, (type_##T)mantissa(a))
ONE_OPERAND(F32, F, f)
ONE_OPERAND(F64, D, )
ONE_OPERAND(F16, H, f)
VOP1(V_RCP_IFLAG_F32, F, F, 1 / a)
VOP1(V_EXP_F32, F, F, exp2f(a))
VOP1(V_LOG_F32, F, F, log2f(a))
VOP1(V_SIN_F32, F, F, turns_sin(a))
VOP1(V_COS_F32, F, F, turns_cos(a))
VOP1(V_EXP_F16, H, H, exp2f(a))
VOP1(V_LOG_F16, H, H, log2f(a))
VOP1(V_FREXP_EXP_I32_F32, I, F, exponent(a))
VOP1(V_FREXP_EXP_I32_F64, I, D, exponent(a))

#define TWO_OPERANDS(TYPE, T, SUFFIX) \
    VOP2(V_ADD_##TYPE, T, T, T, a + b) VOP2(V_SUB_##TYPE, T, T, T, a - b) VOP2(V_SUBREV_##TYPE, T, T, T, b - a) \
    VOP2(V_MUL_##TYPE, T, T, T, a * b) VOP2(V_LDEXP_##TYPE, T, T, I, ldexp##SUFFIX(a, b)) \
    VOP2(V_MIN_NUM_##TYPE, T, T, T, fmin##SUFFIX(a, b)) VOP2(V_MAX_NUM_##TYPE, T, T, T, fmax##SUFFIX(a, b))
TWO_OPERANDS(F32, F, f)
TWO_OPERANDS(F64, D, )
TWO_OPERANDS(F16, H, f)
VOP2(V_MINIMUM_F32, F, F, F, nan_min(a, b))
VOP2(V_MAXIMUM_F32, F, F, F, nan_max(a, b))
VOP2(V_MUL_DX9_ZERO_F32, F, F, F, a == 0 || b == 0 ? 0 : a * b)
VOP2(V_CVT_PK_RTZ_F16_F32, U, F, F, to_half_chopped(a) | to_half_chopped(b) << 16)
VOP2(V_CVT_PK_F16_F32, U, F, F, f32_to_half(a) | f32_to_half(b) << 16)
VOP2(V_CVT_PK_BF16_F32, U, F, F, f32_to_bf16(a) | f32_to_bf16(b) << 16)
VOP2(V_CVT_PK_I16_F32, U, F, F, ((u32)to_i16(a) & 0xffff) | (u32)to_i16(b) << 16)
VOP2(V_CVT_PK_U16_F32, U, F, F, to_u16(a) | to_u16(b) << 16)

VOP3(V_FMA_F32, F, F, F, F, fmaf(a, b, c))
VOP3(V_FMA_F64, D, D, D, D, fma(a, b, c))
VOP3(V_FMA_F16, H, H, H, H, fma_half(a, b, c))
VOP3(V_MAD_F32, F, F, F, F, a * b + c)
VOP3(V_MIN3_NUM_F32, F, F, F, F, fminf(fminf(a, b), c))
VOP3(V_MAX3_NUM_F32, F, F, F, F, fmaxf(fmaxf(a, b), c))
VOP3(V_MINIMUM3_F32, F, F, F, F, nan_min(nan_min(a, b), c))
VOP3(V_MAXIMUM3_F32, F, F, F, F, nan_max(nan_max(a, b), c))
VOP3(V_MED3_NUM_F32, F, F, F, F, median(a, b, c))
VOP3(V_MIN3_NUM_F16, H, H, H, H, fminf(fminf(a, b), c))
VOP3(V_MAX3_NUM_F16, H, H, H, H, fmaxf(fmaxf(a, b), c))
VOP3(V_MED3_NUM_F16, H, H, H, H, median(a, b, c))
VOP3(V_MAXMIN_NUM_F32, F, F, F, F, fminf(fmaxf(a, b), c))
VOP3(V_MINMAX_NUM_F32, F, F, F, F, fmaxf(fminf(a, b), c))
VOP3(V_DIV_FIXUP_F32, F, F, F, F, (f32)fixed_up(a, b, c))
VOP3(V_DIV_FIXUP_F64, D, D, D, D, fixed_up(a, b, c))
VOP3(V_DIV_FIXUP_F16, H, H, H, H, (f32)fixed_up(a, b, c))
VOP3(V_CVT_PK_U8_F32, U, F, U, U, (c & ~(255u << 8 * (b & 3))) | to_u8(a) << 8 * (b & 3))

#define DIVISION(TYPE, T, FMA, RANGE, STEP) \
    OP(V_DIV_SCALE_##TYPE) { \
        GET(T, 0, a) GET(T, 1, b) GET(T, 2, c) \
        _Alignas(64) type_##T out[LANES_MAX]; \
        u64 flags = 0; \
        for (u32 l = 0; l < w->lanes; l++) { \
            bool flag; \
            out[l] = (type_##T)scaled(v_a[l], v_b[l], v_c[l], RANGE, STEP, &flag); \
            flags |= (u64)flag << l; \
        } \
        put_##T(w, i, out); \
        set_mask_result(w, i, i->sdst, flags & w->exec); \
    } REGISTER(V_DIV_SCALE_##TYPE) \
    OP(V_DIV_FMAS_##TYPE) { \
        GET(T, 0, a) GET(T, 1, b) GET(T, 2, c) \
        _Alignas(64) type_##T out[LANES_MAX]; \
        u64 flags = w->s[VCC] | (u64)w->s[VCC + 1] << 32; \
        EACH_LANE(w) out[l] = FMA(v_a[l], v_b[l], v_c[l]) * (flags >> l & 1 ? (type_##T)(STEP == 64 ? 0x1p32 : 0x1p64) : 1); \
        put_##T(w, i, out); \
    } REGISTER(V_DIV_FMAS_##TYPE)
DIVISION(F32, F, fmaf, 96, 64)
DIVISION(F64, D, fma, 768, 128)

/* Packed 16-bit halves: OPSEL and NEG choose for the low result, OPSEL_HI and NEG_HI for the high one. */
static Insn for_high(const Insn *i) {
    Insn high = *i;
    high.opsel = i->opsel_hi;
    high.neg = i->neg_hi;
    high.abs = 0;
    return high;
}
#define PACKED(NAME, N, T, TO_BITS, EXPR) OP(NAME) { \
    _Alignas(64) u32 out[LANES_MAX]; \
    Insn high = for_high(i), low = *i; \
    low.abs = 0; \
    for (int half = 0; half < 2; half++) { \
        const Insn *from = half ? &high : &low; \
        _Alignas(64) type_##T room[3][LANES_MAX]; \
        const type_##T *v_a = get_##T(w, from, 0, room[0]); \
        const type_##T *v_b = N > 1 ? get_##T(w, from, 1, room[1]) : v_a; \
        const type_##T *v_c = N > 2 ? get_##T(w, from, 2, room[2]) : v_a; \
        EACH_LANE(w) { \
            type_##T a = v_a[l], b = v_b[l], c = v_c[l]; \
            (void)c; \
            u32 bits = TO_BITS(EXPR) & 0xffff; \
            out[l] = half ? out[l] | bits << 16 : bits; \
        } \
    } \
    put_word(w, i, i->dst, out); \
} REGISTER(NAME)
#define HALF_BITS(x) f32_to_half(i->clamp ? fminf(fmaxf((x), 0), 1) : (x))
PACKED(V_PK_ADD_F16, 2, H, HALF_BITS, a + b)
PACKED(V_PK_MUL_F16, 2, H, HALF_BITS, a * b)
PACKED(V_PK_MIN_NUM_F16, 2, H, HALF_BITS, fminf(a, b))
PACKED(V_PK_MAX_NUM_F16, 2, H, HALF_BITS, fmaxf(a, b))
PACKED(V_PK_FMA_F16, 3, H, HALF_BITS, fma_half(a, b, c))
PACKED(V_PK_ADD_U16, 2, W, (u32), a + b)
PACKED(V_PK_SUB_U16, 2, W, (u32), a - b)
PACKED(V_PK_ADD_I16, 2, S, (u32), a + b)
PACKED(V_PK_SUB_I16, 2, S, (u32), a - b)
PACKED(V_PK_MUL_LO_U16, 2, W, (u32), a * b)
PACKED(V_PK_MAD_U16, 3, W, (u32), a * b + c)
PACKED(V_PK_MAD_I16, 3, S, (u32), a * b + c)
PACKED(V_PK_LSHLREV_B16, 2, W, (u32), b << (a & 15))
PACKED(V_PK_LSHRREV_B16, 2, W, (u32), b >> (a & 15))
PACKED(V_PK_ASHRREV_I16, 2, S, (u32), b >> (a & 15))
PACKED(V_PK_MIN_I16, 2, S, (u32), a < b ? a : b)
PACKED(V_PK_MAX_I16, 2, S, (u32), a > b ? a : b)
PACKED(V_PK_MIN_U16, 2, W, (u32), a < b ? a : b)
PACKED(V_PK_MAX_U16, 2, W, (u32), a > b ? a : b)

/* Pairs of f32 on CDNA: OPSEL and OPSEL_HI choose the word of each source's pair; the other word need not be written. */
static void pair_words(Wave *w, const Insn *i, int n, u32 select, u32 flip, f32 *to) {
    u32 reg = i->src[n] + select, bits = i->src[n] < VGPR ? (u32)(scalar(w, i, n, 2) >> (select ? 32 : 0)) : 0;
    const u32 *row = i->src[n] < VGPR ? NULL : row_of(w, i, reg);
    if (row) fetch_check(w, i, ROW(reg));
    EACH_LANE(w) to[l] = as_f32((row ? row[l] : bits) ^ flip << 31);
}
#define PAIRS(NAME, N, EXPR) OP(NAME) { \
    _Alignas(64) f32 x[3][LANES_MAX]; \
    _Alignas(64) u32 out[2][LANES_MAX]; \
    u64 taint[2]; \
    for (int half = 0; half < 2; half++) { \
        u32 select = half ? i->opsel_hi : i->opsel, flip = half ? i->neg_hi : i->neg; \
        w->taint = 0; \
        for (int n = 0; n < N; n++) pair_words(w, i, n, select >> n & 1, flip >> n & 1, x[n]); \
        EACH_LANE(w) { f32 a = x[0][l], b = x[1][l], c = x[N - 1][l]; (void)c; out[half][l] = as_u32(EXPR); } \
        taint[half] = w->taint; \
    } \
    for (u32 half = 0; half < 2; half++) { \
        w->taint = taint[half]; \
        put_word(w, i, i->dst + half, out[half]); \
    } \
} REGISTER(NAME)
PAIRS(V_PK_ADD_F32, 2, a + b)
PAIRS(V_PK_MUL_F32, 2, a * b)
PAIRS(V_PK_FMA_F32, 3, fmaf(a, b, c))
/* the low result from source 0, the high one from source 1 */
PAIRS(V_PK_MOV_B32, 2, half ? b : a)

/* Mixed precision: each source is f32, or a half where OPSEL_HI says so; NEG_HI is the absolute value. */
static const f32 *mixed(Wave *w, const Insn *i, int n, f32 *room) {
    Insn source = *i;
    source.abs = i->neg_hi;
    return i->opsel_hi >> n & 1 ? get_H(w, &source, n, room) : get_F(w, &source, n, room);
}
#define MIXED(NAME, PUT, OPSEL) OP(NAME) { \
    _Alignas(64) f32 room[3][LANES_MAX], out[LANES_MAX]; \
    const f32 *a = mixed(w, i, 0, room[0]), *b = mixed(w, i, 1, room[1]), *c = mixed(w, i, 2, room[2]); \
    EACH_LANE(w) out[l] = fmaf(a[l], b[l], c[l]); \
    Insn to = *i; \
    to.opsel = OPSEL; \
    PUT(w, &to, out); \
} REGISTER(NAME)
static void put_kept_half(Wave *w, const Insn *i, const f32 *values) {
    _Alignas(64) u32 out[LANES_MAX];
    const u32 *row = row_of(w, i, i->dst);
    u32 shift = i->opsel & 8 ? 16 : 0;
    EACH_LANE(w) out[l] = (row[l] & ~(0xffffu << shift)) | HALF_BITS(values[l]) << shift;
    put_word(w, i, i->dst, out);
}
MIXED(V_FMA_MIX_F32, put_F, 0)
MIXED(V_FMA_MIXLO_F16, put_kept_half, 0)
MIXED(V_FMA_MIXHI_F16, put_kept_half, 8)
