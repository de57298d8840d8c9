/* Causal attention over chunks of 128 positions (FlashAttention's recurrence, FlashDecoding's split).
 *
 * A query is one head of one row. A workgroup has up to N of them, which share what it loads of keys and values: the heads
 * of a KV head, of several rows as far as these are of one slot and follow each other in position. It goes through one
 * chunk, or one after the other through all that its rows see. Of each chunk a query gets the largest score, the sum of the
 * weights and the weighted sum of the values. These are added to those of the chunks before in the order of the chunks: here
 * where one workgroup has them all, else in `attention_join`.
 *
 * Chunks begin at absolute multiples of 128, a query's operations are the same for any N and any neighbours, and chunks are
 * added up by the same `add_share` in both places: so a row's bits depend on none of this.
 */
#include "activations.h"
#include "kv.h"

enum {
    N_THREADS = 128,
    CHUNK = N_THREADS,
    STATS = 4,    /* floats of a partial result before the values */
    STRANDS = 8,  /* threads that share a query's softmax */
    JOIN_THREADS = 64,
    TOGETHER = 4, /* queries whose threads' sums have room at a time */
};

/* What is loaded at a time: as much as there are scalar and vector registers for. */
constexpr int Q_AT_ONCE = 2;                          /* queries; of each */
template <int N> constexpr int PAIRS = N > 4 ? 2 : 4; /* so many pairs of dims */
template <int N> constexpr int VALUES_AT_ONCE = N > 4 ? 2 : 4;

/* What all rows of a launch have in common. A partial result is [largest score, sum of weights, 2 unused, weighted sum of
 * the values [dim]]; they lie as [row][head][n_slices]. */
struct attention {
    const float *q;
    const uint8_t *keys, *values;
    const int *positions, *slots;
    float *partials;
    int n_heads, n_kv_heads, dim, max_seq, window, n_slices;
    float scale;
};

struct span {
    int from, to; /* of a chunk's positions, from its first on; empty where from >= to */
};

/* The queries of a workgroup that are of one slot and follow each other. */
template <int N> struct run {
    int n, n_rows;
    int end; /* of what the first row sees; a later row sees as many positions more as it is later */
    const float *q;
    int q_at[N];                  /* bytes from q to a query's; those that there are fewer than N repeat the last */
    const uint8_t *keys, *values; /* of the slot and KV head */
    float *partial;               /* of the first query */
};

/* What a thread does: 4 dims, `quad`, of every n_parts-th value of a chunk, and the softmax of a strand of a query. */
struct task {
    int n_parts, n_quads, part, quad;
    int query, strand;
    int begin, end; /* of what the query sees */
};

template <int N> struct scratch {
    static constexpr int STRIDE = N + 4; /* 4 more, so that strands read from different banks */
    static constexpr int WEIGHTS = CHUNK * STRIDE, SUMS = TOGETHER * N_THREADS * 4;
    alignas(16) float room[WEIGHTS > SUMS ? WEIGHTS : SUMS]; /* [position][query], later [query][thread][4 dims] */
    float kept[N], share[N];
    int partial_at[N];
};

/* Weight of a position that a query does not see. A weight of 0 would not hide a value that is infinite or NaN. */
constexpr float UNSEEN = -1.0f;
/* Instead of what is kept of the earlier chunks: there are none. Instead of a chunk's share: the query sees none of it. */
constexpr float FIRST = -1.0f, NOTHING = -1.0f;

INLINE int begin_of(int end, int window) { return window && end > window ? end - window : 0; }

/* What the row that sees the positions before `end` sees of the chunk from `first` on. */
INLINE span span_in_chunk(const attention *op, int end, int first)
{
    const int from = begin_of(end, op->window) - first, to = end - first;
    return {from > 0 ? from : 0, to < CHUNK ? to : CHUNK};
}

/* The larger of two largest scores, and what is left against it of a sum of weights and of what is added to that. */
struct shares {
    float largest, kept, share;
};

INLINE shares shares_of(float largest, float added)
{
    const float both = max_of(largest, added);
    return {both, exp_of(largest - both), exp_of(added - both)};
}

template <typename V> INLINE V add_share(V sum, float kept, V added, float share)
{
    return fma_of((V)(share), added, sum * kept);
}

/* The queries' scores at a position. */
template <typename Kv, int N>
INLINE void score(const attention *op, const run<N> *of, const uint8_t *tile, int position, float *scores)
{
    float2 sums[N];
    for (int n = 0; n < N; n++)
        sums[n] = 0.0f;
    float8 next = Kv::load_key(tile, op->dim, position, 0);
    for (int i = 0; i < op->dim; i += 8) {
        const float8 key = next;
        next = Kv::load_key(tile, op->dim, position, i + 8 < op->dim ? i + 8 : i);
        const float2 k[4] = {key.s01, key.s23, key.s45, key.s67};
        for (int from = 0; from < 4; from += PAIRS<N>) {
            const CONSTANT char *at = opaque((const CONSTANT char *)(constant(of->q) + i + 2 * from));
            for (int n = 0; n < N; n++) {
                const int offset = n < Q_AT_ONCE ? of->q_at[n] : after(of->q_at[n], sums[n - Q_AT_ONCE].x);
                const CONSTANT float2 *q = (const CONSTANT float2 *)(at + (n ? (uint32_t)offset : 0));
                for (int j = 0; j < PAIRS<N>; j++)
                    sums[n] = fma_of(k[from + j], q[j], sums[n]);
            }
        }
    }
    for (int n = 0; n < N; n++)
        scores[n] = (sums[n].x + sums[n].y) * op->scale;
}

template <bool LARGEST> INLINE float over_strands(float x)
{
    x = with_other_lane<1, LARGEST>(x);
    x = with_other_lane<2, LARGEST>(x);
    return with_other_lane<7, LARGEST>(x);
}

/* From scores to weights in lds->room. What the chunk adds to the largest score and the sum of weights goes into the
 * query's partial result. */
template <int N>
INLINE void soften(const attention *op, const run<N> *of, int first, task mine, scratch<N> *lds)
{
    const bool is_query = mine.query < of->n;
    const span seen = span_in_chunk(op, is_query ? mine.end : first, first);
    float *room = lds->room + mine.query, largest = -__builtin_inff(), total = 0.0f;
#pragma unroll 4
    for (int position = mine.strand; position < CHUNK; position += STRANDS)
        if (position >= seen.from && position < seen.to)
            largest = max_of(largest, room[position * scratch<N>::STRIDE]);
    largest = over_strands<true>(largest);
#pragma unroll 2
    for (int position = mine.strand; position < CHUNK; position += STRANDS) {
        float *at = room + position * scratch<N>::STRIDE;
        const bool sees = position >= seen.from && position < seen.to;
        const float weight = sees ? exp_of(*at - largest) : 0.0f;
        total += weight;
        if (is_query)
            *at = sees ? weight : UNSEEN;
    }
    total = over_strands<false>(total);
    if (!is_query || mine.strand)
        return;
    float *partial = of->partial + lds->partial_at[mine.query];
    shares add = {largest, FIRST, seen.from < seen.to ? 1.0f : NOTHING};
    if (add.share != NOTHING) {
        if (mine.begin < first) {
            add = shares_of(partial[0], largest);
            total = add_share(partial[1], add.kept, total, add.share);
        }
        partial[0] = add.largest;
        partial[1] = total;
    }
    lds->kept[mine.query] = add.kept;
    lds->share[mine.query] = add.share;
}

/* sums = the thread's part of every query's weighted values of the span. MASKED: not every query sees all of it. */
template <typename Kv, int N, bool MASKED>
INLINE void add_values(const attention *op, const uint8_t *values, span all, task mine, const float *weights, float4 *sums)
{
    const int row_nbytes = Kv::row_nbytes(op->dim);
    int i = mine.part;
    while (i < all.from)
        i += mine.n_parts;
#pragma unroll MASKED ? 1 : VALUES_AT_ONCE<N>
    for (; i < all.to; i += mine.n_parts) {
        const float4 value = Kv::load_value(values + (uint32_t)(i * row_nbytes), op->dim, 4 * mine.quad);
        for (int n = 0; n < N; n++) {
            const float weight = weights[i * scratch<N>::STRIDE + n];
            const float4 sum = fma_of((float4)(weight), value, sums[n]);
            sums[n] = MASKED && weight == UNSEEN ? sums[n] : sum;
        }
    }
}

/* Add up the threads' sums of a query, in the order of the parts, into its partial result. */
template <int N>
INLINE void leave(const run<N> *of, int query, const float *sums, task mine, const scratch<N> *lds)
{
    float4 sum = *(const float4 *)(sums + 4 * mine.quad);
    for (int part = 1; part < mine.n_parts; part++)
        sum += *(const float4 *)(sums + 4 * (part * mine.n_quads + mine.quad));
    float4 *partial = (float4 *)(of->partial + lds->partial_at[query] + STATS) + mine.quad;
    const float kept = lds->kept[query], share = lds->share[query];
    if (share != NOTHING)
        *partial = kept == FIRST ? sum : add_share(*partial, kept, sum, share);
}

/* One chunk, of which some of the queries see something. */
template <typename Kv, int N>
INLINE void attend(const attention *op, const run<N> *of, int first, task mine, scratch<N> *lds)
{
    const int at = thread(), row_nbytes = Kv::row_nbytes(op->dim);
    const span of_first = span_in_chunk(op, of->end, first), of_last = span_in_chunk(op, of->end + of->n_rows - 1, first);
    const span all = {of_first.from, of_last.to};
    float scores[N];
    for (int n = 0; n < N; n++)
        scores[n] = 0.0f;
    if (at >= all.from && at < all.to)
        score<Kv, N>(op, of, of->keys + (int64_t)(first + at / KV_TILE * KV_TILE) * row_nbytes, at, scores);
    for (int n = 0; n < N; n++)
        lds->room[at * scratch<N>::STRIDE + n] = scores[n];
    meet();
    soften<N>(op, of, first, mine, lds);
    meet();
    float4 sums[N];
    for (int n = 0; n < N; n++)
        sums[n] = 0.0f;
    const uint8_t *values = of->values + (int64_t)first * row_nbytes;
    if (of_first.from == of_last.from && of_first.to == of_last.to)
        add_values<Kv, N, false>(op, values, all, mine, lds->room, sums);
    else
        add_values<Kv, N, true>(op, values, all, mine, lds->room, sums);
    for (int n = 0; n < N; n += TOGETHER) {
        meet();
        for (int r = 0; r < TOGETHER; r++)
            *(float4 *)(lds->room + 4 * (r * N_THREADS + at)) = sums[n + r];
        meet();
        if (mine.part < mine.n_parts)
            for (int r = mine.part; r < TOGETHER && n + r < of->n; r += mine.n_parts)
                leave<N>(of, n + r, lds->room + 4 * r * N_THREADS, mine, lds);
    }
    meet();
}

/* Whether a row is of the same slot as the one before, and of the next position. */
INLINE bool follows(const attention *op, int row)
{
    const CONSTANT int *slots = constant(op->slots), *positions = constant(op->positions);
    return slots[row] == slots[row - 1] && positions[row] == positions[row - 1] + 1;
}

/* How many rows from `row` on a workgroup takes: those that follow it up to a position that is a multiple of rows_at_once;
 * none where the row before has this one with it. */
INLINE int rows_from(const attention *op, int row, int first_row, int n_rows, int rows_at_once)
{
    const int position = constant(op->positions)[row];
    if (row > first_row && position % rows_at_once && follows(op, row))
        return 0;
    int n = 1;
    while (row + n < first_row + n_rows && (position + n) % rows_at_once && follows(op, row + n))
        n++;
    return n;
}

INLINE task task_of_thread(int dim, int end, int n_heads)
{
    const unsigned at = (unsigned)thread(), n_quads = (unsigned)dim / 4, query = at / STRANDS;
    return {
        .n_parts = (int)(N_THREADS / n_quads),
        .n_quads = (int)n_quads,
        .part = (int)(at / n_quads),
        .quad = (int)(at % n_quads),
        .query = (int)query,
        .strand = (int)(at % STRANDS),
        .begin = 0,
        .end = end + (int)(query / (unsigned)n_heads),
    };
}

/* The heads from `head` on of the rows from `row` on; their partial results begin at that of row `first_row`. */
template <int N> INLINE void set_queries(const attention *op, run<N> *of, int first_row, int row, int head, int n_heads)
{
    of->n = of->n_rows * n_heads;
    of->q = op->q + ((int64_t)row * op->n_heads + head) * op->dim;
    for (int n = 0, r = 0, h = 0; n < N; n++) {
        of->q_at[n] = (r * op->n_heads + h) * op->dim * 4;
        if (h + 1 < n_heads)
            h++;
        else if (r + 1 < of->n_rows)
            r++, h = 0;
    }
    const int64_t first = ((int64_t)(row - first_row) * op->n_heads + head) * op->n_slices + block_x();
    of->partial = op->partials + first * (STATS + op->dim);
}

/* attend, with nothing kept in registers from chunk to chunk that is quickly made again. */
template <typename Kv, int N> INLINE void attend_anew(attention op, run<N> *of, int first, task mine, scratch<N> *lds)
{
    op.dim = opaque_scalar(op.dim);
    op.window = opaque_scalar(op.window);
    of->n_rows = opaque_scalar(of->n_rows);
    of->end = opaque_scalar(of->end);
    of->n = opaque_scalar(of->n);
    mine.n_parts = opaque_scalar(mine.n_parts);
    mine.n_quads = opaque_scalar(mine.n_quads);
    mine.part = (int)opaque((uint32_t)mine.part);
    mine.quad = (int)opaque((uint32_t)mine.quad);
    mine.query = (int)opaque((uint32_t)mine.query);
    attend<Kv, N>(&op, of, first, mine, lds);
}

/* A workgroup has some heads of a KV head, of a row and some that follow it. The latest rows have the most to do, and
 * begin first. */
template <typename Kv, int N>
INLINE void attend_rows(const attention *op, int first_row, int n_rows, int heads_at_once, int rows_at_once, scratch<N> *lds)
{
    const int row = first_row + n_rows - 1 - block_z();
    run<N> of;
    of.n_rows = rows_from(op, row, first_row, n_rows, rows_at_once);
    if (!of.n_rows)
        return;
    of.end = constant(op->positions)[row] + 1;
    int chunk = begin_of(of.end, op->window) / CHUNK, last = (of.end + of.n_rows - 2) / CHUNK;
    if (op->n_slices > 1) {
        if (block_x() < chunk || block_x() > last)
            return;
        chunk = last = block_x();
    }
    const int group = op->n_heads / op->n_kv_heads, n_blocks = (group + heads_at_once - 1) / heads_at_once;
    const int kv_head = block_y() / n_blocks, skipped = block_y() % n_blocks * heads_at_once;
    const int n_heads = group - skipped < heads_at_once ? group - skipped : heads_at_once;
    set_queries<N>(op, &of, first_row, row, kv_head * group + skipped, n_heads);
    const int64_t plane = ((int64_t)constant(op->slots)[row] * op->n_kv_heads + kv_head) * op->max_seq;
    of.keys = op->keys + plane * Kv::row_nbytes(op->dim);
    of.values = op->values + plane * Kv::row_nbytes(op->dim);
    task mine = task_of_thread(op->dim, of.end, n_heads);
    /* No chunk comes before the only one. */
    mine.begin = op->n_slices > 1 ? chunk * CHUNK : begin_of(mine.end, op->window);
    if (mine.query < N && mine.strand == 0) {
        const int r = mine.end - of.end, h = mine.query - r * n_heads;
        lds->partial_at[mine.query] = (r * op->n_heads + h) * op->n_slices * (STATS + op->dim);
    }
    for (; chunk <= last; chunk++)
        attend_anew<Kv, N>(*op, &of, chunk * CHUNK, mine, lds);
}

#define ATTENTION(name, Kv, n)                                                                                      \
    KERNEL(N_THREADS)                                                                                               \
    void attention_##name##_x##n(const float *q, const uint8_t *keys, const uint8_t *values, const int *positions,  \
                                 const int *slots, float *partials, int first_row, int n_rows, int n_heads,         \
                                 int n_kv_heads, int heads_at_once, int rows_at_once, int dim, int max_seq,         \
                                 int window, int n_slices, float scale)                                             \
    {                                                                                                               \
        __shared__ scratch<n> lds;                                                                                  \
        const attention op = {q, keys, values, positions, slots, partials, n_heads, n_kv_heads,                     \
                              dim, max_seq, window, n_slices, scale};                                               \
        attend_rows<Kv, n>(&op, first_row, n_rows, heads_at_once, rows_at_once, &lds);                              \
    }
#define ATTENTIONS(name, Kv) ATTENTION(name, Kv, 4) ATTENTION(name, Kv, 8) ATTENTION(name, Kv, 16)
KV_TYPES(ATTENTIONS)

/* out = the weighted sum of a head's values over the sum of the weights, from its partial results: one a chunk, or one of
 * all chunks where n_slices is 1. A thread has four dims. */
KERNEL(JOIN_THREADS)
void attention_join(const float *partials, const int *positions, float *out, activations *out_q16, int first_row,
                    int n_heads, int dim, int window, int n_slices)
{
    const int h = block_x(), row = first_row + block_y(), end = constant(positions)[row] + 1;
    const float *slices = partials + ((int64_t)block_y() * n_heads + h) * n_slices * (STATS + dim);
    const int first = n_slices > 1 ? begin_of(end, window) / CHUNK : 0, last = n_slices > 1 ? (end - 1) / CHUNK : 0;
    for (int from = 0; from < dim; from += 4 * JOIN_THREADS) {
        const int i = from + 4 * thread();
        const float *slice = slices + (int64_t)first * (STATS + dim);
        float largest = slice[0], total = slice[1];
        float4 sum = load_quad(slice + STATS, i, dim);
        for (int c = first + 1; c <= last; c++) {
            slice += STATS + dim;
            const shares add = shares_of(largest, slice[0]);
            largest = add.largest;
            total = add_share(total, add.kept, slice[1], add.share);
            sum = add_share(sum, add.kept, load_quad(slice + STATS, i, dim), add.share);
        }
        put_quad(out, out_q16, (int64_t)row * n_heads + h, i, dim, sum / total);
    }
}
