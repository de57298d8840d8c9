/* Vector instructions on integers and bits. Names are RDNA4's where the families differ; emulator/encode.py maps. */
#include "valu.h"

static u32 field_u(u32 x, u32 at, u32 n) { return n & 31 ? x >> (at & 31) & ((1u << (n & 31)) - 1) : 0; }
static i32 field_i(u32 x, u32 at, u32 n) {
    n &= 31;
    return n ? (i32)(field_u(x, at, n) << (32 - n)) >> (32 - n) : 0;
}
static i32 leading_zeros(u32 x) { return x ? __builtin_clz(x) : -1; }
static i32 trailing_zeros(u32 x) { return x ? __builtin_ctz(x) : -1; }
static i32 sign_bits(i32 x) { return x == 0 || x == -1 ? -1 : __builtin_clz((u32)(x < 0 ? ~x : x)); }
static i32 u24(u32 x) { return (i32)(x & 0xffffff); }
static i32 s24(u32 x) { return (i32)(x << 8) >> 8; }
static u32 sum_of_differences(u32 a, u32 b, u32 total) {
    for (int n = 0; n < 32; n += 8) {
        i32 d = (i32)(a >> n & 255) - (i32)(b >> n & 255);
        total += (u32)(d < 0 ? -d : d);
    }
    return total;
}
static u32 permuted_byte(u64 bytes, u32 select) {
    select &= 255;
    if (select >= 13) return 255;
    if (select == 12) return 0;
    if (select >= 8) return bytes >> (16 * (select - 8) + 15) & 1 ? 255 : 0;
    return bytes >> 8 * select & 255;
}
static u32 permuted(u32 high, u32 low, u32 select) {
    u64 bytes = (u64)high << 32 | low;
    u32 out = 0;
    for (int n = 0; n < 32; n += 8) out |= permuted_byte(bytes, select >> n) << n;
    return out;
}
/* Any function of three bits, by its truth table. */
static u32 any_of_three(u32 a, u32 b, u32 c, u32 table) {
    u32 out = 0;
    for (u32 n = 0; n < 8; n++) {
        if (table >> n & 1) out |= (n & 4 ? a : ~a) & (n & 2 ? b : ~b) & (n & 1 ? c : ~c);
    }
    return out;
}
#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define MAX(x, y) ((x) > (y) ? (x) : (y))
#define MEDIAN(x, y, z) MAX(MIN(x, y), MIN(MAX(x, y), z))

VOP1(V_MOV_B32, U, U, a)
VOP1(V_MOV_B64, L, L, a)
VOP1(V_MOV_B16, W, W, a)
VOP1(V_NOT_B32, U, U, ~a)
VOP1(V_NOT_B16, W, W, ~a)
VOP1(V_BFREV_B32, U, U, __builtin_bitreverse32(a))
VOP1(V_CLZ_I32_U32, I, U, leading_zeros(a))
VOP1(V_CTZ_I32_B32, I, U, trailing_zeros(a))
VOP1(V_CLS_I32, I, I, sign_bits(a))
VOP1(V_CVT_I32_I16, I, S, a)
VOP1(V_CVT_U32_U16, U, W, a)

VOP2(V_ADD_NC_U32, U, U, U, a + b)
VOP2(V_SUB_NC_U32, U, U, U, a - b)
VOP2(V_SUBREV_NC_U32, U, U, U, b - a)
VOP2(V_ADD_NC_I32, U, U, U, a + b)
VOP2(V_SUB_NC_I32, U, U, U, a - b)
VOP2(V_MUL_LO_U32, U, U, U, a * b)
VOP2(V_MUL_HI_U32, U, U, U, (u32)((u64)a * b >> 32))
VOP2(V_MUL_HI_I32, U, I, I, (u32)((i64)a * b >> 32))
VOP2(V_MUL_I32_I24, I, U, U, (i32)((i64)s24(a) * s24(b)))
VOP2(V_MUL_U32_U24, U, U, U, (u32)((u64)u24(a) * (u64)u24(b)))
VOP2(V_MUL_HI_I32_I24, I, U, U, (i32)((i64)s24(a) * s24(b) >> 32))
VOP2(V_MUL_HI_U32_U24, U, U, U, (u32)((u64)u24(a) * (u64)u24(b) >> 32))
VOP2(V_MIN_I32, I, I, I, MIN(a, b))
VOP2(V_MAX_I32, I, I, I, MAX(a, b))
VOP2(V_MIN_U32, U, U, U, MIN(a, b))
VOP2(V_MAX_U32, U, U, U, MAX(a, b))
VOP2(V_AND_B32, U, U, U, a & b)
VOP2(V_OR_B32, U, U, U, a | b)
VOP2(V_XOR_B32, U, U, U, a ^ b)
VOP2(V_XNOR_B32, U, U, U, ~(a ^ b))
VOP2(V_LSHLREV_B32, U, U, U, b << (a & 31))
VOP2(V_LSHRREV_B32, U, U, U, b >> (a & 31))
VOP2(V_ASHRREV_I32, I, U, I, b >> (a & 31))
VOP2(WIDE_LSHLREV_B64, L, U, L, b << (a & 63))
VOP2(V_LSHRREV_B64, L, U, L, b >> (a & 63))
VOP2(V_ASHRREV_I64, K, U, K, b >> (a & 63))
VOP2(V_BFM_B32, U, U, U, ((1u << (a & 31)) - 1) << (b & 31))
VOP2(V_BCNT_U32_B32, U, U, U, b + (u32)__builtin_popcount(a))
VOP2(V_ADD_NC_U16, W, W, W, a + b)
VOP2(V_SUB_NC_U16, W, W, W, a - b)
VOP2(V_SUBREV_NC_U16, W, W, W, b - a)
VOP2(V_ADD_NC_I16, W, W, W, a + b)
VOP2(V_SUB_NC_I16, W, W, W, a - b)
VOP2(V_MUL_LO_U16, W, W, W, a * b)
VOP2(V_LSHLREV_B16, W, W, W, b << (a & 15))
VOP2(V_LSHRREV_B16, W, W, W, b >> (a & 15))
VOP2(V_ASHRREV_I16, S, W, S, b >> (a & 15))
VOP2(V_MIN_I16, S, S, S, MIN(a, b))
VOP2(V_MAX_I16, S, S, S, MAX(a, b))
VOP2(V_MIN_U16, W, W, W, MIN(a, b))
VOP2(V_MAX_U16, W, W, W, MAX(a, b))
VOP2(V_AND_B16, W, W, W, a & b)
VOP2(V_OR_B16, W, W, W, a | b)
VOP2(V_XOR_B16, W, W, W, a ^ b)
VOP2(V_PACK_B32_F16, U, W, W, a | b << 16)
VOP2(V_CVT_PK_I16_I32, U, I, I, ((u32)MAX(MIN(a, 32767), -32768) & 0xffff) | (u32)MAX(MIN(b, 32767), -32768) << 16)
VOP2(V_CVT_PK_U16_U32, U, U, U, MIN(a, 65535u) | MIN(b, 65535u) << 16)

VOP3(V_ADD3_U32, U, U, U, U, a + b + c)
VOP3(V_LSHL_ADD_U32, U, U, U, U, (a << (b & 31)) + c)
VOP3(WIDE_LSHL_ADD_U64, L, L, U, L, (a << (b & 7)) + c)
VOP3(V_ADD_LSHL_U32, U, U, U, U, (a + b) << (c & 31))
VOP3(V_LSHL_OR_B32, U, U, U, U, (a << (b & 31)) | c)
VOP3(V_AND_OR_B32, U, U, U, U, (a & b) | c)
VOP3(V_OR3_B32, U, U, U, U, a | b | c)
VOP3(V_XOR3_B32, U, U, U, U, a ^ b ^ c)
VOP3(V_XAD_U32, U, U, U, U, (a ^ b) + c)
VOP3(V_BFE_U32, U, U, U, U, field_u(a, b, c))
VOP3(V_BFE_I32, I, U, U, U, field_i(a, b, c))
VOP3(V_BFI_B32, U, U, U, U, (a & b) | (~a & c))
VOP3(V_ALIGNBIT_B32, U, U, U, U, (u32)(((u64)a << 32 | b) >> (c & 31)))
VOP3(V_ALIGNBYTE_B32, U, U, U, U, (u32)(((u64)a << 32 | b) >> 8 * (c & 3)))
VOP3(V_PERM_B32, U, U, U, U, permuted(a, b, c))
VOP3(V_SAD_U8, U, U, U, U, sum_of_differences(a, b, c))
VOP3(V_MAD_I32_I24, I, U, U, I, (i32)((i64)s24(a) * s24(b)) + c)
VOP3(V_MAD_U32_U24, U, U, U, U, (u32)((u64)u24(a) * (u64)u24(b)) + c)
VOP3(V_MAD_U32_U16, U, W, W, U, a * b + c)
VOP3(V_MAD_I32_I16, I, S, S, I, a * b + c)
VOP3(V_MAD_U16, W, W, W, W, a * b + c)
VOP3(V_MIN3_I32, I, I, I, I, MIN(MIN(a, b), c))
VOP3(V_MAX3_I32, I, I, I, I, MAX(MAX(a, b), c))
VOP3(V_MED3_I32, I, I, I, I, MEDIAN(a, b, c))
VOP3(V_MIN3_U32, U, U, U, U, MIN(MIN(a, b), c))
VOP3(V_MAX3_U32, U, U, U, U, MAX(MAX(a, b), c))
VOP3(V_MED3_U32, U, U, U, U, MEDIAN(a, b, c))
VOP3(V_MED3_I16, S, S, S, S, MEDIAN(a, b, c))
VOP3(V_MAXMIN_I32, I, I, I, I, MIN(MAX(a, b), c))
VOP3(V_MINMAX_I32, I, I, I, I, MAX(MIN(a, b), c))
VOP3(V_MAXMIN_U32, U, U, U, U, MIN(MAX(a, b), c))
VOP3(V_MINMAX_U32, U, U, U, U, MAX(MIN(a, b), c))
VOP3(V_BITOP3_B32, U, U, U, U, any_of_three(a, b, c, i->extra))

OP(V_NOP) { (void)w; (void)i; }
REGISTER(V_NOP)

/* 32 × 32 + 64 bits, with a carry out per lane. */
#define MULTIPLY_ADD_LONG(NAME, T, TYPE, WIDE) OP(NAME) { \
    GET(T, 0, a) GET(T, 1, b) GET(L, 2, c) \
    _Alignas(64) u64 out[LANES_MAX]; \
    u64 carry = 0; \
    for (u32 l = 0; l < w->lanes; l++) { \
        u64 product = (u64)((WIDE)(TYPE)v_a[l] * (WIDE)(TYPE)v_b[l]); \
        carry |= (u64)__builtin_add_overflow(product, v_c[l], &out[l]) << l; \
    } \
    put_L(w, i, out); \
    set_mask_result(w, i, i->sdst, carry & w->exec); \
} REGISTER(NAME)
MULTIPLY_ADD_LONG(WIDE_MAD_CO_U64_U32, U, u32, u64)
MULTIPLY_ADD_LONG(WIDE_MAD_CO_I64_I32, I, i32, i64)

/* In these the low word of the result does not depend on the high words of the sources: compilers leave a high word
 * undefined where only the low one is used. */
#define LOW_FROM_LOW(NAME, N_SOURCES) OP(V_##NAME) { \
    u64 low = 0; \
    for (int n = 0; n < N_SOURCES; n++) low |= i->src[n] >= VGPR ? w->undefined[ROW(i->src[n])] : 0; \
    op_WIDE_##NAME(w, i); \
    w->undefined[ROW(i->dst)] = (w->undefined[ROW(i->dst)] & ~w->exec) | (low & w->exec); \
} REGISTER(V_##NAME)
LOW_FROM_LOW(LSHLREV_B64, 2)
LOW_FROM_LOW(LSHL_ADD_U64, 3)
LOW_FROM_LOW(MAD_CO_U64_U32, 3)
LOW_FROM_LOW(MAD_CO_I64_I32, 3)

/* Additions and subtractions with a carry out, and one in: a mask in source 2. */
#define CARRY(NAME, HAS_IN, EXPR, OUT) OP(NAME) { \
    GET(U, 0, a) GET(U, 1, b) \
    u64 in = HAS_IN ? mask_source(w, i, 2) : 0; \
    _Alignas(64) u32 out[LANES_MAX], carry[LANES_MAX]; \
    EACH_LANE(w) { \
        u64 a = v_a[l], b = v_b[l], c = in >> l & 1, r = (EXPR); \
        out[l] = (u32)r; \
        carry[l] = (OUT); \
    } \
    put_U(w, i, out); \
    set_mask_result(w, i, i->sdst, pack_mask(w, carry) & w->exec); \
} REGISTER(NAME)
CARRY(V_ADD_CO_U32, false, a + b + c, r >> 32 != 0)
CARRY(V_SUB_CO_U32, false, a - b - c, a < b)
CARRY(V_SUBREV_CO_U32, false, b - a - c, b < a)
CARRY(V_ADD_CO_CI_U32, true, a + b + c, r >> 32 != 0)
CARRY(V_SUB_CO_CI_U32, true, a - b - c, a < b + c)
CARRY(V_SUBREV_CO_CI_U32, true, b - a - c, b < a + c)

#define SELECT(NAME, T) OP(NAME) { \
    GET(T, 0, a) GET(T, 1, b) \
    u64 choose = mask_source(w, i, 2); \
    _Alignas(64) type_##T out[LANES_MAX]; \
    EACH_LANE(w) out[l] = choose >> l & 1 ? v_b[l] : v_a[l]; \
    put_##T(w, i, out); \
} REGISTER(NAME)
SELECT(V_CNDMASK_B32, F)
SELECT(V_CNDMASK_B16, W)
