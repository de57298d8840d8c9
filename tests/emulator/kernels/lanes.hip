#include "device.h"

#ifdef __GFX9__
#define LANES 64
#elif defined(WAVE64)
#define LANES 64
#else
#define LANES 32
#endif

template <int CONTROL, int ROWS = 15> DEVICE float dpp(float x) {
    return __builtin_bit_cast(float, __builtin_amdgcn_update_dpp(0, __builtin_bit_cast(int, x), CONTROL, ROWS, 15, true));
}
template <int PATTERN> DEVICE float swizzle(float x) {
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_swizzle(__builtin_bit_cast(int, x), PATTERN));
}
DEVICE float from_lane(float x, int lane) {
    return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(lane * 4, __builtin_bit_cast(int, x)));
}

// A sum over 16 lanes by DPP within rows, then over rows by what the family has.
DEVICE float sum_by_dpp(float x) {
    x += dpp<0xb1>(x);  // quad_perm 1 0 3 2
    x += dpp<0x4e>(x);  // quad_perm 2 3 0 1
    x += dpp<0x141>(x); // row_half_mirror
    x += dpp<0x140>(x); // row_mirror
#ifdef __GFX9__
    x += swizzle<0x401f>(x); // exchange 16 lanes
    x += from_lane(x, lane() ^ 32);
#else
    x += __builtin_bit_cast(float, __builtin_amdgcn_permlanex16(0, __builtin_bit_cast(int, x), 0x76543210, 0xfedcba98, false, false));
#if LANES == 64
    x += __builtin_bit_cast(float, __builtin_amdgcn_permlane64(__builtin_bit_cast(int, x)));
#endif
#endif
    return x;
}
KERNEL dpp_sums(const float *in, float *out, int n) {
    int i = index();
    float x = i < n ? in[i] : 0;
    out[i] = sum_by_dpp(x);
}

KERNEL swizzle_sums(const float *in, float *out, int n) {
    int i = index();
    float x = i < n ? in[i] : 0;
    x += swizzle<0x041f>(x);
    x += swizzle<0x081f>(x);
    x += swizzle<0x101f>(x);
    x += swizzle<0x201f>(x);
    x += swizzle<0x401f>(x);
    if (LANES == 64) x += from_lane(x, lane() ^ 32);
    out[i] = x;
}

// Row shifts, rotations and broadcasts, lane by lane.
KERNEL shuffles(const float *in, float *out, int n) {
    int i = index();
    float x = in[i];
    out[0 * n + i] = dpp<0x111>(x); // row_shr 1, zero where there is no lane
    out[1 * n + i] = dpp<0x103>(x); // row_shl 3
    out[2 * n + i] = dpp<0x125>(x); // row_ror 5
    out[3 * n + i] = from_lane(x, (lane() * 7 + 3) & (LANES - 1));
    out[4 * n + i] = __builtin_bit_cast(float, __builtin_amdgcn_readlane(__builtin_bit_cast(int, x), 5));
    out[5 * n + i] = __builtin_bit_cast(float, __builtin_amdgcn_readfirstlane(__builtin_bit_cast(int, x)));
    out[6 * n + i] = dpp<0x111, 10>(x) + 100; // only rows 1 and 3
}

// How many lanes of the wave hold an odd number, and which place each has among them.
KERNEL odd_ranks(const int *in, int *rank, int *count, int n) {
    int i = index();
    bool odd = i < n && in[i] & 1;
#if LANES == 64
    u64 mask = __builtin_amdgcn_ballot_w64(odd);
#else
    u64 mask = __builtin_amdgcn_ballot_w32(odd);
#endif
    int before = __builtin_amdgcn_mbcnt_hi((u32)(mask >> 32), __builtin_amdgcn_mbcnt_lo((u32)mask, 0));
    if (i >= n) return;
    rank[i] = odd ? before : -1;
    count[i] = __builtin_popcountll(mask);
}
