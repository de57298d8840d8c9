/* What the two kernels of integer attention have in common: queries in the lanes of vectors, and what they attend to. */
#pragma once

#include "attention.h"
#include "kv.h"

enum {
    LARGEST = 8191, /* of queries and weights as integers */
    FEW = 8,        /* queries that are better off one by one */
};

#define MINUS_INFINITY splat(-__builtin_inff())

/* 16 queries, or fewer and some lanes that nobody looks at. */
struct lanes {
    int n;
    int16_t *q;        /* [pairs of dims][lane][2], or of a few [lane][padded dim]; in scratch, as is: */
    float *out;        /* [padded dim][lane], or [lane][padded dim]: the weighted sum of values so far */
    i32x16 begin, end; /* the positions that each sees */
    f32x16 unit;       /* what a score is in units of, in powers of two */
    f32x16 largest;    /* score so far */
    f32x16 sum;        /* of the weights */
};

/* A tile's keys and values, widened where they have 8 bits. Scales are [block of dims][position]. */
struct tile_view {
    const int16_t *keys;   /* [pairs of dims][position][2] */
    const int16_t *values; /* [pairs of positions][padded dim][2] */
    const float *key_scales, *value_scales;
    const float *value_factors; /* value_scales over the block's largest, times LARGEST */
    const float *value_tops;    /* [block of dims]: the largest of value_scales, NaN where one is no number */
    int64_t first;              /* position */
};

/* What a tile's weights and the sums so far are multiplied with, to be relative to one maximum. */
struct shares {
    f32x16 tile, earlier;
};

/* 2**x for x <= 0, off by up to 3e-6 of it, 1 at 0: the fraction's power by a polynomial (a minimax fit), the whole part
 * added to its exponent. x is clamped to where the result is a normal float. */
INLINE f32x16 power(f32x16 x)
{
    const f32x16 magic = splat(12582912.0f); /* 1.5 * 2**23: the sum's low bits are the nearest integer's */
    x = choose(x < splat(-126.0f), splat(-126.0f), x);
    const f32x16 shifted = x + magic, r = x - (shifted - magic);
    f32x16 p = splat(9.5828531e-3f);
    p = fma16(p, r, splat(5.5906427e-2f));
    p = fma16(p, r, splat(2.4024099e-1f));
    p = fma16(p, r, splat(6.9312419e-1f));
    p = fma16(p, r, splat(1.0f));
    return (f32x16)((i32x16)p + ((i32x16)shifted << 23));
}

INLINE int block_dim(int head_dim, int from)
{
    return head_dim - from < KV_BLOCK ? head_dim - from : KV_BLOCK;
}

/* What weights times scales are multiplied with to be integers. */
INLINE f32x16 inverse_of_top(f32x16 top)
{
    return choose(top > splat(0.0f), splat((float)LARGEST) / top, splat(0.0f));
}

/* The sum's low 16 bits are the integer nearest to x y, which is below 2**15. */
INLINE i32x16 rounded_product(f32x16 x, f32x16 y)
{
    return (i32x16)fma16(x, y, splat(12582912.0f)); /* 1.5 * 2**23 */
}

/* Take a tile's largest scores and sums of weights into those of the lanes. */
INLINE struct shares merge(struct lanes *lanes, f32x16 top, f32x16 sum)
{
    const f32x16 largest = larger(top, lanes->largest), none = MINUS_INFINITY;
    const struct shares shares = {
        choose(top == none, splat(0.0f), power(top - largest)),
        choose(lanes->largest == none, splat(0.0f), power(lanes->largest - largest)),
    };
    lanes->largest = largest;
    lanes->sum = fma16(sum, shares.tile, lanes->sum * shares.earlier);
    return shares;
}

/* A few queries, one after the other: lanes are positions, then dims. */
void attend_few(const struct op *op, struct lanes *lanes, const struct tile_view *tile);
