/* out = x @ w.T (+ bias) (+ residual) with packed weights (layout.h), for many rows of x as integers, by matrix cores
 * (matrix_cores.h). The bits are those of linear.hip.
 *
 * A workgroup has 128 outputs of 64 rows, and goes through the tiles of 32 columns two at a time. Its threads unpack
 * the weights to signed bytes in LDS, once for all rows, and put the activations beside them. Then each wave multiplies
 * its share of the outputs and rows, while what the next two tiles need is on its way from memory to registers. The
 * tiles are taken strand by strand (strands.h): a wave has one strand's sums at a time, besides those of all before it.
 */
#include "matrix_cores.h"
#include "strands.h"

constexpr int N_THREADS = 256, OUTPUTS = 128, ROWS = 64;
constexpr int STAGE = 2; /* tiles at a time */
/* Padded, so that lanes that write to different pieces write to different banks. */
constexpr int COLUMN_STRIDE = OUTPUTS + 8, ROW_STRIDE = ROWS + 2;
constexpr int QUADS = OUTPUTS / 4; /* four neighbouring outputs */
constexpr int OUTPUT_WAVES = QUADS / SIDE, ROW_WAVES = N_THREADS / FRAGMENT_LANES / OUTPUT_WAVES;
constexpr int ROW_FRAGMENTS = ROWS / SIDE / ROW_WAVES;

/* What a workgroup has in LDS. Output o lies in slot o % 4 * QUADS + o / 4, so that four neighbours are one lane's. */
template <layout F> struct staged {
    uint2 columns[STAGE][PIECES * COLUMN_STRIDE];
    uint2 rows[STAGE][2 * PIECES * ROW_STRIDE]; /* the high bytes, then the low ones */
    float4 d[STAGE][N_PARTS<F>][QUADS], m[STAGE][adds_minimum(F) ? N_PARTS<F> : 1][adds_minimum(F) ? QUADS : 1];
    alignas(16) float row_d[STAGE][ROWS], row_sums[STAGE][adds_minimum(F) ? N_PARTS<F> : 1][adds_minimum(F) ? ROWS : 1];
};

/* The tiles in the order of the sums: strand by strand. After the last one comes any. */
INLINE int next_tile(int *at, int n_tiles)
{
    const int tile = *at < n_tiles ? *at : 0;
    *at += STRANDS;
    if (*at >= n_tiles)
        *at = *at % STRANDS + 1;
    return tile;
}

/* Where the tile lies in its row group, and its header. */
template <layout F> INLINE int header_at(int tile)
{
    constexpr int tiles_a_block = F.block / TILE_COLUMNS;
    return tile / tiles_a_block * (header_nbytes(F) + tiles_a_block * tile_nbytes(F));
}
template <layout F> INLINE int tile_at(int tile)
{
    constexpr int tiles_a_block = F.block / TILE_COLUMNS;
    return header_at<F>(tile) + header_nbytes(F) + tile % tiles_a_block * tile_nbytes(F);
}

/* Words of a thread on their way from memory to LDS: weights, or scales, which then need no registers of their own. */
template <layout F> struct words {
    static constexpr int n_low = F.low == 8 ? 4 : 2;
    uint4 at[n_low + F.high];
};

/* Weights: four outputs by the columns 8 at .. 8 at + 7 and 16 further, at = 0 or 1. */
template <layout F> INLINE void fetch_quants(const uint8_t *p, int half, int at, words<F> *out)
{
    p += 16 * half;
    for (int i = 0; i < words<F>::n_low; i++) {
        const int vector = F.low == 8 ? i / 2 * 4 + 2 * at + i % 2 : F.low == 4 ? 2 * at + i : i;
        out->at[i] = *(const uint4 *)(p + 32 * vector);
    }
    for (int i = 0; i < F.high; i++)
        out->at[words<F>::n_low + i] = *(const uint4 *)(p + 32 * (F.low + i));
}

/* The bytes of the columns 4 j .. 4 j + 3, j = 4 part + 2 at + i, of four outputs, their offset taken off. */
template <layout F> INLINE uint4 bytes_of(const words<F> &from, int part, int at, int i)
{
    if constexpr (F.low == 8)
        return from.at[2 * part + i];
    const uint32_t pair = 4 * part + 2 * at;
    uint4 q;
    if constexpr (F.low == 4)
        q = from.at[i] >> (uint32_t)(4 * part) & 0x0f0f0f0fu;
    else
        q = from.at[i] >> pair & 0x03030303u;
    if constexpr (F.high == 1)
        q |= (from.at[2] >> (pair + i) & 0x01010101u) << (uint32_t)F.low;
    if constexpr (F.high == 2)
        q |= (from.at[2 + i] >> pair & 0x03030303u) << (uint32_t)F.low;
    /* No byte borrows from the next one while its top bit is set. */
    if constexpr (F.offset != 0)
        q = ((q | 0x80808080u) - F.offset * 0x01010101u) ^ 0x80808080u;
    return q;
}

template <layout F> INLINE void put_quants(const words<F> &from, uint2 *columns, int quad, int at)
{
    for (int part = 0; part < 2; part++) {
        const uint4 first = bytes_of<F>(from, part, at, 0), second = bytes_of<F>(from, part, at, 1);
        uint2 *piece = columns + (2 * part + at) * COLUMN_STRIDE + quad;
        for (int output = 0; output < 4; output++)
            piece[output * QUADS] = (uint2){first[output], second[output]};
    }
}

template <layout F> INLINE void fetch_scales(const uint8_t *header, const uint8_t *tile, int half, words<F> *out)
{
    const packed_scales<F, 4> scales = load_scales<F, 4>(header, tile, 4 * half);
    static_assert(sizeof scales <= sizeof out->at);
    __builtin_memcpy(out->at, &scales, sizeof scales);
}

template <layout F> INLINE void put_scales(const words<F> &from, staged<F> *to, int tile, int quad)
{
    packed_scales<F, 4> scales;
    __builtin_memcpy(&scales, from.at, sizeof scales);
    for (int part = 0; part < N_PARTS<F>; part++)
        for (int output = 0; output < 4; output++) {
            const scale w = unpack_scale<F, 4>(&scales, part, output);
            to->d[tile][part][quad][output] = w.d;
            if constexpr (adds_minimum(F))
                to->m[tile][part][quad][output] = w.m;
        }
}

/* What a thread brings of the next tiles: each a quarter of a row's bytes; besides, the first 128 weights, 64 scales,
 * and 64 the rows' scales and sums. */
template <layout F> struct fetched {
    uint4 bytes[STAGE];
    words<F> others;
};

constexpr int QUANTS_THREADS = 2 * QUADS * STAGE, SCALES_THREADS = QUADS * STAGE;
static_assert(QUANTS_THREADS + SCALES_THREADS + ROWS == N_THREADS && 4 * ROWS == N_THREADS);

/* Which four outputs, of which of the tiles, a thread brings weights or scales of. */
INLINE int quad_of(int t) { return t < QUANTS_THREADS ? t / 2 % QUADS : t % QUADS; }
INLINE int tile_of(int t) { return t < QUANTS_THREADS ? t / (2 * QUADS) : (t - QUANTS_THREADS) / QUADS; }

/* Where a thread's parts are: its row group, the rows of which it has bytes and scales. */
struct origin {
    const uint8_t *group;
    const activations *bytes, *scales;
};

template <layout F> INLINE void fetch(const origin &from, const int (&tiles)[STAGE], fetched<F> *out)
{
    const int t = thread();
    for (int i = 0; i < STAGE; i++)
        out->bytes[i] = ((const uint4 *)&from.bytes[tiles[i]])[t % 4];
    const int tile = tile_of(t) == 0 ? tiles[0] : tiles[1];
    const uint8_t *at = from.group + tile_at<F>(tile);
    if (t < QUANTS_THREADS)
        fetch_quants<F>(at + tile_scales_nbytes(F), quad_of(t) % 2, t % 2, &out->others);
    else if (t < QUANTS_THREADS + SCALES_THREADS)
        fetch_scales<F>(from.group + header_at<F>(tile), at, quad_of(t) % 2, &out->others);
    else
        for (int i = 0; i < STAGE; i++)
            out->others.at[i] = *(const uint4 *)&from.scales[tiles[i]].d;
}

template <layout F> INLINE void put_row_scales(uint4 from, staged<F> *to, int tile, int row)
{
    const float d = __builtin_bit_cast(float, from[0]);
    to->row_d[tile][row] = d;
    if constexpr (adds_minimum(F))
        for (int part = 0; part < N_PARTS<F>; part++)
            to->row_sums[tile][part][row] = part_of(d, (int)(N_PARTS<F> == 1 ? from[3] : from[1 + part])).whole;
}

template <layout F> INLINE void put(const fetched<F> &from, staged<F> *to)
{
    const int t = thread();
    for (int i = 0; i < STAGE; i++) {
        uint2 *piece = to->rows[i] + t % 4 * 2 * ROW_STRIDE + slot_of_row(t / 4);
        piece[0] = from.bytes[i].xy;
        piece[ROW_STRIDE] = from.bytes[i].zw;
    }
    if (t < QUANTS_THREADS)
        put_quants<F>(from.others, to->columns[tile_of(t)], quad_of(t), t % 2);
    else if (t < QUANTS_THREADS + SCALES_THREADS)
        put_scales<F>(from.others, to, tile_of(t), quad_of(t));
    else
        for (int i = 0; i < STAGE; i++)
            put_row_scales<F>(from.others.at[i], to, i, t % ROWS);
}

/* Of a wave: one output in each of four fragments a lane, FRAGMENT_ROWS rows in each of ROW_FRAGMENTS. */
struct sums {
    row_floats at[ROW_FRAGMENTS][FRAGMENTS];
};

struct wave_place {
    int lane, quad, row; /* the lane, its four outputs, its first row */
};

INLINE wave_place place_of_wave()
{
    const int wave = thread() / FRAGMENT_LANES, lane = thread() % FRAGMENT_LANES;
    return {lane, wave % OUTPUT_WAVES * SIDE, uniform(wave / OUTPUT_WAVES) * ROW_FRAGMENTS * SIDE};
}

/* sums += d of a lane's outputs * d of its rows * the products of a part, + the minima. */
template <layout F>
INLINE void scale_products(const staged<F> &from, int tile, int part, int quad, int row, const products (&q)[FRAGMENTS],
                           row_floats (&out)[FRAGMENTS])
{
    const float4 d = from.d[tile][part][quad];
    const row_floats row_d = *(const row_floats *)&from.row_d[tile][row];
    for (int f = 0; f < FRAGMENTS; f++)
        out[f] = fma_rows(d[f] * row_d, __builtin_convertvector(q[f], row_floats), out[f]);
    if constexpr (adds_minimum(F)) {
        const float4 m = from.m[tile][part][quad];
        const row_floats row_sums = *(const row_floats *)&from.row_sums[tile][part][row];
        for (int f = 0; f < FRAGMENTS; f++)
            out[f] = fma_rows((row_floats)m[f], row_sums, out[f]);
    }
}

template <layout F> INLINE void multiply(const staged<F> &from, int tile, wave_place at, sums *out)
{
    column_operand columns[FRAGMENTS];
    for (int f = 0; f < FRAGMENTS; f++)
        columns[f] = load_columns<COLUMN_STRIDE>(from.columns[tile], f * QUADS + at.quad, at.lane);
    for (int i = 0; i < ROW_FRAGMENTS; i++) {
        const int row = at.row + i * SIDE;
        const row_operand high = load_rows<ROW_STRIDE>(from.rows[tile], row, at.lane);
        const row_operand low = load_rows<ROW_STRIDE>(from.rows[tile] + PIECES * ROW_STRIDE, row, at.lane);
#pragma unroll PARTS_AT_ONCE
        for (int part = 0; part < N_PARTS<F>; part++) {
            const int end = N_PARTS<F> == 1 ? 2 : part + 1;
            products q[FRAGMENTS] = {};
            multiply_add(high, columns, part, end, q);
            for (int f = 0; f < FRAGMENTS; f++)
                q[f] <<= 8;
            multiply_add(low, columns, part, end, q);
            scale_products<F>(from, tile, part, at.quad + at.lane % SIDE, row + first_row(at.lane), q, out->at[i]);
        }
    }
}

/* A strand is over. */
INLINE void join(sums *all, sums *strand)
{
    for (int i = 0; i < ROW_FRAGMENTS; i++)
        for (int f = 0; f < FRAGMENTS; f++) {
            all->at[i][f] += strand->at[i][f];
            strand->at[i][f] = 0.0f;
        }
}

struct outputs {
    const float *bias, *residual;
    float *out;
    int n_out, width_out, column, n_rows;
};

/* A workgroup's first output and row. Those that share outputs follow each other: the caches then have the weights. */
struct corner {
    int output, row;
};

INLINE corner corner_of(const outputs &to)
{
    const int i = block_y() * ((to.n_out + OUTPUTS - 1) / OUTPUTS) + block_x();
    const int n_row_blocks = (to.n_rows + ROWS - 1) / ROWS;
    return {i / n_row_blocks * OUTPUTS, i % n_row_blocks * ROWS};
}

INLINE void store_outputs(const outputs &to, int row, int output, float4 sum)
{
    const int64_t at = (int64_t)row * to.width_out + to.column;
    if (to.bias)
        sum += load_quad(to.bias, output, to.n_out);
    if (to.residual)
        sum += load_quad(to.residual + at, output, to.n_out);
    store_quad(to.out + at, output, to.n_out, sum);
}

/* The sums by way of LDS, where they lie as in memory; half of a fragment's rows at a time. */
INLINE void finish(const outputs &to, corner mine, wave_place at, const sums &all, float4 (*lds)[QUADS])
{
    constexpr int half = FRAGMENT_ROWS / 2;
    const int quad = thread() % QUADS;
#pragma unroll
    for (int pass = 0; pass < 2; pass++) {
        meet_in_lds();
        for (int i = 0; i < ROW_FRAGMENTS; i++)
#pragma unroll
            for (int r = 0; r < half; r++)
                for (int f = 0; f < FRAGMENTS; f++)
                    lds[(at.row + i * SIDE + first_row(at.lane)) / 2 + r][at.quad + at.lane % SIDE][f] =
                        all.at[i][f][pass * half + r];
        meet_in_lds();
#pragma unroll 1
        for (int i = thread() / QUADS; i < ROWS / 2; i += N_THREADS / QUADS) {
            const int row = mine.row + i / half * FRAGMENT_ROWS + pass * half + i % half;
            if (row < to.n_rows)
                store_outputs(to, row, mine.output + 4 * quad, lds[i][quad]);
        }
    }
}

INLINE int min_of(int a, int b) { return a < b ? a : b; }

/* Beyond the edges are the last row group and the last row again. */
template <layout F>
INLINE origin origin_of(const uint8_t *packed, const activations *x, int n_in, const outputs &to, corner mine)
{
    const int t = thread(), n_tiles = n_in / TILE_COLUMNS, last_row = to.n_rows - 1;
    const int last_group = (to.n_out + GROUP - 1) / GROUP - 1;
    const int group = min_of(mine.output / GROUP + quad_of(t) / 2, last_group);
    const int row = min_of(mine.row + t / 4, last_row), scale_row = min_of(mine.row + t % ROWS, last_row);
    return {packed + group * group_nbytes(F, n_in), x + (int64_t)row * n_tiles, x + (int64_t)scale_row * n_tiles};
}

template <layout F>
INLINE void matrix_product(const uint8_t *packed, const activations *x, int n_in, const outputs &to, staged<F> *lds)
{
    const int n_tiles = n_in / TILE_COLUMNS;
    const corner mine = corner_of(to);
    const origin from = origin_of<F>(packed, x, n_in, to, mine);
    const wave_place at = place_of_wave();
    const bool has_rows = mine.row + at.row < to.n_rows;
    sums strand = {}, all = {};
    int tiles[STAGE], order = 0;
    fetched<F> next;
    for (int i = 0; i < STAGE; i++)
        tiles[i] = next_tile(&order, n_tiles);
    fetch<F>(from, tiles, &next);
    for (int done = 0; done < n_tiles; done += STAGE) {
        meet_in_lds();
        put<F>(next, lds);
        meet_in_lds();
        const int first = tiles[0], second = tiles[1];
        for (int i = 0; i < STAGE; i++)
            tiles[i] = next_tile(&order, n_tiles);
        if (done + STAGE < n_tiles)
            fetch<F>(from, tiles, &next);
        /* A wave all of whose rows are beyond the last one only brings tiles. */
        const int n_here = has_rows ? min_of(n_tiles - done, STAGE) : 0;
#pragma unroll 1
        for (int i = 0; i < n_here; i++) {
            if ((i == 0 ? first : second) < STRANDS)
                join(&all, &strand);
            multiply<F>(*lds, i, at, &strand);
        }
    }
    join(&all, &strand);
    static_assert(sizeof(staged<F>) >= sizeof(float4[ROWS / 2][QUADS]));
    finish(to, mine, at, all, (float4(*)[QUADS])lds);
}

#define ROW(name, ...)                                                                                               \
    constexpr layout LAYOUT_##name = {__VA_ARGS__};                                                                  \
    KERNEL(N_THREADS)                                                                                                \
    void linear_##name##_matrix(const uint8_t *packed, const activations *x_q16, const float *bias,                  \
                                const float *residual, float *out, int n_out, int n_in, int width_out, int column,   \
                                int n_rows)                                                                          \
    {                                                                                                                \
        __shared__ staged<LAYOUT_##name> lds;                                                                        \
        const outputs to = {bias, residual, out, n_out, width_out, column, n_rows};                                  \
        matrix_product<LAYOUT_##name>(packed, x_q16, n_in, to, &lds);                                                \
    }
QUANTISED_FORMATS(ROW)
#undef ROW
