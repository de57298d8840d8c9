/* Packed weights: how the matrices of every format lie in memory while the kernels run.
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

#include "../blocks.h"
#include "simd.h"

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

/* One row an element type: name, bytes an element, how to load eight of them. Packed as [column][8 rows]. */
#define FLOAT_FORMATS(ROW)           \
    ROW(f32, 4, load_f32x8)          \
    ROW(f16, 2, load_f16_as_f32)     \
    ROW(bf16, 2, load_bf16_as_f32)

enum format {
#define ROW(name, ...) FORMAT_##name,
    FLOAT_FORMATS(ROW) QUANTISED_FORMATS(ROW)
#undef ROW
    N_FORMATS
};

enum { GROUP = 8, TILE_COLUMNS = 32, TILE_VECTORS = 8 };

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

INLINE int header_nbytes(struct layout f)
{
    return f.scales < SCALES_K ? 0 : f.scales == SCALES_K16 ? 16 : 32;
}

INLINE int tile_scales_nbytes(struct layout f)
{
    return f.scales == SCALES_DM ? 32 : 16;
}

INLINE int tile_nbytes(struct layout f)
{
    return tile_scales_nbytes(f) + (f.low + f.high) * 32;
}

INLINE int64_t group_nbytes(struct layout f, int64_t n_in)
{
    return n_in / f.block * (header_nbytes(f) + f.block / TILE_COLUMNS * (int64_t)tile_nbytes(f));
}

/* A tile ready to multiply, its integers widened: even[j] holds columns 4 j and 4 j + 2 of every row, odd[j] columns
 * 4 j + 1 and 4 j + 3. value = d[h] * q + m[h] with h the half of the tile (0 in formats of 32). */
struct tile {
    i16x16 even[TILE_VECTORS], odd[TILE_VECTORS];
    f32x8 d[2], m[2];
};

INLINE f32x8 scales_u8(const uint8_t *p)
{
    return __builtin_convertvector(load_u8x8(p), f32x8);
}

INLINE void unpack_scales(struct layout f, const uint8_t *header, const uint8_t *p, f32x8 *d, f32x8 *m)
{
    if (f.scales == SCALES_D || f.scales == SCALES_DM) {
        d[0] = load_f16_as_f32(p);
        m[0] = f.scales == SCALES_DM ? load_f16_as_f32(p + 16) : d[0] * splat((float)-f.offset);
        return;
    }
    f32x8 d_all = load_f16_as_f32(header);
    if (f.scales == SCALES_K) {
        d[0] = d_all * scales_u8(p);
        m[0] = load_f16_as_f32(header + 16) * scales_u8(p + 8);
        return;
    }
    for (int half = 0; half < 2; half++) {
        if (f.scales == SCALES_K16) {
            d[half] = d_all * __builtin_convertvector(load_i8x8(p + 8 * half), f32x8);
            m[half] = d[half] * splat((float)-f.offset);
        } else {
            u8x8 both = load_u8x8(p + 8 * half);
            d[half] = d_all * __builtin_convertvector(both & 15, f32x8);
            m[half] = load_f16_as_f32(header + 16) * __builtin_convertvector(both >> 4, f32x8);
        }
    }
}

/* The `bits` from bit `shift` on of every byte of w[j]'s vector, the even bytes in `even`, the odd ones in `odd`. */
INLINE void add_plane(u16x16 vector, int shift, int bits, int at, i16x16 *even, i16x16 *odd)
{
    const uint16_t mask = (uint16_t)((1 << bits) - 1);
    *even |= (i16x16)((vector >> shift & mask) << at);
    *odd |= (i16x16)((vector >> (8 + shift) & mask) << at);
}

INLINE void unpack_quants(struct layout f, const uint8_t *low, struct tile *out)
{
    const uint8_t *high = low + f.low * 32;
    const int low_vectors = f.low, high_vectors = f.high;
    for (int j = 0; j < TILE_VECTORS; j++) {
        const u16x16 vector = load_u16x16(low + 32 * (j % low_vectors));
        if (is_signed(f)) {
            out->even[j] = (i16x16)(vector << 8) >> 8;
            out->odd[j] = (i16x16)vector >> 8;
            continue;
        }
        out->even[j] = out->odd[j] = (i16x16){0};
        add_plane(vector, j / low_vectors * f.low, f.low, 0, &out->even[j], &out->odd[j]);
        if (f.high) {
            const u16x16 more = load_u16x16(high + 32 * (j % high_vectors));
            add_plane(more, j / high_vectors * f.high, f.high, f.low, &out->even[j], &out->odd[j]);
        }
    }
}

/* Walks the tiles of one row group in the order in which they lie in memory. */
struct cursor {
    const uint8_t *header, *tile;
    int left; /* tiles until the next header */
};

INLINE struct cursor cursor_at(struct layout f, const uint8_t *group)
{
    return (struct cursor){group, group + header_nbytes(f), f.block / TILE_COLUMNS};
}

INLINE void unpack_next(struct layout f, struct cursor *at, struct tile *out)
{
    unpack_scales(f, at->header, at->tile, out->d, out->m);
    unpack_quants(f, at->tile + tile_scales_nbytes(f), out);
    at->tile += tile_nbytes(f);
    if (--at->left == 0) {
        *at = cursor_at(f, at->tile);
    }
}

/* Activations as integers of 16 bits, value = d * q with a d for each 32 columns: with 8 bits the rounding of outliers'
 * neighbours shows in the answers. A row of n columns is [int16 q[n]][float d[n/32]][float s32[n/32]][float s16[n/16]];
 * of each four q the middle two are swapped, as a tile's columns are; s32 and s16 are the sums of each 32 and each 16
 * values, which the minima of the weights are multiplied with. */
INLINE int64_t q16_row_nbytes(int64_t n)
{
    return (2 * n + n / 32 * 4 * 4 + 63) / 64 * 64;
}

struct q16_row {
    const int16_t *q;
    const float *d, *s32, *s16;
};

INLINE struct q16_row q16_row_at(const uint8_t *rows, int64_t n, int64_t row)
{
    const uint8_t *p = rows + row * q16_row_nbytes(n);
    const float *d = (const float *)(p + 2 * n);
    return (struct q16_row){(const int16_t *)p, d, d + n / 32, d + n / 32 * 2};
}

/* The sums over the columns that share a scale. */
INLINE const float *sums_of(struct layout f, struct q16_row a)
{
    return scale_columns(f) == 16 ? a.s16 : a.s32;
}

/* A head's elements in a row of the values' state: whole vectors. */
INLINE int padded_dim(int head_dim)
{
    return (head_dim + LANES - 1) / LANES * LANES;
}
