/* out = x @ w.T (+ bias) (+ residual) with packed weights (layout.h), for a few rows of x.
 *
 * Quantised weights are multiplied with integer activations by dot products of bytes; strands.h says in which order what
 * is added. A lane takes a strand's tiles one after the other, of each four outputs by 32 columns or, where the matrix
 * has too few outputs to fill the card, four outputs by 8 columns. It asks for several tiles before it works on the
 * first. The weights are unpacked once for all the rows of a workgroup.
 *
 * Weights in floats are multiplied in float32. What a row gets does not depend on how many rows share the launch: the
 * sum of an output is made in an order that the matrix's shape alone decides.
 */
#include "strands.h"

enum { N_THREADS = 128, MAX_WAVES = N_THREADS / 32, HALF_GROUP = GROUP / 2 };

struct outputs {
    const float *bias, *residual;
    float *out;
    int n_out, width_out, column, n_rows;
};

INLINE void put_output(const outputs *to, int row, int output, float sum)
{
    if (row >= to->n_rows || output >= to->n_out)
        return;
    const int64_t at = (int64_t)row * to->width_out + to->column + output;
    if (to->bias)
        sum += to->bias[output];
    to->out[at] = to->residual ? sum + to->residual[at] : sum;
}

/* Which row of x the i-th of a workgroup is; the last one again where there are no more. */
template <int ROWS> INLINE int64_t row_of(const outputs *to, int i)
{
    const int row = block_y() * ROWS + i;
    return row < to->n_rows ? row : to->n_rows - 1;
}

/* How SPLIT lanes share half a tile, four outputs: lane j has the vectors j, j + SPLIT, ... of all four. */
template <layout F, int SPLIT> struct share {
    static constexpr int VECTORS = TILE_VECTORS / SPLIT, OUTPUTS = HALF_GROUP / SPLIT;
    static constexpr int LOW = F.low < SPLIT ? 1 : F.low / SPLIT;
    static constexpr int HIGH = F.high == 0 ? 0 : F.high < SPLIT ? 1 : F.high / SPLIT;
};

/* Where a lane stands: its strand, which half of the outputs, which of the lanes that share it. */
struct place {
    int strand, half, j;
};

/* What a lane loads of a tile: a word of a vector has four columns of an output. */
template <layout F, int SPLIT> struct tile_words {
    using mine = share<F, SPLIT>;
    uint4 low[mine::LOW], high[mine::HIGH + 1];
    packed_scales<F, mine::OUTPUTS> scales;
};

template <layout F, int SPLIT>
INLINE void load_tile(const uint8_t *header, const uint8_t *tile, place at, tile_words<F, SPLIT> *out)
{
    using mine = share<F, SPLIT>;
    const uint8_t *low = tile + tile_scales_nbytes(F) + 16 * at.half, *high = low + 32 * F.low;
    for (int i = 0; i < mine::LOW; i++)
        out->low[i] = *(const uint4 *)(low + 32 * (at.j % F.low + i * SPLIT));
    if constexpr (F.high != 0)
        for (int i = 0; i < mine::HIGH; i++)
            out->high[i] = *(const uint4 *)(high + 32 * (at.j % F.high + i * SPLIT));
    out->scales = load_scales<F, mine::OUTPUTS>(header, tile, HALF_GROUP * at.half + mine::OUTPUTS * at.j);
}

/* The bits of a plane of BITS that vector j + i * SPLIT has, moved to bit `to`. */
template <int BITS, int SPLIT> INLINE uint4 field(const uint4 *plane, int j, int i, int to)
{
    constexpr int loads = BITS < SPLIT ? 1 : BITS / SPLIT;
    const uint32_t mask = 0x01010101u * ((1u << BITS) - 1);
    /* Constant where a lane's vectors all lie at the same bits. */
    const uint32_t from = BITS < SPLIT ? (uint32_t)((j + i * SPLIT) / BITS * BITS) : (uint32_t)(i / loads * BITS);
    if (BITS == 8)
        return plane[i % loads];
    const uint4 word = plane[i % loads];
    const uint4 moved = from < (uint32_t)to ? word << ((uint32_t)to - from) : word >> (from - (uint32_t)to);
    return moved & (mask << to);
}

/* The bytes of the lane's i-th vector. */
template <layout F, int SPLIT> INLINE uint4 vector_at(const tile_words<F, SPLIT> *tile, int j, int i)
{
    uint4 words = field<F.low, SPLIT>(tile->low, j, i, 0);
    if constexpr (F.high != 0)
        words |= field<F.high, SPLIT>(tile->high, j, i, F.low);
    return words;
}

/* A lane's part of a tile of activations. */
struct row_words {
    vector_of<uint32_t, TILE_VECTORS> hi, lo; /* word i: of the lane's i-th vector */
    float d;
    int sums[2], whole;
};

template <int SPLIT> INLINE row_words load_row(const activations *x, int j)
{
    row_words out = {};
    for (int i = 0; i < TILE_VECTORS / SPLIT; i++) {
        out.hi[i] = x->hi[j + i * SPLIT];
        out.lo[i] = x->lo[j + i * SPLIT];
    }
    const uint4 rest = *(const uint4 *)&x->d;
    out.d = __builtin_bit_cast(float, rest[0]);
    out.sums[0] = (int)rest[1];
    out.sums[1] = (int)rest[2];
    out.whole = (int)rest[3];
    return out;
}

/* Of four lanes' sums for four outputs: to lane j the whole of output j. */
INLINE int sum_of_four_lanes(const int *sums, int j)
{
    int pair[2];
    for (int k = 0; k < 2; k++)
        pair[k] = (j & 2 ? sums[2 + k] : sums[k]) + from_lane_xor<2>(j & 2 ? sums[k] : sums[2 + k]);
    return (j & 1 ? pair[1] : pair[0]) + from_lane_xor<1>(j & 1 ? pair[0] : pair[1]);
}

/* acc[output] and the terms of a tile. */
template <layout F, int SPLIT>
INLINE void multiply(const tile_words<F, SPLIT> *tile, const row_words *x, int j, float *acc)
{
    using mine = share<F, SPLIT>;
    constexpr int vectors = mine::VECTORS / N_PARTS<F>;
    for (int part = 0; part < N_PARTS<F>; part++) {
        wide_sum wide[HALF_GROUP] = {};
        for (int i = part * vectors; i < (part + 1) * vectors; i++) {
            const uint4 words = vector_at<F, SPLIT>(tile, j, i);
            for (int k = 0; k < HALF_GROUP; k++)
                wide[k] = dot4_wide(words[k], x->hi[i], x->lo[i], wide[k]);
        }
        int sums[HALF_GROUP];
        for (int k = 0; k < HALF_GROUP; k++)
            sums[k] = total(wide[k]);
        if constexpr (SPLIT == 4)
            sums[0] = sum_of_four_lanes(sums, j);
        const part_of_row row = part_of(x->d, N_PARTS<F> == 2 ? x->sums[part] : x->whole);
        for (int k = 0; k < mine::OUTPUTS; k++)
            acc[k] = accumulate<F>(acc[k], unpack_scale<F, mine::OUTPUTS>(&tile->scales, part, k), row, sums[k]);
    }
}

/* partial[group of the workgroup][strand][row][output of the group] to out. */
template <int ROWS, int GROUPS> INLINE void add_strands(const outputs *to, const float *partial)
{
    meet();
    for (int i = thread(); i < GROUPS * ROWS * GROUP; i += N_THREADS) {
        const int group = i / (ROWS * GROUP), rest = i % (ROWS * GROUP);
        float sum = 0.0f;
        for (int strand = 0; strand < STRANDS; strand++) {
            const float term = partial[(group * STRANDS + strand) * ROWS * GROUP + rest];
            sum = strand ? sum + term : term;
        }
        put_output(to, block_y() * ROWS + rest / GROUP, (block_x() * GROUPS + group) * GROUP + rest % GROUP, sum);
    }
}

/* Of a lane: its row group and first row of x, the tile that it is at, where that one's block is in the group, and what
 * its outputs have come to. */
template <layout F, int ROWS, int SPLIT> struct walk {
    const uint8_t *group;
    const activations *rows[ROWS];
    place at;
    int n_tiles, t, block;
    float acc[ROWS][share<F, SPLIT>::OUTPUTS];
};

/* The next AHEAD tiles of the strand; some of them may not be there if this is the END. All lanes come here. */
template <int AHEAD, bool END, layout F, int ROWS, int SPLIT> INLINE void next_tiles(walk<F, ROWS, SPLIT> *w)
{
    constexpr int outputs = share<F, SPLIT>::OUTPUTS, tiles_a_block = F.block / TILE_COLUMNS;
    const int block_nbytes = header_nbytes(F) + tiles_a_block * tile_nbytes(F);
    /* A strand's tiles lie STRANDS apart, each at the same place in its block. */
    const int in_block = header_nbytes(F) + w->at.strand % tiles_a_block * tile_nbytes(F);
    const int step = STRANDS / tiles_a_block * block_nbytes;
    tile_words<F, SPLIT> tiles[AHEAD];
    row_words row[AHEAD];
    for (int u = 0; u < AHEAD; u++) {
        /* Past the end: a tile of the first block, whose terms are not kept. */
        const bool is_there = !END || w->t + u * STRANDS < w->n_tiles;
        const uint8_t *header = w->group + (is_there ? w->block + u * step : 0);
        load_tile<F, SPLIT>(header, header + in_block, w->at, &tiles[u]);
        if (ROWS == 1)
            row[u] = load_row<SPLIT>(w->rows[0] + (is_there ? w->t + u * STRANDS : 0), w->at.j);
    }
    ask_first();
    for (int u = 0; u < AHEAD; u++) {
        const bool is_there = !END || w->t + u * STRANDS < w->n_tiles;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (ROWS > 1)
                row[u] = load_row<SPLIT>(w->rows[i] + (is_there ? w->t + u * STRANDS : 0), w->at.j);
            float sums[outputs];
            for (int k = 0; k < outputs; k++)
                sums[k] = w->acc[i][k];
            multiply<F, SPLIT>(&tiles[u], &row[u], w->at.j, sums);
            for (int k = 0; k < outputs; k++)
                w->acc[i][k] = is_there ? sums[k] : w->acc[i][k];
        }
    }
    w->t += STRANDS * AHEAD;
    w->block += step * AHEAD;
}

template <layout F, int ROWS, int SPLIT, int AHEAD>
INLINE void linear_quantised(const uint8_t *packed, const activations *x, int n_in, const outputs *to, float *partial)
{
    using mine = share<F, SPLIT>;
    constexpr int lanes = 2 * STRANDS * SPLIT, groups = N_THREADS / lanes, tiles_a_block = F.block / TILE_COLUMNS;
    const place at = {thread() % lanes / (2 * SPLIT), thread() / SPLIT % 2, thread() % SPLIT};
    const int n_groups = (to->n_out + GROUP - 1) / GROUP, wanted = block_x() * groups + thread() / lanes;
    walk<F, ROWS, SPLIT> w = {};
    w.group = packed + (wanted < n_groups ? wanted : n_groups - 1) * group_nbytes(F, n_in);
    w.at = at;
    w.n_tiles = n_in / TILE_COLUMNS;
    w.t = at.strand;
    w.block = at.strand / tiles_a_block * (header_nbytes(F) + tiles_a_block * tile_nbytes(F));
    for (int i = 0; i < ROWS; i++)
        w.rows[i] = x + row_of<ROWS>(to, i) * w.n_tiles;
    int first = 0;
    for (; first + STRANDS * AHEAD <= w.n_tiles; first += STRANDS * AHEAD)
        next_tiles<AHEAD, false>(&w);
    constexpr int rest = AHEAD > 1 ? AHEAD / 2 : 1;
    for (; first < w.n_tiles; first += STRANDS * rest)
        next_tiles<rest, true>(&w);
    const int strand = thread() / lanes * STRANDS + at.strand, output = HALF_GROUP * at.half + mine::OUTPUTS * at.j;
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < mine::OUTPUTS; k++)
            partial[(strand * ROWS + i) * GROUP + output + k] = w.acc[i][k];
    add_strands<ROWS, groups>(to, partial);
}

/* Weights begin at multiples of 16 bytes. */
template <typename T> struct alignas(16) column_of_eight {
    T output[GROUP];
};

template <typename T, int ROWS, int AHEAD>
INLINE void linear_float(const uint8_t *packed, const float *x, int n_in, const outputs *to, float *partial)
{
    const column_of_eight<T> *columns = (const column_of_eight<T> *)packed + (int64_t)block_x() * n_in;
    float sums[ROWS][GROUP] = {};
    for (int first = thread(); first < n_in; first += N_THREADS * AHEAD) {
        column_of_eight<T> ahead[AHEAD];
        for (int u = 0; u < AHEAD; u++)
            ahead[u] = columns[first + u * N_THREADS < n_in ? first + u * N_THREADS : first];
        ask_first();
        for (int u = 0; u < AHEAD && first + u * N_THREADS < n_in; u++)
            for (int i = 0; i < ROWS; i++) {
                const float value = x[row_of<ROWS>(to, i) * n_in + first + u * N_THREADS];
                for (int output = 0; output < GROUP; output++)
                    sums[i][output] = fma_of((float)ahead[u].output[output], value, sums[i][output]);
            }
    }
    const int wave = thread() / wave_size(), lane = thread() % wave_size();
    for (int i = 0; i < ROWS; i++)
        for (int output = 0; output < GROUP; output++) {
            const float sum = over_wave<false>(sums[i][output]);
            if (lane == 0)
                partial[(wave * ROWS + i) * GROUP + output] = sum;
        }
    meet();
    for (int i = thread(); i < ROWS * GROUP; i += N_THREADS) {
        float sum = partial[i];
        for (int other = 1; other < N_THREADS / wave_size(); other++)
            sum += partial[other * ROWS * GROUP + i];
        put_output(to, block_y() * ROWS + i / GROUP, block_x() * GROUP + i % GROUP, sum);
    }
}

#define LINEAR(name, X, x, n_partial, ...)                                                                       \
    KERNEL(N_THREADS)                                                                                            \
    void linear_##name(const uint8_t *packed, const X *x, const float *bias, const float *residual, float *out,  \
                       int n_out, int n_in, int width_out, int column, int n_rows)                               \
    {                                                                                                            \
        __shared__ float partial[n_partial];                                                                     \
        const outputs to = {bias, residual, out, n_out, width_out, column, n_rows};                              \
        __VA_ARGS__(packed, x, n_in, &to, partial);                                                              \
    }

/* Its LDS has what the lanes' outputs come to. */
#define QUANTISED(name, of, rows, split, ahead)                                   \
    LINEAR(name, activations, x_q16, rows * HALF_GROUP / split * N_THREADS,       \
           linear_quantised<of, rows, split, ahead>)

#define ROW(name, ...)                                       \
    constexpr layout LAYOUT_##name = {__VA_ARGS__};          \
    QUANTISED(name##_x1, LAYOUT_##name, 1, 1, 2)             \
    QUANTISED(name##_x4, LAYOUT_##name, 4, 1, 1)             \
    QUANTISED(name##_few, LAYOUT_##name, 1, 4, 8)
QUANTISED_FORMATS(ROW)
#undef ROW

#define ROW(name, nbytes)                                                                              \
    LINEAR(name##_x1, float, x, MAX_WAVES * 1 * GROUP, linear_float<element_##name, 1, 16 / nbytes>)   \
    LINEAR(name##_x4, float, x, MAX_WAVES * 4 * GROUP, linear_float<element_##name, 4, 1>)
FLOAT_FORMATS(ROW)
#undef ROW
