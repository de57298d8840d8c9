/* How the keys and values of a layer lie in memory.
 *
 * Both are [slot][kv head][tile of 32 positions]; max_seq is a multiple of 32. A tile of keys is [dim][32 positions], so
 * that the scores of 16 positions are one vector; one of values is [32 positions][dim], rows filled up to whole vectors.
 * In KV_Q8 the elements are int8 with a half-precision scale for each 32 (or fewer) dims of a position; a tile's scales,
 * [block of dims][32 positions], lie behind its elements.
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
    return format == KV_F32 ? 4 : format == KV_F16 ? 2 : 1;
}

INLINE int64_t kv_tile_nbytes(int format, int head_dim)
{
    const int64_t n_scales = format == KV_Q8 ? (head_dim + KV_BLOCK - 1) / KV_BLOCK * KV_TILE : 0;
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
    return (_Float16 *)(tile + (int64_t)padded_dim(op->head_dim) * KV_TILE);
}

/* Write one head's x at a position of its tile; element i goes to i * stride + first. */
INLINE void kv_store(const struct op *op, uint8_t *tile, int position, int64_t stride, int64_t first, const float *x)
{
    const int dim = op->head_dim;
    if (op->kv_format == KV_F32)
        for (int i = 0; i < dim; i++)
            ((float *)tile)[i * stride + first] = x[i];
    else if (op->kv_format == KV_F16)
        for (int i = 0; i < dim; i++)
            ((_Float16 *)tile)[i * stride + first] = (_Float16)x[i];
    else
        for (int from = 0; from < dim; from += KV_BLOCK) {
            const int to = from + KV_BLOCK < dim ? from + KV_BLOCK : dim;
            float top = 0.0f, poison = 0.0f;
            for (int i = from; i < to; i++) {
                top = __builtin_fabsf(x[i]) > top ? __builtin_fabsf(x[i]) : top;
                poison += x[i] * 0.0f;
            }
            /* The scale that is kept, rounded as it is: what is not finite stays so. */
            const _Float16 scale = (_Float16)(top / 127.0f + poison);
            const float inverse = (float)scale > 0.0f ? 1.0f / (float)scale : 0.0f;
            kv_scales(op, tile)[from / KV_BLOCK * KV_TILE + position] = scale;
            for (int i = from; i < to; i++) {
                const float q = __builtin_rintf(x[i] * inverse);
                ((int8_t *)tile)[i * stride + first] = (int8_t)(q > 127.0f ? 127.0f : q > -127.0f ? q : -127.0f);
            }
        }
}

INLINE void kv_store_key(const struct op *op, uint8_t *tile, int position, const float *x)
{
    kv_store(op, tile, position, KV_TILE, position, x);
}

INLINE void kv_store_value(const struct op *op, uint8_t *tile, int position, const float *x)
{
    kv_store(op, tile, position, 1, (int64_t)position * padded_dim(op->head_dim), x);
}

INLINE f32x16 kv_load(int format, const uint8_t *tile, int64_t at)
{
    if (format == KV_F32)
        return load_f32x16(tile + at * 4);
    if (format == KV_F16)
        return load_f16_as_f32(tile + at * 2);
    return __builtin_convertvector(load_i8x16(tile + at), f32x16);
}

/* A tile of keys as floats, out[dim][32 positions]. */
INLINE void kv_unpack_keys(int format, const struct op *op, uint8_t *tile, float *out)
{
    for (int i = 0; i < op->head_dim; i++)
        for (int v = 0; v < KV_TILE_VECTORS; v++) {
            const int64_t at = i * KV_TILE + v * LANES;
            f32x16 x = kv_load(format, tile, at);
            if (format == KV_Q8)
                x *= load_f16_as_f32(kv_scales(op, tile) + i / KV_BLOCK * KV_TILE + v * LANES);
            store_f32x16(out + at, x);
        }
}

/* The values of positions [from, to) of a tile as floats, out[32 positions][padded dim]. */
INLINE void kv_unpack_values(int format, const struct op *op, uint8_t *tile, int from, int to, float *out)
{
    const int padded = padded_dim(op->head_dim);
    for (int t = from; t < to; t++)
        for (int i = 0; i < padded; i += LANES) {
            const int64_t at = (int64_t)t * padded + i;
            f32x16 x = kv_load(format, tile, at);
            if (format == KV_Q8)
                x *= splat((float)kv_scales(op, tile)[i / KV_BLOCK * KV_TILE + t]);
            store_f32x16(out + at, x);
        }
}
