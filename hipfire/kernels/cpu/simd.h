/* Vectors of 256 bits for every target: the compiler splits them where registers are narrower.
 *
 * Everything is written once with clang's vector extensions; only the integer dot product has a form of its own where
 * the target has an instruction for it. Integer results are exact, so that choice never changes a bit; float results
 * depend on whether the target has fused multiply-add, hence on the variant, and on nothing else.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline, unused))

typedef uint8_t u8x32 __attribute__((vector_size(32)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef int16_t i16x16 __attribute__((vector_size(32)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef uint8_t u8x8 __attribute__((vector_size(8)));
typedef int8_t i8x8 __attribute__((vector_size(8)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef _Float16 f16x8 __attribute__((vector_size(16)));

enum { LANES = 8 };

#define DEFINE_MEMORY(type, name)                          \
    INLINE type load_##name(const void *p)                 \
    {                                                      \
        type v;                                            \
        memcpy(&v, p, sizeof v);                           \
        return v;                                          \
    }                                                      \
    INLINE void store_##name(void *p, type v)              \
    {                                                      \
        memcpy(p, &v, sizeof v);                           \
    }
DEFINE_MEMORY(u8x32, u8x32)
DEFINE_MEMORY(u16x16, u16x16)
DEFINE_MEMORY(f32x8, f32x8)
DEFINE_MEMORY(u8x8, u8x8)
DEFINE_MEMORY(i8x8, i8x8)
DEFINE_MEMORY(u16x8, u16x8)
DEFINE_MEMORY(f16x8, f16x8)

INLINE f32x8 splat(float x)
{
    return (f32x8){x, x, x, x, x, x, x, x};
}

/* Two neighbouring int16, repeated for each of the eight rows of a tile. */
INLINE i16x16 splat_pair(const int16_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return (i16x16)((u32x8){word, word, word, word, word, word, word, word});
}

/* a * b + c, rounded once where the target can. */
INLINE f32x8 fma8(f32x8 a, f32x8 b, f32x8 c)
{
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_elementwise_fma(a, b, c);
#else
    return a * b + c;
#endif
}

INLINE float fma1(float a, float b, float c)
{
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

INLINE f32x8 load_f32_as_f32(const void *p)
{
    return load_f32x8(p);
}

INLINE f32x8 load_f16_as_f32(const void *p)
{
    return __builtin_convertvector(load_f16x8(p), f32x8);
}

INLINE f32x8 load_bf16_as_f32(const void *p)
{
    return (f32x8)(__builtin_convertvector(load_u16x8(p), u32x8) << 16);
}

/* yes where the mask is set, else no. */
INLINE f32x8 select8(i32x8 mask, f32x8 yes, f32x8 no)
{
    return (f32x8)((mask & (i32x8)yes) | (~mask & (i32x8)no));
}

INLINE f32x8 max8(f32x8 a, f32x8 b)
{
    return select8(a > b, a, b);
}

/* Horizontal sum in one fixed order. */
INLINE float sum8(f32x8 v)
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

INLINE float largest8(f32x8 v)
{
    float best = v[0];
    for (int i = 1; i < LANES; i++)
        best = v[i] > best ? v[i] : best;
    return best;
}

/* To the nearest integer, ties to even, for |x| < 2**22. */
INLINE f32x8 round8(f32x8 x)
{
    const f32x8 magic = splat(12582912.0f);
    return (x + magic) - magic;
}

/* Products of neighbouring int16, added in pairs: out[i] = w[2i] a[2i] + w[2i+1] a[2i+1]. */
INLINE i32x8 dot2(i16x16 w, i16x16 a)
{
#if defined(__AVX2__)
    return (i32x8)_mm256_madd_epi16((__m256i)w, (__m256i)a);
#elif defined(__SSE2__)
    __m128i w2[2], a2[2];
    memcpy(w2, &w, sizeof w);
    memcpy(a2, &a, sizeof a);
    const __m128i sums[2] = {_mm_madd_epi16(w2[0], a2[0]), _mm_madd_epi16(w2[1], a2[1])};
    i32x8 out;
    memcpy(&out, sums, sizeof out);
    return out;
#else
    const i32x8 w_even = (i32x8)((u32x8)w << 16) >> 16, a_even = (i32x8)((u32x8)a << 16) >> 16;
    return w_even * a_even + ((i32x8)w >> 16) * ((i32x8)a >> 16);
#endif
}

/* e**x by range reduction to [-ln 2 / 2, ln 2 / 2] and a polynomial (the coefficients of Cephes' expf), below 2 ulp.
 * x is clamped to where the result is a normal float. */
INLINE f32x8 exp8(f32x8 x)
{
    x = select8(x < splat(-87.0f), splat(-87.0f), x);
    x = select8(x > splat(88.0f), splat(88.0f), x);
    f32x8 n = round8(x * splat(1.44269504088896341f));
    f32x8 r = fma8(n, splat(-0.693359375f), x);
    r = fma8(n, splat(2.12194440e-4f), r);
    f32x8 p = splat(1.9875691500e-4f);
    p = fma8(p, r, splat(1.3981999507e-3f));
    p = fma8(p, r, splat(8.3334519073e-3f));
    p = fma8(p, r, splat(4.1665795894e-2f));
    p = fma8(p, r, splat(1.6666665459e-1f));
    p = fma8(p, r, splat(5.0000001201e-1f));
    p = fma8(p, r * r, r + splat(1.0f));
    i32x8 exponent = (__builtin_convertvector(n, i32x8) + 127) << 23;
    return p * (f32x8)exponent;
}
