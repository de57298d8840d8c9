/* The highest logits of a row, so that a token can be chosen without the others: each workgroup finds those of a slice of
 * the vocabulary, one more joins what they found. Knows no temperature and no filters. */
#include "hip.h"

enum { N_THREADS = 256, EACH = 16, SLICE = N_THREADS * EACH, MAX_WAVES = 8 };

constexpr uint64_t NOWHERE_HIGHER = ~(uint64_t)0;

/* Where a logit stands: the higher logit higher, of equals the lower id. One that is not finite is above all others, so
 * whoever looks at the first sees it. No logit stands at 0 or at NOWHERE_HIGHER. */
INLINE uint64_t standing_of(float logit, int id)
{
    const uint32_t bits = __builtin_bit_cast(uint32_t, logit), magnitude = bits & 0x7fffffff;
    uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000;
    if (magnitude == 0) /* 0 and -0 are equal */
        rising = 0x80000000;
    if (magnitude >= 0x7f800000)
        rising = 0xfffffffe;
    return (uint64_t)rising << 32 | (uint32_t)~id;
}

/* The logit, NaN for one that is not finite. */
INLINE float logit_at(uint64_t standing)
{
    const uint32_t rising = (uint32_t)(standing >> 32);
    return __builtin_bit_cast(float, rising >> 31 ? rising ^ 0x80000000 : ~rising);
}

INLINE uint64_t higher(uint64_t a, uint64_t b) { return a > b ? a : b; }

template <int MASK> INLINE uint64_t higher_of_lanes(uint64_t x)
{
    const uint32_t low = from_lane_xor<MASK>((uint32_t)x), high = from_lane_xor<MASK>((uint32_t)(x >> 32));
    return higher(x, (uint64_t)high << 32 | low);
}

/* The highest of all threads' x, for all threads to have. `waves`, a standing a wave, may be used again only after the
 * threads have met once more: calls take two in turn. */
INLINE uint64_t highest_of_block(uint64_t x, uint64_t *waves)
{
    x = higher_of_lanes<1>(x);
    x = higher_of_lanes<2>(x);
    /* Four have the same by now, then eight: from any lane of the other half. */
    x = higher_of_lanes<7>(x);
    x = higher_of_lanes<15>(x);
    x = higher_of_lanes<16>(x);
    if (wave_size() == 64)
        x = higher_of_lanes<32>(x);
    if (thread() % wave_size() == 0)
        waves[thread() / wave_size()] = x;
    meet();
    uint64_t highest = waves[0];
    for (int wave = 1; wave < N_THREADS / wave_size(); wave++)
        highest = higher(highest, waves[wave]);
    return highest;
}

INLINE uint64_t highest_below(const uint64_t *standings, uint64_t limit)
{
    uint64_t highest = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        highest = standings[i] < limit ? higher(highest, standings[i]) : highest;
    return highest;
}

/* lists[row][slice] = the n_best highest of a slice of a row's n logits, in order; 0 where there are no more. */
KERNEL(N_THREADS)
void best_of_slices(const float *logits, uint64_t *lists, int n, int n_best)
{
    __shared__ uint64_t waves[2 * MAX_WAVES];
    const int first = block_x() * SLICE + thread();
    const int64_t row = block_y(), n_slices = (n + SLICE - 1) / SLICE;
    uint64_t standings[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int id = first + i * N_THREADS;
        standings[i] = id < n ? standing_of(logits[row * n + id], id) : 0;
    }
    uint64_t mine = highest_below(standings, NOWHERE_HIGHER);
    uint64_t *list = lists + (row * n_slices + block_x()) * n_best;
    for (int place = 0; place < n_best; place++) {
        const uint64_t highest = highest_of_block(mine, waves + place % 2 * MAX_WAVES);
        if (thread() == 0)
            list[place] = highest;
        if (mine == highest)
            mine = highest_below(standings, highest);
    }
}

struct candidate {
    int id;
    float logit;
};

/* out[row] = the n_best highest of a row's lists, in order; a thread has a list. */
KERNEL(N_THREADS)
void join_best(const uint64_t *lists, candidate *out, int n_lists, int n_best)
{
    __shared__ uint64_t waves[2 * MAX_WAVES];
    const int64_t row = block_x();
    const bool has_list = thread() < n_lists;
    const uint64_t *list = lists + (row * n_lists + (has_list ? thread() : 0)) * n_best;
    uint64_t mine = has_list ? list[0] : 0;
    int at = 0;
    for (int place = 0; place < n_best; place++) {
        const uint64_t highest = highest_of_block(mine, waves + place % 2 * MAX_WAVES);
        if (thread() == 0)
            out[row * n_best + place] = (candidate){(int)~(uint32_t)highest, logit_at(highest)};
        if (mine == highest && mine) {
            at++;
            mine = at < n_best ? list[at] : 0;
        }
    }
}
