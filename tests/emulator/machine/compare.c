/* Vector compares: a bit per lane into a scalar register, or into EXEC. */
#include "valu.h"

static void decide(Wave *w, const Insn *i, const u32 *flags, bool to_exec) {
    must_be_written(w, i, "decides");
    u64 bits = pack_mask(w, flags) & w->exec;
    if (!to_exec || w->launch->module->family == CDNA) set_mask_result(w, i, i->sdst, bits);
    if (to_exec) set_exec(w, bits);
}

#define COMPARE_ONE(NAME, TA, TB, EXPR, TO_EXEC) OP(NAME) { \
    GET(TA, 0, a) GET(TB, 1, b) \
    _Alignas(64) u32 flags[LANES_MAX]; \
    EACH_LANE(w) { type_##TA a = v_a[l]; type_##TB b = v_b[l]; flags[l] = (EXPR); } \
    decide(w, i, flags, TO_EXEC); \
} REGISTER(NAME)
#define COMPARE(WHAT, TYPE, TA, TB, EXPR) \
    COMPARE_ONE(V_CMP_##WHAT##_##TYPE, TA, TB, EXPR, false) \
    COMPARE_ONE(V_CMPX_##WHAT##_##TYPE, TA, TB, EXPR, true)

#define COMPARE_INTEGERS(TYPE, T) \
    COMPARE(LT, TYPE, T, T, a < b) COMPARE(EQ, TYPE, T, T, a == b) COMPARE(LE, TYPE, T, T, a <= b) \
    COMPARE(GT, TYPE, T, T, a > b) COMPARE(NE, TYPE, T, T, a != b) COMPARE(GE, TYPE, T, T, a >= b)
COMPARE_INTEGERS(I32, I)
COMPARE_INTEGERS(U32, U)
COMPARE_INTEGERS(I64, K)
COMPARE_INTEGERS(U64, L)
COMPARE_INTEGERS(I16, S)
COMPARE_INTEGERS(U16, W)

#define COMPARE_FLOATS(TYPE, T) \
    COMPARE(LT, TYPE, T, T, a < b) COMPARE(EQ, TYPE, T, T, a == b) COMPARE(LE, TYPE, T, T, a <= b) \
    COMPARE(GT, TYPE, T, T, a > b) COMPARE(LG, TYPE, T, T, a < b || a > b) COMPARE(GE, TYPE, T, T, a >= b) \
    COMPARE(O, TYPE, T, T, a == a && b == b) COMPARE(U, TYPE, T, T, a != a || b != b) \
    COMPARE(NGE, TYPE, T, T, !(a >= b)) COMPARE(NLG, TYPE, T, T, !(a < b || a > b)) \
    COMPARE(NGT, TYPE, T, T, !(a > b)) COMPARE(NLE, TYPE, T, T, !(a <= b)) \
    COMPARE(NEQ, TYPE, T, T, !(a == b)) COMPARE(NLT, TYPE, T, T, !(a < b))
COMPARE_FLOATS(F32, F)
COMPARE_FLOATS(F64, D)
COMPARE_FLOATS(F16, H)

/* The bit of the class mask that a number belongs to, from the smallest normal number of its type. */
static u32 class_bit(f64 x, f64 smallest, bool quiet) {
    if (x != x) return quiet ? 2 : 1;
    bool negative = signbit(x);
    if (isinf(x)) return negative ? 1 << 2 : 1 << 9;
    if (fabs(x) >= smallest) return negative ? 1 << 3 : 1 << 8;
    if (x != 0) return negative ? 1 << 4 : 1 << 7;
    return negative ? 1 << 5 : 1 << 6;
}
COMPARE(CLASS, F32, F, U, (class_bit(a, 0x1p-126, as_u32(a) >> 22 & 1) & b) != 0)
COMPARE(CLASS, F64, D, U, (class_bit(a, 0x1p-1022, as_u64(a) >> 51 & 1) & b) != 0)
COMPARE(CLASS, F16, H, U, (class_bit(a, 0x1p-14, true) & b) != 0)
