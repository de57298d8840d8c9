#include "device.h"

KERNEL add(const float *a, const float *b, float *out, int n) {
    int i = index();
    if (i < n) out[i] = a[i] + b[i];
}

// One element of N bytes per thread: every width of load and store.
template <typename T> DEVICE void copy(const void *from, void *to, int n) {
    int i = index();
    if (i < n) ((T *)to)[i] = ((const T *)from)[i];
}
struct three { u32 x, y, z; };
typedef u32 four __attribute__((ext_vector_type(4)));
KERNEL copy_1(const void *a, void *b, int n) { copy<u8>(a, b, n); }
KERNEL copy_2(const void *a, void *b, int n) { copy<u16>(a, b, n); }
KERNEL copy_4(const void *a, void *b, int n) { copy<u32>(a, b, n); }
KERNEL copy_8(const void *a, void *b, int n) { copy<u64>(a, b, n); }
KERNEL copy_12(const void *a, void *b, int n) { copy<three>(a, b, n); }
KERNEL copy_16(const void *a, void *b, int n) { copy<four>(a, b, n); }
KERNEL widen(const signed char *a, const short *b, int *out, int n) {
    int i = index();
    if (i < n) out[i] = a[i] * 3 + b[i];
}

// Divergence: each thread loops a number of times of its own, and branches on the way.
KERNEL collatz(const u32 *start, u32 *steps, int n) {
    int i = index();
    if (i >= n) return;
    u32 x = start[i], count = 0;
    while (x != 1) {
        x = x & 1 ? 3 * x + 1 : x >> 1;
        count++;
    }
    steps[i] = count;
}

KERNEL long_math(const u64 *a, const u64 *b, u64 *out, int n) {
    int i = index();
    if (i >= n) return;
    u64 x = a[i], y = b[i];
    u64 *row = out + 8 * i;
    row[0] = x + y;
    row[1] = x - y;
    row[2] = x * y;
    row[3] = x << (y & 63);
    row[4] = x >> (y & 63);
    row[5] = (u64)((i64)x >> (y & 63));
    row[6] = x < y ? x : y;
    row[7] = (i64)x < (i64)y ? 1 : 0;
}

KERNEL int_math(const int *a, const int *b, int *out, int n) {
    int i = index();
    if (i >= n) return;
    int x = a[i], y = b[i];
    int *row = out + 8 * i;
    row[0] = x / y;
    row[1] = x % y;
    row[2] = (int)((u32)x / (u32)y);
    row[3] = __builtin_popcount(x) + __builtin_clz(x | 1) * 100 + __builtin_ctz(x | 1 << 31) * 10000;
    row[4] = __builtin_amdgcn_perm(x, y, 0x06010503);
    row[5] = __builtin_amdgcn_ubfe(x, 5, 7) + __builtin_amdgcn_sbfe(y, 3, 9);
    row[6] = (x & y) ^ (x | ~y);
    row[7] = __builtin_amdgcn_alignbit(x, y, 11);
}

KERNEL float_math(const float *a, const float *b, float *out, int n) {
    int i = index();
    if (i >= n) return;
    float x = a[i], y = b[i];
    float *row = out + 12 * i;
    row[0] = x / y;
    row[1] = __builtin_sqrtf(x);
    row[2] = __builtin_expf(-x);
    row[3] = __builtin_logf(x);
    row[4] = __builtin_sinf(x);
    row[5] = __builtin_cosf(x);
    row[6] = __builtin_fmaf(x, y, -x);
    row[7] = __builtin_rintf(x * 10) + __builtin_floorf(y * 10);
    row[8] = __builtin_fminf(x, y) - __builtin_fmaxf(x, y);
    row[9] = (float)(int)(x * 100) + (float)(u32)(y * 1000);
    row[10] = __builtin_amdgcn_rcpf(x) + __builtin_amdgcn_rsqf(y);
    row[11] = __builtin_amdgcn_fmed3f(x, y, 1.0f);
}

KERNEL double_math(const double *a, const double *b, double *out, int n) {
    int i = index();
    if (i >= n) return;
    double *row = out + 4 * i;
    row[0] = a[i] + b[i] * 3;
    row[1] = a[i] / b[i];
    row[2] = __builtin_sqrt(a[i]);
    row[3] = (double)(float)a[i] + (double)(int)(b[i] * 100);
}

KERNEL half_math(const _Float16 *a, const _Float16 *b, _Float16 *out, int n) {
    int i = index();
    if (i >= n) return;
    _Float16 *row = out + 6 * i;
    row[0] = a[i] + b[i];
    row[1] = a[i] * b[i] - a[i];
    row[2] = (_Float16)((float)a[i] / (float)b[i]);
    row[3] = __builtin_fmaf16(a[i], b[i], a[i]);
    row[4] = a[i] < b[i] ? a[i] : b[i];
    row[5] = (_Float16)(int)a[i];
}

KERNEL packed_half(const half2 *a, const half2 *b, half2 *out, int n) {
    int i = index();
    if (i >= n) return;
    half2 x = a[i], y = b[i], swapped = {y.y, y.x};
    half2 *row = out + 4 * i;
    row[0] = x + y;
    row[1] = x * swapped;
    row[2] = __builtin_elementwise_fma(x, y, -swapped);
    row[3] = __builtin_elementwise_max(x, y);
}

KERNEL bf16(const float *a, const __bf16 *b, __bf16 *rounded, float *product, int n) {
    int i = index();
    if (i >= n) return;
    rounded[i] = (__bf16)a[i];
    product[i] = a[i] * (float)b[i];
}

// Mixed precision multiply-add, as dequantisation does it.
KERNEL dequantise(const u8 *q, const _Float16 *scale, float *out, int n) {
    int i = index();
    if (i >= n) return;
    out[i] = (float)scale[i / 32] * (float)((int)q[i] - 8);
}
