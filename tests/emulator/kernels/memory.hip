#include "device.h"

typedef __attribute__((address_space(3))) int shared_int;

KERNEL histogram(const u8 *in, u32 *counts, int n) {
    SHARED static u32 local[256];
    for (int i = thread(); i < 256; i += block_size()) local[i] = 0;
    barrier();
    for (int i = index(); i < n; i += block_size() * __builtin_amdgcn_grid_size_x() / block_size()) {
        __hip_atomic_fetch_add(&local[in[i]], 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    barrier();
    for (int i = thread(); i < 256; i += block_size()) {
        __hip_atomic_fetch_add(&counts[i], local[i], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    }
}

KERNEL atomics(const int *in, int *out, float *sum, u64 *wide, int n) {
    int i = index();
    if (i >= n) return;
    __hip_atomic_fetch_max(&out[0], in[i], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_min(&out[1], in[i], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_xor(&out[2], in[i], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    int old = __hip_atomic_fetch_add(&out[3], 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    out[8 + old] = i;
    int expected = 0;
    __hip_atomic_compare_exchange_strong(&out[4], &expected, i + 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_add(sum, (float)in[i], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_fetch_add(wide, (u64)(u32)in[i] << 20, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// Reads past the end of a buffer give zero, by its descriptor: no branch.
KERNEL buffer_copy(const float *in, float *out, int n, int n_read) {
    int i = index();
    if (i >= n) return;
    auto from = __builtin_amdgcn_make_buffer_rsrc((void *)in, 0, n_read * 4, 0x31016000);
    auto to = __builtin_amdgcn_make_buffer_rsrc((void *)out, 0, n * 4, 0x31016000);
    u32 bits = __builtin_amdgcn_raw_buffer_load_b32(from, i * 4, 0, 0);
    __builtin_amdgcn_raw_buffer_store_b32(bits, to, i * 4, 0, 0);
}

// A pointer that is to LDS for some lanes and to global memory for others.
KERNEL flat(const int *in, int *out, int n) {
    SHARED static int local[1024];
    local[thread()] = in[thread()] * 2;
    barrier();
    const int *pointer = thread() & 1 ? (const int *)&local[thread()] : &in[thread()];
    asm volatile("" : "+v"(pointer));
    if (index() < n) out[index()] = *pointer;
}

// An array that is indexed by data lives in scratch.
KERNEL scratch(const int *in, int *out, int n) {
    int i = index();
    if (i >= n) return;
    volatile int values[16];
    for (int k = 0; k < 16; k++) values[k] = in[i] * k;
    for (int k = 0; k < 16; k++) values[(in[i] + k) & 15] += values[(in[i] * 3 + k) & 15];
    u32 sum = 0;
    for (int k = 0; k < 16; k++) sum = sum * 31 + values[k];
    out[i] = sum;
}

// A table of constants in the code object, and one of pointers into it, which the loader must relocate.
__attribute__((constant)) const int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
KERNEL lookup(const int *in, int *out, int n) {
    int i = index();
    if (i < n) out[i] = table[in[i] & 7];
}

KERNEL uninitialised(float *out, int n) {
    float x;
    asm volatile("; %0 is left as it was" : "={v40}"(x));
    if (index() < n) out[index()] = x;
}

KERNEL lds_beyond(int *out, int n) {
    extern SHARED int room[];
    room[thread() + n] = thread();
    barrier();
    out[thread()] = room[thread()];
}

KERNEL endless(int *out) {
    while (__hip_atomic_load(out, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) == 0) {}
}
