/* Products of small matrices of signed bytes, summed in int32, by each family's matrix instruction, and by dot products
 * where there is none.
 *
 * FRAGMENT_LANES threads that follow each other multiply 16 rows by FRAGMENTS times 16 columns over a tile of 32 in K,
 * in two parts of 16. Both operands lie in LDS in pieces of eight bytes along K: piece[k / 8][row or column]. Of the
 * result a lane has one column of each fragment, lane % 16, and FRAGMENT_ROWS rows that follow each other, from
 * first_row(lane) on. Which lane holds which bytes of the operands is the family's own.
 */
#pragma once

#include "hip.h"

#ifndef HIPFIRE_HOST
/* All threads of the workgroup meet; what they wrote to LDS before, all see afterwards. What is on its way from memory
 * is not waited for. */
INLINE void meet_in_lds()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

/* x, which is the same for all lanes of a wave, as the compiler then knows too. */
INLINE int uniform(int x) { return __builtin_amdgcn_readfirstlane(x); }
#endif

constexpr int SIDE = 16, FRAGMENTS = 4, PIECES = 4;

#if defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1103__) || \
    defined(__gfx1150__) || defined(__gfx1151__) || defined(__gfx1152__)
/* RDNA 3 (its ISA document, 7.9): lanes 0..15 hold sixteen bytes of a row each, lanes 16..31 the same again. Register r
 * of the result has row 2 r + lane / 16, so the rows are put where that makes them neighbours. */
#define PARTS_APART
constexpr int FRAGMENT_LANES = 32, FRAGMENT_ROWS = 8;
typedef int fragment __attribute__((ext_vector_type(4)));
typedef int products __attribute__((ext_vector_type(8)));

INLINE int slot_of_row(int row) { return row / SIDE * SIDE + row % 8 * 2 + row % SIDE / 8; }

template <int STRIDE> INLINE fragment load_fragment(const uint2 *pieces, int part, int first, int lane)
{
    const uint2 *at = pieces + 2 * part * STRIDE + first + lane % SIDE;
    return (fragment){(int)at[0].x, (int)at[0].y, (int)at[STRIDE].x, (int)at[STRIDE].y};
}

INLINE products multiplied(fragment rows, fragment columns, products sums)
{
    return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, rows, true, columns, sums, false);
}

#elif defined(__gfx1200__) || defined(__gfx1201__)
/* RDNA 4 (its ISA document, 7.12): lane l holds eight bytes of row l % 16, from byte l / 16 * 8 on. Register r of the
 * result has row l / 16 * 8 + r. */
#define PARTS_APART
constexpr int FRAGMENT_LANES = 32, FRAGMENT_ROWS = 8;
typedef int fragment __attribute__((ext_vector_type(2)));
typedef int products __attribute__((ext_vector_type(8)));

INLINE int slot_of_row(int row) { return row; }

template <int STRIDE> INLINE fragment load_fragment(const uint2 *pieces, int part, int first, int lane)
{
    return __builtin_bit_cast(fragment, pieces[(2 * part + lane / SIDE) * STRIDE + first + lane % SIDE]);
}

INLINE products multiplied(fragment rows, fragment columns, products sums)
{
    return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, rows, true, columns, sums, false);
}

#elif defined(__gfx908__) || defined(__gfx90a__)
/* CDNA 1 and 2 (CDNA 2's ISA document, 7.1): lane l holds four bytes of row l % 16, from byte l / 16 * 4 on. Register r
 * of the result has row l / 16 * 4 + r. */
#define PARTS_APART
constexpr int FRAGMENT_LANES = 64, FRAGMENT_ROWS = 4;
typedef int fragment;
typedef int products __attribute__((ext_vector_type(4)));

INLINE int slot_of_row(int row) { return row; }

template <int STRIDE> INLINE fragment load_fragment(const uint2 *pieces, int part, int first, int lane)
{
    const uint2 *piece = pieces + (2 * part + lane / (2 * SIDE)) * STRIDE + first + lane % SIDE;
    return ((const int *)piece)[lane / SIDE % 2];
}

INLINE products multiplied(fragment rows, fragment columns, products sums)
{
    return __builtin_amdgcn_mfma_i32_16x16x16i8(rows, columns, sums, 0, 0, 0);
}

#elif defined(__gfx942__) || defined(__gfx950__)
/* CDNA 3 and 4 (CDNA 3's ISA document, 7.1): lane l holds eight bytes of row l % 16, from byte l / 16 * 8 of 32 on.
 * Register r of the result has row l / 16 * 4 + r. One instruction takes both parts; of one alone, the other is 0. */
constexpr int FRAGMENT_LANES = 64, FRAGMENT_ROWS = 4, PARTS_AT_ONCE = 2;
typedef int products __attribute__((ext_vector_type(4)));
typedef long row_operand, column_operand;

INLINE int slot_of_row(int row) { return row; }

template <int STRIDE> INLINE row_operand load_rows(const uint2 *pieces, int first, int lane)
{
    return __builtin_bit_cast(row_operand, pieces[lane / SIDE * STRIDE + first + lane % SIDE]);
}

template <int STRIDE> INLINE column_operand load_columns(const uint2 *pieces, int first, int lane)
{
    return load_rows<STRIDE>(pieces, first, lane);
}

INLINE void multiply_add(row_operand rows, const column_operand (&columns)[FRAGMENTS], int first, int end,
                         products (&sums)[FRAGMENTS])
{
    const int part = thread() % FRAGMENT_LANES / (2 * SIDE);
    const row_operand wanted = part >= first && part < end ? rows : 0;
    for (int f = 0; f < FRAGMENTS; f++)
        sums[f] = __builtin_amdgcn_mfma_i32_16x16x32_i8(wanted, columns[f], sums[f], 0, 0, 0);
}

#else
/* No matrix cores: a lane multiplies its own rows and columns, which it takes from LDS piece by piece. */
constexpr int FRAGMENT_LANES = 32, FRAGMENT_ROWS = 8, PARTS_AT_ONCE = 1;
typedef int products __attribute__((ext_vector_type(8)));

INLINE int slot_of_row(int row) { return row; }

struct row_operand {
    const uint2 *pieces;
    int stride;
};
typedef row_operand column_operand;

template <int STRIDE> INLINE row_operand load_rows(const uint2 *pieces, int first, int lane)
{
    return {pieces + first + lane / SIDE * FRAGMENT_ROWS, STRIDE};
}

template <int STRIDE> INLINE column_operand load_columns(const uint2 *pieces, int first, int lane)
{
    return {pieces + first + lane % SIDE, STRIDE};
}

INLINE void multiply_add(const row_operand &rows, const column_operand (&columns)[FRAGMENTS], int first, int end,
                         products (&sums)[FRAGMENTS])
{
    /* Not unrolled: what is read ahead takes registers, of which more waves could live. */
#pragma unroll 1
    for (int k = first * PIECES / 2; k < end * PIECES / 2; k++) {
        uint2 column[FRAGMENTS];
        for (int f = 0; f < FRAGMENTS; f++)
            column[f] = columns[f].pieces[k * columns[f].stride];
#pragma unroll
        for (int row = 0; row < FRAGMENT_ROWS; row++) {
            const uint2 piece = rows.pieces[k * rows.stride + row];
            for (int f = 0; f < FRAGMENTS; f++)
                sums[f][row] = dot4(piece.y, column[f].y, dot4(piece.x, column[f].x, sums[f][row]));
        }
    }
}
#endif

#ifdef PARTS_APART
/* A part an instruction, whose two operands lie alike. */
constexpr int PARTS_AT_ONCE = 2;
struct row_operand {
    fragment part[2];
};
typedef row_operand column_operand;

template <int STRIDE> INLINE row_operand load_rows(const uint2 *pieces, int first, int lane)
{
    return {{load_fragment<STRIDE>(pieces, 0, first, lane), load_fragment<STRIDE>(pieces, 1, first, lane)}};
}

template <int STRIDE> INLINE column_operand load_columns(const uint2 *pieces, int first, int lane)
{
    return load_rows<STRIDE>(pieces, first, lane);
}

/* sums += rows * columns, over the parts first .. end - 1. */
INLINE void multiply_add(const row_operand &rows, const column_operand (&columns)[FRAGMENTS], int first, int end,
                         products (&sums)[FRAGMENTS])
{
    for (int part = first; part < end; part++)
        for (int f = 0; f < FRAGMENTS; f++)
            sums[f] = multiplied(rows.part[part], columns[f].part[part], sums[f]);
}
#endif

typedef float row_floats __attribute__((ext_vector_type(FRAGMENT_ROWS)));

INLINE row_floats fma_rows(row_floats a, row_floats b, row_floats c) { return __builtin_elementwise_fma(a, b, c); }
INLINE int first_row(int lane) { return lane / SIDE * FRAGMENT_ROWS; }
