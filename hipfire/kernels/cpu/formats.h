/* Packed weights: how the matrices of every format lie in memory while the kernels run.
 *
 * Sixteen rows (outputs) are interleaved: a row group. A tile is 16 rows by 32 columns (inputs); as bytes it is eight
 * vectors w[0..7] with w[j] byte 4 r + t = q of row r, column 4 j + t, so that a vector times four activations, repeated
 * 16 times, gives the partial sums of 16 outputs. Tiles of one row group follow each other along the columns, and
 * the groups follow each other: both the one-row and the many-row kernel read the weights as one stream.
 *
 * A tile is stored as [scales][low bits][high bits]:
 *   low 4:  256 bytes, byte i of vector v: low nibble of w[v], high nibble of w[v + 4]     (v = 0..3)
 *   low 2:  128 bytes, bits 2 s of vector v: w[v + 2 s]                                    (v = 0..1)
 *   low 8:  512 bytes, w itself
 *   high 1: 64 bytes, bit j: bit `low` of w[j];  high 2: 128 bytes, as low 2
 * Formats of 256 (K) have before every eight tiles a header with the half-precision d (and m) of the sixteen rows.
 */
#pragma once

#include "../blocks.h"
#include "simd.h"

enum scales {
    SCALES_D,   /* tile: d[16] half */
    SCALES_DM,  /* tile: d[16], m[16] half */
    SCALES_K,   /* header: d[16], m[16] half; tile: sc[16], mn[16] uint8 */
    SCALES_K16, /* header: d[16] half; tile: sc[2][16] int8, one for each 16 columns */
    SCALES_K16M /* header: d[16], m[16] half; tile: [2][16] sc | mn << 4 */
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

/* One row an element type: name, bytes an element, how to load sixteen of them. Packed as [column][16 rows]. */
#define FLOAT_FORMATS(ROW)           \
    ROW(f32, 4, load_f32x16)         \
    ROW(f16, 2, load_f16_as_f32)     \
    ROW(bf16, 2, load_bf16_as_f32)

enum format {
#define ROW(name, ...) FORMAT_##name,
    FLOAT_FORMATS(ROW) QUANTISED_FORMATS(ROW)
#undef ROW
    N_FORMATS
};

enum { GROUP = 16, TILE_COLUMNS = 32, TILE_VECTORS = 8, VECTOR_NBYTES = 4 * GROUP, HALVES_NBYTES = 2 * GROUP };

INLINE bool is_signed(struct layout f)
{
    return f.low == 8;
}

INLINE bool has_minimum(struct layout f)
{
    return f.offset || f.scales == SCALES_DM || f.scales == SCALES_K || f.scales == SCALES_K16M;
}

/* Columns that share a scale. */
INLINE int scale_columns(struct layout f)
{
    return f.scales == SCALES_K16 || f.scales == SCALES_K16M ? 16 : 32;
}

INLINE int n_scales(struct layout f)
{
    return TILE_COLUMNS / scale_columns(f);
}

INLINE int header_nbytes(struct layout f)
{
    return f.scales < SCALES_K ? 0 : f.scales == SCALES_K16 ? HALVES_NBYTES : 2 * HALVES_NBYTES;
}

INLINE int tile_scales_nbytes(struct layout f)
{
    return f.scales == SCALES_DM ? 2 * HALVES_NBYTES : HALVES_NBYTES;
}

INLINE int tile_nbytes(struct layout f)
{
    return tile_scales_nbytes(f) + (f.low + f.high) * VECTOR_NBYTES;
}

INLINE int64_t group_nbytes(struct layout f, int64_t n_in)
{
    return n_in / f.block * (header_nbytes(f) + f.block / TILE_COLUMNS * (int64_t)tile_nbytes(f));
}

/* A tile ready to multiply: even[j] holds columns 4 j and 4 j + 2 of every row, odd[j] columns 4 j + 1 and 4 j + 3.
 * value = d[h] * q + m[h] with h the number of the scale. */
struct tile {
    i16x32 even[TILE_VECTORS], odd[TILE_VECTORS];
    f32x16 d[2], m[2];
};

/* Walks the tiles of one row group in the order in which they lie in memory. */
struct cursor {
    const uint8_t *header, *tile;
    int left; /* tiles until the next header */
};

INLINE struct cursor cursor_at(struct layout f, const uint8_t *group)
{
    return (struct cursor){group, group + header_nbytes(f), f.block / TILE_COLUMNS};
}

INLINE f32x16 as_floats(u8x16 bytes)
{
    return __builtin_convertvector(bytes, f32x16);
}

INLINE void unpack_scales(struct layout f, const struct cursor *at, struct tile *out)
{
    const uint8_t *p = at->tile;
    if (f.scales == SCALES_D || f.scales == SCALES_DM) {
        out->d[0] = load_f16_as_f32(p);
        out->m[0] = f.scales == SCALES_DM ? load_f16_as_f32(p + HALVES_NBYTES) : out->d[0] * splat((float)-f.offset);
        return;
    }
    const f32x16 d = load_f16_as_f32(at->header);
    if (f.scales == SCALES_K) {
        out->d[0] = d * as_floats(load_u8x16(p));
        out->m[0] = load_f16_as_f32(at->header + HALVES_NBYTES) * as_floats(load_u8x16(p + GROUP));
        return;
    }
    for (int h = 0; h < 2; h++) {
        const u8x16 bytes = load_u8x16(p + GROUP * h);
        if (f.scales == SCALES_K16) {
            out->d[h] = d * __builtin_convertvector((i8x16)bytes, f32x16);
            out->m[h] = out->d[h] * splat((float)-f.offset);
        } else {
            out->d[h] = d * as_floats(bytes & 15);
            out->m[h] = load_f16_as_f32(at->header + HALVES_NBYTES) * as_floats(bytes >> 4);
        }
    }
}

/* Of every byte the `bits` from bit `from` on, moved to bit `to`. */
INLINE u16x32 field(u16x32 bytes, int from, int bits, int to)
{
    const uint16_t mask = (uint16_t)(((1 << bits) - 1) << to);
    return (to < from ? bytes >> (from - to) : bytes << (to - from)) & (uint16_t)(mask | mask << 8);
}

INLINE void unpack_quants(struct layout f, const uint8_t *low, struct tile *out)
{
    const uint8_t *high = low + f.low * VECTOR_NBYTES;
    UNROLL
    for (int j = 0; j < TILE_VECTORS; j++) {
        u16x32 bytes = load_u16x32(low + VECTOR_NBYTES * (j % f.low));
        if (is_signed(f)) {
            out->even[j] = (i16x32)(bytes << 8) >> 8;
            out->odd[j] = (i16x32)bytes >> 8;
            continue;
        }
        bytes = field(bytes, j / f.low * f.low, f.low, 0);
        if (f.high)
            bytes |= field(load_u16x32(high + VECTOR_NBYTES * (j % f.high)), j / f.high * f.high, f.high, f.low);
        out->even[j] = (i16x32)(bytes & 255);
        out->odd[j] = (i16x32)(bytes >> 8);
    }
}

INLINE void unpack_next(struct layout f, struct cursor *at, struct tile *out)
{
    unpack_scales(f, at, out);
    unpack_quants(f, at->tile + tile_scales_nbytes(f), out);
    at->tile += tile_nbytes(f);
    if (--at->left == 0)
        *at = cursor_at(f, at->tile);
}

/* Activations as integers of 16 bits: with 8 the rounding of outliers' neighbours shows in the answers. A row is one
 * block after the other; of each four q the middle two are swapped, as a tile's columns are. */
struct q16_block {
    int16_t q[TILE_COLUMNS];
    float d;           /* value = d * q */
    float sum[2], all; /* of each 16 values, and of all: the minima of the weights are multiplied with them */
};

INLINE int64_t q16_row_nbytes(int64_t n)
{
    return n / TILE_COLUMNS * (int64_t)sizeof(struct q16_block);
}

INLINE struct q16_block *q16_row_at(const uint8_t *rows, int64_t n, int64_t row)
{
    return (struct q16_block *)(rows + row * q16_row_nbytes(n));
}

/* The sum over the columns that share scale number h. */
INLINE float sum_of(int n_scales, const struct q16_block *a, int h)
{
    return n_scales == 2 ? a->sum[h] : a->all;
}
