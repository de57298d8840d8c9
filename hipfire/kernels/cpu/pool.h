/* A pool of threads that work through the ops of a program together.
 *
 * Work is claimed item by item from a shared counter, so that a thread whose core is busy with something else does less
 * and nobody waits for its share. No result depends on who computed what. Waiting threads spin briefly, then sleep.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pool;

struct worker {
    struct pool *pool;
    uint8_t *scratch;
    int index;
};

typedef void (*job_fn)(void *argument, struct worker *worker);

/* Run job(argument, worker) on every thread of the pool; return when all are done. */
void pool_run(struct pool *pool, job_fn job, void *argument, const volatile int32_t *cancel);

/* Wait until every thread of the pool has come here. False when the run was cancelled: leave the job at once. */
bool pool_barrier(struct worker *worker);

/* Claim up to `grain` of n items: the first one's index, or n when there is nothing left. Counts anew after a barrier. */
int64_t pool_claim(struct worker *worker, int64_t n, int64_t grain);

bool pool_cancelled(const struct worker *worker);
int pool_n_threads(const struct pool *pool);
