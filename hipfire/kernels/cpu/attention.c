/* Causal attention with an online softmax over tiles of 32 positions (FlashAttention's recurrence).
 *
 * Tiles begin at absolute positions that are multiples of 32, and a query goes through them in order: its result does
 * not depend on which others share its tiles. A query is one head of one row. Those of several rows, and of the heads
 * that have their keys and values in common, share what it costs to load a tile. This file divides the work; how a tile
 * is attended to depends on what the keys and values are.
 */
#include "attention.h"

#include "kernels.h"
#include "kv.h"

static const attend_fn ATTEND[N_KV_FORMATS] = {
    [KV_F32] = attend_to_floats,
    [KV_F16] = attend_to_floats,
    [KV_Q16] = attend_to_integers,
    [KV_Q8] = attend_to_integers,
};

EXPORT int64_t hf_kv_nbytes(int32_t n_slots, int32_t n_kv_heads, int32_t head_dim, int32_t max_seq, int32_t format)
{
    return (int64_t)n_slots * n_kv_heads * (max_seq / KV_TILE) * kv_tile_nbytes(format, head_dim);
}

EXPORT int64_t hf_attention_scratch_nbytes(int32_t head_dim)
{
    const int64_t floats = float_scratch_nbytes(head_dim), integers = integer_scratch_nbytes(head_dim);
    return floats > integers ? floats : integers;
}

/* In whole tiles: a few positions more than was asked for do no harm. */
EXPORT void hf_kv_copy(const struct op *op, int32_t source, int32_t target, int32_t n_positions)
{
    const int64_t n_tiles = ((int64_t)n_positions + KV_TILE - 1) / KV_TILE;
    const size_t nbytes = (size_t)(n_tiles * kv_tile_nbytes(op->kv_format, op->head_dim));
    for (int h = 0; h < op->n_kv_heads; h++) {
        memcpy(kv_tile_at(op, op->keys, target, h, 0), kv_tile_at(op, op->keys, source, h, 0), nbytes);
        memcpy(kv_tile_at(op, op->values, target, h, 0), kv_tile_at(op, op->values, source, h, 0), nbytes);
    }
}

/* The end of the rows from `row` on that are of one slot and follow each other, so that they can share their tiles. */
static int64_t end_of_run(const struct step *step, int64_t row, int64_t end)
{
    int64_t at = row + 1;
    while (at < end && step->slots[at] == step->slots[row] && step->positions[at] == step->positions[at - 1] + 1)
        at++;
    return at;
}

/* Work items are some rows of the heads that have a KV head in common; of some of these heads only, where there would be
 * too few items for the threads. In a batch rows of several sequences may fall into one item: then each run of them goes
 * by itself. The latest rows come first, since they have the most to do. */
void run_attention(const struct op *op, const struct step *step, struct worker *worker)
{
    const int group = op->n_heads / op->n_kv_heads, n_threads = pool_n_threads(worker->pool);
    int n_heads = group < MAX_QUERIES ? group : MAX_QUERIES;
    const int64_t n_rows = MAX_QUERIES / n_heads, n_blocks = (step->n_tokens + n_rows - 1) / n_rows;
    while (n_heads > 1 && n_blocks * op->n_kv_heads * ((group + n_heads - 1) / n_heads) < n_threads)
        n_heads = (n_heads + 1) / 2;
    const int parts = (group + n_heads - 1) / n_heads;
    const int64_t per_block = (int64_t)op->n_kv_heads * parts, n = n_blocks * per_block;
    for (int64_t item; (item = pool_claim(worker, n, 1)) < n;) {
        const int kv_head = (int)(item % per_block / parts), part = (int)(item % per_block % parts);
        const int skipped = part * n_heads, heads = group - skipped < n_heads ? group - skipped : n_heads;
        const int64_t row = (n_blocks - 1 - item / per_block) * n_rows;
        const int64_t end = row + n_rows < step->n_tokens ? row + n_rows : step->n_tokens;
        for (int64_t at = row, stop; at < end; at = stop) {
            stop = end_of_run(step, at, end);
            const struct queries_of queries = {at, stop, kv_head * group + skipped, heads};
            ATTEND[op->kv_format](op, step, &queries, worker->scratch);
        }
    }
}
