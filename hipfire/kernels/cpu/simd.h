/* Vectors of 16 floats, or of what stands for 16 floats: the compiler splits them where the registers are narrower.
 *
 * Everything is written once with clang's vector extensions; only the integer dot product has forms of its own where
 * the target has an instruction for it. Integer results are exact, so that choice never changes a bit. Nor does the
 * width of the registers: each element goes through the same operations. What is left is whether the target has fused
 * multiply-add, hence variants with it agree bit for bit.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define INLINE static inline __attribute__((always_inline, unused))

/* Before a loop whose turns must become one stretch of code: over registers. */
#define UNROLL _Pragma("clang loop unroll(full)")

typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef int8_t i8x16 __attribute__((vector_size(16)));
typedef uint8_t u8x8 __attribute__((vector_size(8)));
typedef uint8_t u8x32 __attribute__((vector_size(32)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef int16_t i16x16 __attribute__((vector_size(32)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef uint16_t u16x32 __attribute__((vector_size(64)));
typedef int16_t i16x32 __attribute__((vector_size(64)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef _Float16 f16x16 __attribute__((vector_size(32)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x16 __attribute__((vector_size(64)));

enum { LANES = 16 };

#define DEFINE_MEMORY(type)                                \
    INLINE type load_##type(const void *p)                 \
    {                                                      \
        type v;                                            \
        memcpy(&v, p, sizeof v);                           \
        return v;                                          \
    }                                                      \
    INLINE void store_##type(void *p, type v)              \
    {                                                      \
        memcpy(p, &v, sizeof v);                           \
    }
DEFINE_MEMORY(i8x16)
DEFINE_MEMORY(u8x8)
DEFINE_MEMORY(u8x32)
DEFINE_MEMORY(i16x16)
DEFINE_MEMORY(u16x8)
DEFINE_MEMORY(u16x16)
DEFINE_MEMORY(f16x16)
DEFINE_MEMORY(f32x8)
DEFINE_MEMORY(f32x16)
DEFINE_MEMORY(i16x32)
DEFINE_MEMORY(i32x16)

INLINE f32x16 splat(float x)
{
    return (f32x16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

/* Two neighbouring int16, repeated for each of the rows of a tile. */
INLINE i16x32 splat_pair(const int16_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return (i16x32)((u32x16){0} + word);
}

/* 8 elements at p and 8 at p + other. */
#define JOIN(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)

INLINE f32x16 load_f32_pair(const uint8_t *p, int64_t other)
{
    return JOIN(load_f32x8(p), load_f32x8(p + other));
}

INLINE u16x16 load_u16_pair(const uint8_t *p, int64_t other)
{
    return JOIN(load_u16x8(p), load_u16x8(p + other));
}

INLINE f32x16 load_f16_pair(const uint8_t *p, int64_t other)
{
    return __builtin_convertvector((f16x16)load_u16_pair(p, other), f32x16);
}

INLINE f32x16 load_bf16_pair(const uint8_t *p, int64_t other)
{
    return (f32x16)(__builtin_convertvector(load_u16_pair(p, other), u32x16) << 16);
}

INLINE u8x16 load_u8_pair(const uint8_t *p, int64_t other)
{
    return JOIN(load_u8x8(p), load_u8x8(p + other));
}

/* 32 bytes of each, as words of 16 bits. */
INLINE u16x32 load_words_pair(const uint8_t *p, int64_t other)
{
    const u16x16 a = load_u16x16(p), b = load_u16x16(p + other);
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
                                   23, 24, 25, 26, 27, 28, 29, 30, 31);
}

/* a * b + c, rounded once where the target can. */
#if defined(__FMA__) || defined(__aarch64__)
#define FMA(a, b, c) __builtin_elementwise_fma(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

INLINE f32x16 fma16(f32x16 a, f32x16 b, f32x16 c)
{
    return FMA(a, b, c);
}

INLINE float fma1(float a, float b, float c)
{
    return FMA(a, b, c);
}

INLINE f32x16 load_f16_as_f32(const void *p)
{
    return __builtin_convertvector(load_f16x16(p), f32x16);
}

/* yes where the mask is set, else no. */
INLINE f32x16 choose(i32x16 mask, f32x16 yes, f32x16 no)
{
    return (f32x16)((mask & (i32x16)yes) | (~mask & (i32x16)no));
}

INLINE f32x16 larger(f32x16 a, f32x16 b)
{
    return choose(a > b, a, b);
}

/* Horizontal sum in one fixed order. */
INLINE float sum_lanes(f32x16 v)
{
    const f32x8 eight = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                        __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    return ((eight[0] + eight[4]) + (eight[2] + eight[6])) + ((eight[1] + eight[5]) + (eight[3] + eight[7]));
}

INLINE float largest_lane(f32x16 v)
{
    v = larger(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    return v[0] > v[1] ? v[0] : v[1];
}

/* To the nearest integer, ties to even, for |x| < 2**22. */
INLINE f32x16 nearest(f32x16 x)
{
    const f32x16 magic = splat(12582912.0f);
    return (x + magic) - magic;
}

/* sum[i] + w[2i] a[2i] + w[2i+1] a[2i+1]: products of neighbouring int16, added in pairs. */
INLINE i32x4 add_dot4(i32x4 sum, i16x8 w, i16x8 a)
{
#if defined(__SSE2__)
    return sum + (i32x4)_mm_madd_epi16((__m128i)w, (__m128i)a);
#elif defined(__aarch64__)
    const int32x4_t low = vmull_s16(vget_low_s16((int16x8_t)w), vget_low_s16((int16x8_t)a));
    return sum + (i32x4)vpaddq_s32(low, vmull_high_s16((int16x8_t)w, (int16x8_t)a));
#else
#error "no products of int16 for this architecture"
#endif
}

INLINE i32x8 add_dot8(i32x8 sum, i16x16 w, i16x16 a)
{
#if defined(__AVXVNNI__)
    return (i32x8)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)w, (__m256i)a);
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return (i32x8)_mm256_dpwssd_epi32((__m256i)sum, (__m256i)w, (__m256i)a);
#elif defined(__AVX2__)
    return sum + (i32x8)_mm256_madd_epi16((__m256i)w, (__m256i)a);
#else
    i16x8 w2[2], a2[2];
    i32x4 sum2[2];
    memcpy(w2, &w, sizeof w);
    memcpy(a2, &a, sizeof a);
    memcpy(sum2, &sum, sizeof sum);
    for (int i = 0; i < 2; i++)
        sum2[i] = add_dot4(sum2[i], w2[i], a2[i]);
    memcpy(&sum, sum2, sizeof sum);
    return sum;
#endif
}

INLINE i32x16 add_dot(i32x16 sum, i16x32 w, i16x32 a)
{
#if defined(__AVX512VNNI__)
    return (i32x16)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)w, (__m512i)a);
#else
    i16x16 w2[2], a2[2];
    i32x8 sum2[2];
    memcpy(w2, &w, sizeof w);
    memcpy(a2, &a, sizeof a);
    memcpy(sum2, &sum, sizeof sum);
    for (int i = 0; i < 2; i++)
        sum2[i] = add_dot8(sum2[i], w2[i], a2[i]);
    memcpy(&sum, sum2, sizeof sum);
    return sum;
#endif
}

/* e**x by range reduction to [-ln 2 / 2, ln 2 / 2] and a polynomial (the coefficients of Cephes' expf), below 2 ulp.
 * x is clamped to where the result is a normal float. */
INLINE f32x16 exponential(f32x16 x)
{
    x = choose(x < splat(-87.0f), splat(-87.0f), x);
    x = choose(x > splat(88.0f), splat(88.0f), x);
    f32x16 n = nearest(x * splat(1.44269504088896341f));
    f32x16 r = fma16(n, splat(-0.693359375f), x);
    r = fma16(n, splat(2.12194440e-4f), r);
    f32x16 p = splat(1.9875691500e-4f);
    p = fma16(p, r, splat(1.3981999507e-3f));
    p = fma16(p, r, splat(8.3334519073e-3f));
    p = fma16(p, r, splat(4.1665795894e-2f));
    p = fma16(p, r, splat(1.6666665459e-1f));
    p = fma16(p, r, splat(5.0000001201e-1f));
    p = fma16(p, r * r, r + splat(1.0f));
    i32x16 exponent = (__builtin_convertvector(n, i32x16) + 127) << 23;
    return p * (f32x16)exponent;
}
