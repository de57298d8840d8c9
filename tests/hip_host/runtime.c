/* A libamdhip64 whose one GPU is this CPU: the entry points that hipfire/hip uses, over kernels compiled for the host.
 *
 * Memory is malloc's, streams are synchronous; graph.c has what is captured. A kernel's workgroups run one after the other, their threads as fibers
 * that give way where all must meet. `host_kernels` comes from the generated trampolines.c.
 */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE /* which takes a jump to another stack for an error */
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "runtime.h"

enum { MAX_THREADS = 1024, STACK_NBYTES = 64 << 10, TOTAL_NBYTES = 1 << 30 };

extern const struct host_kernel host_kernels[];

struct {
    int thread, block[3];
} host_here;
const int host_wave_size = WAVE_SIZE;
int host_exchanged[2][MAX_THREADS];
int host_parity[MAX_THREADS];

/* A fiber is entered once by its context; from then on _setjmp and _longjmp switch, which need no system call. */
static struct fiber {
    ucontext_t context;
    jmp_buf resume;
    bool is_entered, is_done;
    int meeting; /* what it waits for */
} fibers[MAX_THREADS];
static ucontext_t end_of_fiber;
static jmp_buf scheduler;
static char *stacks;
static void (*kernel)(const char *);
static const char *kernel_arguments;

void host_meet(int what)
{
    const int self = host_here.thread;
    fibers[self].meeting = what;
    if (!_setjmp(fibers[self].resume))
        _longjmp(scheduler, 1);
}

static void run_fiber(void)
{
    const int self = host_here.thread;
    kernel(kernel_arguments);
    fibers[self].is_done = true;
    fibers[self].meeting = -1;
    _longjmp(scheduler, 1);
}

static void run_until_it_meets(struct fiber *fiber)
{
    if (_setjmp(scheduler))
        return;
    if (fiber->is_entered)
        _longjmp(fiber->resume, 1);
    fiber->is_entered = true;
    setcontext(&fiber->context);
}

/* False where the threads do not all meet at the same place. */
static bool run_block(int n_threads)
{
    for (int i = 0; i < n_threads; i++) {
        getcontext(&fibers[i].context);
        fibers[i].context.uc_stack.ss_sp = stacks + (size_t)i * STACK_NBYTES;
        fibers[i].context.uc_stack.ss_size = STACK_NBYTES;
        fibers[i].context.uc_link = &end_of_fiber;
        fibers[i].is_entered = fibers[i].is_done = false;
        makecontext(&fibers[i].context, run_fiber, 0);
    }
    do {
        for (int i = 0; i < n_threads; i++) {
            host_here.thread = i;
            run_until_it_meets(&fibers[i]);
            if (i && (fibers[i].meeting != fibers[0].meeting || fibers[i].is_done != fibers[0].is_done))
                return false;
        }
    } while (!fibers[0].is_done);
    return true;
}

int run_kernel(const struct host_kernel *function, const unsigned grid[3], unsigned n_threads, const void *arguments)
{
    if (!stacks)
        stacks = malloc((size_t)MAX_THREADS * STACK_NBYTES);
    kernel = function->run;
    kernel_arguments = arguments;
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                host_here.block[0] = (int)x, host_here.block[1] = (int)y, host_here.block[2] = (int)z;
                if (!run_block((int)n_threads)) {
                    fprintf(stderr, "%s: the threads of a workgroup do not all meet\n", function->name);
                    return LAUNCH_FAILURE;
                }
            }
    return SUCCESS;
}

int hipModuleLaunchKernel(const struct host_kernel *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, struct stream *stream, void **parameters,
                          void **extra)
{
    (void)shared, (void)parameters;
    const unsigned grid[3] = {gx, gy, gz};
    if (!gx || !gy || !gz || by != 1 || bz != 1 || bx > MAX_THREADS || extra[0] != (void *)1)
        return INVALID_VALUE;
    if (stream->capture)
        return capture_kernel(stream, function, grid, bx, extra[1], *(size_t *)extra[3]);
    return run_kernel(function, grid, bx, extra[1]);
}

static size_t n_allocated;

int allocate(void **out, size_t nbytes)
{
    if (n_allocated + nbytes > TOTAL_NBYTES)
        return OUT_OF_MEMORY;
    /* Its size before it; filled with what shows as NaN where somebody reads it unwritten. */
    char *memory = aligned_alloc(256, (nbytes + 511) / 256 * 256);
    memset(memory, 0xff, nbytes + 256);
    memcpy(memory, &nbytes, sizeof nbytes);
    n_allocated += nbytes;
    *out = memory + 256;
    return SUCCESS;
}

int release(void *memory)
{
    size_t nbytes;
    if (!memory)
        return SUCCESS;
    memcpy(&nbytes, (char *)memory - 256, sizeof nbytes);
    n_allocated -= nbytes;
    free((char *)memory - 256);
    return SUCCESS;
}

int hipMalloc(void **out, size_t nbytes) { return allocate(out, nbytes); }
int hipFree(void *memory) { return release(memory); }
int hipHostMalloc(void **out, size_t nbytes, unsigned flags) { return (void)flags, allocate(out, nbytes); }
int hipHostFree(void *memory) { return release(memory); }
int hipHostGetDevicePointer(void **device, void *host, unsigned flags) { return *device = host, flags ? INVALID_VALUE : SUCCESS; }

int hipMemGetInfo(size_t *free_nbytes, size_t *total)
{
    *free_nbytes = TOTAL_NBYTES - n_allocated;
    *total = TOTAL_NBYTES;
    return SUCCESS;
}

int hipMemcpy(void *to, const void *from, size_t nbytes, int kind)
{
    (void)kind;
    memmove(to, from, nbytes);
    return SUCCESS;
}

/* Graphs of kernels only: nothing else is captured here. */
int hipMemcpyAsync(void *to, const void *from, size_t nbytes, int kind, struct stream *stream)
{
    return stream->capture ? CAPTURE_UNSUPPORTED : hipMemcpy(to, from, nbytes, kind);
}

int hipMemsetAsync(void *to, int value, size_t nbytes, struct stream *stream)
{
    if (stream->capture)
        return CAPTURE_UNSUPPORTED;
    memset(to, value, nbytes);
    return SUCCESS;
}

int hipInit(unsigned flags) { return (void)flags, SUCCESS; }
int hipSetDevice(int index) { return index ? INVALID_VALUE : SUCCESS; }
int hipStreamSynchronize(struct stream *stream) { return stream->capture ? CAPTURE_UNSUPPORTED : SUCCESS; }

int hipStreamCreateWithFlags(struct stream **out, unsigned flags)
{
    const int status = allocate((void **)out, sizeof **out);
    if (!status)
        **out = (struct stream){0};
    return (void)flags, status;
}

int hipStreamDestroy(struct stream *stream) { return release(stream); }
int hipModuleLoadData(void **out, const void *code) { return (void)code, allocate(out, 1); }
int hipModuleUnload(void *module) { return release(module); }
const char *hipGetErrorString(int status) { return status == OUT_OF_MEMORY ? "out of memory" : "an error"; }

const char *hipGetErrorName(int status)
{
    return status == OUT_OF_MEMORY ? "hipErrorOutOfMemory" : status == LAUNCH_FAILURE ? "hipErrorLaunchFailure" : "hipErrorUnknown";
}

int hipRuntimeGetVersion(int *version) { return *version = 60000000, SUCCESS; }
int hipGetDeviceCount(int *n) { return *n = 1, SUCCESS; }

int hipDeviceGetPCIBusId(char *out, int nbytes, int index)
{
    (void)index;
    snprintf(out, (size_t)nbytes, "0000:03:00.0");
    return SUCCESS;
}

int hipGetDeviceProperties(void *out, int index) { return (void)out, (void)index, INVALID_VALUE; }

/* Offsets: hipDeviceProp_t of ROCm 6. */
int hipGetDevicePropertiesR0600(char *out, int index)
{
    const uint64_t total = TOTAL_NBYTES;
    const int32_t n_compute_units = 2;
    memset(out, 0, 1472);
    memcpy(out + 388, &n_compute_units, sizeof n_compute_units);
    strcpy(out, "this CPU");
    memcpy(out + 288, &total, sizeof total);
    strcpy(out + 1160, ARCH);
    return index ? INVALID_VALUE : SUCCESS;
}

int hipModuleGetFunction(const struct host_kernel **out, void *module, const char *name)
{
    (void)module;
    for (const struct host_kernel *at = host_kernels; at->name; at++)
        if (!strcmp(at->name, name))
            return *out = at, SUCCESS;
    return NOT_FOUND;
}
