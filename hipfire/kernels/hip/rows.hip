/* The ops that treat each row by itself: norms, gates, RoPE, the choice of rows. A thread has four columns at a time. */
#include "activations.h"
#include "kv.h"

enum { N_THREADS = 256, QUAD_THREADS = 64, HEAD_THREADS = 64, MAX_WAVES = 8 };

template <int THREADS> INLINE float inverse_rms(const float *x, int n, float eps, float *waves)
{
    float sum = 0.0f;
    for (int i = 4 * thread(); i < n; i += 4 * THREADS) {
        const float4 quad = load_quad(x, i, n);
        for (int k = 0; k < 4; k++)
            sum = fma_of(quad[k], quad[k], sum);
    }
    return 1.0f / __builtin_sqrtf(over_block<THREADS>(sum, waves) / (float)n + eps);
}

/* out = x / sqrt(mean(x**2) + eps) * weight (+ residual); a workgroup has a row. */
KERNEL(N_THREADS)
void rms_norm(const float *x, const float *weight, const float *residual, float *out, activations *out_q16, int n,
              float eps)
{
    __shared__ float waves[MAX_WAVES];
    const int64_t row = block_x();
    const float inverse = inverse_rms<N_THREADS>(x + row * n, n, eps, waves);
    for (int first = 0; first < n; first += 4 * N_THREADS) {
        const int i = first + 4 * thread();
        float4 y = load_quad(x + row * n, i, n) * inverse * load_quad(weight, i, n);
        if (residual)
            y += load_quad(residual + row * n, i, n);
        put_quad(out, out_q16, row, i, n, y);
    }
}

INLINE float silu(float x) { return x / (1.0f + exp_of(-x)); }

/* 0.5 x (1 + tanh u) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x**3). */
INLINE float gelu_tanh(float x)
{
    const float u = 0.79788456080286536f * (x + 0.044715f * x * x * x);
    return x / (1.0f + exp_of(-2.0f * u));
}

/* out = activation(gate) * up, the two side by side in x. */
#define GATED(activation)                                                                \
    KERNEL(QUAD_THREADS)                                                                 \
    void gated_##activation(const float *x, float *out, activations *out_q16, int n)     \
    {                                                                                    \
        const int i = 4 * (block_x() * QUAD_THREADS + thread());                         \
        const int64_t row = block_y();                                                   \
        float4 y = load_quad(x + row * 2 * n, i, n);                                     \
        for (int k = 0; k < 4; k++)                                                      \
            y[k] = activation(y[k]);                                                     \
        y *= load_quad(x + row * 2 * n + n, i, n);                                       \
        put_quad(out, out_q16, row, i, n, y);                                            \
    }
GATED(silu)
GATED(gelu_tanh)

/* out_q16 = x, for what an op that cannot do it in passing wrote. */
KERNEL(QUAD_THREADS)
void quantise(const float *x, activations *out_q16, int n)
{
    const int i = 4 * (block_x() * QUAD_THREADS + thread());
    const int64_t row = block_y();
    put_quad(nullptr, out_q16, row, i, n, load_quad(x + row * n, i, n));
}

/* out[j] = x[output_rows[j]]. */
KERNEL(N_THREADS)
void gather_outputs(const float *x, const int *output_rows, float *out, int n)
{
    const int i = block_x() * N_THREADS + thread();
    if (i < n)
        out[(int64_t)block_y() * n + i] = x[(int64_t)output_rows[block_y()] * n + i];
}

struct turn {
    float cosine, sine;
};

/* Cosine and sine to about 1e-7, for angles up to 2**23: reduced to +-pi/4 by pi/2 in three pieces (Cody and Waite), then
 * the Taylor polynomials. */
INLINE turn turn_of(float angle)
{
    const float n = __builtin_rintf(angle * 0.636619747f);
    float x = fma_of(n, -1.57079637f, angle);
    x = fma_of(n, 4.37113883e-8f, x);
    x = fma_of(n, 1.71512451e-15f, x);
    const float xx = x * x;
    float sine = fma_of(xx, 2.75573192e-6f, -1.98412698e-4f);
    sine = fma_of(xx, sine, 8.33333333e-3f);
    sine = fma_of(xx, sine, -1.66666667e-1f);
    sine = fma_of(xx * x, sine, x);
    float cosine = fma_of(xx, 2.48015873e-5f, -1.38888889e-3f);
    cosine = fma_of(xx, cosine, 4.16666667e-2f);
    cosine = fma_of(xx, cosine, -0.5f);
    cosine = fma_of(xx, cosine, 1.0f);
    const int quarter = (int)n & 3;
    const turn t = quarter & 1 ? (turn){-sine, cosine} : (turn){cosine, sine};
    return quarter & 2 ? (turn){-t.cosine, -t.sine} : t;
}

/* out = [cos(p f) scale..., sin(p f) scale...], p of the row, f of the n frequencies. */
KERNEL(HEAD_THREADS)
void rope_angles(const float *frequencies, const int *positions, float *out, int n, float scale)
{
    const int64_t row = block_x();
    for (int i = thread(); i < n; i += HEAD_THREADS) {
        const turn t = turn_of((float)positions[row] * frequencies[i]);
        out[row * 2 * n + i] = t.cosine * scale;
        out[row * 2 * n + n + i] = t.sine * scale;
    }
}

struct rope {
    const float *qkv, *angles, *q_norm, *k_norm;
    float *out;
    const int *positions, *slots;
    int n_heads, n_kv_heads, dim, n_rot, interleaved, max_seq;
    float eps;
};

/* A head of Q or K in LDS: normalised, then rotated. */
INLINE void rotate(const rope *to, const float *x, const float *norm, const float *angles, float *head, float *waves)
{
    const float inverse = norm ? inverse_rms<HEAD_THREADS>(x, to->dim, to->eps, waves) : 1.0f;
    for (int i = thread(); i < to->dim; i += HEAD_THREADS)
        head[i] = norm ? x[i] * inverse * norm[i] : x[i];
    meet();
    const int n = to->n_rot / 2, stride = to->interleaved ? 2 : 1, pair = to->interleaved ? 1 : n;
    for (int i = thread(); i < n; i += HEAD_THREADS) {
        const float cosine = angles[i], sine = angles[n + i];
        const float a = head[i * stride], b = head[i * stride + pair];
        head[i * stride] = a * cosine - b * sine;
        head[i * stride + pair] = a * sine + b * cosine;
    }
    meet();
}

/* Rotate Q to out, K to keys; V goes to values as it is. A workgroup has a head of a row. */
template <typename Kv> INLINE void store_head(const rope *to, uint8_t *keys, uint8_t *values, float *head, float *waves)
{
    const int h = block_x(), dim = to->dim, n_all = to->n_heads + 2 * to->n_kv_heads;
    const int64_t row = block_y();
    const float *x = to->qkv + (row * n_all + h) * dim, *angles = to->angles + row * to->n_rot;
    if (h < to->n_heads) {
        rotate(to, x, to->q_norm, angles, head, waves);
        for (int i = thread(); i < dim; i += HEAD_THREADS)
            to->out[(row * to->n_heads + h) * dim + i] = head[i];
        return;
    }
    const int kv_head = (h - to->n_heads) % to->n_kv_heads, position = to->positions[row];
    const int64_t plane = ((int64_t)to->slots[row] * to->n_kv_heads + kv_head) * to->max_seq;
    const int row_nbytes = Kv::row_nbytes(dim);
    if (h - to->n_heads < to->n_kv_heads) {
        rotate(to, x, to->k_norm, angles, head, waves);
        uint8_t *tile = keys + (plane + position / KV_TILE * KV_TILE) * row_nbytes;
        Kv::template store_key<HEAD_THREADS>(tile, dim, position, head);
    } else {
        Kv::template store_value<HEAD_THREADS>(values + (plane + position) * row_nbytes, dim, x);
    }
}

#define ROPE_STORE(name, Kv)                                                                                         \
    KERNEL(HEAD_THREADS)                                                                                             \
    void rope_store_##name(const float *qkv, const float *angles, const float *q_norm, const float *k_norm,          \
                           float *out, const int *positions, const int *slots, uint8_t *keys, uint8_t *values,       \
                           int n_heads, int n_kv_heads, int dim, int n_rot, int interleaved, int max_seq, float eps) \
    {                                                                                                                \
        __shared__ float head[MAX_HEAD_DIM], waves[MAX_WAVES];                                                       \
        const rope to = {qkv, angles, q_norm, k_norm, out, positions, slots, n_heads, n_kv_heads,                    \
                         dim, n_rot,  interleaved, max_seq, eps};                                                    \
        store_head<Kv>(&to, keys, values, head, waves);                                                              \
    }
KV_TYPES(ROPE_STORE)
