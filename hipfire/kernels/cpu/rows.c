/* The ops that treat each row by itself: norms, gates, quantisation, RoPE. */
#include <math.h>

#include "kernels.h"
#include "kv.h"

/* x + ROUNDING is a float whose lowest bits are the nearest integer to x, ties to even, for |x| < 2**22. */
#define ROUNDING 12582912.0f

/* 32 floats to int16: d = max |x| / 32767, q to the nearest, ties to even. A value that is not finite makes d not
 * finite, so that it cannot vanish unseen: as integers, the bits of infinity and NaN are larger than those of numbers. */
INLINE void quantise_block(const float *x, struct q16_block *out)
{
    const f32x16 v[2] = {load_f32x16(x), load_f32x16(x + LANES)};
    const i32x16 largest = __builtin_elementwise_max((i32x16)v[0] & INT32_MAX, (i32x16)v[1] & INT32_MAX);
    const int32_t top_bits = __builtin_reduce_max(largest);
    float top;
    memcpy(&top, &top_bits, sizeof top);
    const float inverse = top > 0.0f ? 32767.0f / top : 0.0f;
    int32_t sum[2];
    out->d = top / 32767.0f;
    for (int i = 0; i < 2; i++) {
        const i16x32 words = (i16x32)(v[i] * splat(inverse) + splat(ROUNDING));
        const i16x16 q = __builtin_shufflevector(words, words, 0, 4, 2, 6, 8, 12, 10, 14, 16, 20, 18, 22, 24, 28, 26, 30);
        store_i16x16(out->q + i * LANES, q);
        sum[i] = __builtin_reduce_add(add_dot8((i32x8){0}, q, (i16x16){0} + 1));
        out->sum[i] = out->d * (float)sum[i];
    }
    out->all = out->d * (float)(sum[0] + sum[1]);
}

static void quantise_row(const float *x, uint8_t *rows, int64_t n, int64_t row)
{
    struct q16_block *out = q16_row_at(rows, n, row);
    for (int64_t b = 0; b < n / TILE_COLUMNS; b++)
        quantise_block(x + b * TILE_COLUMNS, out + b);
}

/* Where a row-wise op puts its floats. Where only the integers are read, that is the thread's scratch, which has more
 * room than a matrix has columns: it stays in the cache, the whole buffer would go to memory and back. */
static float *out_row(const struct op *op, int64_t row, struct worker *worker)
{
    return op->out ? op->out + row * op->width_out : (float *)worker->scratch;
}

/* What a row-wise op leaves behind besides its floats. */
static void finish_row(const struct op *op, int64_t row, const float *out)
{
    if (op->out_q16)
        quantise_row(out, op->out_q16, op->width_out, row);
}

/* out_q16 = x, for what an op that is not row-wise wrote. */
void run_quantise(const struct op *op, const struct step *step, struct worker *worker)
{
    const int64_t n_rows = rows_of(op, step);
    for (int64_t row; (row = pool_claim(worker, n_rows, 1)) < n_rows;)
        quantise_row(op->x + row * op->width_in, op->out_q16, op->width_in, row);
}

static float sum_of_squares(const float *x, int n)
{
    f32x16 acc = splat(0.0f);
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        f32x16 v = load_f32x16(x + i);
        acc = fma16(v, v, acc);
    }
    float sum = sum_lanes(acc);
    for (; i < n; i++)
        sum = fma1(x[i], x[i], sum);
    return sum;
}

static void rms_norm(const float *x, const float *weight, const float *residual, float eps, float *out, int n)
{
    const float inverse = 1.0f / sqrtf(sum_of_squares(x, n) / (float)n + eps);
    for (int i = 0; i < n; i++) {
        const float y = x[i] * inverse * weight[i];
        out[i] = residual ? y + residual[i] : y;
    }
}

/* out = norm(x) * weight (+ residual). */
void run_rms_norm(const struct op *op, const struct step *step, struct worker *worker)
{
    const int64_t n_rows = rows_of(op, step), width = op->width_out;
    for (int64_t row; (row = pool_claim(worker, n_rows, 1)) < n_rows;) {
        const float *residual = op->residual ? op->residual + row * width : NULL;
        float *out = out_row(op, row, worker);
        rms_norm(op->x + row * width, op->weight, residual, op->eps, out, (int)width);
        finish_row(op, row, out);
    }
}

INLINE f32x16 silu(f32x16 x)
{
    return x / (splat(1.0f) + exponential(-x));
}

/* 0.5 x (1 + tanh u) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x**3). */
INLINE f32x16 gelu_tanh(f32x16 x)
{
    const f32x16 u = splat(0.79788456080286536f) * (x + splat(0.044715f) * x * x * x);
    return x / (splat(1.0f) + exponential(splat(-2.0f) * u));
}

/* out = activation(gate) * up, x the two side by side. Columns beyond the last whole vector go through one that is
 * filled up with zeros, so that every element is computed alike. */
INLINE void gate_row(f32x16 (*activation)(f32x16), const float *gate, const float *up, float *out, int64_t n)
{
    for (int64_t i = 0; i + LANES <= n; i += LANES)
        store_f32x16(out + i, activation(load_f32x16(gate + i)) * load_f32x16(up + i));
    const int64_t rest = n % LANES, at = n - rest;
    f32x16 tail = {0};
    memcpy(&tail, gate + at, (size_t)rest * sizeof(float));
    tail = activation(tail);
    for (int64_t i = 0; i < rest; i++)
        out[at + i] = tail[i] * up[at + i];
}

void run_gated(const struct op *op, const struct step *step, struct worker *worker)
{
    const int64_t n_rows = rows_of(op, step), n = op->width_out;
    for (int64_t row; (row = pool_claim(worker, n_rows, 1)) < n_rows;) {
        const float *gate = op->x + row * op->width_in;
        float *out = out_row(op, row, worker);
        if (op->activation == ACTIVATION_SILU)
            gate_row(silu, gate, gate + n, out, n);
        else
            gate_row(gelu_tanh, gate, gate + n, out, n);
        finish_row(op, row, out);
    }
}

/* out[j] = x[output_rows[j]]. */
void run_gather_outputs(const struct op *op, const struct step *step, struct worker *worker)
{
    const int64_t width = op->width_out;
    for (int64_t row; (row = pool_claim(worker, step->n_outputs, 1)) < step->n_outputs;) {
        float *out = out_row(op, row, worker);
        memcpy(out, op->x + step->output_rows[row] * width, (size_t)width * sizeof(float));
        finish_row(op, row, out);
    }
}

/* out = [cos(p f) scale, sin(p f) scale], f = weight[n_rot / 2]. */
void run_rope_angles(const struct op *op, const struct step *step, struct worker *worker)
{
    const int n = op->n_rot / 2;
    for (int64_t row; (row = pool_claim(worker, step->n_tokens, 1)) < step->n_tokens;) {
        float *out = op->out + row * 2 * n;
        for (int i = 0; i < n; i++) {
            const float angle = (float)step->positions[row] * op->weight[i];
            out[i] = cosf(angle) * op->scale;
            out[n + i] = sinf(angle) * op->scale;
        }
    }
}

/* Turn pairs of x that lie `distance` apart, the next pair `stride` further: x + i y times cosine + i sine. */
INLINE void rotate_pairs(const float *restrict angles, int n, int stride, int distance, float *restrict x)
{
    for (int i = 0; i < n; i++) {
        const float cosine = angles[i], sine = angles[n + i];
        const float a = x[i * stride], b = x[i * stride + distance];
        x[i * stride] = a * cosine - b * sine;
        x[i * stride + distance] = a * sine + b * cosine;
    }
}

/* A head of Q or K: normalised, rotated, written to out. */
static void rotate_head(const struct op *op, const float *x, const float *norm, const float *angles, float *out)
{
    const int n = op->n_rot / 2;
    if (norm)
        rms_norm(x, norm, NULL, op->eps, out, op->head_dim);
    else
        memcpy(out, x, (size_t)op->head_dim * sizeof(float));
    if (op->interleaved)
        rotate_pairs(angles, n, 2, 1, out);
    else
        rotate_pairs(angles, n, 1, n, out);
}

/* Rotate Q to out, K to keys, V to values; the layouts of the state are in kv.h. */
void run_rope_store(const struct op *op, const struct step *step, struct worker *worker)
{
    const int dim = op->head_dim;
    float *head = (float *)worker->scratch;
    for (int64_t row; (row = pool_claim(worker, step->n_tokens, 1)) < step->n_tokens;) {
        const float *angles = op->angles + row * op->n_rot, *x = op->x + row * op->width_in;
        const int64_t position = step->positions[row], slot = step->slots[row];
        for (int h = 0; h < op->n_heads; h++, x += dim)
            rotate_head(op, x, op->q_norm, angles, op->out + row * op->width_out + h * dim);
        for (int h = 0; h < op->n_kv_heads; h++, x += dim) {
            rotate_head(op, x, op->k_norm, angles, head);
            kv_store_key(op, kv_tile_at(op, op->keys, slot, h, position), (int)(position % KV_TILE), head);
        }
        for (int h = 0; h < op->n_kv_heads; h++, x += dim)
            kv_store_value(op, kv_tile_at(op, op->values, slot, h, position), (int)(position % KV_TILE), x);
    }
}
