/* What the kinds of attention have in common: what a work item is, and how it is called. */
#pragma once

#include "hipfire_cpu.h"

enum { MAX_QUERIES = 48 /* of one work item: heads of rows */ };

/* The heads [head, head + n_heads) of rows [row, end). The rows are of one slot and follow each other in position; the
 * heads have one KV head. */
struct queries_of {
    int64_t row, end;
    int head, n_heads;
};

/* The first position that a row at `position` sees. */
static inline int64_t first_seen(const struct op *op, int64_t position)
{
    return op->window && position >= op->window ? position + 1 - op->window : 0;
}

typedef void (*attend_fn)(const struct op *op, const struct step *step, const struct queries_of *item, uint8_t *scratch);

void attend_to_floats(const struct op *op, const struct step *step, const struct queries_of *item, uint8_t *scratch);
void attend_to_integers(const struct op *op, const struct step *step, const struct queries_of *item, uint8_t *scratch);

int64_t float_scratch_nbytes(int head_dim);
int64_t integer_scratch_nbytes(int head_dim);
