#include "device.h"

// One 16 × 16 tile of A · Bᵀ per wave: A is [16][K] and B is [16][K], both with K contiguous; out is [16][16].
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x8 __attribute__((ext_vector_type(8)));
typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef int i32x2 __attribute__((ext_vector_type(2)));
typedef int i32x4 __attribute__((ext_vector_type(4)));
typedef int i32x8 __attribute__((ext_vector_type(8)));
typedef int i32x16 __attribute__((ext_vector_type(16)));
typedef _Float16 f16x4 __attribute__((ext_vector_type(4)));
typedef _Float16 f16x8 __attribute__((ext_vector_type(8)));
typedef _Float16 f16x16 __attribute__((ext_vector_type(16)));
typedef short i16x4 __attribute__((ext_vector_type(4)));
typedef short i16x8 __attribute__((ext_vector_type(8)));
typedef short i16x16 __attribute__((ext_vector_type(16)));
typedef __bf16 bf16x8 __attribute__((ext_vector_type(8)));

template <typename V, typename T> DEVICE V load(const T *at) {
    V v;
    __builtin_memcpy(&v, at, sizeof v);
    return v;
}

#if defined(__gfx1100__)
KERNEL matmul_f16(const _Float16 *a, const _Float16 *b, float *out, int k) {
    int l = thread();
    f32x8 c = {};
    for (int i = 0; i < k; i += 16) {
        c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(load<f16x16>(a + l % 16 * k + i), load<f16x16>(b + l % 16 * k + i), c);
    }
    for (int r = 0; r < 8; r++) out[(2 * r + l / 16) * 16 + l % 16] = c[r];
}
KERNEL matmul_bf16(const u16 *a, const u16 *b, float *out, int k) {
    int l = thread();
    f32x8 c = {};
    for (int i = 0; i < k; i += 16) {
        c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(load<i16x16>(a + l % 16 * k + i), load<i16x16>(b + l % 16 * k + i), c);
    }
    for (int r = 0; r < 8; r++) out[(2 * r + l / 16) * 16 + l % 16] = c[r];
}
KERNEL matmul_i8(const signed char *a, const signed char *b, int *out, int k) {
    int l = thread();
    i32x8 c = {};
    for (int i = 0; i < k; i += 16) {
        c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, load<i32x4>(a + l % 16 * k + i), true, load<i32x4>(b + l % 16 * k + i), c, false);
    }
    for (int r = 0; r < 8; r++) out[(2 * r + l / 16) * 16 + l % 16] = c[r];
}
// Lanes 16 to 31 hold nothing, though the instruction wants the rows there again.
KERNEL matmul_not_repeated(const _Float16 *a, const _Float16 *b, float *out, int k) {
    int l = thread();
    f16x16 x = load<f16x16>(a + l % 16 * k);
    if (l >= 16) x = 0;
    f32x8 c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, load<f16x16>(b + l % 16 * k), f32x8{});
    for (int r = 0; r < 8; r++) out[(2 * r + l / 16) * 16 + l % 16] = c[r];
}
#elif defined(__gfx1201__)
KERNEL matmul_f16(const _Float16 *a, const _Float16 *b, float *out, int k) {
    int l = thread(), at = l % 16 * k + l / 16 * 8;
    f32x8 c = {};
    for (int i = 0; i < k; i += 16) {
        c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(load<f16x8>(a + at + i), load<f16x8>(b + at + i), c);
    }
    for (int r = 0; r < 8; r++) out[(r + l / 16 * 8) * 16 + l % 16] = c[r];
}
KERNEL matmul_bf16(const u16 *a, const u16 *b, float *out, int k) {
    int l = thread(), at = l % 16 * k + l / 16 * 8;
    f32x8 c = {};
    for (int i = 0; i < k; i += 16) {
        c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(load<i16x8>(a + at + i), load<i16x8>(b + at + i), c);
    }
    for (int r = 0; r < 8; r++) out[(r + l / 16 * 8) * 16 + l % 16] = c[r];
}
KERNEL matmul_i8(const signed char *a, const signed char *b, int *out, int k) {
    int l = thread(), at = l % 16 * k + l / 16 * 8;
    i32x8 c = {};
    for (int i = 0; i < k; i += 16) {
        c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, load<i32x2>(a + at + i), true, load<i32x2>(b + at + i), c, false);
    }
    for (int r = 0; r < 8; r++) out[(r + l / 16 * 8) * 16 + l % 16] = c[r];
}
#elif defined(__gfx90a__) || defined(__gfx942__)
KERNEL matmul_f16(const _Float16 *a, const _Float16 *b, float *out, int k) {
    int l = thread(), at = l % 16 * k + l / 16 * 4;
    f32x4 c = {};
    for (int i = 0; i < k; i += 16) {
        c = __builtin_amdgcn_mfma_f32_16x16x16f16(load<f16x4>(a + at + i), load<f16x4>(b + at + i), c, 0, 0, 0);
    }
    for (int r = 0; r < 4; r++) out[(r + l / 16 * 4) * 16 + l % 16] = c[r];
}
KERNEL matmul_bf16(const u16 *a, const u16 *b, float *out, int k) {
    int l = thread(), at = l % 16 * k + l / 16 * 4;
    f32x4 c = {};
    for (int i = 0; i < k; i += 16) {
        c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(load<i16x4>(a + at + i), load<i16x4>(b + at + i), c, 0, 0, 0);
    }
    for (int r = 0; r < 4; r++) out[(r + l / 16 * 4) * 16 + l % 16] = c[r];
}
KERNEL matmul_i8(const signed char *a, const signed char *b, int *out, int k) {
    i32x4 c = {};
#ifdef __gfx90a__
    int l = thread(), at = l % 16 * k + l / 16 * 4;
    for (int i = 0; i < k; i += 16) {
        c = __builtin_amdgcn_mfma_i32_16x16x16i8(load<int>(a + at + i), load<int>(b + at + i), c, 0, 0, 0);
    }
#else
    int l = thread(), at = l % 16 * k + l / 16 * 8;
    for (int i = 0; i < k; i += 32) {
        c = __builtin_amdgcn_mfma_i32_16x16x32_i8(load<long>(a + at + i), load<long>(b + at + i), c, 0, 0, 0);
    }
#endif
    for (int r = 0; r < 4; r++) out[(r + l / 16 * 4) * 16 + l % 16] = c[r];
}
// 32 × 32: the rows of the result come in groups of four.
KERNEL matmul_f16_32(const _Float16 *a, const _Float16 *b, float *out, int k) {
    int l = thread(), at = l % 32 * k + l / 32 * 4;
    f32x16 c = {};
    for (int i = 0; i < k; i += 8) {
        c = __builtin_amdgcn_mfma_f32_32x32x8f16(load<f16x4>(a + at + i), load<f16x4>(b + at + i), c, 0, 0, 0);
    }
    for (int r = 0; r < 16; r++) out[(r / 4 * 8 + l / 32 * 4 + r % 4) * 32 + l % 32] = c[r];
}
#endif
