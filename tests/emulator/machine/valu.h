/* Vector instructions as one line each: the types of the operands and an expression over one lane.
 *
 * A type letter stands for how an operand is read or a result is written:
 *   U I 32-bit integers   L K 64-bit unsigned and signed   F f32   D f64
 *   H f16 (computed in f32)   B bf16   W S 16-bit unsigned and signed
 */
#ifndef EMULATOR_VALU_H
#define EMULATOR_VALU_H
#include "machine.h"

typedef u32 type_U; typedef i32 type_I; typedef u64 type_L; typedef i64 type_K; typedef f32 type_F; typedef f64 type_D;
typedef f32 type_H; typedef f32 type_B; typedef u32 type_W; typedef i32 type_S;

#define DECLARE(T) \
    const type_##T *get_##T(Wave *w, const Insn *i, int n, type_##T *room); \
    void put_##T(Wave *w, const Insn *i, const type_##T *values);
DECLARE(U) DECLARE(I) DECLARE(L) DECLARE(K) DECLARE(F) DECLARE(D) DECLARE(H) DECLARE(B) DECLARE(W) DECLARE(S)
#undef DECLARE

void put_word(Wave *w, const Insn *i, u32 reg, const u32 *values);
u64 pack_mask(const Wave *w, const u32 *flags);

#define GET(T, n, name) \
    _Alignas(64) type_##T room_##name[LANES_MAX]; \
    const type_##T *v_##name = get_##T(w, i, n, room_##name);

#define VOP1(NAME, TD, TA, EXPR) OP(NAME) { \
    GET(TA, 0, a) \
    _Alignas(64) type_##TD out[LANES_MAX]; \
    EACH_LANE(w) { type_##TA a = v_a[l]; out[l] = (EXPR); } \
    put_##TD(w, i, out); \
} REGISTER(NAME)

#define VOP2(NAME, TD, TA, TB, EXPR) OP(NAME) { \
    GET(TA, 0, a) GET(TB, 1, b) \
    _Alignas(64) type_##TD out[LANES_MAX]; \
    EACH_LANE(w) { type_##TA a = v_a[l]; type_##TB b = v_b[l]; out[l] = (EXPR); } \
    put_##TD(w, i, out); \
} REGISTER(NAME)

#define VOP3(NAME, TD, TA, TB, TC, EXPR) OP(NAME) { \
    GET(TA, 0, a) GET(TB, 1, b) GET(TC, 2, c) \
    _Alignas(64) type_##TD out[LANES_MAX]; \
    EACH_LANE(w) { type_##TA a = v_a[l]; type_##TB b = v_b[l]; type_##TC c = v_c[l]; out[l] = (EXPR); } \
    put_##TD(w, i, out); \
} REGISTER(NAME)

#endif
