/* What the kernels need of HIP, by the compiler's builtins: neither ROCm's headers nor its device library.
 *
 * The tests run the same sources on a CPU: with HIPFIRE_HOST this file is replaced by tests/hip_host/hip_host.h, which
 * gives the same names.
 */
#pragma once

#ifdef HIPFIRE_HOST
#include "hip_host.h"
#else

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define CONSTANT __attribute__((address_space(4)))

#pragma clang force_cuda_host_device begin
#include "../layout.h"
#pragma clang force_cuda_host_device end

/* A kernel whose workgroups have n threads. */
#define KERNEL(n) extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(n, n)))
#define INLINE static __device__ inline __attribute__((always_inline))

INLINE int thread() { return (int)__builtin_amdgcn_workitem_id_x(); }
INLINE int block_x() { return (int)__builtin_amdgcn_workgroup_id_x(); }
INLINE int block_y() { return (int)__builtin_amdgcn_workgroup_id_y(); }
INLINE int block_z() { return (int)__builtin_amdgcn_workgroup_id_z(); }
INLINE int wave_size() { return (int)__builtin_amdgcn_wavefrontsize(); }

/* All threads of the workgroup meet; what they wrote to LDS before, all see afterwards. */
INLINE void meet()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

/* The word of the lane whose number differs in the bits of MASK: among sixteen neighbours for these masks without
 * going through LDS. */
template <int MASK> INLINE int word_from_lane_xor(int x)
{
    constexpr int quad_perm = (MASK & 3) | (1 ^ (MASK & 3)) << 2 | (2 ^ (MASK & 3)) << 4 | (3 ^ (MASK & 3)) << 6;
    constexpr int row_mirror = 0x140, row_half_mirror = 0x141;
    if constexpr (MASK < 4 || MASK == 7 || MASK == 15)
        return __builtin_amdgcn_mov_dpp(x, MASK == 15 ? row_mirror : MASK == 7 ? row_half_mirror : quad_perm, 15, 15, true);
    else
        return __builtin_amdgcn_ds_bpermute((thread() % wave_size() ^ MASK) * 4, x);
}

INLINE float exp2_of(float x) { return __builtin_exp2f(x); }

/* The loads before this are begun before what comes after it. */
INLINE void ask_first() { __builtin_amdgcn_sched_barrier(0); }

/* Memory that nobody writes while the kernel runs, read at addresses that a wave's threads have in common: it goes through
 * the scalar cache into scalar registers. */
template <typename T> INLINE const CONSTANT T *constant(const T *p) { return (const CONSTANT T *)(uintptr_t)p; }

/* The same word, of which the compiler no longer knows how it was made: it keeps the mask whole, so that its bytes
 * become floats by one instruction each, instead of cutting every one of them out of the unmasked word first. */
INLINE uint32_t opaque(uint32_t word)
{
    asm("" : "+v"(word));
    return word;
}

/* The same number or pointer: what is made of it is made where it is used, and kept in no registers until then. */
INLINE int opaque_scalar(int x)
{
    asm("" : "+s"(x));
    return x;
}

template <typename T> INLINE const CONSTANT T *opaque(const CONSTANT T *p)
{
    asm("" : "+s"(p));
    return p;
}

/* The same number, which is not to be had before x is: it holds loads back for which there would be no registers. */
INLINE int after(int offset, float x)
{
    asm("" : "+s"(offset) : "v"(x));
    return offset;
}
#endif

typedef _Float16 half;
typedef float float2 __attribute__((ext_vector_type(2)));
typedef float float4 __attribute__((ext_vector_type(4)));
typedef float float8 __attribute__((ext_vector_type(8)));
typedef int int4 __attribute__((ext_vector_type(4)));
typedef uint32_t uint2 __attribute__((ext_vector_type(2)));
typedef uint32_t uint4 __attribute__((ext_vector_type(4)));
typedef half half2 __attribute__((ext_vector_type(2)));
typedef half half4 __attribute__((ext_vector_type(4)));
typedef half half8 __attribute__((ext_vector_type(8)));

struct bf16 {
    uint16_t bits;
    __device__ explicit operator float() const { return __builtin_bit_cast(float, (uint32_t)bits << 16); }
};

/* The element types of FLOAT_FORMATS. */
typedef float element_f32;
typedef half element_f16;
typedef bf16 element_bf16;

/* The x of the lane whose number differs in the bits of MASK. All lanes come here. */
template <int MASK, typename T> INLINE T from_lane_xor(T x)
{
    return __builtin_bit_cast(T, word_from_lane_xor<MASK>(__builtin_bit_cast(int, x)));
}

/* sum and the products of the signed bytes of two words. */
INLINE int dot4(uint32_t a, uint32_t b, int sum)
{
#if __has_builtin(__builtin_amdgcn_sudot4)
    return __builtin_amdgcn_sudot4(true, (int)a, true, (int)b, sum, false);
#elif __has_builtin(__builtin_amdgcn_sdot4)
    return __builtin_amdgcn_sdot4((int)a, (int)b, sum, false);
#else
    for (int shift = 0; shift < 32; shift += 8)
        sum += (int8_t)(a >> shift) * (int8_t)(b >> shift);
    return sum;
#endif
}

/* The sum of products of signed bytes w with integers of 16 bits, 256 hi + lo. */
struct wide_sum {
    int hi, lo;
};

INLINE wide_sum dot4_wide(uint32_t w, uint32_t hi, uint32_t lo, wide_sum sum)
{
#if __has_builtin(__builtin_amdgcn_sudot4) || __has_builtin(__builtin_amdgcn_sdot4)
    return {dot4(w, hi, sum.hi), dot4(w, lo, sum.lo)};
#else
#ifndef HIPFIRE_HOST
    /* For every row anew: the bytes of a tile as words, kept for the next row, would not fit the registers. */
    asm volatile("" : "+v"(w));
#endif
    for (int shift = 0; shift < 32; shift += 8)
        sum.lo += (int8_t)(w >> shift) * ((int8_t)(hi >> shift) * 256 + (int8_t)(lo >> shift));
    return sum;
#endif
}

INLINE int total(wide_sum sum) { return sum.hi * 256 + sum.lo; }
enum { MAX_HEAD_DIM = 512 };

INLINE float fma_of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE float2 fma_of(float2 a, float2 b, float2 c) { return __builtin_elementwise_fma(a, b, c); }
INLINE float4 fma_of(float4 a, float4 b, float4 c) { return __builtin_elementwise_fma(a, b, c); }
INLINE float max_of(float a, float b) { return __builtin_fmaxf(a, b); }
INLINE uint32_t max_of(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* e**x within 2 units in the last place: x in units of log 2, what the product lost made up for. */
INLINE float exp_of(float x)
{
    const float log2_e = 1.44269504f, rest = 1.92596299e-8f, log_2 = 0.693147181f;
    const float t = x * log2_e;
    const float lost = fma_of(x, log2_e, -t) + x * rest;
    const float y = exp2_of(t);
    /* Where y is 0 or infinite there is nothing to make up for, and `lost` may not be finite. */
    return y > 0.0f && y < __builtin_inff() ? fma_of(y, lost * log_2, y) : y;
}

template <int MASK, bool LARGEST> INLINE float with_other_lane(float x)
{
    const float other = from_lane_xor<MASK>(x);
    return LARGEST ? max_of(x, other) : x + other;
}

/* The sum, or with LARGEST the largest, of every lane's x, for all lanes to have. */
template <bool LARGEST> INLINE float over_wave(float x)
{
    x = with_other_lane<1, LARGEST>(x);
    x = with_other_lane<2, LARGEST>(x);
    /* Four have the same by now, then eight: from any lane of the other half. */
    x = with_other_lane<7, LARGEST>(x);
    x = with_other_lane<15, LARGEST>(x);
    x = with_other_lane<16, LARGEST>(x);
    return wave_size() == 64 ? with_other_lane<32, LARGEST>(x) : x;
}

/* The same of every thread's x, for all threads to have. `waves` is LDS for a float a wave; it may be used again once the
 * threads have met. The order depends on nothing but the size of the workgroup. */
template <int N_THREADS, bool LARGEST = false>
INLINE float over_block(float x, float *waves)
{
    x = over_wave<LARGEST>(x);
    if (thread() % wave_size() == 0)
        waves[thread() / wave_size()] = x;
    meet();
    float result = waves[0];
    for (int wave = 1; wave < N_THREADS / wave_size(); wave++)
        result = LARGEST ? max_of(result, waves[wave]) : result + waves[wave];
    meet();
    return result;
}
