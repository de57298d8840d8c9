/* How the keys and values of a layer lie in memory, by element type.
 *
 * Both are [slot][kv head][position], keys in tiles of 32 positions; max_seq is a multiple of 32, dim of 8. The elements of
 * a tile of keys lie as [dim / 8][32 positions][8], so that the threads of a wave, a position each, read one stretch of
 * memory. In q8 elements are int8 with a half-precision scale for each 32 (or fewer) dims of a position: the scales of a
 * tile of keys, [block of dims][32 positions], lie behind its elements, those of a value behind it.
 *
 * A type here says how many bytes a position takes, gives 8 neighbouring dims of a key or 4 of a value as floats, and
 * stores a head, for which all threads of the workgroup come together.
 */
#pragma once

#include "hip.h"

enum { KV_TILE = 32, KV_BLOCK = 32 };

typedef int8_t char4 __attribute__((ext_vector_type(4)));
typedef int8_t char8 __attribute__((ext_vector_type(8)));

/* Where a key's dim i lies in its tile, in elements. */
INLINE int key_at(int position, int i) { return (i / 8 * KV_TILE + position % KV_TILE) * 8 + i % 8; }

/* f32 and f16. */
template <typename T> struct plain_kv {
    typedef T vector8 __attribute__((ext_vector_type(8)));
    typedef T vector4 __attribute__((ext_vector_type(4)));

    INLINE int row_nbytes(int dim) { return dim * (int)sizeof(T); }

    INLINE float8 load_key(const uint8_t *tile, int, int position, int i)
    {
        return __builtin_convertvector(*(const vector8 *)((const T *)tile + key_at(position, i)), float8);
    }

    INLINE float4 load_value(const uint8_t *row, int, int i)
    {
        return __builtin_convertvector(*(const vector4 *)((const T *)row + i), float4);
    }

    template <int THREADS> INLINE void store_key(uint8_t *tile, int dim, int position, const float *x)
    {
        for (int i = thread(); i < dim; i += THREADS)
            ((T *)tile)[key_at(position, i)] = (T)x[i];
    }

    template <int THREADS> INLINE void store_value(uint8_t *row, int dim, const float *x)
    {
        for (int i = thread(); i < dim; i += THREADS)
            ((T *)row)[i] = (T)x[i];
    }
};

struct q8_kv {
    /* An element, and the scale of its block. */
    struct quantised {
        int8_t q;
        half scale;
    };

    /* In whole words, so that a value begins at one. */
    INLINE int row_nbytes(int dim) { return dim + ((dim + KV_BLOCK - 1) / KV_BLOCK + 1) / 2 * 4; }

    INLINE half *key_scale(uint8_t *tile, int dim, int position, int i)
    {
        return (half *)(tile + KV_TILE * dim) + i / KV_BLOCK * KV_TILE + position % KV_TILE;
    }

    INLINE half *value_scale(uint8_t *row, int dim, int i) { return (half *)(row + dim) + i / KV_BLOCK; }

    INLINE float8 load_key(const uint8_t *tile, int dim, int position, int i)
    {
        const char8 q = *(const char8 *)(tile + key_at(position, i));
        return __builtin_convertvector(q, float8) * (float)*key_scale((uint8_t *)tile, dim, position, i);
    }

    INLINE float4 load_value(const uint8_t *row, int dim, int i)
    {
        const char4 q = *(const char4 *)(row + i);
        return __builtin_convertvector(q, float4) * (float)*value_scale((uint8_t *)row, dim, i);
    }

    /* Element i of x, whose block has its elements in 32 neighbouring threads. */
    INLINE quantised quantise(const float *x, int dim, int i)
    {
        const float value = i < dim ? x[i] : 0.0f;
        /* The bits of absolute values compare as they do, and what is not finite is above all others: it stays so. */
        uint32_t top = __builtin_bit_cast(uint32_t, value) & 0x7fffffffu;
        top = max_of(top, from_lane_xor<1>(top));
        top = max_of(top, from_lane_xor<2>(top));
        top = max_of(top, from_lane_xor<7>(top));
        top = max_of(top, from_lane_xor<15>(top));
        top = max_of(top, from_lane_xor<16>(top));
        const half scale = (half)(__builtin_bit_cast(float, top) / 127.0f);
        const float inverse = (float)scale > 0.0f ? 1.0f / (float)scale : 0.0f;
        const float q = __builtin_rintf(value * inverse);
        return {(int8_t)(q > 127.0f ? 127.0f : q > -127.0f ? q : -127.0f), scale};
    }

    template <int THREADS> INLINE void store_key(uint8_t *tile, int dim, int position, const float *x)
    {
        for (int first = 0; first < dim; first += THREADS) {
            const int i = first + thread();
            const quantised y = quantise(x, dim, i);
            if (i < dim) {
                ((int8_t *)tile)[key_at(position, i)] = y.q;
                if (i % KV_BLOCK == 0)
                    *key_scale(tile, dim, position, i) = y.scale;
            }
        }
    }

    template <int THREADS> INLINE void store_value(uint8_t *row, int dim, const float *x)
    {
        for (int first = 0; first < dim; first += THREADS) {
            const int i = first + thread();
            const quantised y = quantise(x, dim, i);
            if (i < dim) {
                ((int8_t *)row)[i] = y.q;
                if (i % KV_BLOCK == 0)
                    *value_scale(row, dim, i) = y.scale;
            }
        }
    }
};

/* One row a type of state: its name, what it is. */
#define KV_TYPES(ROW) ROW(f32, plain_kv<float>) ROW(f16, plain_kv<half>) ROW(q8, q8_kv)
