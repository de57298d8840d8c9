/* Matrix products with packed weights, one row and many rows at a time.
 *
 * Both kernels add up an output's terms in the same order: per group of columns that share a scale, the exact integer
 * dot product times the two scales, then the minimum times the activations' sum. So a row's result has the same bits
 * whatever else is in the step. The float formats go through the columns one by one.
 */
#include "formats.h"
#include "hipfire_cpu.h"
#include "kernels.h"

enum {
    ROWS_AT_ONCE = 4,       /* activation rows that share the loads of a tile */
    FLOAT_ROWS_AT_ONCE = 8, /* enough independent sums to hide the latency of fma */
    PREFETCH_NBYTES = 4096,
    ROW_BLOCK = 128,        /* activation rows of one work item: they stay in the second-level cache */
};

EXPORT int64_t hf_scratch_nbytes(int64_t n_in)
{
    return (n_in + TILE_COLUMNS - 1) / TILE_COLUMNS * (int64_t)sizeof(struct tile);
}

EXPORT int64_t hf_q16_row_nbytes(int64_t n)
{
    return q16_row_nbytes(n);
}

/* acc[r] += one tile times its 32 columns of n rows. */
INLINE void multiply_tile(struct layout f, const struct tile *tile, const struct q16_row *a, int n, int64_t t, f32x8 *acc)
{
    const int per_scale = scale_columns(f) / 4, n_scales = TILE_VECTORS / per_scale;
    for (int h = 0; h < n_scales; h++) {
        i32x8 sum[ROWS_AT_ONCE];
        for (int j = h * per_scale; j < (h + 1) * per_scale; j++) {
            const i16x16 even = tile->even[j], odd = tile->odd[j];
            for (int r = 0; r < n; r++) {
                const int16_t *q = a[r].q + t * TILE_COLUMNS + 4 * j;
                const i32x8 product = dot2(even, splat_pair(q)) + dot2(odd, splat_pair(q + 2));
                sum[r] = j == h * per_scale ? product : sum[r] + product;
            }
        }
        for (int r = 0; r < n; r++) {
            acc[r] = fma8(__builtin_convertvector(sum[r], f32x8), tile->d[h] * splat(a[r].d[t]), acc[r]);
            if (has_minimum(f))
                acc[r] = fma8(tile->m[h], splat(sums_of(f, a[r])[t * n_scales + h]), acc[r]);
        }
    }
}

/* Write eight outputs of a row, or those of them that exist. */
INLINE void put(const struct op *op, const struct matrix *matrix, int64_t row, int64_t group, f32x8 value)
{
    const int64_t first = group * GROUP, at = row * op->width_out + matrix->column + first;
    const int64_t n = matrix->n_out - first < GROUP ? matrix->n_out - first : GROUP;
    if (n == GROUP) {
        if (matrix->bias)
            value += load_f32x8(matrix->bias + first);
        if (op->residual)
            value += load_f32x8(op->residual + at);
        store_f32x8(op->out + at, value);
        return;
    }
    for (int i = 0; i < n; i++) {
        float x = value[i];
        if (matrix->bias)
            x += matrix->bias[first + i];
        if (op->residual)
            x += op->residual[at + i];
        op->out[at + i] = x;
    }
}

INLINE void one_row(struct layout f, const struct op *op, const struct matrix *matrix, int64_t group)
{
    const int64_t n_in = matrix->n_in;
    const struct q16_row a = q16_row_at(op->x_q16, n_in, 0);
    struct cursor at = cursor_at(f, matrix->packed + group * group_nbytes(f, n_in));
    f32x8 acc = {0};
    for (int64_t t = 0; t < n_in / TILE_COLUMNS; t++) {
        struct tile tile;
        /* The hardware's prefetchers stop at page borders; the weights go on behind them. */
        for (int line = 0; line < tile_nbytes(f); line += 64)
            __builtin_prefetch(at.tile + PREFETCH_NBYTES + line);
        unpack_next(f, &at, &tile);
        multiply_tile(f, &tile, &a, 1, t, &acc);
    }
    put(op, matrix, 0, group, acc);
}

INLINE void rows_at_once(struct layout f, const struct op *op, const struct matrix *matrix, int64_t group, int64_t row,
                         int n, const struct tile *panel)
{
    const int64_t n_in = matrix->n_in;
    struct q16_row a[ROWS_AT_ONCE];
    f32x8 acc[ROWS_AT_ONCE];
    for (int r = 0; r < n; r++) {
        a[r] = q16_row_at(op->x_q16, n_in, row + r);
        acc[r] = splat(0.0f);
    }
    for (int64_t t = 0; t < n_in / TILE_COLUMNS; t++)
        multiply_tile(f, &panel[t], a, n, t, acc);
    for (int r = 0; r < n; r++)
        put(op, matrix, row + r, group, acc[r]);
}

/* Unpack the group's tiles once, then use them for every row. */
INLINE void many_rows(struct layout f, const struct op *op, const struct matrix *matrix, int64_t group, int64_t row,
                      int64_t end, struct tile *panel)
{
    const int64_t n_in = matrix->n_in;
    struct cursor at = cursor_at(f, matrix->packed + group * group_nbytes(f, n_in));
    for (int64_t t = 0; t < n_in / TILE_COLUMNS; t++)
        unpack_next(f, &at, &panel[t]);
    for (; row + ROWS_AT_ONCE <= end; row += ROWS_AT_ONCE)
        rows_at_once(f, op, matrix, group, row, ROWS_AT_ONCE, panel);
    for (; row < end; row++)
        rows_at_once(f, op, matrix, group, row, 1, panel);
}

typedef f32x8 (*load_fn)(const void *);

INLINE void float_rows(load_fn load, int element_nbytes, const struct op *op, const struct matrix *matrix, int64_t group,
                       int64_t row, int n)
{
    const int64_t n_in = matrix->n_in;
    const uint8_t *w = matrix->packed + group * GROUP * n_in * element_nbytes;
    f32x8 acc[FLOAT_ROWS_AT_ONCE];
    for (int r = 0; r < n; r++)
        acc[r] = splat(0.0f);
    for (int64_t i = 0; i < n_in; i++) {
        const f32x8 column = load(w + i * GROUP * element_nbytes);
        for (int r = 0; r < n; r++)
            acc[r] = fma8(column, splat(op->x[(row + r) * n_in + i]), acc[r]);
    }
    for (int r = 0; r < n; r++)
        put(op, matrix, row + r, group, acc[r]);
}

INLINE void float_group(load_fn load, int element_nbytes, const struct op *op, const struct matrix *matrix, int64_t group,
                        int64_t row, int64_t end)
{
    for (; row + FLOAT_ROWS_AT_ONCE <= end; row += FLOAT_ROWS_AT_ONCE)
        float_rows(load, element_nbytes, op, matrix, group, row, FLOAT_ROWS_AT_ONCE);
    for (; row < end; row++)
        float_rows(load, element_nbytes, op, matrix, group, row, 1);
}

/* Outputs of one row group for the activation rows [row, end). */
typedef void (*group_fn)(const struct op *op, const struct matrix *matrix, int64_t group, int64_t row, int64_t end,
                         uint8_t *scratch);

#define ROW(name, ...)                                                                                             \
    static void group_##name(const struct op *op, const struct matrix *matrix, int64_t group, int64_t row,         \
                             int64_t end, uint8_t *scratch)                                                        \
    {                                                                                                              \
        const struct layout f = {__VA_ARGS__};                                                                     \
        if (end == 1)                                                                                              \
            one_row(f, op, matrix, group);                                                                         \
        else                                                                                                       \
            many_rows(f, op, matrix, group, row, end, (struct tile *)scratch);                                     \
    }
QUANTISED_FORMATS(ROW)
#undef ROW

#define ROW(name, element_nbytes)                                                                                  \
    static void group_##name(const struct op *op, const struct matrix *matrix, int64_t group, int64_t row,         \
                             int64_t end, uint8_t *scratch)                                                        \
    {                                                                                                              \
        (void)scratch;                                                                                             \
        float_group(load_##name##_as_f32, element_nbytes, op, matrix, group, row, end);                    \
    }
FLOAT_FORMATS(ROW)
#undef ROW

static const group_fn GROUPS[N_FORMATS] = {
#define ROW(name, ...) group_##name,
    FLOAT_FORMATS(ROW) QUANTISED_FORMATS(ROW)
#undef ROW
};

/* out = x @ w.T (+ bias) (+ residual), the matrices' outputs side by side. Reads x or x_q16 as the formats need. */
void run_linear(const struct op *op, const struct step *step, struct worker *worker)
{
    const int64_t n_rows = rows_of(op, step), n_blocks = (n_rows + ROW_BLOCK - 1) / ROW_BLOCK;
    int64_t n_groups = 0;
    for (int m = 0; m < op->n_matrices; m++)
        n_groups += (op->matrices[m].n_out + GROUP - 1) / GROUP;
    const int64_t n = n_groups * n_blocks, share = n / (16 * pool_n_threads(worker->pool));
    const int64_t grain = share > 0 ? share : 1;
    for (int64_t first; (first = pool_claim(worker, n, grain)) < n;) {
        for (int64_t item = first; item < first + grain && item < n; item++) {
            const int64_t row = item / n_groups * ROW_BLOCK, end = row + ROW_BLOCK < n_rows ? row + ROW_BLOCK : n_rows;
            int64_t group = item % n_groups;
            const struct matrix *matrix = op->matrices;
            for (; group >= (matrix->n_out + GROUP - 1) / GROUP; matrix++)
                group -= (matrix->n_out + GROUP - 1) / GROUP;
            GROUPS[matrix->format](op, matrix, group, row, end, worker->scratch);
        }
    }
}

/* One column of a tile's unpacked form: what row `lane` of the group holds there. */
INLINE float tile_value(struct layout f, const struct tile *tile, int lane, int column)
{
    const int h = column / scale_columns(f);
    const i16x16 w = column % 2 ? tile->odd[column / 4] : tile->even[column / 4];
    const float value = tile->d[h][lane] * (float)w[2 * lane + column % 4 / 2];
    return has_minimum(f) ? value + tile->m[h][lane] : value;
}

INLINE void embed_quantised(struct layout f, const struct matrix *table, int64_t id, float *out)
{
    struct cursor at = cursor_at(f, table->packed + id / GROUP * group_nbytes(f, table->n_in));
    for (int64_t t = 0; t < table->n_in / TILE_COLUMNS; t++) {
        struct tile tile;
        unpack_next(f, &at, &tile);
        for (int column = 0; column < TILE_COLUMNS; column++)
            out[t * TILE_COLUMNS + column] = tile_value(f, &tile, (int)(id % GROUP), column);
    }
}

INLINE void embed_float(load_fn load, int element_nbytes, const struct matrix *table, int64_t id, float *out)
{
    const uint8_t *w = table->packed + id / GROUP * GROUP * table->n_in * element_nbytes;
    for (int64_t i = 0; i < table->n_in; i++)
        out[i] = load(w + i * GROUP * element_nbytes)[id % GROUP];
}

typedef void (*embed_fn)(const struct matrix *table, int64_t id, float *out);

#define ROW(name, ...)                                                          \
    static void embed_##name(const struct matrix *table, int64_t id, float *out) \
    {                                                                           \
        embed_quantised((struct layout){__VA_ARGS__}, table, id, out);          \
    }
QUANTISED_FORMATS(ROW)
#undef ROW

#define ROW(name, element_nbytes)                                               \
    static void embed_##name(const struct matrix *table, int64_t id, float *out) \
    {                                                                           \
        embed_float(load_##name##_as_f32, element_nbytes, table, id, out);      \
    }
FLOAT_FORMATS(ROW)
#undef ROW

static const embed_fn EMBEDS[N_FORMATS] = {
#define ROW(name, ...) embed_##name,
    FLOAT_FORMATS(ROW) QUANTISED_FORMATS(ROW)
#undef ROW
};

/* out[i] = scale * table[token_ids[i]]; the table is matrices[0]. */
void run_embed(const struct op *op, const struct step *step, struct worker *worker)
{
    for (int64_t row; (row = pool_claim(worker, step->n_tokens, 1)) < step->n_tokens;) {
        float *out = op->out + row * op->width_out;
        EMBEDS[op->matrices->format](op->matrices, step->token_ids[row], out);
        for (int i = 0; i < op->width_out; i++)
            out[i] *= op->scale;
    }
}
