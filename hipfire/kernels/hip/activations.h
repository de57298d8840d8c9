/* Activations as integers of 16 bits, for the linear kernels of the quantised formats.
 *
 * By tiles of 32 columns: d = max |x| (1 / 32512), q = x / d to the nearest, q = 256 hi + lo with hi and lo in signed bytes,
 * so that integer dot products of bytes give the exact sums of w q. With 8 bits the rounding of outliers' neighbours
 * shows in the answers.
 *
 * A tile with an infinity or a NaN has a d that is one, and no q: whatever it is multiplied with becomes NaN, so that
 * it cannot vanish unseen.
 */
#pragma once

#include "hip.h"

enum { LARGEST_Q = 32512 };

/* A tile of a row; a row's tiles follow each other, the rows do too. */
struct alignas(16) activations {
    uint32_t hi[8], lo[8]; /* word j: columns 4 j .. 4 j + 3 */
    float d;
    int32_t sums[2], whole; /* of the q of columns 0..15 and 16..31, and of all: the minima of weights are multiplied with them */
};

/* Four floats at any float's address. */
typedef float any_float4 __attribute__((ext_vector_type(4), aligned(4)));

/* Columns i .. i + 3 of a row of n; zeros beyond its end. */
INLINE float4 load_quad(const float *row, int i, int n)
{
    if (i + 4 <= n)
        return *(const any_float4 *)(row + i);
    float4 x = {};
    for (int k = 0; k < 4; k++)
        if (i + k < n)
            x[k] = row[i + k];
    return x;
}

INLINE void store_quad(float *row, int i, int n, float4 x)
{
    if (i + 4 <= n) {
        *(any_float4 *)(row + i) = x;
        return;
    }
    for (int k = 0; k < 4; k++)
        if (i + k < n)
            row[i + k] = x[k];
}

/* A tile's largest |x| as a part of LARGEST_Q; 0 where its reciprocal would not be finite. */
INLINE float tile_scale(float4 x)
{
    /* As integers, magnitudes are ordered as they are as floats, infinity and NaN above all. */
    const uint4 bits = __builtin_bit_cast(uint4, x) & 0x7fffffffu;
    uint32_t top = max_of(max_of(bits[0], bits[1]), max_of(bits[2], bits[3]));
    top = max_of(top, from_lane_xor<1>(top));
    top = max_of(top, from_lane_xor<2>(top));
    top = max_of(top, from_lane_xor<7>(top));
    const float d = __builtin_bit_cast(float, top) * (1.0f / (float)LARGEST_Q);
    return d < 0x1p-126f ? 0.0f : d;
}

INLINE uint32_t bytes_of(int4 q)
{
    return (uint32_t)(q[0] & 255) | (uint32_t)(q[1] & 255) << 8 | (uint32_t)(q[2] & 255) << 16 | (uint32_t)q[3] << 24;
}

/* Eight neighbouring threads together: thread j of them has columns 4 j .. 4 j + 3 of the tile. All threads of the
 * workgroup come here; those that are not `inside` store nothing. */
INLINE void quantise_quad(activations *tile, int j, float4 x, bool inside)
{
    const float d = tile_scale(x);
    int4 q = {};
    if (d > 0.0f && d < __builtin_inff()) {
        const float inverse = 1.0f / d;
        for (int k = 0; k < 4; k++)
            q[k] = (int)__builtin_rintf(x[k] * inverse);
    }
    const int4 lo = q << 24 >> 24;
    int sum = q[0] + q[1] + (q[2] + q[3]);
    sum += from_lane_xor<1>(sum);
    sum += from_lane_xor<2>(sum);
    const int other = from_lane_xor<7>(sum);
    if (!inside)
        return;
    tile->hi[j] = bytes_of((q - lo) >> 8);
    tile->lo[j] = bytes_of(lo);
    if (j == 0) {
        tile->d = d;
        tile->sums[0] = sum;
        tile->sums[1] = other;
        tile->whole = sum + other;
    }
}

/* Columns i .. i + 3 of one of the rows of n, as floats, as integers, or both: null where nobody reads them. n is a multiple
 * of 32 where it is integers. All threads of the workgroup come here, each with the quad after its neighbour's. */
INLINE void put_quad(float *out, activations *out_q16, int64_t row, int i, int n, float4 x)
{
    if (out)
        store_quad(out + row * n, i, n, x);
    if (out_q16)
        quantise_quad(out_q16 + (row * n + i) / TILE_COLUMNS, i / 4 % 8, x, i < n);
}
