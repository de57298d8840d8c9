/* Products of small matrices of signed bytes, summed in int32, by each family's matrix instruction; and by dot products
 * where there is none.
 *
 * A wave (or where there is no instruction, 32 threads) multiplies 16 rows by 4 x 16 columns, over a tile of 32 in K, in
 * two parts of 16. Both operands lie in LDS in pieces of eight bytes along K: piece[k / 8][row or column]. What a lane
 * has of the result is always one column (lane % 16) of each of the four, and FRAGMENT_ROWS rows that follow each other,
 * from first_row() on. Which bytes a lane holds of the operands is the family's own; sums of integers have no order.
 */
#pragma once

constexpr int SIDE = 16, FRAGMENTS = 4, PIECES = 4;

#if defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1103__) || \
    defined(__gfx1150__) || defined(__gfx1151__) || defined(__gfx1152__)
/* RDNA 3 (its ISA document, 7.9): lanes 0..15 hold a row of sixteen bytes each, lanes 16..31 the same again. Register r of
 * the result has row 2 r + lane / 16: rows are put where that makes them neighbours. */
#define MATRIX_RDNA3
constexpr int FRAGMENT_LANES = 32, FRAGMENT_ROWS = 8, PARTS_AT_ONCE = 2;
typedef int word4 __attribute__((ext_vector_type(4)));
typedef int products __attribute__((ext_vector_type(8)));

INLINE int first_row(int lane) { return lane / SIDE * FRAGMENT_ROWS; }
INLINE int slot_of_row(int row) { return row / SIDE * SIDE + row % 8 * 2 + row % SIDE / 8; }

struct row_operand {
    word4 part[2];
};
typedef row_operand column_operand;

template <int STRIDE> INLINE row_operand load_rows(const uint2 *pieces, int first, int lane)
{
    row_operand out;
    for (int part = 0; part < 2; part++) {
        const uint2 *at = pieces + 2 * part * STRIDE + first + lane % SIDE;
        out.part[part] = (word4){(int)at[0].x, (int)at[0].y, (int)at[STRIDE].x, (int)at[STRIDE].y};
    }
    return out;
}

template <int STRIDE> INLINE column_operand load_columns(const uint2 *pieces, int first, int lane)
{
    return load_rows<STRIDE>(pieces, first, lane);
}

INLINE void multiply_add(const row_operand &rows, const column_operand (&columns)[FRAGMENTS], int first, int end,
                         products (&sums)[FRAGMENTS])
{
    for (int part = first; part < end; part++)
        for (int f = 0; f < FRAGMENTS; f++)
            sums[f] = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, rows.part[part], true,
                                                                     columns[f].part[part], sums[f], false);
}

#elif defined(__gfx1200__) || defined(__gfx1201__)
/* RDNA 4 (its ISA document, 7.12): lane l holds eight bytes of row l % 16, from byte l / 16 * 8 on. Register r of the
 * result has row l / 16 * 8 + r. */
constexpr int FRAGMENT_LANES = 32, FRAGMENT_ROWS = 8, PARTS_AT_ONCE = 2;
typedef int word2 __attribute__((ext_vector_type(2)));
typedef int products __attribute__((ext_vector_type(8)));

INLINE int first_row(int lane) { return lane / SIDE * FRAGMENT_ROWS; }
INLINE int slot_of_row(int row) { return row; }

struct row_operand {
    word2 part[2];
};
typedef row_operand column_operand;

template <int STRIDE> INLINE row_operand load_rows(const uint2 *pieces, int first, int lane)
{
    row_operand out;
    for (int part = 0; part < 2; part++)
        out.part[part] = __builtin_bit_cast(word2, pieces[(2 * part + lane / SIDE) * STRIDE + first + lane % SIDE]);
    return out;
}

template <int STRIDE> INLINE column_operand load_columns(const uint2 *pieces, int first, int lane)
{
    return load_rows<STRIDE>(pieces, first, lane);
}

INLINE void multiply_add(const row_operand &rows, const column_operand (&columns)[FRAGMENTS], int first, int end,
                         products (&sums)[FRAGMENTS])
{
    for (int part = first; part < end; part++)
        for (int f = 0; f < FRAGMENTS; f++)
            sums[f] = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, rows.part[part], true,
                                                                           columns[f].part[part], sums[f], false);
}

#elif defined(__gfx942__) || defined(__gfx950__)
/* CDNA 3 and 4 (CDNA 3's ISA document, 7.1): lane l holds eight bytes of row l % 16, from byte l / 16 * 8 of 32 on.
 * Register r of the result has row l / 16 * 4 + r. The instruction takes both parts; of one alone, the other is 0. */
constexpr int FRAGMENT_LANES = 64, FRAGMENT_ROWS = 4, PARTS_AT_ONCE = 2;
typedef int products __attribute__((ext_vector_type(4)));

INLINE int first_row(int lane) { return lane / SIDE * FRAGMENT_ROWS; }
INLINE int slot_of_row(int row) { return row; }

typedef long row_operand;
typedef long column_operand;

template <int STRIDE> INLINE row_operand load_rows(const uint2 *pieces, int first, int lane)
{
    return __builtin_bit_cast(long, pieces[lane / SIDE * STRIDE + first + lane % SIDE]);
}

template <int STRIDE> INLINE column_operand load_columns(const uint2 *pieces, int first, int lane)
{
    return load_rows<STRIDE>(pieces, first, lane);
}

INLINE void multiply_add(const row_operand &rows, const column_operand (&columns)[FRAGMENTS], int first, int end,
                         products (&sums)[FRAGMENTS])
{
    const int part = thread() % FRAGMENT_LANES / (2 * SIDE);
    const bool here = part >= first && part < end;
    for (int f = 0; f < FRAGMENTS; f++)
        sums[f] = __builtin_amdgcn_mfma_i32_16x16x32_i8(here ? rows : 0, columns[f], sums[f], 0, 0, 0);
}

#elif defined(__gfx908__) || defined(__gfx90a__)
/* CDNA 1 and 2 (CDNA 2's ISA document, 7.1): lane l holds four bytes of row l % 16, from byte l / 16 * 4 of 16 on.
 * Register r of the result has row l / 16 * 4 + r. */
constexpr int FRAGMENT_LANES = 64, FRAGMENT_ROWS = 4, PARTS_AT_ONCE = 2;
typedef int products __attribute__((ext_vector_type(4)));

INLINE int first_row(int lane) { return lane / SIDE * FRAGMENT_ROWS; }
INLINE int slot_of_row(int row) { return row; }

struct row_operand {
    int part[2];
};
typedef row_operand column_operand;

template <int STRIDE> INLINE row_operand load_rows(const uint2 *pieces, int first, int lane)
{
    row_operand out;
    for (int part = 0; part < 2; part++) {
        const uint2 *piece = pieces + (2 * part + lane / (2 * SIDE)) * STRIDE + first + lane % SIDE;
        out.part[part] = ((const int *)piece)[lane / SIDE % 2];
    }
    return out;
}

template <int STRIDE> INLINE column_operand load_columns(const uint2 *pieces, int first, int lane)
{
    return load_rows<STRIDE>(pieces, first, lane);
}

INLINE void multiply_add(const row_operand &rows, const column_operand (&columns)[FRAGMENTS], int first, int end,
                         products (&sums)[FRAGMENTS])
{
    for (int part = first; part < end; part++)
        for (int f = 0; f < FRAGMENTS; f++)
            sums[f] = __builtin_amdgcn_mfma_i32_16x16x16i8(rows.part[part], columns[f].part[part], sums[f], 0, 0, 0);
}

#else
/* No matrix cores: a lane has eight rows of its columns, and takes what it needs of the rows from LDS. */
constexpr int FRAGMENT_LANES = 32, FRAGMENT_ROWS = 8, PARTS_AT_ONCE = 1;
typedef int products __attribute__((ext_vector_type(8)));

INLINE int first_row(int lane) { return lane / SIDE * FRAGMENT_ROWS; }
INLINE int slot_of_row(int row) { return row; }

struct row_operand {
    const uint2 *pieces;
    int stride;
};
typedef row_operand column_operand;

template <int STRIDE> INLINE row_operand load_rows(const uint2 *pieces, int first, int lane)
{
    return {pieces + first + first_row(lane), STRIDE};
}

template <int STRIDE> INLINE column_operand load_columns(const uint2 *pieces, int first, int lane)
{
    return {pieces + first + lane % SIDE, STRIDE};
}

INLINE void multiply_add(const row_operand &rows, const column_operand (&columns)[FRAGMENTS], int first, int end,
                         products (&sums)[FRAGMENTS])
{
    /* Not unrolled: what is read ahead would not leave registers for enough waves. */
#pragma unroll 1
    for (int k = first * PIECES / 2; k < end * PIECES / 2; k++) {
        uint2 column[FRAGMENTS];
        for (int f = 0; f < FRAGMENTS; f++)
            column[f] = columns[f].pieces[k * columns[f].stride];
#pragma unroll
        for (int row = 0; row < FRAGMENT_ROWS; row++) {
            const uint2 piece = rows.pieces[k * rows.stride + row];
            for (int f = 0; f < FRAGMENTS; f++)
                sums[f][row] = dot4((int)piece.y, (int)column[f].y, dot4((int)piece.x, (int)column[f].x, sums[f][row]));
        }
    }
}
#endif

typedef float row_floats __attribute__((ext_vector_type(FRAGMENT_ROWS)));

INLINE row_floats fma_of(row_floats a, row_floats b, row_floats c) { return __builtin_elementwise_fma(a, b, c); }
