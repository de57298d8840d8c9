/* Hands a list of kernel launches to HIP in one go: from Python each would take as long as the launch itself. */
#include <stddef.h>

#include "hipfire_cpu.h"

/* Tags of hipModuleLaunchKernel's `extra`: source hip_runtime_api.h. */
#define ARGUMENTS_POINTER ((void *)1)
#define ARGUMENTS_NBYTES ((void *)2)
#define END ((void *)3)

EXPORT int32_t hf_launch(hf_launch_fn launch, const struct launch *list, int32_t n, void *stream)
{
    for (const struct launch *at = list; at < list + n; at++) {
        size_t nbytes = at->arguments_nbytes;
        void *extra[] = {ARGUMENTS_POINTER, at->arguments, ARGUMENTS_NBYTES, &nbytes, END};
        const int32_t status =
            launch(at->function, at->grid[0], at->grid[1], at->grid[2], at->n_threads, 1, 1, 0, stream, NULL, extra);
        if (status)
            return status;
    }
    return 0;
}
