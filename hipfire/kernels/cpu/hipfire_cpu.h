/* The interface of the compiled CPU kernels: what devices/cpu.py declares by ctypes. Knows no models and no files. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* Raised with every change of a struct or function below; devices/cpu.py refuses a library of another number. */
enum { ABI_VERSION = 9 };

enum op_kind {
    OP_EMBED,
    OP_RMS_NORM,
    OP_LINEAR,
    OP_ROPE_ANGLES,
    OP_ROPE_STORE,
    OP_ATTENTION,
    OP_GATED,
    OP_GATHER_OUTPUTS,
    OP_QUANTISE,
    N_OP_KINDS
};

/* Element types of the keys and values (kv.h). */
enum kv_format { KV_F32, KV_F16, KV_Q16, KV_Q8, N_KV_FORMATS };

enum activation { ACTIVATION_SILU, ACTIVATION_GELU_TANH };

/* A packed weight (formats.h) and where its outputs go in the op's row. */
struct matrix {
    const uint8_t *packed;
    const float *bias; /* [n_out], or null */
    int32_t n_out, n_in, format, column;
};

/* One op of a program. Which fields an op reads, and what they mean, is said where it is run; the rest is zero.
 * Activations are rows of `width` floats (out, x, residual) or of q16_row_nbytes(width) bytes (out_q16, x_q16). */
struct op {
    int32_t kind;
    int32_t per_output; /* rows: 0 the step's tokens, 1 its outputs */
    float *out; /* of an op that writes out_q16 too: or null */
    uint8_t *out_q16;
    const float *x;
    const uint8_t *x_q16;
    const float *residual;
    const float *weight;
    const float *angles;
    const float *q_norm, *k_norm;
    uint8_t *keys, *values;
    const struct matrix *matrices;
    int32_t n_matrices, width_in, width_out;
    int32_t n_heads, n_kv_heads, head_dim, n_rot, interleaved;
    int32_t window; /* 0: none */
    int32_t activation;
    int32_t kv_format, max_seq;
    float eps, scale;
};

struct step {
    const int32_t *token_ids, *positions, *slots; /* [n_tokens] */
    const int32_t *output_rows;                   /* [n_outputs] */
    int32_t n_tokens, n_outputs;
};

struct pool;

EXPORT int32_t hf_abi_version(void);
/* Whether the machine can run the variant: "x86_64", "x86_64_avx2", "x86_64_avxvnni", "x86_64_avx512", "aarch64". */
EXPORT bool hf_machine_has(const char *variant);
/* The name of format number i, or null past the last. */
EXPORT const char *hf_format_name(int32_t i);
EXPORT int64_t hf_packed_nbytes(int32_t format, int64_t n_out, int64_t n_in);
EXPORT int64_t hf_q16_row_nbytes(int64_t n);
/* Scratch that a thread needs for a matrix of n_in columns, and for attention with heads of head_dim elements. */
EXPORT int64_t hf_linear_scratch_nbytes(int64_t n_in);
EXPORT int64_t hf_attention_scratch_nbytes(int32_t head_dim);
/* Bytes of one layer's keys, and of its values. max_seq is a multiple of 32. */
EXPORT int64_t hf_kv_nbytes(int32_t n_slots, int32_t n_kv_heads, int32_t head_dim, int32_t max_seq, int32_t format);
/* Make the first positions of slot `target` what those of another slot, `source`, are. `op` is one that stores. */
EXPORT void hf_kv_copy(const struct op *op, int32_t source, int32_t target, int32_t n_positions);

/* Threads that run programs; the caller's is one of them. Null when threads or memory could not be had. */
EXPORT struct pool *hf_pool_open(int32_t n_threads, int64_t scratch_nbytes);
EXPORT void hf_pool_close(struct pool *pool);

/* Pack a matrix from the format's raw rows. */
EXPORT void hf_pack(struct pool *pool, int32_t format, const uint8_t *raw, uint8_t *packed, int64_t n_out, int64_t n_in);

/* Run the ops in order. False when *cancel was found set; what the step wrote is then undefined. Unless `op_ns` is null,
 * op_ns[i] is set to how long op number i took until all threads were done with it. */
EXPORT bool hf_run(struct pool *pool, const struct op *ops, int32_t n_ops, const struct step *step,
                   const volatile int32_t *cancel, int64_t *op_ns);

/* Rows of n scores, n <= 2**20: sampling.c. Whether all are finite. */
EXPORT bool hf_is_finite(const float *scores, int64_t n);
/* out[i] = the score, or -inf where allowed[i] is 0. */
EXPORT void hf_allow(const float *scores, const uint8_t *allowed, int64_t n, float *out);
/* The ids of the k highest, 1 <= k <= n, best first, of equals the lowest id. */
EXPORT int64_t hf_best_scratch_nbytes(int64_t n);
EXPORT void hf_best(const float *scores, int64_t n, int64_t k, int32_t *ids, void *scratch);
/* 2**42 e**((score - highest) / temperature), rounded down; per_score is log2(e) / temperature. And their sum. */
EXPORT void hf_weights(const float *scores, int64_t n, float highest, float per_score, uint64_t *out);
EXPORT uint64_t hf_total(const float *scores, int64_t n, float highest, float per_score);
/* The id where the running sum of the weights that are `least` or more passes share / 2**53 of the whole. */
EXPORT int64_t hf_draw(const float *scores, int64_t n, float highest, float per_score, uint64_t least, uint64_t share);

/* A GPU kernel to launch: its arguments as they lie in memory, grid in workgroups of n_threads. */
struct launch {
    void *function;
    void *arguments;
    uint32_t arguments_nbytes;
    uint32_t grid[3], n_threads;
};

/* hipModuleLaunchKernel. */
typedef int32_t (*hf_launch_fn)(void *function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x,
                                uint32_t block_y, uint32_t block_z, uint32_t shared_nbytes, void *stream,
                                void **parameters, void **extra);

/* Launch them in order; the first status that is not 0, or 0. */
EXPORT int32_t hf_launch(hf_launch_fn launch, const struct launch *list, int32_t n, void *stream);
