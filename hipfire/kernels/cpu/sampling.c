/* What choosing a token takes of a row of scores: the highest of them, and their weights' sum and draw.
 *
 * Weights are integers, 2**42 e**((score - highest) / temperature) rounded down, so sums are exact in any order. What
 * comes before is float32 without fused multiply-add, in every variant: all give the same bits, and so does NumPy
 * (devices/numpy_row_math.py). Scores are no NaN; -inf has the weight 0.
 */
#include <float.h>
#include <math.h>

#include "hipfire_cpu.h"
#include "simd.h"

typedef uint64_t u64x16 __attribute__((vector_size(128)));

enum {
    DEPTH = 16,
    CHUNK = DEPTH * LANES,
    WEIGHT_BITS = 42,
    MANTISSA_BITS = 30,
    SHARE_BITS = 53,
    N_BLOCKS = 1024,
    DIGIT_BITS = 8,
    N_DIGITS = 32 / DIGIT_BITS,
    RADIX = 1 << DIGIT_BITS
};

/* 16 scores from `at` on; beyond the end -inf. */
INLINE f32x16 load_scores(const float *scores, int64_t at, int64_t n)
{
    if (at + LANES <= n)
        return load_f32x16(scores + at);
    float padded[LANES];
    for (int i = 0; i < LANES; i++)
        padded[i] = at + i < n ? scores[at + i] : -INFINITY;
    return load_f32x16(padded);
}

EXPORT bool hf_is_finite(const float *scores, int64_t n)
{
    i32x16 largest = {0};
    for (int64_t at = 0; at + LANES <= n; at += LANES) {
        const i32x16 magnitude = (i32x16)load_f32x16(scores + at) & 0x7fffffff;
        largest = __builtin_elementwise_max(magnitude, largest);
    }
    bool is_finite = true;
    for (int i = 0; i < LANES; i++)
        is_finite &= largest[i] < 0x7f800000;
    for (int64_t at = n / LANES * LANES; at < n; at++)
        is_finite &= isfinite(scores[at]);
    return is_finite;
}

EXPORT void hf_allow(const float *scores, const uint8_t *allowed, int64_t n, float *out)
{
    for (int64_t at = 0; at < n; at++)
        out[at] = allowed[at] ? scores[at] : -INFINITY;
}

/* Ascending in the order of choice: the higher score, then the lower id. 0 and -0 are equal. */
INLINE uint64_t place_of(float score, int64_t id)
{
    uint32_t bits;
    const float positive = score == 0 ? 0.0f : score;
    memcpy(&bits, &positive, sizeof bits);
    const uint32_t falling = bits >> 31 ? bits : ~bits & 0x7fffffff;
    return (uint64_t)falling << 32 | (uint32_t)id;
}

INLINE float score_at(uint64_t place)
{
    const uint32_t falling = (uint32_t)(place >> 32), bits = falling >> 31 ? falling : ~falling & 0x7fffffff;
    float score;
    memcpy(&score, &bits, sizeof score);
    return score;
}

/* Sort by the upper halves, stable; `spare` has room for as many. */
static void sort_places(uint64_t *places, uint64_t *spare, int64_t n)
{
    int64_t starts[N_DIGITS][RADIX] = {0};
    for (int64_t i = 0; i < n; i++)
        for (int digit = 0; digit < N_DIGITS; digit++)
            starts[digit][places[i] >> (32 + digit * DIGIT_BITS) & (RADIX - 1)]++;
    uint64_t *from = places, *to = spare;
    for (int digit = 0; digit < N_DIGITS; digit++) {
        int64_t sum = 0;
        for (int i = 0; i < RADIX; i++) {
            const int64_t count = starts[digit][i];
            starts[digit][i] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++)
            to[starts[digit][from[i] >> (32 + digit * DIGIT_BITS) & (RADIX - 1)]++] = from[i];
        uint64_t *const other = from;
        from = to;
        to = other;
    }
}

INLINE f32x16 largest_of_chunk(const float *scores)
{
    f32x16 largest = load_f32x16(scores);
    for (int i = 1; i < DEPTH; i++)
        largest = larger(load_f32x16(scores + i * LANES), largest);
    return largest;
}

INLINE bool any_reaches(f32x16 scores, f32x16 bound)
{
    return __builtin_reduce_or(scores >= bound) != 0;
}

struct room {
    uint64_t *places, *spare;
    float *maxima;
};

/* The scores from `from` to `to` that reach the bound, added to `places`; how many there are then. */
INLINE int64_t collect(const float *scores, int64_t from, int64_t to, float bound, uint64_t *places, int64_t n_found)
{
    for (int64_t at = from; at < to; at++) {
        places[n_found] = place_of(scores[at], at);
        n_found += scores[at] >= bound;
    }
    return n_found;
}

/* The places of the k highest of n scores, sorted, and of some more.
 *
 * Every chunk has 16 maxima, each of the scores of a lane. The k highest maxima are k scores, so the k-th highest of
 * them, which is found in the same way, is a bound that the k highest scores reach. Few chunks have others that do. */
static void sort_best(const float *scores, int64_t n, int64_t k, struct room room)
{
    const int64_t n_chunks = n / CHUNK, n_maxima = n_chunks * LANES;
    int64_t n_found = 0;
    if (k <= n_maxima / 2) {
        for (int64_t chunk = 0; chunk < n_chunks; chunk++)
            store_f32x16(room.maxima + chunk * LANES, largest_of_chunk(scores + chunk * CHUNK));
        sort_best(room.maxima, n_maxima, k, (struct room){room.places, room.spare, room.maxima + n_maxima});
        /* -inf is no bound: with a mask it may be most of them. */
        const float bound = fmaxf(score_at(room.places[k - 1]), -FLT_MAX);
        for (int64_t chunk = 0; chunk < n_chunks; chunk++)
            if (any_reaches(load_f32x16(room.maxima + chunk * LANES), splat(bound)))
                for (int64_t at = chunk * CHUNK; at < (chunk + 1) * CHUNK; at += LANES)
                    if (any_reaches(load_f32x16(scores + at), splat(bound)))
                        n_found = collect(scores, at, at + LANES, bound, room.places, n_found);
        n_found = collect(scores, n_chunks * CHUNK, n, bound, room.places, n_found);
        for (int64_t at = 0; n_found < k; at++)
            if (scores[at] < bound)
                room.places[n_found++] = place_of(scores[at], at);
    } else {
        n_found = collect(scores, 0, n, -INFINITY, room.places, 0);
    }
    sort_places(room.places, room.spare, n_found);
}

/* collect() writes one place more than it finds. */
EXPORT int64_t hf_best_scratch_nbytes(int64_t n)
{
    return 2 * (n + 1) * (int64_t)sizeof(uint64_t) + (n / (DEPTH - 1) + 1) * (int64_t)sizeof(float);
}

EXPORT void hf_best(const float *scores, int64_t n, int64_t k, int32_t *ids, void *scratch)
{
    uint64_t *places = scratch;
    sort_best(scores, n, k, (struct room){places, places + n + 1, (float *)(places + 2 * (n + 1))});
    for (int64_t i = 0; i < k; i++)
        ids[i] = (int32_t)(uint32_t)places[i];
}

/* 2**x for |x| <= 1/2, to 1e-7: by interpolation at Chebyshev's nodes. */
INLINE f32x16 power_of_two(f32x16 x)
{
    f32x16 power = splat(1.54614478e-4f);
    power = power * x + splat(1.33908668e-3f);
    power = power * x + splat(9.61805694e-3f);
    power = power * x + splat(5.55035695e-2f);
    power = power * x + splat(2.40226507e-1f);
    power = power * x + splat(6.93147182e-1f);
    return power * x + splat(1.0f);
}

/* Weights have been 0 for long where they are 2**-60 of the highest. */
static const float LOWEST_EXPONENT = -60.0f;

/* `per_score`: log2(e) / temperature. */
INLINE u64x16 weights_of(f32x16 scores, float highest, float per_score)
{
    f32x16 x = (scores - splat(highest)) * splat(per_score);
    x = choose(x < splat(LOWEST_EXPONENT), splat(LOWEST_EXPONENT), x);
    const f32x16 exponents = nearest(x);
    const f32x16 mantissas = power_of_two(x - exponents) * splat((float)(1 << MANTISSA_BITS));
    const u64x16 wide = __builtin_convertvector((u32x16)__builtin_convertvector(mantissas, i32x16), u64x16);
    const u64x16 shifts = __builtin_convertvector((u32x16)__builtin_convertvector(-exponents, i32x16), u64x16);
    return (wide << (WEIGHT_BITS - MANTISSA_BITS)) >> shifts;
}

EXPORT void hf_weights(const float *scores, int64_t n, float highest, float per_score, uint64_t *out)
{
    for (int64_t at = 0; at < n; at += LANES) {
        const u64x16 weights = weights_of(load_scores(scores, at, n), highest, per_score);
        memcpy(out + at, &weights, sizeof *out * (size_t)(n - at < LANES ? n - at : LANES));
    }
}

/* The sum of the weights from `from` to `to` that are `least` or more. */
INLINE uint64_t sum_weights(const float *scores, int64_t from, int64_t to, float highest, float per_score, uint64_t least)
{
    u64x16 sums = {0};
    const f32x16 bound = splat(highest + LOWEST_EXPONENT / per_score);
    for (int64_t at = from; at < to; at += LANES) {
        const f32x16 some = load_scores(scores, at, to);
        /* With a mask most of them weigh nothing. */
        if (!any_reaches(some, bound))
            continue;
        const u64x16 weights = weights_of(some, highest, per_score);
        sums += weights & (u64x16)(weights >= least);
    }
    uint64_t sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += sums[i];
    return sum;
}

EXPORT uint64_t hf_total(const float *scores, int64_t n, float highest, float per_score)
{
    return sum_weights(scores, 0, n, highest, per_score, 0);
}

EXPORT int64_t hf_draw(const float *scores, int64_t n, float highest, float per_score, uint64_t least, uint64_t share)
{
    const int64_t block = (n / N_BLOCKS / LANES + 1) * LANES;
    uint64_t sums[N_BLOCKS], total = 0;
    for (int64_t start = 0; start < n; start += block) {
        const int64_t end = start + block < n ? start + block : n;
        sums[start / block] = sum_weights(scores, start, end, highest, per_score, least);
        total += sums[start / block];
    }
    uint64_t left = (uint64_t)((unsigned __int128)total * share >> SHARE_BITS);
    int64_t at = 0;
    for (; at < n && left >= sums[at / block]; at += block)
        left -= sums[at / block];
    for (; at < n; at += LANES) {
        const u64x16 weights = weights_of(load_scores(scores, at, n), highest, per_score);
        for (int i = 0; i < LANES; i++) {
            const uint64_t weight = weights[i] >= least ? weights[i] : 0;
            if (left < weight)
                return at + i;
            left -= weight;
        }
    }
    return n - 1; /* not reached while the highest score weighs `least` */
}
