/* The ops that treat each row by itself: norms, gates, quantisation, RoPE. */
#include <math.h>

#include "formats.h"
#include "kernels.h"

/* One row of floats to int16 by blocks of 32: d = max |x| / 32767, q to the nearest, ties to even. A value that is not
 * finite makes its block's d not finite, so that it cannot vanish unseen. */
static void quantise_row(const float *x, uint8_t *out, int64_t n)
{
    int16_t *q = (int16_t *)out;
    float *d = (float *)(out + 2 * n), *s32 = d + n / 32, *s16 = s32 + n / 32;
    for (int64_t b = 0; b < n / 32; b++) {
        f32x8 v[4], largest = splat(0.0f), poison = splat(0.0f);
        for (int i = 0; i < 4; i++) {
            v[i] = load_f32x8(x + b * 32 + i * 8);
            largest = max8(largest, max8(v[i], -v[i]));
            poison = poison + v[i] * splat(0.0f);
        }
        const float top = largest8(largest) + sum8(poison);
        const float inverse = top > 0.0f ? 32767.0f / top : 0.0f;
        i32x8 sums[2];
        d[b] = top / 32767.0f;
        for (int i = 0; i < 4; i++) {
            const i32x8 whole = __builtin_convertvector(round8(v[i] * splat(inverse)), i32x8);
            const i16x8 narrow = __builtin_convertvector(whole, i16x8);
            const i16x8 swapped = __builtin_shufflevector(narrow, narrow, 0, 2, 1, 3, 4, 6, 5, 7);
            memcpy(q + b * 32 + i * 8, &swapped, sizeof swapped);
            sums[i / 2] = i % 2 ? sums[i / 2] + whole : whole;
        }
        int32_t total[2] = {0, 0};
        for (int i = 0; i < LANES; i++) {
            total[0] += sums[0][i];
            total[1] += sums[1][i];
        }
        s32[b] = d[b] * (float)(total[0] + total[1]);
        s16[2 * b] = d[b] * (float)total[0];
        s16[2 * b + 1] = d[b] * (float)total[1];
    }
}

/* What a row-wise op leaves behind besides its floats. */
static void finish_row(const struct op *op, int64_t row)
{
    if (op->out_q16)
        quantise_row(op->out + row * op->width_out, op->out_q16 + row * q16_row_nbytes(op->width_out), op->width_out);
}

/* out_q16 = x, for what an op that is not row-wise wrote. */
void run_quantise(const struct op *op, const struct step *step, struct worker *worker)
{
    const int64_t n_rows = rows_of(op, step);
    for (int64_t row; (row = pool_claim(worker, n_rows, 1)) < n_rows;)
        quantise_row(op->x + row * op->width_in, op->out_q16 + row * q16_row_nbytes(op->width_in), op->width_in);
}

static float sum_of_squares(const float *x, int n)
{
    f32x8 acc = splat(0.0f);
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        f32x8 v = load_f32x8(x + i);
        acc = fma8(v, v, acc);
    }
    float sum = sum8(acc);
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
        rms_norm(op->x + row * width, op->weight, residual, op->eps, op->out + row * width, (int)width);
        finish_row(op, row);
    }
}

INLINE f32x8 silu(f32x8 x)
{
    return x / (splat(1.0f) + exp8(-x));
}

/* 0.5 x (1 + tanh u) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x**3). */
INLINE f32x8 gelu_tanh(f32x8 x)
{
    const f32x8 u = splat(0.79788456080286536f) * (x + splat(0.044715f) * x * x * x);
    return x / (splat(1.0f) + exp8(splat(-2.0f) * u));
}

/* out = activation(gate) * up, x the two side by side. Columns beyond the last whole vector go through one that is
 * filled up with zeros, so that every element is computed alike. */
INLINE void gate_row(f32x8 (*activation)(f32x8), const float *gate, const float *up, float *out, int64_t n)
{
    for (int64_t i = 0; i + LANES <= n; i += LANES)
        store_f32x8(out + i, activation(load_f32x8(gate + i)) * load_f32x8(up + i));
    const int64_t rest = n % LANES, at = n - rest;
    f32x8 tail = {0};
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
        float *out = op->out + row * n;
        if (op->activation == ACTIVATION_SILU)
            gate_row(silu, gate, gate + n, out, n);
        else
            gate_row(gelu_tanh, gate, gate + n, out, n);
        finish_row(op, row);
    }
}

/* out[j] = x[output_rows[j]]. */
void run_gather_outputs(const struct op *op, const struct step *step, struct worker *worker)
{
    const int64_t width = op->width_out;
    for (int64_t row; (row = pool_claim(worker, step->n_outputs, 1)) < step->n_outputs;) {
        memcpy(op->out + row * width, op->x + step->output_rows[row] * width, (size_t)width * sizeof(float));
        finish_row(op, row);
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

/* A head of Q or K: normalised, rotated, written to out. */
static void rotate_head(const struct op *op, const float *x, const float *norm, const float *angles, float *out)
{
    const int n = op->n_rot / 2, stride = op->interleaved ? 2 : 1, pair = op->interleaved ? 1 : n;
    if (norm)
        rms_norm(x, norm, NULL, op->eps, out, op->head_dim);
    else
        memcpy(out, x, (size_t)op->head_dim * sizeof(float));
    for (int i = 0; i < n; i++) {
        const float cosine = angles[i], sine = angles[n + i];
        const float a = out[i * stride], b = out[i * stride + pair];
        out[i * stride] = a * cosine - b * sine;
        out[i * stride + pair] = a * sine + b * cosine;
    }
}

static void store_kv(const struct op *op, uint8_t *state, int64_t at, float x)
{
    if (op->kv_is_f16)
        ((_Float16 *)state)[at] = (_Float16)x;
    else
        ((float *)state)[at] = x;
}

/* Rotate Q to out, K to keys, V to values; the layouts of the state are attention.c's. */
void run_rope_store(const struct op *op, const struct step *step, struct worker *worker)
{
    const int dim = op->head_dim, padded = padded_dim(dim);
    float *head = (float *)worker->scratch;
    for (int64_t row; (row = pool_claim(worker, step->n_tokens, 1)) < step->n_tokens;) {
        const float *angles = op->angles + row * op->n_rot, *x = op->x + row * op->width_in;
        const int64_t position = step->positions[row], slot = step->slots[row];
        for (int h = 0; h < op->n_heads; h++, x += dim)
            rotate_head(op, x, op->q_norm, angles, op->out + row * op->width_out + h * dim);
        for (int h = 0; h < op->n_kv_heads; h++, x += dim) {
            const int64_t plane = (slot * op->n_kv_heads + h) * op->max_seq;
            rotate_head(op, x, op->k_norm, angles, head);
            for (int i = 0; i < dim; i++)
                store_kv(op, op->keys, (plane + position / LANES * LANES) * dim + i * LANES + position % LANES, head[i]);
        }
        for (int h = 0; h < op->n_kv_heads; h++, x += dim) {
            const int64_t plane = (slot * op->n_kv_heads + h) * op->max_seq;
            for (int i = 0; i < dim; i++)
                store_kv(op, op->values, (plane + position) * padded + i, x[i]);
        }
    }
}
