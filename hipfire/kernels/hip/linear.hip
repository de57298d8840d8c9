/* out = x @ w.T (+ bias) (+ residual) with packed weights (layout.h), activations and sums in float32.
 *
 * A workgroup has the eight outputs of one row group and a few rows of x. Its lanes go through the tiles side by side,
 * each loading sixteen bytes of a bit plane: four outputs by four or eight columns. The weights are unpacked once for
 * all the rows. What a row gets does not depend on how many rows share the launch: the sum of an output is made in an
 * order that the matrix's shape alone decides.
 */
#include "hip.h"

enum { N_THREADS = 128, MAX_WAVES = N_THREADS / 32, QUADS = 2 };

/* Where a lane stands in a tile: outputs 4 half .. 4 half + 3, the columns of the vectors j and j + 4. */
struct place {
    int half, j;
};

struct weights {
    float q[4][4 * QUADS]; /* [output][column] */
    float d[4][QUADS], m[4][QUADS];
};

/* Four halves, 8 bytes at p. */
INLINE float4 four_halves(const uint8_t *p) { return __builtin_convertvector(*(const half4 *)p, float4); }

/* Byte `i` of a word. */
template <bool SIGNED> INLINE float byte_of(uint32_t word, int i)
{
    return SIGNED ? (float)(int8_t)(word >> (8 * i)) : (float)(uint8_t)(word >> (8 * i));
}

/* The bits of one plane, of every byte of `vector j`: a run of BITS of them, as the bytes of four words. */
template <int BITS> INLINE uint4 plane(const uint8_t *p, place at, int quad)
{
    const int n_vectors = BITS, vector = at.j % n_vectors, run = at.j / n_vectors + quad * (4 / n_vectors);
    if (BITS == 8)
        return *(const uint4 *)(p + 32 * (at.j + 4 * quad) + 16 * at.half);
    const uint4 words = *(const uint4 *)(p + 32 * vector + 16 * at.half);
    return words >> (uint32_t)(run * BITS) & 0x01010101u * ((1u << BITS) - 1);
}

template <layout F> INLINE void unpack_quants(const uint8_t *low, place at, weights *out)
{
    for (int quad = 0; quad < QUADS; quad++) {
        uint4 words = plane<F.low>(low, at, quad);
        if constexpr (F.high != 0)
            words |= plane<F.high>(low + 32 * F.low, at, quad) << (uint32_t)F.low;
        for (int row = 0; row < 4; row++) {
            const uint32_t word = F.low == 8 ? words[row] : opaque(words[row]);
            for (int i = 0; i < 4; i++)
                out->q[row][4 * quad + i] = byte_of<F.low == 8>(word, i);
        }
    }
}

/* The scales of a tile: value = d * q + m. */
template <layout F> INLINE void unpack_scales(const uint8_t *header, const uint8_t *p, place at, weights *out)
{
    const float4 d_all = four_halves((F.scales < SCALES_K ? p : header) + 8 * at.half);
    float4 m_all = d_all * (float)-F.offset;
    if constexpr (F.scales == SCALES_DM || F.scales == SCALES_K || F.scales == SCALES_K16M)
        m_all = four_halves((F.scales == SCALES_DM ? p : header) + 16 + 8 * at.half);
    for (int quad = 0; quad < QUADS; quad++) {
        /* Of formats whose scales are themselves scaled: four bytes, one an output. */
        const int part = F.scales == SCALES_K ? 0 : quad;
        const uint32_t scales = F.scales < SCALES_K ? 0 : *(const uint32_t *)(p + 8 * part + 4 * at.half);
        const uint32_t minima = F.scales == SCALES_K ? *(const uint32_t *)(p + 8 + 4 * at.half) : scales >> 4;
        for (int row = 0; row < 4; row++) {
            float d = d_all[row], m = m_all[row];
            if (F.scales == SCALES_K) {
                d *= byte_of<false>(scales, row);
                m *= byte_of<false>(minima, row);
            } else if (F.scales == SCALES_K16) {
                d *= byte_of<true>(scales, row);
                m = d * (float)-F.offset;
            } else if (F.scales == SCALES_K16M) {
                d *= byte_of<false>(scales & 0x0f0f0f0fu, row);
                m *= byte_of<false>(minima & 0x0f0f0f0fu, row);
            }
            out->d[row][quad] = d;
            out->m[row][quad] = m;
        }
    }
}

/* sums[output] += the products of a lane's columns with those of one row of x. */
template <layout F> INLINE void multiply(const weights *w, const float *x, place at, float *sums)
{
    float4 columns[QUADS];
    float whole[QUADS];
    for (int quad = 0; quad < QUADS; quad++) {
        columns[quad] = *(const float4 *)(x + 16 * quad + 4 * at.j);
        whole[quad] = columns[quad][0] + columns[quad][1] + (columns[quad][2] + columns[quad][3]);
    }
    for (int row = 0; row < 4; row++)
        for (int quad = 0; quad < QUADS; quad++) {
            float sum = 0.0f;
            for (int i = 0; i < 4; i++)
                sum = fma_of(columns[quad][i], w->q[row][4 * quad + i], sum);
            sums[row] = fma_of(w->d[row][quad], sum, sums[row]);
            if (has_minimum(F))
                sums[row] = fma_of(w->m[row][quad], whole[quad], sums[row]);
        }
}

struct outputs {
    const float *bias, *residual;
    float *out;
    int n_out, width_out, column, n_rows;
};

/* partial[wave][row][output] to out. */
template <int ROWS> INLINE void finish(const outputs *to, const float *partial)
{
    meet();
    for (int i = thread(); i < ROWS * GROUP; i += N_THREADS) {
        float sum = partial[i];
        for (int wave = 1; wave < N_THREADS / wave_size(); wave++)
            sum += partial[wave * ROWS * GROUP + i];
        const int row = block_y() * ROWS + i / GROUP, output = block_x() * GROUP + i % GROUP;
        if (row >= to->n_rows || output >= to->n_out)
            continue;
        const int64_t at = (int64_t)row * to->width_out + to->column + output;
        if (to->bias)
            sum += to->bias[output];
        to->out[at] = to->residual ? sum + to->residual[at] : sum;
    }
}

/* Which row of x the i-th of a workgroup is; the last ones again where there are no more. */
template <int ROWS> INLINE int64_t row_of(const outputs *to, int i)
{
    const int row = block_y() * ROWS + i;
    return row < to->n_rows ? row : to->n_rows - 1;
}

template <layout F, int ROWS>
INLINE void linear_quantised(const uint8_t *packed, const float *x, int n_in, const outputs *to, float *partial)
{
    const place at = {thread() % 2, thread() / 2 % 4};
    const int tiles_a_block = F.block / TILE_COLUMNS;
    const uint8_t *group = packed + block_x() * group_nbytes(F, n_in);
    float sums[ROWS][4] = {};
    for (int t = thread() / 8; t < n_in / TILE_COLUMNS; t += N_THREADS / 8) {
        const uint8_t *header = group + (int64_t)(t / tiles_a_block) * (header_nbytes(F) + tiles_a_block * tile_nbytes(F));
        const uint8_t *tile = header + header_nbytes(F) + t % tiles_a_block * tile_nbytes(F);
        weights w;
        unpack_scales<F>(header, tile, at, &w);
        unpack_quants<F>(tile + tile_scales_nbytes(F), at, &w);
        for (int i = 0; i < ROWS; i++)
            multiply<F>(&w, x + row_of<ROWS>(to, i) * n_in + t * TILE_COLUMNS, at, sums[i]);
    }
    const int wave = thread() / wave_size(), lane = thread() % wave_size();
    for (int i = 0; i < ROWS; i++)
        for (int output = 0; output < 4; output++) {
            float sum = sums[i][output];
            sum += from_lane_xor<2>(sum);
            sum += from_lane_xor<4>(sum);
            sum += from_lane_xor<8>(sum);
            sum += from_lane_xor<16>(sum);
            if (wave_size() == 64)
                sum += from_lane_xor<32>(sum);
            if (lane < 2)
                partial[(wave * ROWS + i) * GROUP + 4 * lane + output] = sum;
        }
    finish<ROWS>(to, partial);
}

/* Weights begin at multiples of 16 bytes. */
template <typename T> struct alignas(16) column_of_eight {
    T output[GROUP];
};

template <typename T, int ROWS>
INLINE void linear_float(const uint8_t *packed, const float *x, int n_in, const outputs *to, float *partial)
{
    const column_of_eight<T> *columns = (const column_of_eight<T> *)packed + (int64_t)block_x() * n_in;
    float sums[ROWS][GROUP] = {};
    for (int c = thread(); c < n_in; c += N_THREADS) {
        const column_of_eight<T> column = columns[c];
        for (int i = 0; i < ROWS; i++) {
            const float value = x[row_of<ROWS>(to, i) * n_in + c];
            for (int output = 0; output < GROUP; output++)
                sums[i][output] = fma_of((float)column.output[output], value, sums[i][output]);
        }
    }
    const int wave = thread() / wave_size(), lane = thread() % wave_size();
    for (int i = 0; i < ROWS; i++)
        for (int output = 0; output < GROUP; output++) {
            const float sum = over_wave<false>(sums[i][output]);
            if (lane == 0)
                partial[(wave * ROWS + i) * GROUP + output] = sum;
        }
    finish<ROWS>(to, partial);
}

#define LINEAR(name, rows, ...)                                                                                       \
    KERNEL(N_THREADS)                                                                                                 \
    void linear_##name##_x##rows(const uint8_t *packed, const float *x, const float *bias, const float *residual,     \
                                 float *out, int n_out, int n_in, int width_out, int column, int n_rows)              \
    {                                                                                                                 \
        __shared__ float partial[MAX_WAVES * rows * GROUP];                                                           \
        const outputs to = {bias, residual, out, n_out, width_out, column, n_rows};                                   \
        __VA_ARGS__(packed, x, n_in, &to, partial);                                                                   \
    }

#define ROW(name, ...)                                                                      \
    constexpr layout LAYOUT_##name = {__VA_ARGS__};                                         \
    LINEAR(name, 1, linear_quantised<LAYOUT_##name, 1>)                                     \
    LINEAR(name, 4, linear_quantised<LAYOUT_##name, 4>)
QUANTISED_FORMATS(ROW)
#undef ROW

#define ROW(name, nbytes)                                 \
    LINEAR(name, 1, linear_float<element_##name, 1>)      \
    LINEAR(name, 4, linear_float<element_##name, 4>)
FLOAT_FORMATS(ROW)
#undef ROW
