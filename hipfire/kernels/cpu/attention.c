/* Causal attention with an online softmax over tiles of 32 positions (FlashAttention's recurrence).
 *
 * Tiles begin at absolute positions that are multiples of 32, and a row goes through them in order: its result does not
 * depend on which rows share the step. Keys lie as [slot][kv head][position / 8][dim][8 positions], so that eight scores
 * are one vector; values as [slot][kv head][position][dim], rows filled up to whole vectors. max_seq is a multiple of 32.
 */
#include "formats.h"
#include "kernels.h"

enum { TILE = 32, TILE_GROUPS = TILE / LANES, ROWS_AT_ONCE = 4, DIMS_AT_ONCE = 16 };

/* The scratch holds the outputs of a head's rows: hf_scratch_nbytes counts tiles of a matrix. */
_Static_assert(ROWS_AT_ONCE * TILE_COLUMNS * sizeof(float) <= sizeof(struct tile), "scratch is too small for attention");

EXPORT int64_t hf_kv_nbytes(int32_t n_slots, int32_t n_kv_heads, int32_t head_dim, int32_t max_seq, bool is_f16)
{
    return (int64_t)n_slots * n_kv_heads * max_seq * padded_dim(head_dim) * (is_f16 ? 2 : 4);
}

INLINE f32x8 load_kv(bool is_f16, const uint8_t *state, int64_t at)
{
    return is_f16 ? load_f16_as_f32(state + at * 2) : load_f32x8(state + at * 4);
}

/* scores[r][g] = q[r] @ keys of positions 8 g .. 8 g + 7 of the tile. */
INLINE void score_tile(bool is_f16, const float *const *q, int n, const uint8_t *keys, int64_t tile_at, int dim,
                       f32x8 scores[][TILE_GROUPS])
{
    const int at_once = n == 1 ? TILE_GROUPS : TILE_GROUPS / 2;
    for (int g = 0; g < TILE_GROUPS; g += at_once) {
        f32x8 acc[ROWS_AT_ONCE][TILE_GROUPS];
        for (int r = 0; r < n; r++)
            for (int c = 0; c < at_once; c++)
                acc[r][c] = splat(0.0f);
        for (int i = 0; i < dim; i++)
            for (int c = 0; c < at_once; c++) {
                const f32x8 k = load_kv(is_f16, keys, tile_at + ((int64_t)(g + c) * dim + i) * LANES);
                for (int r = 0; r < n; r++)
                    acc[r][c] = fma8(splat(q[r][i]), k, acc[r][c]);
            }
        for (int r = 0; r < n; r++)
            for (int c = 0; c < at_once; c++)
                scores[r][g + c] = acc[r][c];
    }
}

struct softmax {
    float largest;
    f32x8 sum; /* by lane; added up at the end */
};

/* Turn a row's scores of the tile at `first` into weights; return what the earlier ones must be multiplied with. */
INLINE float soften(struct softmax *state, f32x8 *scores, float scale, int64_t first, int64_t begin, int64_t end)
{
    const i32x8 lane = {0, 1, 2, 3, 4, 5, 6, 7};
    const f32x8 lowest = splat(-__builtin_inff());
    i32x8 seen[TILE_GROUPS];
    f32x8 top = splat(state->largest);
    for (int g = 0; g < TILE_GROUPS; g++) {
        const i32x8 position = lane + (int32_t)(first + g * LANES);
        seen[g] = (position >= (int32_t)begin) & (position < (int32_t)end);
        scores[g] = select8(seen[g], scores[g] * splat(scale), lowest);
        top = max8(scores[g], top);
    }
    const float largest = largest8(top);
    const float shrink = state->largest == -__builtin_inff() ? 0.0f : exp8(splat(state->largest - largest))[0];
    f32x8 sum = state->sum * splat(shrink);
    for (int g = 0; g < TILE_GROUPS; g++) {
        const f32x8 weight = exp8(scores[g] - splat(largest));
        scores[g] = select8(seen[g], weight, splat(0.0f));
        sum += scores[g];
    }
    *state = (struct softmax){largest, sum};
    return shrink;
}

/* out[r] = out[r] * shrink[r] + weights[r] @ the values of positions [from, to) of the tile. */
INLINE void add_values(bool is_f16, float *const *out, int n, const float weights[][TILE], const float *shrink,
                       const uint8_t *values, int64_t tile_at, int from, int to, int dim)
{
    const int width = n == 1 ? 4 * DIMS_AT_ONCE : DIMS_AT_ONCE;
    for (int i = 0; i < dim;) {
        const int vectors = (dim - i < width ? LANES : width) / LANES;
        f32x8 acc[ROWS_AT_ONCE][4 * DIMS_AT_ONCE / LANES];
#define WITH(vectors)                                                                            \
    {                                                                                            \
        for (int r = 0; r < n; r++)                                                              \
            for (int c = 0; c < vectors; c++)                                                    \
                acc[r][c] = load_f32x8(out[r] + i + c * LANES) * splat(shrink[r]);               \
        for (int t = from; t < to; t++)                                                          \
            for (int c = 0; c < vectors; c++) {                                                  \
                const f32x8 v = load_kv(is_f16, values, tile_at + (int64_t)t * dim + i + c * LANES); \
                for (int r = 0; r < n; r++)                                                      \
                    acc[r][c] = fma8(splat(weights[r][t]), v, acc[r][c]);                        \
            }                                                                                    \
        for (int r = 0; r < n; r++)                                                              \
            for (int c = 0; c < vectors; c++)                                                    \
                store_f32x8(out[r] + i + c * LANES, acc[r][c]);                                  \
    }
        if (vectors == 1)
            WITH(1)
        else if (n == 1)
            WITH(4 * DIMS_AT_ONCE / LANES)
        else
            WITH(DIMS_AT_ONCE / LANES)
#undef WITH
        i += vectors * LANES;
    }
}

/* The positions of a tile that a row sees: [from, to), empty where it sees none. */
struct span {
    int from, to;
};

INLINE struct span span_in_tile(int64_t first, int64_t begin, int64_t end)
{
    if (first >= end || first + TILE <= begin)
        return (struct span){0, 0};
    return (struct span){begin > first ? (int)(begin - first) : 0, end - first < TILE ? (int)(end - first) : TILE};
}

/* add_values for rows that see different parts of the tile: together where all see, row by row at the edges. Weights
 * of 0 would do there for numbers, but they do not hide a value that is infinite or NaN. */
INLINE void add_seen_values(bool is_f16, float *const *out, int n, const float weights[][TILE], float *shrink,
                            const uint8_t *values, int64_t tile_at, const struct span *seen, int dim)
{
    struct span common = seen[0];
    for (int r = 1; r < n; r++) {
        common.from = seen[r].from > common.from ? seen[r].from : common.from;
        common.to = seen[r].to < common.to ? seen[r].to : common.to;
    }
    if (common.from >= common.to)
        common.from = common.to = TILE;
    for (int r = 0; r < n; r++) {
        const int to = seen[r].to < common.from ? seen[r].to : common.from;
        if (seen[r].from < to) {
            add_values(is_f16, out + r, 1, weights + r, shrink + r, values, tile_at, seen[r].from, to, dim);
            shrink[r] = 1.0f;
        }
    }
    if (common.from < common.to)
        add_values(is_f16, out, n, weights, shrink, values, tile_at, common.from, common.to, dim);
    const float kept = 1.0f;
    for (int r = 0; r < n; r++)
        if (common.to < seen[r].to)
            add_values(is_f16, out + r, 1, weights + r, &kept, values, tile_at, common.to, seen[r].to, dim);
}

/* Rows row .. row + n - 1 of one head. They are of one slot and follow each other in position. */
INLINE void attend(bool is_f16, const struct op *op, const struct step *step, int64_t row, int n, int head, float *scratch)
{
    const int dim = op->head_dim, padded = padded_dim(dim), kv_head = head / (op->n_heads / op->n_kv_heads);
    const int64_t plane = ((int64_t)step->slots[row] * op->n_kv_heads + kv_head) * op->max_seq;
    const int64_t last_end = step->positions[row + n - 1] + 1;
    const float *q[ROWS_AT_ONCE];
    float *out[ROWS_AT_ONCE];
    int64_t begin[ROWS_AT_ONCE], end[ROWS_AT_ONCE];
    struct softmax state[ROWS_AT_ONCE];
    for (int r = 0; r < n; r++) {
        end[r] = step->positions[row + r] + 1;
        begin[r] = op->window && end[r] > op->window ? end[r] - op->window : 0;
        q[r] = op->x + (row + r) * op->width_in + head * dim;
        out[r] = scratch + r * padded;
        memset(out[r], 0, (size_t)padded * sizeof(float));
        state[r] = (struct softmax){-__builtin_inff(), splat(0.0f)};
    }
    for (int64_t first = begin[0] / TILE * TILE; first < last_end; first += TILE) {
        f32x8 scores[ROWS_AT_ONCE][TILE_GROUPS];
        float weights[ROWS_AT_ONCE][TILE], shrink[ROWS_AT_ONCE];
        struct span seen[ROWS_AT_ONCE];
        score_tile(is_f16, q, n, op->keys, (plane + first) * dim, dim, scores);
        for (int r = 0; r < n; r++) {
            seen[r] = span_in_tile(first, begin[r], end[r]);
            /* A tile wholly outside of the row's span leaves it as it is. */
            shrink[r] = seen[r].to ? soften(&state[r], scores[r], op->scale, first, begin[r], end[r]) : 1.0f;
            memcpy(weights[r], scores[r], sizeof weights[r]);
        }
        add_seen_values(is_f16, out, n, weights, shrink, op->values, (plane + first) * padded, seen, padded);
    }
    for (int r = 0; r < n; r++) {
        const float inverse = 1.0f / sum8(state[r].sum);
        float *result = op->out + (row + r) * op->width_out + head * dim;
        for (int i = 0; i < dim; i++)
            result[i] = out[r][i] * inverse;
    }
}

INLINE void attend_rows(bool is_f16, const struct op *op, const struct step *step, int64_t row, int n, int head,
                        float *scratch)
{
    if (n == ROWS_AT_ONCE)
        attend(is_f16, op, step, row, ROWS_AT_ONCE, head, scratch);
    else
        for (int r = 0; r < n; r++)
            attend(is_f16, op, step, row + r, 1, head, scratch);
}

/* How many of the four rows from `row` on are of one slot and follow each other, so that they can share their tiles. */
static int rows_together(const struct step *step, int64_t row)
{
    int n = 1;
    while (n < ROWS_AT_ONCE && row + n < step->n_tokens && step->slots[row + n] == step->slots[row] &&
           step->positions[row + n] == step->positions[row] + n)
        n++;
    return n;
}

/* Work items are four rows of one head. In a batch rows of several sequences may fall into one item: then each of them
 * goes by itself. The latest rows come first, since they have the most to do. */
void run_attention(const struct op *op, const struct step *step, struct worker *worker)
{
    const int64_t n_blocks = (step->n_tokens + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, n = n_blocks * op->n_heads;
    for (int64_t item; (item = pool_claim(worker, n, 1)) < n;) {
        const int head = (int)(item % op->n_heads);
        const int64_t row = (n_blocks - 1 - item / op->n_heads) * ROWS_AT_ONCE;
        const int64_t end = row + ROWS_AT_ONCE < step->n_tokens ? row + ROWS_AT_ONCE : step->n_tokens;
        for (int64_t at = row; at < end;) {
            int together = rows_together(step, at);
            if (at + together > end)
                together = (int)(end - at);
            if (op->kv_is_f16)
                attend_rows(true, op, step, at, together, head, (float *)worker->scratch);
            else
                attend_rows(false, op, step, at, together, head, (float *)worker->scratch);
            at += together;
        }
    }
}
