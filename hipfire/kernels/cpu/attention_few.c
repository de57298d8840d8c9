/* Integer attention of a few queries, such as those of one token: the positions of a tile are the lanes of two vectors,
 * then the dims are. Each operation is that of attention_integer.c, where queries are the lanes. */
#include "attention_integer.h"

enum { TOGETHER = 4 /* queries that share the loads of a tile */ };

/* One query's part of a tile. */
struct weights {
    f32x16 of[KV_TILE_VECTORS]; /* scores, then weights */
    i32x16 seen[KV_TILE_VECTORS];
};

/* The scores of n queries from lane `lane` on. */
INLINE void score(const struct op *op, const struct lanes *lanes, int lane, int n, const struct tile_view *tile,
                  struct weights *out)
{
    const int dim = op->head_dim, padded = padded_dim(dim);
    for (int v = 0; v < KV_TILE_VECTORS; v++) {
        f32x16 acc[TOGETHER];
        for (int r = 0; r < n; r++)
            acc[r] = splat(0.0f);
        for (int from = 0; from < dim; from += KV_BLOCK) {
            i32x16 sums[TOGETHER];
            for (int r = 0; r < n; r++)
                sums[r] = (i32x16){0};
            for (int i = from; i < from + block_dim(dim, from); i += 2) {
                const i16x32 keys = load_i16x32(tile->keys + i * KV_TILE + v * 2 * LANES);
                for (int r = 0; r < n; r++)
                    sums[r] = add_dot(sums[r], keys, splat_pair(lanes->q + (lane + r) * padded + i));
            }
            const f32x16 scales = load_f32x16(tile->key_scales + from / KV_BLOCK * KV_TILE + v * LANES);
            for (int r = 0; r < n; r++)
                acc[r] = fma16(__builtin_convertvector(sums[r], f32x16), scales, acc[r]);
        }
        for (int r = 0; r < n; r++)
            out[r].of[v] = acc[r] * splat(lanes->unit[lane + r]);
    }
}

/* Turn a query's scores into weights relative to the largest, which is returned. */
INLINE float soften(struct weights *weights, int64_t begin, int64_t end)
{
    const i32x16 position = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    f32x16 top = MINUS_INFINITY;
    for (int v = 0; v < KV_TILE_VECTORS; v++) {
        const i32x16 from_here = position + v * LANES;
        weights->seen[v] = (from_here >= (int32_t)begin) & (from_here < (int32_t)end);
        weights->of[v] = choose(weights->seen[v], weights->of[v], MINUS_INFINITY);
        top = larger(weights->of[v], top);
    }
    const float largest = largest_lane(top);
    for (int v = 0; v < KV_TILE_VECTORS; v++)
        weights->of[v] = choose(weights->seen[v], power(weights->of[v] - splat(largest)), splat(0.0f));
    return largest;
}

/* The weights as integers, for the block of dims that has these scales; returns the unit of their products. */
INLINE float round_weights(const struct weights *weights, const float *scales, float unit, float share, int16_t *out)
{
    f32x16 seen[KV_TILE_VECTORS];
    for (int v = 0; v < KV_TILE_VECTORS; v++)
        seen[v] = choose(weights->seen[v], load_f32x16(scales + v * LANES), splat(0.0f));
    const float top = largest_lane(larger(seen[0], seen[1])) + sum_lanes(seen[0] * splat(0.0f) + seen[1] * splat(0.0f));
    const f32x16 inverse = inverse_of_top(splat(top));
    for (int v = 0; v < KV_TILE_VECTORS; v++) {
        const i32x16 q = rounded_product(weights->of[v], seen[v] * inverse);
        store_i16x16(out + v * LANES, __builtin_convertvector(q, i16x16));
    }
    return top * (unit / (float)LARGEST) * share;
}

/* out = out * shares.earlier + weights @ values * shares.tile. */
INLINE void add_values(const struct op *op, const struct lanes *lanes, int lane, int n, const struct tile_view *tile,
                       const struct weights *weights, struct shares shares)
{
    const int padded = padded_dim(op->head_dim);
    _Alignas(64) int16_t rounded[TOGETHER][KV_TILE];
    float units[TOGETHER];
    for (int i = 0; i < padded; i += LANES) {
        if (i % KV_BLOCK == 0)
            for (int r = 0; r < n; r++)
                units[r] = round_weights(weights + r, tile->value_scales + i / KV_BLOCK * KV_TILE, kv_unit(op->kv_format),
                                         shares.tile[lane + r], rounded[r]);
        i32x16 sums[TOGETHER];
        for (int r = 0; r < n; r++)
            sums[r] = (i32x16){0};
        UNROLL
        for (int t = 0; t < KV_TILE; t += 2) {
            const i16x32 values = load_i16x32(tile->values + (int64_t)t * padded + 2 * i);
            for (int r = 0; r < n; r++)
                sums[r] = add_dot(sums[r], values, splat_pair(rounded[r] + t));
        }
        for (int r = 0; r < n; r++) {
            float *out = lanes->out + (lane + r) * padded + i;
            const f32x16 earlier = load_f32x16(out) * splat(shares.earlier[lane + r]);
            store_f32x16(out, fma16(__builtin_convertvector(sums[r], f32x16), splat(units[r]), earlier));
        }
    }
}

/* Call it with n known to the compiler. */
#define WITH_KNOWN(n, call) \
    switch (n) {            \
    case 1:                 \
        call(1);            \
        break;              \
    case 2:                 \
        call(2);            \
        break;              \
    case 3:                 \
        call(3);            \
        break;              \
    default:                \
        call(TOGETHER);     \
    }

void attend_few(const struct op *op, struct lanes *lanes, const struct tile_view *tile)
{
    struct weights weights[FEW];
    f32x16 tops = MINUS_INFINITY, sums = splat(0.0f);
#define SCORE(n) score(op, lanes, lane, n, tile, weights + lane)
#define ADD_VALUES(n) add_values(op, lanes, lane, n, tile, weights + lane, shares)
    for (int lane = 0; lane < lanes->n; lane += TOGETHER)
        WITH_KNOWN(lanes->n - lane, SCORE)
    for (int lane = 0; lane < lanes->n; lane++) {
        tops[lane] = soften(weights + lane, lanes->begin[lane] - tile->first, lanes->end[lane] - tile->first);
        sums[lane] = sum_lanes(weights[lane].of[0] + weights[lane].of[1]);
    }
    const struct shares shares = merge(lanes, tops, sums);
    for (int lane = 0; lane < lanes->n; lane += TOGETHER)
        WITH_KNOWN(lanes->n - lane, ADD_VALUES)
#undef SCORE
#undef ADD_VALUES
}
