/* The arithmetic of products with quantised weights: what a lane does with the integer sums of a tile, and in which order
 * an output's floats are added. Every kernel that multiplies goes by it, so that the bits are the same with one row and
 * with many, on every architecture.
 *
 * The integers of a part of a tile (the columns that share a scale) are summed exactly, in any order. Tile t is in strand
 * t % STRANDS; a strand adds up its tiles' parts in the order of the columns, the strands are added in their order.
 */
#pragma once

#include "activations.h"

enum { STRANDS = 16 };

/* value = d (q - offset) + m, of an output and a part. */
struct scale {
    float d, m;
};

constexpr bool adds_minimum(layout f)
{
    return f.scales == SCALES_DM || f.scales == SCALES_K || f.scales == SCALES_K16M;
}

/* Parts of a tile. */
template <layout F> constexpr int N_PARTS = F.scales == SCALES_K16 || F.scales == SCALES_K16M ? 2 : 1;

template <typename T, int N> using vector_of = T __attribute__((ext_vector_type(N)));

/* N elements at p, which is a multiple of their size. */
template <typename T, int N> INLINE vector_of<T, N> load_vector(const uint8_t *p)
{
    return *(const vector_of<T, N> *)p;
}

/* What there is in memory for the scales of N outputs: halves of the block or the tile, bytes of the parts. */
template <layout F, int N> struct packed_scales {
    vector_of<half, N> d, m;
    vector_of<uint8_t, N> parts[2]; /* of SCALES_K: the scales and the minima */
};

template <layout F, int N>
INLINE packed_scales<F, N> load_scales(const uint8_t *header, const uint8_t *tile, int output)
{
    const uint8_t *shared = (F.scales < SCALES_K ? tile : header) + 2 * output;
    packed_scales<F, N> out = {};
    out.d = load_vector<half, N>(shared);
    if constexpr (adds_minimum(F))
        out.m = load_vector<half, N>(shared + 2 * GROUP);
    if constexpr (F.scales >= SCALES_K)
        for (int part = 0; part < 2; part++)
            out.parts[part] = load_vector<uint8_t, N>(tile + GROUP * part + output);
    return out;
}

/* The scale of the i-th output for a part. */
template <layout F, int N> INLINE scale unpack_scale(const packed_scales<F, N> *from, int part, int i)
{
    const float d = (float)from->d[i], m = (float)from->m[i];
    if constexpr (F.scales == SCALES_K)
        return {d * (float)from->parts[0][i], m * (float)from->parts[1][i]};
    else if constexpr (F.scales == SCALES_K16)
        return {d * (float)(int8_t)from->parts[part][i], 0.0f};
    else if constexpr (F.scales == SCALES_K16M)
        return {d * (float)(from->parts[part] & (uint8_t)15)[i], m * (float)(from->parts[part] >> (uint8_t)4)[i]};
    else
        return {d, m};
}

/* Of the activations, for a part: the scale, the sum of q, and both multiplied. */
struct part_of_row {
    float d, whole;
    int sum;
};

INLINE part_of_row part_of(float d, int sum) { return {d, d * (float)sum, sum}; }

/* acc and the terms of a part, `sum` the sum of q w. */
template <layout F> INLINE float accumulate(float acc, scale w, part_of_row x, int sum)
{
    acc = fma_of(w.d * x.d, (float)(sum - F.offset * x.sum), acc);
    return adds_minimum(F) ? fma_of(w.m, x.whole, acc) : acc;
}
