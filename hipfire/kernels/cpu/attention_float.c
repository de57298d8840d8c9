/* Attention to keys and values that are floats (KV_F32, KV_F16): a tile is turned into float32 once for all queries. */
#include "attention.h"
#include "kv.h"

enum {
#if defined(__AVX512F__)
    QUERIES_AT_ONCE = 8, /* that share the loads of a tile, and vectors of its 32 positions or of the dims: */
    VECTORS_AT_ONCE = 2, /* as many sums as the registers hold */
#else
    QUERIES_AT_ONCE = 4,
    VECTORS_AT_ONCE = 1,
#endif
};

int64_t float_scratch_nbytes(int head_dim)
{
    return (int64_t)sizeof(float) * padded_dim(head_dim) * (2 * KV_TILE + MAX_QUERIES);
}

/* The positions of a tile that a query sees: [from, to), empty where it sees none. */
struct span {
    int from, to;
};

struct query {
    const float *q;
    float *out;         /* the weighted sum of values so far, in scratch */
    int64_t begin, end; /* the positions that it sees */
    float largest;      /* score so far */
    f32x16 sum;         /* of the weights, by lane; added up at the end */
};

/* scores[r] = the queries' products with the 32 keys[dim][32]. */
INLINE void score(const struct query *queries, int n, const float *keys, int dim, f32x16 scores[][KV_TILE_VECTORS])
{
    for (int v = 0; v < KV_TILE_VECTORS; v += VECTORS_AT_ONCE) {
        f32x16 acc[QUERIES_AT_ONCE][VECTORS_AT_ONCE];
        for (int r = 0; r < n; r++)
            for (int c = 0; c < VECTORS_AT_ONCE; c++)
                acc[r][c] = splat(0.0f);
        for (int i = 0; i < dim; i++) {
            f32x16 key[VECTORS_AT_ONCE];
            for (int c = 0; c < VECTORS_AT_ONCE; c++)
                key[c] = load_f32x16(keys + i * KV_TILE + (v + c) * LANES);
            for (int r = 0; r < n; r++)
                for (int c = 0; c < VECTORS_AT_ONCE; c++)
                    acc[r][c] = fma16(splat(queries[r].q[i]), key[c], acc[r][c]);
        }
        for (int r = 0; r < n; r++)
            for (int c = 0; c < VECTORS_AT_ONCE; c++)
                scores[r][v + c] = acc[r][c];
    }
}

/* Turn a query's scores of a tile, of which it sees a part, into weights; return what the earlier weights must be
 * multiplied with. */
INLINE float soften(struct query *query, f32x16 *scores, float scale, struct span seen)
{
    const i32x16 lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const bool sees_all = seen.from == 0 && seen.to == KV_TILE;
    i32x16 is_seen[KV_TILE_VECTORS];
    f32x16 top = splat(query->largest);
    for (int v = 0; v < KV_TILE_VECTORS; v++) {
        scores[v] *= splat(scale);
        if (!sees_all) {
            is_seen[v] = (lane + v * LANES >= seen.from) & (lane + v * LANES < seen.to);
            scores[v] = choose(is_seen[v], scores[v], splat(-__builtin_inff()));
        }
        top = larger(scores[v], top);
    }
    const float largest = largest_lane(top);
    float shrink = 1.0f;
    if (largest != query->largest)
        shrink = query->largest == -__builtin_inff() ? 0.0f : exponential(splat(query->largest - largest))[0];
    query->largest = largest;
    query->sum *= splat(shrink);
    for (int v = 0; v < KV_TILE_VECTORS; v++) {
        scores[v] = exponential(scores[v] - splat(largest));
        if (!sees_all)
            scores[v] = choose(is_seen[v], scores[v], splat(0.0f));
        query->sum += scores[v];
    }
    return shrink;
}

/* out = out * shrink + weights @ values[from .. to) for n queries. */
INLINE void add_values(const struct query *queries, int n, const float weights[][KV_TILE], const float *shrink,
                       const float *values, struct span span, int dim)
{
    for (int i = 0; i < dim;) {
        const int vectors = dim - i < VECTORS_AT_ONCE * LANES ? 1 : VECTORS_AT_ONCE;
        f32x16 acc[QUERIES_AT_ONCE][VECTORS_AT_ONCE];
#define WITH(vectors)                                                                             \
    {                                                                                             \
        for (int r = 0; r < n; r++)                                                               \
            for (int c = 0; c < vectors; c++)                                                     \
                acc[r][c] = load_f32x16(queries[r].out + i + c * LANES) * splat(shrink[r]);       \
        for (int t = span.from; t < span.to; t++)                                                 \
            for (int c = 0; c < vectors; c++) {                                                   \
                const f32x16 value = load_f32x16(values + (int64_t)t * dim + i + c * LANES);      \
                for (int r = 0; r < n; r++)                                                       \
                    acc[r][c] = fma16(splat(weights[r][t]), value, acc[r][c]);                    \
            }                                                                                     \
        for (int r = 0; r < n; r++)                                                               \
            for (int c = 0; c < vectors; c++)                                                     \
                store_f32x16(queries[r].out + i + c * LANES, acc[r][c]);                          \
    }
        if (vectors == 1)
            WITH(1)
        else
            WITH(VECTORS_AT_ONCE)
#undef WITH
        i += vectors * LANES;
    }
}

INLINE struct span span_in_tile(const struct query *query, int64_t first)
{
    const int64_t begin = query->begin - first, end = query->end - first;
    if (end <= 0 || begin >= KV_TILE)
        return (struct span){0, 0};
    return (struct span){begin > 0 ? (int)begin : 0, end < KV_TILE ? (int)end : KV_TILE};
}

/* add_values for queries that see different parts of the tile: together where all see, one by one at the edges. Weights
 * of 0 would do there for numbers, but they do not hide a value that is infinite or NaN. */
INLINE void add_seen_values(const struct query *queries, int n, const float weights[][KV_TILE], float *shrink,
                            const float *values, const struct span *seen, int dim)
{
    const float kept = 1.0f;
    struct span common = seen[0];
    for (int r = 1; r < n; r++) {
        common.from = seen[r].from > common.from ? seen[r].from : common.from;
        common.to = seen[r].to < common.to ? seen[r].to : common.to;
    }
    if (common.from >= common.to)
        common.from = common.to = KV_TILE;
    for (int r = 0; r < n; r++) {
        const struct span before = {seen[r].from, seen[r].to < common.from ? seen[r].to : common.from};
        if (before.from < before.to) {
            add_values(queries + r, 1, weights + r, shrink + r, values, before, dim);
            shrink[r] = kept;
        }
    }
    if (common.from < common.to)
        add_values(queries, n, weights, shrink, values, common, dim);
    for (int r = 0; r < n; r++)
        if (common.to < seen[r].to)
            add_values(queries + r, 1, weights + r, &kept, values, (struct span){common.to, seen[r].to}, dim);
}

/* One tile for n queries that share its loads. */
INLINE void attend_tile(const struct op *op, struct query *queries, int n, const float *keys, const float *values,
                        int64_t first)
{
    f32x16 scores[QUERIES_AT_ONCE][KV_TILE_VECTORS];
    float weights[QUERIES_AT_ONCE][KV_TILE], shrink[QUERIES_AT_ONCE];
    struct span seen[QUERIES_AT_ONCE];
    score(queries, n, keys, op->head_dim, scores);
    for (int r = 0; r < n; r++) {
        seen[r] = span_in_tile(queries + r, first);
        /* A tile wholly outside of the query's span leaves it as it is. */
        shrink[r] = seen[r].to ? soften(queries + r, scores[r], op->scale, seen[r]) : 1.0f;
        memcpy(weights[r], scores[r], sizeof weights[r]);
    }
    add_seen_values(queries, n, weights, shrink, values, seen, padded_dim(op->head_dim));
}

static void attend_queries(const struct op *op, struct query *queries, int n, const float *keys, const float *values,
                           int64_t first)
{
    while (n > 0) {
        const int together = n < QUERIES_AT_ONCE ? n < 4 ? n : 4 : QUERIES_AT_ONCE;
        switch (together) {
        case 1:
            attend_tile(op, queries, 1, keys, values, first);
            break;
        case 2:
            attend_tile(op, queries, 2, keys, values, first);
            break;
        case 3:
            attend_tile(op, queries, 3, keys, values, first);
            break;
        case 4:
            attend_tile(op, queries, 4, keys, values, first);
            break;
        default:
            attend_tile(op, queries, QUERIES_AT_ONCE, keys, values, first);
        }
        queries += together;
        n -= together;
    }
}

/* A tile's keys, and the values of its first positions, as float32. */
static void unpack_tile(const struct op *op, const uint8_t *keys, const uint8_t *values, int n_values, float *key_floats,
                        float *value_floats)
{
    if (op->kv_format == KV_F32) {
        kv_unpack_keys(KV_F32, op, keys, key_floats);
        kv_unpack_values(KV_F32, op, values, n_values, value_floats);
    } else {
        kv_unpack_keys(KV_F16, op, keys, key_floats);
        kv_unpack_values(KV_F16, op, values, n_values, value_floats);
    }
}

void attend_to_floats(const struct op *op, const struct step *step, const struct queries_of *item, uint8_t *scratch)
{
    const int dim = op->head_dim, padded = padded_dim(dim), kv_head = item->head / (op->n_heads / op->n_kv_heads);
    const int64_t slot = step->slots[item->row], last_end = step->positions[item->end - 1] + 1;
    const int n = (int)(item->end - item->row) * item->n_heads;
    float *keys = (float *)scratch, *values = keys + KV_TILE * padded, *sums = values + KV_TILE * padded;
    struct query queries[MAX_QUERIES];
    memset(sums, 0, (size_t)(n * padded) * sizeof(float));
    for (int i = 0; i < n; i++) {
        const int64_t at = item->row + i / item->n_heads, position = step->positions[at];
        queries[i] = (struct query){
            .q = op->x + at * op->width_in + (item->head + i % item->n_heads) * dim,
            .out = sums + i * padded,
            .begin = first_seen(op, position),
            .end = position + 1,
            .largest = -__builtin_inff(),
        };
    }
    for (int64_t first = queries[0].begin / KV_TILE * KV_TILE; first < last_end; first += KV_TILE) {
        const int n_values = last_end - first < KV_TILE ? (int)(last_end - first) : KV_TILE;
        unpack_tile(op, kv_tile_at(op, op->keys, slot, kv_head, first), kv_tile_at(op, op->values, slot, kv_head, first),
                    n_values, keys, values);
        attend_queries(op, queries, n, keys, values, first);
    }
    for (int i = 0; i < n; i++) {
        const float inverse = 1.0f / sum_lanes(queries[i].sum);
        float *result = op->out + (item->row + i / item->n_heads) * op->width_out + (item->head + i % item->n_heads) * dim;
        for (int e = 0; e < dim; e++)
            result[e] = queries[i].out[e] * inverse;
    }
}
