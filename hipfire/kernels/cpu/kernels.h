/* The kernels of the ops, one function each; run.c has the table of them. */
#pragma once

#include "hipfire_cpu.h"
#include "pool.h"

/* Every thread of the pool calls it; together they do the op. Only rows of the step may be touched. */
typedef void (*kernel_fn)(const struct op *op, const struct step *step, struct worker *worker);

void run_embed(const struct op *op, const struct step *step, struct worker *worker);
void run_rms_norm(const struct op *op, const struct step *step, struct worker *worker);
void run_linear(const struct op *op, const struct step *step, struct worker *worker);
void run_rope_angles(const struct op *op, const struct step *step, struct worker *worker);
void run_rope_store(const struct op *op, const struct step *step, struct worker *worker);
void run_attention(const struct op *op, const struct step *step, struct worker *worker);
void run_gated(const struct op *op, const struct step *step, struct worker *worker);
void run_gather_outputs(const struct op *op, const struct step *step, struct worker *worker);
void run_quantise(const struct op *op, const struct step *step, struct worker *worker);

static inline int64_t rows_of(const struct op *op, const struct step *step)
{
    return op->per_output ? step->n_outputs : step->n_tokens;
}
