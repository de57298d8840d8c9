/* Attention to keys and values that are integers (KV_Q16, KV_Q8), by integer dot products.
 *
 * 16 queries are the lanes of a vector, so a softmax needs no sum or maximum across lanes; a few queries take the other
 * kernel (attention_few.c), which does the same operations and so has the same bits. Queries become integers of 14
 * bits with one scale each. The softmax's weights of a tile become integers of 14 bits relative to the tile's own
 * largest, times the values' scales, which differ by position: the sum over a tile's positions is exact, and is added to
 * those of the earlier tiles in float32. What a query does not see has a weight of 0, and no integer is infinite or NaN;
 * scales are, where a key or value was no number, and make the result so.
 *
 * 32 products of two integers below 2**13 and their sum fit in 32 bits. That bounds both dims and positions that are
 * added up at a time.
 */
#include "attention_integer.h"

enum {
#if defined(__AVX512F__)
    SUMS_AT_ONCE = 16, /* positions or dims that share the loads of the queries or weights */
#else
    SUMS_AT_ONCE = 4,
#endif
    MAX_GROUPS = MAX_QUERIES / LANES,
};

#define LOG2_E 1.44269504088896341f

/* Where a work item's things lie in a thread's scratch. */
struct places {
    int16_t *keys, *values, *q;
    float *key_scales, *value_scales, *value_factors, *value_tops, *out;
    int64_t nbytes;
};

static struct places places_in(uint8_t *scratch, int head_dim)
{
    const int64_t padded = padded_dim(head_dim), n_scales = (int64_t)kv_n_blocks(head_dim) * KV_TILE;
    struct places at;
    int64_t used = 0;
#define PLACE(name, n)                                          \
    at.name = (void *)(scratch + used);                         \
    used += ((int64_t)sizeof *at.name * (n) + 63) / 64 * 64
    PLACE(keys, padded * KV_TILE);
    PLACE(values, padded * KV_TILE);
    PLACE(q, padded * MAX_QUERIES);
    PLACE(key_scales, n_scales);
    PLACE(value_scales, n_scales);
    PLACE(value_factors, n_scales);
    PLACE(value_tops, n_scales / KV_TILE);
    PLACE(out, padded * MAX_QUERIES);
#undef PLACE
    at.nbytes = used;
    return at;
}

int64_t integer_scratch_nbytes(int head_dim)
{
    return places_in(NULL, head_dim).nbytes;
}

/* One lane's query: q as integers, 2 dims side by side. A query that is no number gets a unit that is none. */
static void load_query(const struct op *op, struct lanes *lanes, int lane, const float *q)
{
    float top = 0.0f, poison = 0.0f;
    for (int i = 0; i < op->head_dim; i++) {
        top = __builtin_fabsf(q[i]) > top ? __builtin_fabsf(q[i]) : top;
        poison += q[i] * 0.0f;
    }
    const float inverse = top > 1e-30f ? (float)LARGEST / top : 0.0f;
    const int padded = padded_dim(op->head_dim);
    for (int i = 0; i < op->head_dim; i++)
        lanes->q[lanes->n <= FEW ? lane * padded + i : (i / 2 * LANES + lane) * 2 + i % 2] = (int16_t)__builtin_rintf(poison == 0.0f ? q[i] * inverse : 0.0f);
    lanes->unit[lane] = (top / (float)LARGEST + poison) * (op->scale * LOG2_E * kv_unit(op->kv_format));
}

/* The scales of a whole tile's values in the form in which weights are multiplied with them. */
static void relate_scales(const float *scales, int n_blocks, float *factors, float *tops)
{
    for (int b = 0; b < n_blocks; b++, scales += KV_TILE, factors += KV_TILE) {
        const f32x16 v[KV_TILE_VECTORS] = {load_f32x16(scales), load_f32x16(scales + LANES)};
        tops[b] = largest_lane(larger(v[0], v[1])) + sum_lanes(v[0] * splat(0.0f) + v[1] * splat(0.0f));
        const f32x16 inverse = inverse_of_top(splat(tops[b]));
        for (int i = 0; i < KV_TILE_VECTORS; i++)
            store_f32x16(factors + i * LANES, v[i] * inverse);
    }
}

static struct tile_view view_tile(const struct op *op, int64_t slot, int kv_head, int64_t first, struct places *at)
{
    uint8_t *keys = kv_tile_at(op, op->keys, slot, kv_head, first), *values = kv_tile_at(op, op->values, slot, kv_head, first);
    const int n_blocks = kv_n_blocks(op->head_dim);
    struct tile_view view = {(const int16_t *)keys, (const int16_t *)values, at->key_scales, at->value_scales,
                             at->value_factors, at->value_tops, first};
    if (op->kv_format == KV_Q8) {
        const int n = padded_dim(op->head_dim) * KV_TILE;
        for (int i = 0; i < n; i += LANES) {
            store_i16x16(at->keys + i, __builtin_convertvector(load_i8x16(keys + i), i16x16));
            store_i16x16(at->values + i, __builtin_convertvector(load_i8x16(values + i), i16x16));
        }
        view.keys = at->keys;
        view.values = at->values;
    }
    for (int i = 0; i < n_blocks * KV_TILE; i += LANES) {
        store_f32x16(at->key_scales + i, load_f16_as_f32(kv_scales(op, keys) + i));
        store_f32x16(at->value_scales + i, load_f16_as_f32(kv_scales(op, values) + i));
    }
    relate_scales(at->value_scales, n_blocks, at->value_factors, at->value_tops);
    return view;
}

/* A few queries are through with a tile before the hardware's prefetchers have seen what they ask for. */
static void prefetch_tile(const struct op *op, int64_t slot, int kv_head, int64_t first)
{
    const uint8_t *keys = kv_tile_at(op, op->keys, slot, kv_head, first), *values = kv_tile_at(op, op->values, slot, kv_head, first);
    const int64_t nbytes = kv_tile_nbytes(op->kv_format, op->head_dim);
    for (int64_t line = 0; line < nbytes; line += 64) {
        __builtin_prefetch(keys + line);
        __builtin_prefetch(values + line);
    }
}

/* Whether each lane sees position `t` of a tile. */
INLINE i32x16 sees(const struct lanes *lanes, const struct tile_view *tile, int t)
{
    const int32_t position = (int32_t)tile->first + t;
    return (lanes->begin <= position) & (lanes->end > position);
}

/* sums[i] = the dot products of n pairs, the lanes' own and those at pairs + i, which are `stride` pairs apart. */
INLINE void add_pairs(i32x16 *sums, const int16_t *lanes, const int16_t *pairs, int64_t stride, int n)
{
    UNROLL
    for (int i = 0; i < SUMS_AT_ONCE; i++)
        sums[i] = (i32x16){0};
    for (int j = 0; j < n; j++, lanes += 2 * LANES, pairs += 2 * stride) {
        const i16x32 own = load_i16x32(lanes);
        UNROLL
        for (int i = 0; i < SUMS_AT_ONCE; i++)
            sums[i] = add_dot(sums[i], splat_pair(pairs + 2 * i), own);
    }
}

/* scores[t] = the lanes' scores of the tile's position t, in powers of two. */
INLINE void score(const struct lanes *lanes, const struct tile_view *tile, int head_dim, f32x16 *scores)
{
    for (int t = 0; t < KV_TILE; t += SUMS_AT_ONCE) {
        f32x16 acc[SUMS_AT_ONCE];
        UNROLL
        for (int i = 0; i < SUMS_AT_ONCE; i++)
            acc[i] = splat(0.0f);
        for (int from = 0; from < head_dim; from += KV_BLOCK) {
            i32x16 sums[SUMS_AT_ONCE];
            add_pairs(sums, lanes->q + from * LANES, tile->keys + from * KV_TILE + 2 * t, KV_TILE,
                      (block_dim(head_dim, from) + 1) / 2);
            const float *scales = tile->key_scales + from / KV_BLOCK * KV_TILE + t;
            UNROLL
            for (int i = 0; i < SUMS_AT_ONCE; i++)
                acc[i] = fma16(__builtin_convertvector(sums[i], f32x16), splat(scales[i]), acc[i]);
        }
        UNROLL
        for (int i = 0; i < SUMS_AT_ONCE; i++)
            scores[t + i] = acc[i] * lanes->unit;
    }
}

INLINE f32x16 sum_of_tile(const f32x16 *v)
{
    f32x16 sum[KV_TILE / 2];
    UNROLL
    for (int i = 0; i < KV_TILE / 2; i++)
        sum[i] = v[i] + v[i + KV_TILE / 2];
    UNROLL
    for (int n = KV_TILE / 4; n > 0; n /= 2) {
        UNROLL
        for (int i = 0; i < n; i++)
            sum[i] += sum[i + n];
    }
    return sum[0];
}

/* Turn scores into weights relative to the tile's largest. */
INLINE struct shares soften(struct lanes *lanes, const struct tile_view *tile, bool sees_all, f32x16 *scores)
{
    f32x16 top = MINUS_INFINITY;
    for (int t = 0; t < KV_TILE; t++) {
        if (!sees_all)
            scores[t] = choose(sees(lanes, tile, t), scores[t], MINUS_INFINITY);
        top = larger(scores[t], top);
    }
    for (int t = 0; t < KV_TILE; t++) {
        scores[t] = power(scores[t] - top);
        if (!sees_all)
            scores[t] = choose(sees(lanes, tile, t), scores[t], splat(0.0f));
    }
    return merge(lanes, top, sum_of_tile(scores));
}

/* The largest scale of a block of values that each lane sees; NaN where one of these is no number. */
INLINE f32x16 largest_seen(const struct lanes *lanes, const struct tile_view *tile, const float *scales)
{
    f32x16 top = splat(0.0f), poison = splat(0.0f);
    for (int t = 0; t < KV_TILE; t++) {
        const f32x16 scale = choose(sees(lanes, tile, t), splat(scales[t]), splat(0.0f));
        top = larger(scale, top);
        poison += scale * splat(0.0f);
    }
    return top + poison;
}

/* Weights as integers, pairs of positions side by side. What each is multiplied with is the same in all lanes where these
 * see the whole tile. Of a position that a lane does not see the scale may be no number. */
INLINE void round_weights(const struct lanes *lanes, const struct tile_view *tile, bool sees_all, int block,
                          f32x16 inverse, const f32x16 *weights, int16_t *out)
{
    const float *scales = tile->value_scales + block * KV_TILE, *factors = tile->value_factors + block * KV_TILE;
    for (int t = 0; t < KV_TILE; t += 2) {
        i32x16 q[2];
        UNROLL
        for (int i = 0; i < 2; i++) {
            f32x16 factor = splat(factors[t + i]);
            if (!sees_all)
                factor = choose(sees(lanes, tile, t + i), splat(scales[t + i]) * inverse, splat(0.0f));
            q[i] = rounded_product(weights[t + i], factor);
        }
        store_i32x16(out + t * LANES, (q[0] & 0xffff) | (q[1] << 16));
    }
}

/* out = out * shares.earlier + weights @ values * shares.tile. */
INLINE void add_values(struct lanes *lanes, const struct tile_view *tile, bool sees_all, const struct op *op,
                       const f32x16 *weights, struct shares shares)
{
    const int padded = padded_dim(op->head_dim);
    _Alignas(64) int16_t rounded[KV_TILE * LANES];
    for (int from = 0; from < padded; from += KV_BLOCK) {
        const int b = from / KV_BLOCK, to = from + KV_BLOCK < padded ? from + KV_BLOCK : padded;
        f32x16 top = splat(tile->value_tops[b]), inverse = splat(0.0f);
        if (!sees_all) {
            top = largest_seen(lanes, tile, tile->value_scales + b * KV_TILE);
            inverse = inverse_of_top(top);
        }
        round_weights(lanes, tile, sees_all, b, inverse, weights, rounded);
        const f32x16 unit = top * splat(kv_unit(op->kv_format) / (float)LARGEST) * shares.tile;
        for (int i = from; i < to; i += SUMS_AT_ONCE) {
            i32x16 sums[SUMS_AT_ONCE];
            add_pairs(sums, rounded, tile->values + 2 * i, padded, KV_TILE / 2);
            UNROLL
            for (int k = 0; k < SUMS_AT_ONCE; k++) {
                float *out = lanes->out + (i + k) * LANES;
                store_f32x16(out, fma16(__builtin_convertvector(sums[k], f32x16), unit, load_f32x16(out) * shares.earlier));
            }
        }
    }
}

INLINE void attend_tile(const struct op *op, struct lanes *lanes, const struct tile_view *tile, bool sees_all)
{
    f32x16 weights[KV_TILE];
    score(lanes, tile, op->head_dim, weights);
    const struct shares shares = soften(lanes, tile, sees_all, weights);
    add_values(lanes, tile, sees_all, op, weights, shares);
}

/* Separate, so that each becomes one stretch of code. */
static void attend_whole_tile(const struct op *op, struct lanes *lanes, const struct tile_view *tile)
{
    attend_tile(op, lanes, tile, true);
}

static void attend_part_of_tile(const struct op *op, struct lanes *lanes, const struct tile_view *tile)
{
    attend_tile(op, lanes, tile, false);
}

/* Queries number [first, n) of a work item, at most 16. */
static struct lanes open_lanes(const struct op *op, const struct step *step, const struct queries_of *item, int first,
                               const struct places *at)
{
    const int padded = padded_dim(op->head_dim), n = (int)(item->end - item->row) * item->n_heads;
    struct lanes lanes = {.n = n - first < LANES ? n - first : LANES, .q = at->q + first * padded, .out = at->out + first * padded, .largest = MINUS_INFINITY};
    memset(lanes.q, 0, (size_t)padded * LANES * sizeof *lanes.q);
    memset(lanes.out, 0, (size_t)padded * LANES * sizeof *lanes.out);
    for (int lane = 0; lane < LANES; lane++) {
        /* A lane too many sees what the last query sees. */
        const int i = first + lane < n ? first + lane : n - 1;
        const int64_t row = item->row + i / item->n_heads, position = step->positions[row];
        lanes.begin[lane] = (int32_t)first_seen(op, position);
        lanes.end[lane] = (int32_t)position + 1;
        if (first + lane < n)
            load_query(op, &lanes, lane, op->x + row * op->width_in + (item->head + i % item->n_heads) * op->head_dim);
    }
    return lanes;
}

static void close_lanes(const struct op *op, const struct queries_of *item, int first, const struct lanes *lanes)
{
    const int n = (int)(item->end - item->row) * item->n_heads;
    const int padded = padded_dim(op->head_dim);
    const f32x16 inverse = splat(1.0f) / lanes->sum;
    for (int i = first; i < n && i < first + LANES; i++) {
        const int lane = i - first;
        float *result = op->out + (item->row + i / item->n_heads) * op->width_out + (item->head + i % item->n_heads) * op->head_dim;
        for (int e = 0; e < op->head_dim; e++)
            result[e] = lanes->out[lanes->n <= FEW ? lane * padded + e : e * LANES + lane] * inverse[lane];
    }
}

/* The lanes are in the order of their rows: the first sees the earliest positions, the last the latest. */
static void attend_lanes(const struct op *op, struct lanes *lanes, const struct tile_view *tile)
{
    const int64_t first = tile->first, end = first + KV_TILE;
    if (lanes->end[LANES - 1] <= first || lanes->begin[0] >= end)
        return;
    if (lanes->n <= FEW)
        attend_few(op, lanes, tile);
    else if (lanes->begin[LANES - 1] <= first && lanes->end[0] >= end)
        attend_whole_tile(op, lanes, tile);
    else
        attend_part_of_tile(op, lanes, tile);
}

void attend_to_integers(const struct op *op, const struct step *step, const struct queries_of *item, uint8_t *scratch)
{
    struct places at = places_in(scratch, op->head_dim);
    const int n = (int)(item->end - item->row) * item->n_heads, kv_head = item->head / (op->n_heads / op->n_kv_heads);
    struct lanes lanes[MAX_GROUPS];
    for (int i = 0; i < n; i += LANES)
        lanes[i / LANES] = open_lanes(op, step, item, i, &at);
    const int64_t begin = first_seen(op, step->positions[item->row]), end = step->positions[item->end - 1] + 1;
    for (int64_t first = begin / KV_TILE * KV_TILE; first < end; first += KV_TILE) {
        if (first + KV_TILE < end)
            prefetch_tile(op, step->slots[item->row], kv_head, first + KV_TILE);
        const struct tile_view tile = view_tile(op, step->slots[item->row], kv_head, first, &at);
        for (int i = 0; i < n; i += LANES)
            attend_lanes(op, lanes + i / LANES, &tile);
    }
    for (int i = 0; i < n; i += LANES)
        close_lanes(op, item, i, lanes + i / LANES);
}
