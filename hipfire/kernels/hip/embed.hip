/* out[i] = scale * table[token_ids[i]], the table packed like any matrix (layout.h): a thread unpacks one element. */
#include "hip.h"

enum { N_THREADS = 128 };

INLINE float half_at(const uint8_t *p) { return (float)*(const half *)p; }

/* Of byte `byte` of vector j in a plane of BITS bits a byte. */
template <int BITS> INLINE uint32_t bits_of(const uint8_t *p, int j, int byte)
{
    const uint32_t word = p[32 * (j % BITS) + byte];
    return BITS == 8 ? word : word >> (j / BITS * BITS) & ((1u << BITS) - 1);
}

template <layout F> INLINE float quantised_element(const uint8_t *packed, int n_in, int id, int column)
{
    const int tiles_a_block = F.block / TILE_COLUMNS, t = column / TILE_COLUMNS, row = id % GROUP;
    const int j = column % TILE_COLUMNS / 4, byte = 4 * row + column % 4, part = column % TILE_COLUMNS / 16;
    const uint8_t *header = packed + id / GROUP * group_nbytes(F, n_in) +
                            (int64_t)(t / tiles_a_block) * (header_nbytes(F) + tiles_a_block * tile_nbytes(F));
    const uint8_t *tile = header + header_nbytes(F) + t % tiles_a_block * tile_nbytes(F);
    const uint8_t *low = tile + tile_scales_nbytes(F), *shared = F.scales < SCALES_K ? tile : header;
    uint32_t q = bits_of<F.low>(low, j, byte);
    if constexpr (F.high != 0)
        q |= bits_of<F.high>(low + 32 * F.low, j, byte) << F.low;
    float d = half_at(shared + 2 * row), m = d * (float)-F.offset;
    if constexpr (F.scales == SCALES_DM || F.scales == SCALES_K || F.scales == SCALES_K16M)
        m = half_at(shared + 16 + 2 * row);
    if constexpr (F.scales == SCALES_K) {
        d *= (float)tile[row];
        m *= (float)tile[8 + row];
    } else if constexpr (F.scales == SCALES_K16) {
        d *= (float)(int8_t)tile[8 * part + row];
        m = d * (float)-F.offset;
    } else if constexpr (F.scales == SCALES_K16M) {
        d *= (float)(tile[8 * part + row] & 15);
        m *= (float)(tile[8 * part + row] >> 4);
    }
    const float value = d * (F.low == 8 ? (float)(int8_t)q : (float)q);
    return has_minimum(F) ? value + m : value;
}

template <typename T> INLINE float float_element(const uint8_t *packed, int n_in, int id, int column)
{
    const int64_t at = ((int64_t)(id / GROUP) * n_in + column) * GROUP + id % GROUP;
    return (float)((const T *)packed)[at];
}

#define EMBED(name, ...)                                                                                        \
    KERNEL(N_THREADS)                                                                                           \
    void embed_##name(const uint8_t *packed, const int *token_ids, float *out, int n_in, float scale)           \
    {                                                                                                           \
        const int column = block_x() * N_THREADS + thread(), row = block_y();                                   \
        if (column < n_in)                                                                                      \
            out[(int64_t)row * n_in + column] = scale * __VA_ARGS__(packed, n_in, token_ids[row], column);      \
    }

#define ROW(name, ...)                              \
    constexpr layout LAYOUT_##name = {__VA_ARGS__}; \
    EMBED(name, quantised_element<LAYOUT_##name>)
QUANTISED_FORMATS(ROW)
#undef ROW

#define ROW(name, nbytes) EMBED(name, float_element<element_##name>)
FLOAT_FORMATS(ROW)
#undef ROW
