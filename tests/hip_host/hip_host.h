/* The names of hipfire/kernels/hip/hip.h for a CPU: a workgroup's threads are fibers, LDS is static memory. */
#pragma once

#include "layout.h"

#define __global__
#define __device__
#define __shared__ static
#define CONSTANT
#define KERNEL(n) extern "C"
#define INLINE static inline

/* Where the running fiber stands; set by the scheduler. */
struct host_place {
    int thread, block[3];
};
extern "C" {
extern host_place host_here;
extern const int host_wave_size;
/* Give way until every thread of the workgroup has come here. `what` must be the same for all. */
void host_meet(int what);
extern int host_exchanged[2][1024];
extern int host_parity[1024];
}

INLINE int thread() { return host_here.thread; }
INLINE int block_x() { return host_here.block[0]; }
INLINE int block_y() { return host_here.block[1]; }
INLINE int block_z() { return host_here.block[2]; }
INLINE int wave_size() { return host_wave_size; }
INLINE void meet() { host_meet(0); }
INLINE void meet_in_lds() { host_meet(0); }
INLINE int uniform(int x) { return x; }

/* Two buffers in turn, so that none is written while somebody may still read it. */
template <int MASK> INLINE int word_from_lane_xor(int x)
{
    const int self = thread(), parity = host_parity[self] ^= 1;
    host_exchanged[parity][self] = x;
    host_meet(1 + MASK);
    return host_exchanged[parity][self ^ MASK];
}

INLINE void ask_first() {}
template <typename T> INLINE T opaque(T x) { return x; }
INLINE int opaque_scalar(int x) { return x; }
INLINE int after(int offset, float) { return offset; }
INLINE float exp2_of(float x) { return __builtin_exp2f(x); }
template <typename T> INLINE const T *constant(const T *p) { return p; }
