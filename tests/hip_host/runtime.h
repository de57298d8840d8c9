/* What runtime.c and graph.c of the host's libamdhip64 share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, ILLEGAL_STATE = 401, NOT_FOUND = 500, LAUNCH_FAILURE = 719,
    CAPTURE_UNSUPPORTED = 900
};

struct host_kernel {
    const char *name;
    void (*run)(const char *arguments);
};

struct graph;
struct stream {
    struct graph *capture; /* what is captured, or null */
};

int allocate(void **out, size_t nbytes);
int release(void *memory);
int run_kernel(const struct host_kernel *function, const unsigned grid[3], unsigned n_threads, const void *arguments);
int capture_kernel(struct stream *stream, const struct host_kernel *function, const unsigned grid[3],
                   unsigned n_threads, const void *arguments, size_t nbytes);
