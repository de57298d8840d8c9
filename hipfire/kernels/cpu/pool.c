#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "hipfire_cpu.h"

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("yield")
#else
#define RELAX() ((void)0)
#endif

enum { SPINS = 300 };

/* A number that only grows, and threads that wait for it to change. */
struct signal {
    _Atomic int64_t value;
    _Atomic int sleepers;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

struct pool {
    int n_threads;
    pthread_t *threads;
    struct worker *workers;
    uint8_t *scratch;
    struct signal start, barrier;
    _Alignas(64) _Atomic int arrived;
    _Alignas(64) _Atomic int64_t next;
    bool stopped; /* written by the last to come to a barrier, read by all behind it */
    bool closing;
    job_fn job;
    void *argument;
    const volatile int32_t *cancel;
};

static void signal_open(struct signal *signal)
{
    pthread_mutex_init(&signal->mutex, NULL);
    pthread_cond_init(&signal->changed, NULL);
}

static void signal_close(struct signal *signal)
{
    pthread_mutex_destroy(&signal->mutex);
    pthread_cond_destroy(&signal->changed);
}

/* The value is stored before sleepers are read, and a sleeper counts itself before it reads the value: one of the two
 * always sees the other. */
static void signal_raise(struct signal *signal)
{
    atomic_fetch_add(&signal->value, 1);
    if (atomic_load(&signal->sleepers)) {
        pthread_mutex_lock(&signal->mutex);
        pthread_cond_broadcast(&signal->changed);
        pthread_mutex_unlock(&signal->mutex);
    }
}

static void signal_wait(struct signal *signal, int64_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&signal->value, memory_order_acquire) != seen)
            return;
        RELAX();
    }
    pthread_mutex_lock(&signal->mutex);
    atomic_fetch_add(&signal->sleepers, 1);
    while (atomic_load(&signal->value) == seen)
        pthread_cond_wait(&signal->changed, &signal->mutex);
    atomic_fetch_sub(&signal->sleepers, 1);
    pthread_mutex_unlock(&signal->mutex);
}

bool pool_barrier(struct worker *worker)
{
    struct pool *pool = worker->pool;
    int64_t seen = atomic_load(&pool->barrier.value);
    if (atomic_fetch_add(&pool->arrived, 1) + 1 == pool->n_threads) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
        pool->stopped = pool_cancelled(worker);
        signal_raise(&pool->barrier);
    } else {
        signal_wait(&pool->barrier, seen);
    }
    return !pool->stopped;
}

int64_t pool_claim(struct worker *worker, int64_t n, int64_t grain)
{
    if (pool_cancelled(worker))
        return n;
    int64_t first = atomic_fetch_add_explicit(&worker->pool->next, grain, memory_order_relaxed);
    return first < n ? first : n;
}

bool pool_cancelled(const struct worker *worker)
{
    const volatile int32_t *cancel = worker->pool->cancel;
    return cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED);
}

int pool_n_threads(const struct pool *pool)
{
    return pool->n_threads;
}

void pool_run(struct pool *pool, job_fn job, void *argument, const volatile int32_t *cancel)
{
    pool->job = job;
    pool->argument = argument;
    pool->cancel = cancel;
    atomic_store(&pool->next, 0);
    signal_raise(&pool->start);
    job(argument, &pool->workers[0]);
    pool_barrier(&pool->workers[0]);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct pool *pool = worker->pool;
    for (int64_t seen = 0;; seen++) {
        signal_wait(&pool->start, seen);
        if (pool->closing)
            return NULL;
        pool->job(pool->argument, worker);
        pool_barrier(worker);
    }
}

EXPORT struct pool *hf_pool_open(int32_t n_threads, int64_t scratch_nbytes)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    int64_t stride = (scratch_nbytes + 4095) / 4096 * 4096;
    signal_open(&pool->start);
    signal_open(&pool->barrier);
    pool->n_threads = 1;
    pool->threads = calloc((size_t)n_threads, sizeof *pool->threads);
    pool->workers = calloc((size_t)n_threads, sizeof *pool->workers);
    void *scratch = NULL;
    if (!pool->threads || !pool->workers || posix_memalign(&scratch, 4096, (size_t)(stride * n_threads) + 4096)) {
        hf_pool_close(pool);
        return NULL;
    }
    pool->scratch = scratch;
    for (int i = 0; i < n_threads; i++)
        pool->workers[i] = (struct worker){pool, pool->scratch + stride * i, i};
    for (int i = 1; i < n_threads; i++) {
        if (pthread_create(&pool->threads[i], NULL, work, &pool->workers[i])) {
            hf_pool_close(pool);
            return NULL;
        }
        pool->n_threads = i + 1;
    }
    return pool;
}

EXPORT void hf_pool_close(struct pool *pool)
{
    if (!pool)
        return;
    pool->closing = true;
    signal_raise(&pool->start);
    for (int i = 1; i < pool->n_threads; i++)
        pthread_join(pool->threads[i], NULL);
    signal_close(&pool->start);
    signal_close(&pool->barrier);
    free(pool->threads);
    free(pool->workers);
    free(pool->scratch);
    free(pool);
}
