/* How the keys and values of a layer lie in memory.
 *
 * Both are [slot][kv head][tile of 32 positions]; max_seq is a multiple of 32. Rows of values are filled up to whole
 * vectors.
 *
 *                  a tile of keys                  a tile of values
 * KV_F32, KV_F16   [dim][32 positions]             [32 positions][dim]
 * KV_Q16, KV_Q8    [dim / 2][32 positions][2]      [16 pairs of positions][dim][2]
 *
 * The last two have integers, with a half-precision scale for each 32 (or fewer) dims of a position; a tile's scales,
 * [block of dims][32 positions], lie behind its elements. KV_Q8's are of 8 bits and multiples of the scale. KV_Q16's use
 * 14 of their 16 bits, which is what attention can multiply, and are multiples of the scale's 2**13th part.
 */
#pragma once

#include "formats.h"
#include "hipfire_cpu.h"

enum { KV_TILE = 32, KV_BLOCK = 32, KV_TILE_VECTORS = KV_TILE / LANES };

/* Elements of a row of values with those that fill it up. */
INLINE int padded_dim(int head_dim)
{
    return (head_dim + LANES - 1) / LANES * LANES;
}

INLINE int64_t kv_element_nbytes(int format)
{
    return format == KV_F32 ? 4 : format == KV_Q8 ? 1 : 2;
}

INLINE bool kv_is_integer(int format)
{
    return format == KV_Q16 || format == KV_Q8;
}

/* How many dims share a scale, and the like. */
INLINE int kv_n_blocks(int head_dim)
{
    return (head_dim + KV_BLOCK - 1) / KV_BLOCK;
}

/* The largest integer of a format, and what one is in parts of its scale. */
INLINE float kv_limit(int format)
{
    return format == KV_Q8 ? 127.0f : 8191.0f;
}

INLINE float kv_unit(int format)
{
    return format == KV_Q8 ? 1.0f : 1.0f / 8192.0f;
}

INLINE int64_t kv_tile_nbytes(int format, int head_dim)
{
    const int64_t n_scales = kv_is_integer(format) ? kv_n_blocks(head_dim) * KV_TILE : 0;
    return padded_dim(head_dim) * KV_TILE * kv_element_nbytes(format) + n_scales * (int64_t)sizeof(_Float16);
}

/* The tile of a state that holds a position. */
INLINE uint8_t *kv_tile_at(const struct op *op, uint8_t *state, int64_t slot, int64_t kv_head, int64_t position)
{
    const int64_t tile = ((slot * op->n_kv_heads + kv_head) * op->max_seq + position) / KV_TILE;
    return state + tile * kv_tile_nbytes(op->kv_format, op->head_dim);
}

INLINE _Float16 *kv_scales(const struct op *op, uint8_t *tile)
{
    return (_Float16 *)(tile + padded_dim(op->head_dim) * KV_TILE * kv_element_nbytes(op->kv_format));
}

/* Where the elements of a head lie in its tile: the first, how far on the next is, and how far on the next pair. */
struct kv_place {
    int64_t first, next, pair;
};

INLINE struct kv_place kv_key_place(const struct op *op, int position)
{
    if (kv_is_integer(op->kv_format))
        return (struct kv_place){2 * position, 1, 2 * KV_TILE};
    return (struct kv_place){position, KV_TILE, 2 * KV_TILE};
}

INLINE struct kv_place kv_value_place(const struct op *op, int position)
{
    const int64_t padded = padded_dim(op->head_dim);
    if (kv_is_integer(op->kv_format))
        return (struct kv_place){position / 2 * 2 * padded + position % 2, 2, 4};
    return (struct kv_place){position * padded, 1, 2};
}

INLINE int64_t kv_at(struct kv_place place, int i)
{
    return place.first + (i >> 1) * place.pair + (i & 1) * place.next;
}

/* A scale for values up to `top`, rounded as it is kept. KV_Q16's is a little above what is needed: rounded down it must
 * still reach the largest. What is not finite stays so. */
INLINE _Float16 kv_scale_for(int format, float top, float poison)
{
    return (_Float16)(format == KV_Q8 ? top / 127.0f + poison : top * (1.0f + 0x1p-10f) + poison);
}

/* Up to 32 values of a position as integers; returns their scale. */
INLINE _Float16 kv_round_block(int format, const float *x, int n, int16_t out[KV_BLOCK])
{
    float filled[KV_BLOCK] = {0};
    memcpy(filled, x, (size_t)n * sizeof *x);
    const f32x16 v[2] = {load_f32x16(filled), load_f32x16(filled + LANES)};
    const float top = largest_lane(larger(larger(v[0], -v[0]), larger(v[1], -v[1])));
    const _Float16 scale = kv_scale_for(format, top, sum_lanes(v[0] * splat(0.0f) + v[1] * splat(0.0f)));
    const float unit = (float)scale * kv_unit(format), inverse = unit > 0.0f ? 1.0f / unit : 0.0f;
    const f32x16 limit = splat(kv_limit(format));
    for (int i = 0; i < 2; i++) {
        f32x16 q = v[i] * splat(inverse);
        q = choose(q > limit, limit, choose(q > -limit, q, -limit));
        store_i16x16(out + i * LANES, __builtin_convertvector(__builtin_convertvector(nearest(q), i32x16), i16x16));
    }
    return scale;
}

INLINE void kv_store_integers(const struct op *op, uint8_t *tile, int position, struct kv_place place, const float *x)
{
    const int dim = op->head_dim;
    for (int from = 0; from < dim; from += KV_BLOCK) {
        const int n = dim - from < KV_BLOCK ? dim - from : KV_BLOCK;
        int16_t q[KV_BLOCK];
        kv_scales(op, tile)[from / KV_BLOCK * KV_TILE + position] = kv_round_block(op->kv_format, x + from, n, q);
        for (int i = 0; i < n; i++)
            if (op->kv_format == KV_Q8)
                ((int8_t *)tile)[kv_at(place, from + i)] = (int8_t)q[i];
            else
                ((int16_t *)tile)[kv_at(place, from + i)] = q[i];
    }
}

/* Write one head's x at a position of its tile. */
INLINE void kv_store(const struct op *op, uint8_t *tile, int position, struct kv_place place, const float *x)
{
    if (kv_is_integer(op->kv_format))
        kv_store_integers(op, tile, position, place, x);
    else if (op->kv_format == KV_F32)
        for (int i = 0; i < op->head_dim; i++)
            ((float *)tile)[kv_at(place, i)] = x[i];
    else
        for (int i = 0; i < op->head_dim; i++)
            ((_Float16 *)tile)[kv_at(place, i)] = (_Float16)x[i];
}

INLINE void kv_store_key(const struct op *op, uint8_t *tile, int position, const float *x)
{
    kv_store(op, tile, position, kv_key_place(op, position), x);
}

INLINE void kv_store_value(const struct op *op, uint8_t *tile, int position, const float *x)
{
    kv_store(op, tile, position, kv_value_place(op, position), x);
}

INLINE f32x16 kv_load(int format, const uint8_t *tile, int64_t at)
{
    return format == KV_F32 ? load_f32x16(tile + at * 4) : load_f16_as_f32(tile + at * 2);
}

/* A tile of keys that are floats as float32, out[dim][32 positions]. */
INLINE void kv_unpack_keys(int format, const struct op *op, const uint8_t *tile, float *out)
{
    for (int64_t at = 0; at < (int64_t)op->head_dim * KV_TILE; at += LANES)
        store_f32x16(out + at, kv_load(format, tile, at));
}

/* The values, floats too, of the first n positions of a tile, out[n positions][padded dim]. */
INLINE void kv_unpack_values(int format, const struct op *op, const uint8_t *tile, int n, float *out)
{
    for (int64_t at = 0; at < (int64_t)n * padded_dim(op->head_dim); at += LANES)
        store_f32x16(out + at, kv_load(format, tile, at));
}
