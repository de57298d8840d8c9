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
#if defined(__AVX512F__)
    ROWS_AT_ONCE = 12, /* activation rows that share the loads of a tile, as many as the registers hold */
#else
    ROWS_AT_ONCE = 4,
#endif
    FEW_ROWS = 4,
    ROW_BLOCK = 132, /* activation rows of one work item: they stay in the second-level cache */
};

/* Before the loop over the columns of a tile. Where the rows' sums leave few registers, it must stay a loop: all of its
 * turns as one stretch of code, the compiler loads the operands early and spills them. */
#if defined(__AVX512F__)
#define OVER_COLUMNS UNROLL
#else
#define OVER_COLUMNS _Pragma("clang loop unroll(disable)")
#endif

EXPORT int64_t hf_linear_scratch_nbytes(int64_t n_in)
{
    return (n_in + TILE_COLUMNS - 1) / TILE_COLUMNS * (int64_t)sizeof(struct tile);
}

EXPORT int64_t hf_q16_row_nbytes(int64_t n)
{
    return q16_row_nbytes(n);
}

/* Two neighbouring row groups of a matrix: a work item's outputs. */
struct panel {
    const struct matrix *matrix;
    int64_t first; /* output */
    int n_out;     /* that exist; with no more than a group has there is no second group */
};

INLINE const uint8_t *panel_weights(const struct panel *panel, int64_t group_nbytes)
{
    return panel->matrix->packed + panel->first / GROUP * group_nbytes;
}

/* How far behind the first group the second one lies; 0 where there is none. */
INLINE int64_t to_second_group(const struct panel *panel, int64_t group_nbytes)
{
    return panel->n_out > GROUP ? group_nbytes : 0;
}

INLINE struct cursor panel_cursor(struct layout f, const struct panel *panel)
{
    const int64_t nbytes = group_nbytes(f, panel->matrix->n_in);
    return cursor_at(f, panel_weights(panel, nbytes), to_second_group(panel, nbytes));
}

/* Prefetch what the next panel has where this one has nbytes at `p`, in both groups. The hardware's prefetchers stop at
 * page borders, and do not know that two streams go on behind each other. */
INLINE void prefetch_next(const uint8_t *p, int64_t other, int nbytes)
{
    for (int line = 0; line < nbytes; line += 64) {
        __builtin_prefetch(p + 2 * other + line);
        __builtin_prefetch(p + 3 * other + line);
    }
}

INLINE int64_t output_at(const struct op *op, const struct panel *panel, int64_t row)
{
    return row * op->width_out + panel->matrix->column + panel->first;
}

/* Fetch the lines that put() will need: each is a row away from the last, too far for the hardware to foresee. */
INLINE void prefetch_put(const struct op *op, const struct panel *panel, int64_t row)
{
    __builtin_prefetch(op->out + output_at(op, panel, row), 1);
    if (op->residual)
        __builtin_prefetch(op->residual + output_at(op, panel, row));
}

INLINE void put(const struct op *op, const struct panel *panel, int64_t row, f32x16 value)
{
    const int64_t at = output_at(op, panel, row);
    const float *bias = panel->matrix->bias ? panel->matrix->bias + panel->first : NULL;
    if (panel->n_out == PAIR) {
        if (bias)
            value += load_f32x16(bias);
        if (op->residual)
            value += load_f32x16(op->residual + at);
        store_f32x16(op->out + at, value);
        return;
    }
    for (int i = 0; i < panel->n_out; i++) {
        float x = value[i];
        if (bias)
            x += bias[i];
        if (op->residual)
            x += op->residual[at + i];
        op->out[at + i] = x;
    }
}

#define BLOCK(r) ((const struct q16_block *)(blocks + (r) * stride))

/* sum[r] += columns 4 j to 4 j + 3 of a tile times those of the blocks of n rows that lie `stride` bytes apart. */
INLINE void add_columns(const struct tile *tile, int j, const uint8_t *blocks, int64_t stride, int n, i32x16 *sum)
{
    UNROLL
    for (int r = 0; r < n; r++)
        sum[r] = add_dot(sum[r], tile->even[j], splat_pair(BLOCK(r)->q + 4 * j));
    UNROLL
    for (int r = 0; r < n; r++)
        sum[r] = add_dot(sum[r], tile->odd[j], splat_pair(BLOCK(r)->q + 4 * j + 2));
}

/* acc[r] += a tile times the blocks of n rows that lie `stride` bytes apart. */
INLINE void multiply_tile(int n_scales, bool has_minimum, const struct tile *tile, const uint8_t *blocks, int64_t stride,
                          int n, f32x16 *acc)
{
    const int per_scale = TILE_VECTORS / n_scales;
    UNROLL
    for (int h = 0; h < n_scales; h++) {
        const int first = h * per_scale, end = first + per_scale;
        i32x16 sum[ROWS_AT_ONCE];
        UNROLL
        for (int r = 0; r < n; r++)
            sum[r] = (i32x16){0};
        /* Not part of the loop: what is added to zeros costs no addition. */
        add_columns(tile, first, blocks, stride, n, sum);
        if (n == 1) {
            UNROLL
            for (int j = first + 1; j < end; j++)
                add_columns(tile, j, blocks, stride, n, sum);
        } else {
            OVER_COLUMNS
            for (int j = first + 1; j < end; j++)
                add_columns(tile, j, blocks, stride, n, sum);
        }
        UNROLL
        for (int r = 0; r < n; r++) {
            acc[r] = fma16(__builtin_convertvector(sum[r], f32x16), tile->d[h] * splat(BLOCK(r)->d), acc[r]);
            if (has_minimum)
                acc[r] = fma16(tile->m[h], splat(sum_of(n_scales, BLOCK(r), h)), acc[r]);
        }
    }
}
#undef BLOCK

INLINE void one_row(struct layout f, const struct op *op, const struct panel *panel)
{
    const int64_t n_in = panel->matrix->n_in;
    const uint8_t *block = op->x_q16;
    struct cursor at = panel_cursor(f, panel);
    f32x16 acc = splat(0.0f);
    for (const uint8_t *end = block + q16_row_nbytes(n_in); block < end; block += sizeof(struct q16_block)) {
        struct tile tile;
        prefetch_next(at.tile, at.other, tile_nbytes(f));
        unpack_next(f, &at, &tile);
        multiply_tile(n_scales(f), has_minimum(f), &tile, block, 0, 1, &acc);
    }
    put(op, panel, 0, acc);
}

INLINE void unpack_panel(struct layout f, const struct panel *panel, struct tile *out)
{
    const int64_t n_in = panel->matrix->n_in;
    struct cursor at = panel_cursor(f, panel);
    for (struct tile *end = out + n_in / TILE_COLUMNS; out < end; out++)
        unpack_next(f, &at, out);
}

/* A panel's outputs for n rows from `row` on. */
INLINE void multiply_rows(int n_scales, bool has_minimum, const struct op *op, const struct panel *panel, int64_t row, int n,
                          const struct tile *tile)
{
    const int64_t stride = q16_row_nbytes(panel->matrix->n_in);
    const uint8_t *blocks = op->x_q16 + row * stride;
    f32x16 acc[ROWS_AT_ONCE];
    for (int r = 0; r < n; r++) {
        prefetch_put(op, panel, row + r);
        acc[r] = splat(0.0f);
    }
    for (const uint8_t *end = blocks + stride; blocks < end; blocks += sizeof(struct q16_block), tile++)
        multiply_tile(n_scales, has_minimum, tile, blocks, stride, n, acc);
    for (int r = 0; r < n; r++)
        put(op, panel, row + r, acc[r]);
}

typedef void (*multiply_fn)(const struct op *op, const struct panel *panel, int64_t row, int64_t end,
                            const struct tile *tiles);

/* What the formats differ in once they are unpacked. */
#define UNPACKED_FORMS(ROW)   \
    ROW(one_scale, 1, false)  \
    ROW(one_scale_minimum, 1, true) \
    ROW(two_scales_minimum, 2, true)

#define ROW(name, n_scales, has_minimum)                                                                           \
    static void multiply_##name(const struct op *op, const struct panel *panel, int64_t row, int64_t end,          \
                                const struct tile *tiles)                                                    \
    {                                                                                                              \
        for (; row + ROWS_AT_ONCE <= end; row += ROWS_AT_ONCE)                                                     \
            multiply_rows(n_scales, has_minimum, op, panel, row, ROWS_AT_ONCE, tiles);                             \
        for (; row + FEW_ROWS <= end; row += FEW_ROWS)                                                             \
            multiply_rows(n_scales, has_minimum, op, panel, row, FEW_ROWS, tiles);                                 \
        for (; row < end; row++)                                                                                   \
            multiply_rows(n_scales, has_minimum, op, panel, row, 1, tiles);                                        \
    }
UNPACKED_FORMS(ROW)
#undef ROW

INLINE multiply_fn multiply_for(struct layout f)
{
    return n_scales(f) == 2 ? multiply_two_scales_minimum : has_minimum(f) ? multiply_one_scale_minimum : multiply_one_scale;
}

typedef f32x16 (*load_fn)(const uint8_t *p, int64_t other);

INLINE void float_rows(load_fn load, int element_nbytes, const struct op *op, const struct panel *panel, int64_t row, int n)
{
    const int64_t n_in = panel->matrix->n_in, column_nbytes = GROUP * element_nbytes;
    const int64_t other = to_second_group(panel, n_in * column_nbytes);
    const uint8_t *weights = panel_weights(panel, n_in * column_nbytes);
    f32x16 acc[ROWS_AT_ONCE];
    for (int r = 0; r < n; r++)
        acc[r] = splat(0.0f);
    for (int64_t i = 0; i < n_in; i++) {
        if (n == 1)
            prefetch_next(weights + i * column_nbytes, other, (int)column_nbytes);
        const f32x16 column = load(weights + i * column_nbytes, other);
        for (int r = 0; r < n; r++)
            acc[r] = fma16(column, splat(op->x[(row + r) * n_in + i]), acc[r]);
    }
    for (int r = 0; r < n; r++)
        put(op, panel, row + r, acc[r]);
}

/* A panel's outputs for the activation rows [row, end). */
typedef void (*panel_fn)(const struct op *op, const struct panel *panel, int64_t row, int64_t end, uint8_t *scratch);

#define ROW(name, ...)                                                                                             \
    static void panel_##name(const struct op *op, const struct panel *panel, int64_t row, int64_t end,             \
                             uint8_t *scratch)                                                                     \
    {                                                                                                              \
        const struct layout f = {__VA_ARGS__};                                                                     \
        if (end == 1) {                                                                                            \
            one_row(f, op, panel);                                                                                 \
            return;                                                                                                \
        }                                                                                                          \
        unpack_panel(f, panel, (struct tile *)scratch);                                                            \
        multiply_for(f)(op, panel, row, end, (struct tile *)scratch);                                              \
    }
QUANTISED_FORMATS(ROW)
#undef ROW

#define ROW(name, element_nbytes)                                                                            \
    static void panel_##name(const struct op *op, const struct panel *panel, int64_t row, int64_t end,             \
                             uint8_t *scratch)                                                                     \
    {                                                                                                              \
        (void)scratch;                                                                                             \
        for (; row + ROWS_AT_ONCE <= end; row += ROWS_AT_ONCE)                                                     \
            float_rows(load_##name##_pair, element_nbytes, op, panel, row, ROWS_AT_ONCE);                          \
        for (; row + FEW_ROWS <= end; row += FEW_ROWS)                                                             \
            float_rows(load_##name##_pair, element_nbytes, op, panel, row, FEW_ROWS);                              \
        for (; row < end; row++)                                                                                   \
            float_rows(load_##name##_pair, element_nbytes, op, panel, row, 1);                                     \
    }
FLOAT_FORMATS(ROW)
#undef ROW

static const panel_fn PANELS[N_FORMATS] = {
#define ROW(name, ...) panel_##name,
    FLOAT_FORMATS(ROW) QUANTISED_FORMATS(ROW)
#undef ROW
};

static int64_t n_panels_of(const struct matrix *matrix)
{
    return (matrix->n_out + PAIR - 1) / PAIR;
}

/* Panel number i of the op's matrices, one after the other. */
static struct panel panel_at(const struct op *op, int64_t i)
{
    const struct matrix *matrix = op->matrices;
    for (; i >= n_panels_of(matrix); matrix++)
        i -= n_panels_of(matrix);
    const int64_t left = matrix->n_out - i * PAIR;
    return (struct panel){matrix, i * PAIR, left < PAIR ? (int)left : PAIR};
}

/* out = x @ w.T (+ bias) (+ residual), the matrices' outputs side by side. Reads x or x_q16 as the formats need. */
void run_linear(const struct op *op, const struct step *step, struct worker *worker)
{
    const int64_t n_rows = rows_of(op, step), n_blocks = (n_rows + ROW_BLOCK - 1) / ROW_BLOCK;
    int64_t n_panels = 0;
    for (int m = 0; m < op->n_matrices; m++)
        n_panels += n_panels_of(op->matrices + m);
    const int64_t n = n_panels * n_blocks, share = n / (16 * pool_n_threads(worker->pool));
    const int64_t grain = share > 0 ? share : 1;
    for (int64_t first; (first = pool_claim(worker, n, grain)) < n;) {
        for (int64_t item = first; item < first + grain && item < n; item++) {
            const int64_t row = item / n_panels * ROW_BLOCK, end = row + ROW_BLOCK < n_rows ? row + ROW_BLOCK : n_rows;
            const struct panel panel = panel_at(op, item % n_panels);
            PANELS[panel.matrix->format](op, &panel, row, end, worker->scratch);
        }
    }
}

/* One column of a tile: what row `lane` of the group holds there. */
INLINE float tile_value(struct layout f, const struct tile *tile, int lane, int column)
{
    const int h = column / scale_columns(f);
    const i16x32 w = column % 2 ? tile->odd[column / 4] : tile->even[column / 4];
    const float value = tile->d[h][lane] * (float)w[2 * lane + column % 4 / 2];
    return has_minimum(f) ? value + tile->m[h][lane] : value;
}

INLINE void embed_quantised(struct layout f, const struct matrix *table, int64_t id, float *out)
{
    struct cursor at = cursor_at(f, table->packed + id / GROUP * group_nbytes(f, table->n_in), 0);
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
        out[i] = load(w + i * GROUP * element_nbytes, 0)[id % GROUP];
}

typedef void (*embed_fn)(const struct matrix *table, int64_t id, float *out);

#define ROW(name, ...)                                                          \
    static void embed_##name(const struct matrix *table, int64_t id, float *out) \
    {                                                                           \
        embed_quantised((struct layout){__VA_ARGS__}, table, id, out);          \
    }
QUANTISED_FORMATS(ROW)
#undef ROW

#define ROW(name, element_nbytes)                                         \
    static void embed_##name(const struct matrix *table, int64_t id, float *out) \
    {                                                                           \
        embed_float(load_##name##_pair, element_nbytes, table, id, out);                      \
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
