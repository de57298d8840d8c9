/* Causal attention over chunks of 128 positions (FlashAttention's recurrence, FlashDecoding's split).
 *
 * A workgroup has one row, one KV head and one chunk: it leaves for each query head of the group the largest score, the
 * sum of the weights and the weighted sum of the values. `attention_join` then adds up the chunks of a row, in order. Chunks
 * begin at absolute multiples of 128, so a row's result does not depend on what else is in the step.
 *
 * Keys lie as [slot][kv head][position / 32][dim / 8][32 positions][8], so that the threads of a wave, a position each,
 * read one stretch of memory; values as [slot][kv head][position][dim]. max_seq is a multiple of 32, dim of 8.
 */
#include "activations.h"

enum { N_THREADS = 128, CHUNK = N_THREADS, MAX_HEAD_DIM = 256, MAX_WAVES = 4, JOIN_THREADS = MAX_HEAD_DIM / 4 };

INLINE float key_product(const half *key, const float *q)
{
    const half8 k = *(const half8 *)key;
    float sum = 0.0f;
    for (int i = 0; i < 8; i++)
        sum = fma_of((float)k[i], q[i], sum);
    return sum;
}

INLINE float key_product(const float *key, const float *q)
{
    float sum = 0.0f;
    for (int quad = 0; quad < 2; quad++) {
        const float4 k = *(const float4 *)(key + 4 * quad);
        for (int i = 0; i < 4; i++)
            sum = fma_of(k[i], q[4 * quad + i], sum);
    }
    return sum;
}

struct span {
    int first, from, to; /* the chunk's first position; what is seen of it, [from, to) from there on */
};

template <typename T> struct head {
    const float *q;
    const T *keys, *values; /* of this slot and KV head */
    int dim;
    float scale;
};

struct scratch {
    float q[MAX_HEAD_DIM], weights[CHUNK], sums[2 * N_THREADS], waves[MAX_WAVES];
};

/* partial = [largest score, sum of weights, weighted sum of the values [dim]]. */
template <typename T> INLINE void attend(const head<T> *of, span seen, float *partial, scratch *lds)
{
    const int dim = of->dim, at = thread();
    for (int i = at; i < dim; i += N_THREADS)
        lds->q[i] = of->q[i];
    meet();
    const bool sees = at >= seen.from && at < seen.to;
    float score = -__builtin_inff();
    if (sees) {
        const int position = seen.first + at;
        const T *key = of->keys + (int64_t)(position / 32 * 32) * dim + position % 32 * 8;
        float sum = 0.0f;
        for (int i = 0; i < dim / 8; i++)
            sum += key_product(key + i * 32 * 8, lds->q + 8 * i);
        score = sum * of->scale;
    }
    const float largest = over_block<N_THREADS, true>(score, lds->waves);
    const float weight = sees ? exp_of(score - largest) : 0.0f;
    const float total = over_block<N_THREADS>(weight, lds->waves);
    lds->weights[at] = weight;
    meet();
    /* A thread has two neighbouring dims, and every n_parts-th position. */
    const int n_pairs = dim / 2, n_parts = N_THREADS / n_pairs, part = at / n_pairs, pair = at % n_pairs;
    float sum0 = 0.0f, sum1 = 0.0f;
    if (part < n_parts)
        for (int i = seen.from + part; i < seen.to; i += n_parts) {
            const T *value = of->values + (int64_t)(seen.first + i) * dim + 2 * pair;
            sum0 = fma_of(lds->weights[i], (float)value[0], sum0);
            sum1 = fma_of(lds->weights[i], (float)value[1], sum1);
        }
    lds->sums[2 * at] = sum0;
    lds->sums[2 * at + 1] = sum1;
    meet();
    for (int i = at; i < dim; i += N_THREADS) {
        float sum = lds->sums[i];
        for (int p = 1; p < n_parts; p++)
            sum += lds->sums[p * dim + i];
        partial[2 + i] = sum;
    }
    if (at == 0) {
        partial[0] = largest;
        partial[1] = total;
    }
    meet();
}

#define ATTENTION(name, T)                                                                                            \
    KERNEL(N_THREADS)                                                                                                 \
    void attention_##name(const float *q, const T *keys, const T *values, const int *positions, const int *slots,     \
                          float *partials, int first_row, int n_heads, int n_kv_heads, int dim, int max_seq,          \
                          int window, int n_chunks, float scale)                                                      \
    {                                                                                                                 \
        __shared__ scratch lds;                                                                                       \
        const int row = first_row + block_z(), kv_head = block_y(), group = n_heads / n_kv_heads;                     \
        const int end = positions[row] + 1, begin = window && end > window ? end - window : 0;                        \
        const int first = block_x() * CHUNK;                                                                          \
        if (first >= end || first + CHUNK <= begin)                                                                   \
            return;                                                                                                   \
        const span seen = {first, begin > first ? begin - first : 0, end - first < CHUNK ? end - first : CHUNK};      \
        const int64_t plane = ((int64_t)slots[row] * n_kv_heads + kv_head) * max_seq * dim;                           \
        for (int h = kv_head * group; h < (kv_head + 1) * group; h++) {                                               \
            const head<T> of = {q + ((int64_t)row * n_heads + h) * dim, keys + plane, values + plane, dim, scale};    \
            attend(&of, seen, partials + (((int64_t)block_z() * n_heads + h) * n_chunks + block_x()) * (dim + 2),     \
                   &lds);                                                                                             \
        }                                                                                                             \
    }
ATTENTION(f16, half)
ATTENTION(f32, float)

/* out = the weighted sum of a head's chunks over the sum of their weights. A thread has four dims. */
KERNEL(JOIN_THREADS)
void attention_join(const float *partials, const int *positions, float *out, activations *out_q16, int first_row,
                    int n_heads, int dim, int window, int n_chunks)
{
    const int h = block_x(), row = first_row + block_y(), i = 4 * thread();
    const int end = positions[row] + 1, begin = window && end > window ? end - window : 0;
    const float *chunks = partials + ((int64_t)block_y() * n_heads + h) * n_chunks * (dim + 2);
    const int first = begin / CHUNK, last = (end - 1) / CHUNK;
    float largest = -__builtin_inff();
    for (int c = first; c <= last; c++)
        largest = max_of(largest, chunks[(int64_t)c * (dim + 2)]);
    float total = 0.0f;
    float4 sum = {};
    for (int c = first; c <= last; c++) {
        const float *chunk = chunks + (int64_t)c * (dim + 2);
        const float share = exp_of(chunk[0] - largest);
        const float4 part = load_quad(chunk + 2, i, dim);
        total = fma_of(share, chunk[1], total);
        for (int k = 0; k < 4; k++)
            sum[k] = fma_of(share, part[k], sum[k]);
    }
    put_quad(out, out_q16, (int64_t)row * n_heads + h, i, dim, sum / total);
}
