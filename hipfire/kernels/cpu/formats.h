/* Tiles of packed weights (layout.h) in registers, and activations as integers. */
#pragma once

#include "../blocks.h"
#include "../layout.h"
#include "simd.h"

enum { PAIR = 2 * GROUP, VECTOR_NBYTES = 4 * GROUP, HALVES_NBYTES = 2 * GROUP };

INLINE int n_scales(struct layout f)
{
    return TILE_COLUMNS / scale_columns(f);
}

/* A tile of two neighbouring groups, ready to multiply: even[j] holds columns 4 j and 4 j + 2 of their 16
 * rows, odd[j] columns 4 j + 1 and 4 j + 3. value = d[h] * q + m[h] with h the number of the scale. */
struct tile {
    i16x32 even[TILE_VECTORS], odd[TILE_VECTORS];
    f32x16 d[2], m[2];
};

/* Walks the tiles of a row group, in the order in which they lie in memory, and those of the next one beside it. */
struct cursor {
    const uint8_t *header, *tile;
    int64_t other; /* bytes from the one group to the other; 0: one stands for both */
    int left;      /* tiles until the next header */
};

INLINE struct cursor cursor_at(struct layout f, const uint8_t *group, int64_t other)
{
    return (struct cursor){group, group + header_nbytes(f), other, f.block / TILE_COLUMNS};
}

INLINE f32x16 as_floats(u8x16 bytes)
{
    return __builtin_convertvector(bytes, f32x16);
}

INLINE void unpack_scales(struct layout f, const struct cursor *at, struct tile *out)
{
    const uint8_t *p = at->tile;
    const int64_t other = at->other;
    if (f.scales == SCALES_D || f.scales == SCALES_DM) {
        out->d[0] = load_f16_pair(p, other);
        out->m[0] = f.scales == SCALES_DM ? load_f16_pair(p + HALVES_NBYTES, other) : out->d[0] * splat((float)-f.offset);
        return;
    }
    const f32x16 d = load_f16_pair(at->header, other);
    if (f.scales == SCALES_K) {
        out->d[0] = d * as_floats(load_u8_pair(p, other));
        out->m[0] = load_f16_pair(at->header + HALVES_NBYTES, other) * as_floats(load_u8_pair(p + GROUP, other));
        return;
    }
    for (int h = 0; h < 2; h++) {
        const u8x16 bytes = load_u8_pair(p + GROUP * h, other);
        if (f.scales == SCALES_K16) {
            out->d[h] = d * __builtin_convertvector((i8x16)bytes, f32x16);
            out->m[h] = out->d[h] * splat((float)-f.offset);
        } else {
            out->d[h] = d * as_floats(bytes & 15);
            out->m[h] = load_f16_pair(at->header + HALVES_NBYTES, other) * as_floats(bytes >> 4);
        }
    }
}

/* Of every byte the `bits` from bit `from` on, moved to bit `to`. */
INLINE u16x32 field(u16x32 bytes, int from, int bits, int to)
{
    const uint16_t mask = (uint16_t)(((1 << bits) - 1) << to);
    return (to < from ? bytes >> (from - to) : bytes << (to - from)) & (uint16_t)(mask | mask << 8);
}

INLINE void unpack_quants(struct layout f, const uint8_t *low, int64_t other, struct tile *out)
{
    const uint8_t *high = low + f.low * VECTOR_NBYTES;
    UNROLL
    for (int j = 0; j < TILE_VECTORS; j++) {
        u16x32 bytes = load_words_pair(low + VECTOR_NBYTES * (j % f.low), other);
        if (is_signed(f)) {
            out->even[j] = (i16x32)(bytes << 8) >> 8;
            out->odd[j] = (i16x32)bytes >> 8;
            continue;
        }
        bytes = field(bytes, j / f.low * f.low, f.low, 0);
        if (f.high)
            bytes |= field(load_words_pair(high + VECTOR_NBYTES * (j % f.high), other), j / f.high * f.high, f.high, f.low);
        out->even[j] = (i16x32)(bytes & 255);
        out->odd[j] = (i16x32)(bytes >> 8);
    }
}

INLINE void unpack_next(struct layout f, struct cursor *at, struct tile *out)
{
    unpack_scales(f, at, out);
    unpack_quants(f, at->tile + tile_scales_nbytes(f), at->other, out);
    at->tile += tile_nbytes(f);
    if (--at->left == 0)
        *at = cursor_at(f, at->tile, at->other);
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
