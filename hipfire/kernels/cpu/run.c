/* Runs a program: every thread goes through the ops in order, and all meet after each. */
#define _GNU_SOURCE
#include <time.h>

#include "kernels.h"

static const kernel_fn KERNELS[N_OP_KINDS] = {
    [OP_EMBED] = run_embed,
    [OP_RMS_NORM] = run_rms_norm,
    [OP_LINEAR] = run_linear,
    [OP_ROPE_ANGLES] = run_rope_angles,
    [OP_ROPE_STORE] = run_rope_store,
    [OP_ATTENTION] = run_attention,
    [OP_GATED] = run_gated,
    [OP_GATHER_OUTPUTS] = run_gather_outputs,
    [OP_QUANTISE] = run_quantise,
};

struct run {
    const struct op *ops;
    int32_t n_ops;
    const struct step *step;
    int64_t *op_ns; /* or null */
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

static void run_ops(void *argument, struct worker *worker)
{
    const struct run *run = argument;
    for (const struct op *op = run->ops; op < run->ops + run->n_ops; op++) {
        const bool is_timed = run->op_ns && worker->index == 0;
        const int64_t start = is_timed ? now_ns() : 0;
        KERNELS[op->kind](op, run->step, worker);
        if (!pool_barrier(worker))
            return;
        if (is_timed)
            run->op_ns[op - run->ops] = now_ns() - start;
    }
}

EXPORT bool hf_run(struct pool *pool, const struct op *ops, int32_t n_ops, const struct step *step,
                   const volatile int32_t *cancel, int64_t *op_ns)
{
    struct run run = {ops, n_ops, step, op_ns};
    pool_run(pool, run_ops, &run, cancel);
    return !__atomic_load_n(cancel, __ATOMIC_RELAXED);
}

EXPORT int32_t hf_abi_version(void)
{
    return ABI_VERSION;
}
