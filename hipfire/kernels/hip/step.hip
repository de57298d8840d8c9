/* The numbers of a step, from the host's memory into the device's: token ids, positions and slots [n_tokens], output
 * rows [n_outputs], in arrays of max_tokens, max_tokens, max_tokens and max_outputs, one after the other on both sides.
 *
 * A kernel and not a copy by the runtime: kernels in a HIP graph were seen to read what such a copy had replaced before
 * (https://github.com/ROCm/hip/issues/3887, 3902), and for a few bytes a launch costs less. Volatile: the host writes
 * there between steps, so no cache may answer.
 */
#include "hip.h"

enum { N_THREADS = 256, N_ARRAYS = 3 };

KERNEL(N_THREADS)
void fetch_step(const volatile int *host, int *step, int n_tokens, int n_outputs, int max_tokens)
{
    const int i = block_x() * N_THREADS + thread();
    if (i < n_tokens)
        for (int array = 0; array < N_ARRAYS; array++)
            step[array * max_tokens + i] = host[array * max_tokens + i];
    if (i < n_outputs)
        step[N_ARRAYS * max_tokens + i] = host[N_ARRAYS * max_tokens + i];
}
