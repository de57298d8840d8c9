/* Scalar instructions: one value for the whole wave, and the flow of control. */
#include "machine.h"

#define WORDS(T) (sizeof(T) / 4)
#define A(T) T a = (T)scalar(w, i, 0, WORDS(T))
#define B(T) T b = (T)scalar(w, i, 1, WORDS(T))
/* A result, and what becomes of SCC: KEEP leaves it. */
#define KEEP w->scc
#define S1(NAME, T, R, EXPR, CONDITION) OP(NAME) { \
    A(T); \
    R r = (R)(EXPR); \
    set_scalar(w, i, i->dst, (u64)(sizeof(R) == 4 ? (u32)r : (u64)r), WORDS(R)); \
    w->scc = (CONDITION); \
} REGISTER(NAME)
#define S2(NAME, TA, TB, R, EXPR, CONDITION) OP(NAME) { \
    A(TA); B(TB); \
    R r = (R)(EXPR); \
    w->scc = (CONDITION); \
    set_scalar(w, i, i->dst, (u64)(sizeof(R) == 4 ? (u32)r : (u64)r), WORDS(R)); \
} REGISTER(NAME)

static u64 low_bits(u64 n) { return n >= 64 ? ~0ull : (1ull << n) - 1; }
static i64 extend(u64 x, u32 n) { return n == 0 ? 0 : n >= 64 ? (i64)x : (i64)(x << (64 - n)) >> (64 - n); }
static u32 float_result(f32 x) { return as_u32(x); }

static f32 modified(const Insn *i, u32 x) { return as_f32((i->abs & 1 ? x & 0x7fffffff : x) ^ (u32)(i->neg & 1) << 31); }

S1(S_MOV_B32, u32, u32, a, KEEP)
S1(S_MOV_B64, u64, u64, a, KEEP)
S1(S_NOT_B32, u32, u32, ~a, r != 0)
S1(S_NOT_B64, u64, u64, ~a, r != 0)
S1(S_BREV_B32, u32, u32, __builtin_bitreverse32(a), KEEP)
S1(S_BREV_B64, u64, u64, __builtin_bitreverse64(a), KEEP)
S1(S_BCNT0_I32_B32, u32, u32, 32 - __builtin_popcount(a), r != 0)
S1(S_BCNT1_I32_B32, u32, u32, __builtin_popcount(a), r != 0)
S1(S_BCNT0_I32_B64, u64, u32, 64 - __builtin_popcountll(a), r != 0)
S1(S_BCNT1_I32_B64, u64, u32, __builtin_popcountll(a), r != 0)
S1(S_CTZ_I32_B32, u32, u32, a ? __builtin_ctz(a) : -1, KEEP)
S1(S_CTZ_I32_B64, u64, u32, a ? __builtin_ctzll(a) : -1, KEEP)
S1(S_CLZ_I32_U32, u32, u32, a ? __builtin_clz(a) : -1, KEEP)
S1(S_CLZ_I32_U64, u64, u32, a ? __builtin_clzll(a) : -1, KEEP)
S1(S_CLS_I32, i32, u32, a == 0 || a == -1 ? -1 : __builtin_clz((u32)(a < 0 ? ~a : a)), KEEP)
S1(S_SEXT_I32_I8, u32, u32, (i8)a, KEEP)
S1(S_SEXT_I32_I16, u32, u32, (i16)a, KEEP)
S1(S_ABS_I32, i32, u32, a < 0 ? 0u - (u32)a : (u32)a, r != 0)
S1(S_CEIL_F32, u32, u32, float_result(ceilf(as_f32(a))), KEEP)
S1(S_FLOOR_F32, u32, u32, float_result(floorf(as_f32(a))), KEEP)
S1(S_TRUNC_F32, u32, u32, float_result(truncf(as_f32(a))), KEEP)
S1(S_RNDNE_F32, u32, u32, float_result(rintf(as_f32(a))), KEEP)
S1(S_CVT_F32_I32, i32, u32, float_result((f32)a), KEEP)
S1(S_CVT_F32_U32, u32, u32, float_result((f32)a), KEEP)
S1(S_CVT_I32_F32, u32, u32, fmin(fmax(as_f32(a), -2147483648.0), 2147483647.0) == as_f32(a) ? (i32)as_f32(a) : as_f32(a) > 0 ? INT32_MAX : as_f32(a) < 0 ? INT32_MIN : 0, KEEP)
S1(S_CVT_U32_F32, u32, u32, as_f32(a) >= 4294967296.0f ? UINT32_MAX : as_f32(a) > 0 ? (u32)as_f32(a) : 0, KEEP)
S1(S_CVT_F16_F32, u32, u32, f32_to_half(as_f32(a)), KEEP)
S1(S_CVT_F32_F16, u32, u32, float_result(half_to_f32(a)), KEEP)
S1(S_CVT_HI_F32_F16, u32, u32, float_result(half_to_f32(a >> 16)), KEEP)

/* What the vector unit's slow functions give for one value. */
S1(V_S_EXP_F32, u32, u32, float_result(exp2f(modified(i, a))), KEEP)
S1(V_S_LOG_F32, u32, u32, float_result(log2f(modified(i, a))), KEEP)
S1(V_S_RCP_F32, u32, u32, float_result(1 / modified(i, a)), KEEP)
S1(V_S_RSQ_F32, u32, u32, float_result((f32)(1 / sqrt((f64)modified(i, a)))), KEEP)
S1(V_S_SQRT_F32, u32, u32, float_result(sqrtf(modified(i, a))), KEEP)

S2(S_ADD_U32, u32, u32, u32, a + b, (u64)a + b > UINT32_MAX)
S2(S_SUB_U32, u32, u32, u32, a - b, b > a)
S2(S_ADD_I32, i32, i32, u32, (u32)a + (u32)b, (i64)a + b != (i32)r)
S2(S_SUB_I32, i32, i32, u32, (u32)a - (u32)b, (i64)a - b != (i32)r)
S2(S_ADDC_U32, u32, u32, u32, a + b + w->scc, (u64)a + b + w->scc > UINT32_MAX)
S2(S_SUBB_U32, u32, u32, u32, a - b - w->scc, (u64)b + w->scc > a)
S2(S_ADD_NC_U64, u64, u64, u64, a + b, KEEP)
S2(S_SUB_NC_U64, u64, u64, u64, a - b, KEEP)
S2(S_MUL_U64, u64, u64, u64, a * b, KEEP)
S2(S_ABSDIFF_I32, i32, i32, u32, (i32)((u32)a - (u32)b) < 0 ? (u32)b - (u32)a : (u32)a - (u32)b, r != 0)
S2(S_MIN_I32, i32, i32, u32, a < b ? a : b, a < b)
S2(S_MAX_I32, i32, i32, u32, a > b ? a : b, a > b)
S2(S_MIN_U32, u32, u32, u32, a < b ? a : b, a < b)
S2(S_MAX_U32, u32, u32, u32, a > b ? a : b, a > b)
S2(S_CSELECT_B32, u32, u32, u32, w->scc ? a : b, KEEP)
S2(S_CSELECT_B64, u64, u64, u64, w->scc ? a : b, KEEP)
#define BITWISE(NAME, EXPR) \
    S2(S_##NAME##_B32, u32, u32, u32, EXPR, r != 0) S2(S_##NAME##_B64, u64, u64, u64, EXPR, r != 0)
BITWISE(AND, a & b)
BITWISE(OR, a | b)
BITWISE(XOR, a ^ b)
BITWISE(NAND, ~(a & b))
BITWISE(NOR, ~(a | b))
BITWISE(XNOR, ~(a ^ b))
BITWISE(AND_NOT1, a & ~b)
BITWISE(OR_NOT1, a | ~b)
S2(S_LSHL_B32, u32, u32, u32, a << (b & 31), r != 0)
S2(S_LSHR_B32, u32, u32, u32, a >> (b & 31), r != 0)
S2(S_ASHR_I32, i32, u32, i32, a >> (b & 31), r != 0)
S2(S_LSHL_B64, u64, u32, u64, a << (b & 63), r != 0)
S2(S_LSHR_B64, u64, u32, u64, a >> (b & 63), r != 0)
S2(S_ASHR_I64, i64, u32, i64, a >> (b & 63), r != 0)
S2(S_BFM_B32, u32, u32, u32, low_bits(a & 31) << (b & 31), KEEP)
S2(S_BFM_B64, u32, u32, u64, low_bits(a & 63) << (b & 63), KEEP)
S2(S_BFE_U32, u32, u32, u32, a >> (b & 31) & low_bits(b >> 16 & 127), r != 0)
S2(S_BFE_I32, u32, u32, u32, extend(a >> (b & 31) & low_bits(b >> 16 & 127), b >> 16 & 127), r != 0)
S2(S_BFE_U64, u64, u32, u64, a >> (b & 63) & low_bits(b >> 16 & 127), r != 0)
S2(S_BFE_I64, u64, u32, u64, extend(a >> (b & 63) & low_bits(b >> 16 & 127), b >> 16 & 127), r != 0)
S2(S_MUL_I32, u32, u32, u32, a * b, KEEP)
S2(S_MUL_HI_U32, u32, u32, u32, (u64)a * b >> 32, KEEP)
S2(S_MUL_HI_I32, i32, i32, u32, (i64)a * b >> 32, KEEP)
S2(S_LSHL1_ADD_U32, u32, u32, u32, (a << 1) + b, ((u64)a << 1) + b > UINT32_MAX)
S2(S_LSHL2_ADD_U32, u32, u32, u32, (a << 2) + b, ((u64)a << 2) + b > UINT32_MAX)
S2(S_LSHL3_ADD_U32, u32, u32, u32, (a << 3) + b, ((u64)a << 3) + b > UINT32_MAX)
S2(S_LSHL4_ADD_U32, u32, u32, u32, (a << 4) + b, ((u64)a << 4) + b > UINT32_MAX)
S2(S_PACK_LL_B32_B16, u32, u32, u32, (a & 0xffff) | b << 16, KEEP)
S2(S_PACK_LH_B32_B16, u32, u32, u32, (a & 0xffff) | (b & 0xffff0000), KEEP)
S2(S_PACK_HH_B32_B16, u32, u32, u32, a >> 16 | (b & 0xffff0000), KEEP)
S2(S_PACK_HL_B32_B16, u32, u32, u32, a >> 16 | b << 16, KEEP)
S2(S_ADD_F32, u32, u32, u32, float_result(as_f32(a) + as_f32(b)), KEEP)
S2(S_SUB_F32, u32, u32, u32, float_result(as_f32(a) - as_f32(b)), KEEP)
S2(S_MUL_F32, u32, u32, u32, float_result(as_f32(a) * as_f32(b)), KEEP)
S2(S_MIN_NUM_F32, u32, u32, u32, float_result(fminf(as_f32(a), as_f32(b))), KEEP)
S2(S_MAX_NUM_F32, u32, u32, u32, float_result(fmaxf(as_f32(a), as_f32(b))), KEEP)
S2(S_FMA_F32, u32, u32, u32, float_result(fmaf(as_f32(a), as_f32(b), as_f32((u32)scalar(w, i, 2, 1)))), KEEP)
S2(S_ADD_F16, u32, u32, u32, f32_to_half(half_to_f32(a) + half_to_f32(b)), KEEP)
S2(S_SUB_F16, u32, u32, u32, f32_to_half(half_to_f32(a) - half_to_f32(b)), KEEP)
S2(S_MUL_F16, u32, u32, u32, f32_to_half(half_to_f32(a) * half_to_f32(b)), KEEP)
S2(S_MIN_NUM_F16, u32, u32, u32, f32_to_half(fminf(half_to_f32(a), half_to_f32(b))), KEEP)
S2(S_MAX_NUM_F16, u32, u32, u32, f32_to_half(fmaxf(half_to_f32(a), half_to_f32(b))), KEEP)

OP(S_CMOV_B32) { if (w->scc) set_scalar(w, i, i->dst, scalar(w, i, 0, 1), 1); }
REGISTER(S_CMOV_B32)
OP(S_CMOV_B64) { if (w->scc) set_scalar(w, i, i->dst, scalar(w, i, 0, 2), 2); }
REGISTER(S_CMOV_B64)

/* Source 1 is the destination's old value, from encode.py. */
S2(S_BITSET0_B32, u32, u32, u32, b & ~(1u << (a & 31)), KEEP)
S2(S_BITSET1_B32, u32, u32, u32, b | 1u << (a & 31), KEEP)
S2(S_BITSET0_B64, u32, u64, u64, b & ~(1ull << (a & 63)), KEEP)
S2(S_BITSET1_B64, u32, u64, u64, b | 1ull << (a & 63), KEEP)

#define COMPARE(NAME, T, EXPR) OP(NAME) { A(T); B(T); must_be_written(w, i, "decides"); w->scc = (EXPR); } REGISTER(NAME)
#define ORDERED(TYPE, T) \
    COMPARE(S_CMP_EQ_##TYPE, T, a == b) COMPARE(S_CMP_LG_##TYPE, T, a != b) COMPARE(S_CMP_GT_##TYPE, T, a > b) \
    COMPARE(S_CMP_GE_##TYPE, T, a >= b) COMPARE(S_CMP_LT_##TYPE, T, a < b) COMPARE(S_CMP_LE_##TYPE, T, a <= b)
ORDERED(I32, i32)
ORDERED(U32, u32)
ORDERED(U64, u64)
#define FLOATS(WHAT, EXPR) OP(S_CMP_##WHAT##_F32) { \
    f32 a = as_f32((u32)scalar(w, i, 0, 1)), b = as_f32((u32)scalar(w, i, 1, 1)); \
    must_be_written(w, i, "decides"); \
    w->scc = (EXPR); \
} REGISTER(S_CMP_##WHAT##_F32)
FLOATS(LT, a < b)
FLOATS(EQ, a == b)
FLOATS(LE, a <= b)
FLOATS(GT, a > b)
FLOATS(LG, a < b || a > b)
FLOATS(GE, a >= b)
FLOATS(O, a == a && b == b)
FLOATS(U, a != a || b != b)
FLOATS(NGE, !(a >= b))
FLOATS(NLG, !(a < b || a > b))
FLOATS(NGT, !(a > b))
FLOATS(NLE, !(a <= b))
FLOATS(NEQ, !(a == b))
FLOATS(NLT, !(a < b))
OP(S_BITCMP0_B32) { A(u32); B(u32); must_be_written(w, i, "decides"); w->scc = !(a >> (b & 31) & 1); }
REGISTER(S_BITCMP0_B32)
OP(S_BITCMP1_B32) { A(u32); B(u32); must_be_written(w, i, "decides"); w->scc = a >> (b & 31) & 1; }
REGISTER(S_BITCMP1_B32)
OP(S_BITCMP0_B64) { A(u64); u32 b = (u32)scalar(w, i, 1, 1); must_be_written(w, i, "decides"); w->scc = !(a >> (b & 63) & 1); }
REGISTER(S_BITCMP0_B64)
OP(S_BITCMP1_B64) { A(u64); u32 b = (u32)scalar(w, i, 1, 1); must_be_written(w, i, "decides"); w->scc = a >> (b & 63) & 1; }
REGISTER(S_BITCMP1_B64)

/* EXEC is replaced; the old one is kept (SAVEEXEC), or the new one is (WREXEC). */
#define EXEC_OP(NAME, SUFFIX, N_WORDS, EXPR, SAVED) OP(NAME##_##SUFFIX) { \
    u64 a = scalar(w, i, 0, N_WORDS), e = w->exec, r = (EXPR); \
    must_be_written(w, i, "decides"); \
    if (N_WORDS == 1) r = (u32)r; \
    w->scc = r != 0; \
    set_scalar(w, i, i->dst, SAVED, N_WORDS); \
    set_exec(w, r); \
} REGISTER(NAME##_##SUFFIX)
#define EXEC_OPS(NAME, EXPR) \
    EXEC_OP(S_##NAME##_SAVEEXEC, B32, 1, EXPR, e) EXEC_OP(S_##NAME##_SAVEEXEC, B64, 2, EXPR, e)
EXEC_OPS(AND, a & e)
EXEC_OPS(OR, a | e)
EXEC_OPS(XOR, a ^ e)
EXEC_OPS(NAND, ~(a & e))
EXEC_OPS(NOR, ~(a | e))
EXEC_OPS(XNOR, ~(a ^ e))
EXEC_OPS(AND_NOT0, ~a & e)
EXEC_OPS(AND_NOT1, a & ~e)
EXEC_OPS(OR_NOT0, ~a | e)
EXEC_OPS(OR_NOT1, a | ~e)
EXEC_OP(S_AND_NOT0_WREXEC, B32, 1, ~a & e, r)
EXEC_OP(S_AND_NOT0_WREXEC, B64, 2, ~a & e, r)
EXEC_OP(S_AND_NOT1_WREXEC, B32, 1, a & ~e, r)
EXEC_OP(S_AND_NOT1_WREXEC, B64, 2, a & ~e, r)

/* Branches. `offset` is the index of the target. */
#define BRANCH(NAME, CONDITION) OP(NAME) { if (CONDITION) w->next = (u32)i->offset; } REGISTER(NAME)
static bool vcc_zero(const Wave *w) { return w->s[VCC] == 0 && (w->lanes == 32 || w->s[VCC + 1] == 0); }
BRANCH(S_BRANCH, true)
BRANCH(S_CBRANCH_SCC0, !w->scc)
BRANCH(S_CBRANCH_SCC1, w->scc)
BRANCH(S_CBRANCH_VCCZ, vcc_zero(w))
BRANCH(S_CBRANCH_VCCNZ, !vcc_zero(w))
BRANCH(S_CBRANCH_EXECZ, w->exec == 0)
BRANCH(S_CBRANCH_EXECNZ, w->exec != 0)

static u64 address_after(const Wave *w, const Insn *i) {
    const Module *m = w->launch->module;
    return (u64)m->image + m->code_offset + (i + 1 - m->insns < (ptrdiff_t)m->n_insns ? (i + 1)->pc : m->code_size);
}
static void jump(Wave *w, const Insn *i, u64 address) {
    const Module *m = w->launch->module;
    u64 at = address - ((u64)m->image + m->code_offset);
    if (at >= m->code_size || at % 4 || m->index_of[at / 4] == ~0u) {
        fault(w, i, "bad jump", "0x%llx is not an instruction of this module", (unsigned long long)address);
    }
    w->next = m->index_of[at / 4];
}
OP(S_GETPC_B64) { set_scalar(w, i, i->dst, address_after(w, i), 2); }
REGISTER(S_GETPC_B64)
OP(S_SETPC_B64) { jump(w, i, scalar(w, i, 0, 2)); }
REGISTER(S_SETPC_B64)
OP(S_SWAPPC_B64) {
    u64 to = scalar(w, i, 0, 2);
    set_scalar(w, i, i->dst, address_after(w, i), 2);
    jump(w, i, to);
}
REGISTER(S_SWAPPC_B64)
OP(S_CALL_B64) {
    set_scalar(w, i, i->dst, address_after(w, i), 2);
    w->next = (u32)i->offset;
}
REGISTER(S_CALL_B64)

OP(S_ENDPGM) { (void)i; w->ended = true; }
REGISTER(S_ENDPGM)

/* A wave may not pass a barrier before its LDS stores are done: others would not see them. */
OP(S_BARRIER) {
    if (w->lds_stores > w->counters[LDS_OPS].done) {
        fault(w, i, "missing wait", "an LDS store is outstanding at the barrier: lgkmcnt (dscnt) is not waited for");
    }
    w->at_barrier = true;
}
REGISTER(S_BARRIER)
OP(S_BARRIER_SIGNAL) {
    if (w->lds_stores > w->counters[LDS_OPS].done) {
        fault(w, i, "missing wait", "an LDS store is outstanding at the barrier: dscnt is not waited for");
    }
}
REGISTER(S_BARRIER_SIGNAL)

OP(S_BARRIER_WAIT) { (void)i; w->at_barrier = true; }
REGISTER(S_BARRIER_WAIT)

/* `k` holds the count to wait for in each counter, or ~0 where the instruction leaves it alone. */
OP(S_WAIT) {
    for (int n = 0; n < N_COUNTERS; n++) {
        if (~i->k[n]) wait_for(w, n, (u32)i->k[n]);
    }
}
REGISTER(S_WAIT)

/* What changes timing, caches or nothing at all. */
OP(S_NOP) { (void)w; (void)i; }
REGISTER(S_NOP)

/* Mode bits that a kernel may set and the emulator already has: IEEE, denormals kept, round to nearest. */
OP(S_SETREG) { (void)w; (void)i; }
REGISTER(S_SETREG)
