/* Tiles of packed weights (layout.h) in registers, and activations as integers. */
#pragma once

#include "../blocks.h"
#include "../layout.h"
#include "simd.h"

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
