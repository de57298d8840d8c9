#include "device.h"

#ifdef __GFX9__
#define LANES 64
#else
#define LANES 32
#endif
#if defined(__GFX9__) || defined(__GFX10__)
#define DOT4(a, b, c) __builtin_amdgcn_sdot4(a, b, c, false)
#else
#define DOT4(a, b, c) __builtin_amdgcn_sudot4(true, a, true, b, c, false)
#endif
#define EXCHANGE(x, m) __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute((lane() ^ m) * 4, __builtin_bit_cast(int, x)))

// Blocks of 32 weights, laid out apart: 4-bit values (low nibbles first) and an f16 scale each. The input is int8
// with an f32 scale per 32. A wave computes a row.
KERNEL gemv_q4(const u32 *values, const _Float16 *scales, const u32 *x, const float *x_scales, float *out, int n_blocks, int n_rows) {
    int row = index() / LANES;
    if (row >= n_rows) return;
    float sum = 0;
    for (int b = lane(); b < n_blocks; b += LANES) {
        const u32 *q = values + ((u64)row * n_blocks + b) * 4;
        const u32 *y = x + (u64)b * 8;
        int dot = 0, total = 0;
        for (int k = 0; k < 4; k++) {
            dot = DOT4(q[k] & 0x0f0f0f0f, y[k], dot);
            dot = DOT4(q[k] >> 4 & 0x0f0f0f0f, y[k + 4], dot);
            total = DOT4(0x01010101, y[k], total);
            total = DOT4(0x01010101, y[k + 4], total);
        }
        sum += (float)(dot - 8 * total) * (float)scales[(u64)row * n_blocks + b] * x_scales[b];
    }
    for (int m = LANES / 2; m > 0; m /= 2) sum += EXCHANGE(sum, m);
    if (lane() == 0) out[row] = sum;
}

// The same over f16, two products at a time.
KERNEL gemv_f16(const half2 *weight, const half2 *x, float *out, int n_pairs, int n_rows) {
    int row = index() / LANES;
    if (row >= n_rows) return;
    float sum = 0;
    for (int i = lane(); i < n_pairs; i += LANES) sum = __builtin_amdgcn_fdot2(weight[(u64)row * n_pairs + i], x[i], sum, false);
    for (int m = LANES / 2; m > 0; m /= 2) sum += EXCHANGE(sum, m);
    if (lane() == 0) out[row] = sum;
}
