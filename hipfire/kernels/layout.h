/* Packed weights: how the matrices of every format lie in memory while kernels run, on a CPU and on a GPU.
 *
 * Eight rows (outputs) are interleaved. A tile is 8 rows by 32 columns (inputs); as bytes it is eight vectors w[0..7]
 * with w[j] byte 4 r + t = q of row r, column 4 j + t, so that a vector times four activations, repeated eight times,
 * gives the partial sums of eight outputs. Tiles of one row group follow each other along the columns, and
 * the groups follow each other: both the one-row and the many-row kernel read the weights as one stream.
 *
 * A tile is stored as [scales][low bits][high bits]:
 *   low 4:  128 bytes, byte i of vector v: low nibble of w[v], high nibble of w[v + 4]     (v = 0..3)
 *   low 2:  64 bytes, bits 2 s of vector v: w[v + 2 s]                                     (v = 0..1)
 *   low 8:  256 bytes, w itself
 *   high 1: 32 bytes, bit j: bit `low` of w[j];  high 2: 64 bytes, as low 2
 * Formats of 256 (K) have before every eight tiles a header with the half-precision d (and m) of the eight rows.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum scales {
    SCALES_D,   /* tile: d[8] half */
    SCALES_DM,  /* tile: d[8], m[8] half */
    SCALES_K,   /* header: d[8], m[8] half; tile: sc[8], mn[8] uint8 */
    SCALES_K16, /* header: d[8] half; tile: sc[2][8] int8, one for each 16 columns */
    SCALES_K16M /* header: d[8], m[8] half; tile: [2][8] sc | mn << 4 */
};

struct layout {
    int block;        /* columns in a raw block */
    int block_nbytes; /* bytes of a raw block */
    int low, high;    /* bits of q in the two planes */
    enum scales scales;
    int offset; /* value = scale * (q - offset); 0 in formats with a minimum */
};

/* One row a format: name, then the layout. */
#define QUANTISED_FORMATS(ROW)                       \
    ROW(q4_0, 32, 18, 4, 0, SCALES_D, 8)\
    ROW(q4_1, 32, 20, 4, 0, SCALES_DM, 0)\
    ROW(q5_0, 32, 22, 4, 1, SCALES_D, 16)\
    ROW(q5_1, 32, 24, 4, 1, SCALES_DM, 0)\
    ROW(q8_0, 32, 34, 8, 0, SCALES_D, 0)\
    ROW(q2_k, 256, 84, 2, 0, SCALES_K16M, 0)\
    ROW(q3_k, 256, 110, 2, 1, SCALES_K16, 4)\
    ROW(q4_k, 256, 144, 4, 0, SCALES_K, 0)\
    ROW(q5_k, 256, 176, 4, 1, SCALES_K, 0)\
    ROW(q6_k, 256, 210, 4, 2, SCALES_K16, 32)

/* One row an element type: name, bytes an element. Packed as [column][8 rows]. */
#define FLOAT_FORMATS(ROW) \
    ROW(f32, 4)            \
    ROW(f16, 2)            \
    ROW(bf16, 2)

enum format {
#define ROW(name, ...) FORMAT_##name,
    FLOAT_FORMATS(ROW) QUANTISED_FORMATS(ROW)
#undef ROW
    N_FORMATS
};

enum { GROUP = 8, TILE_COLUMNS = 32, TILE_VECTORS = 8 };

static inline bool is_signed(struct layout f)
{
    return f.low == 8;
}

static inline bool has_minimum(struct layout f)
{
    return f.offset || f.scales == SCALES_DM || f.scales == SCALES_K || f.scales == SCALES_K16M;
}

/* Columns that share a scale. */
static inline int scale_columns(struct layout f)
{
    return f.scales == SCALES_K16 || f.scales == SCALES_K16M ? 16 : 32;
}

static inline int header_nbytes(struct layout f)
{
    return f.scales < SCALES_K ? 0 : f.scales == SCALES_K16 ? 16 : 32;
}

static inline int tile_scales_nbytes(struct layout f)
{
    return f.scales == SCALES_DM ? 32 : 16;
}

static inline int tile_nbytes(struct layout f)
{
    return tile_scales_nbytes(f) + (f.low + f.high) * 32;
}

static inline int64_t group_nbytes(struct layout f, int64_t n_in)
{
    return n_in / f.block * (header_nbytes(f) + f.block / TILE_COLUMNS * (int64_t)tile_nbytes(f));
}
