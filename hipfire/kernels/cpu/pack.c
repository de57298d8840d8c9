/* From the raw rows of a model file to the packed tiles of formats.h. */
#include "formats.h"
#include "hipfire_cpu.h"
#include "pool.h"

/* Bytes [row][4 j + t] of a tile as its vectors w[j]. */
static void interleave(uint8_t q[GROUP][TILE_COLUMNS], u8x32 *w)
{
    for (int j = 0; j < TILE_VECTORS; j++) {
        uint8_t bytes[32];
        for (int i = 0; i < 32; i++)
            bytes[i] = q[i / 4][4 * j + i % 4];
        w[j] = load_u8x32(bytes);
    }
}

INLINE void pack_quants(struct layout f, const u8x32 *w, uint8_t *low)
{
    uint8_t *high = low + f.low * 32;
    for (int v = 0; v < f.low; v++) {
        u8x32 bits = f.low == 8 ? w[v] : f.low == 4 ? (w[v] & 15) | w[v + 4] << 4
                                                    : (w[v] & 3) | (w[v + 2] & 3) << 2 | (w[v + 4] & 3) << 4 | w[v + 6] << 6;
        store_u8x32(low + 32 * v, bits);
    }
    for (int v = 0; v < f.high; v++) {
        u8x32 bits = {0};
        for (int s = 0; s < 8 / f.high; s++)
            bits |= (w[v + s * f.high] >> f.low) << (s * f.high);
        store_u8x32(high + 32 * v, bits);
    }
}

static void put_half(uint8_t *p, uint16_t half)
{
    memcpy(p, &half, sizeof half);
}

/* The scale fields of one row in the header of its super-block. */
INLINE void pack_header(struct layout f, const struct block *block, int row, uint8_t *header)
{
    if (header_nbytes(f) >= 16)
        put_half(header + 2 * row, block->d);
    if (header_nbytes(f) == 32)
        put_half(header + 16 + 2 * row, block->m);
}

/* The scale fields of one row in tile t of its block. */
INLINE void pack_scales(struct layout f, const struct block *block, int row, int t, uint8_t *p)
{
    switch (f.scales) {
    case SCALES_DM:
        put_half(p + 16 + 2 * row, block->m); /* fall through */
    case SCALES_D:
        put_half(p + 2 * row, block->d);
        break;
    case SCALES_K:
        p[row] = block->sc[t];
        p[8 + row] = block->mn[t];
        break;
    case SCALES_K16:
    case SCALES_K16M:
        for (int half = 0; half < 2; half++)
            p[8 * half + row] = (uint8_t)(block->sc[2 * t + half] | block->mn[2 * t + half] << 4);
        break;
    }
}

typedef void (*decode_fn)(const uint8_t *raw, struct block *out);

INLINE void pack_group(struct layout f, decode_fn decode, const uint8_t *raw, uint8_t *packed, int n_rows, int64_t n_in)
{
    const int n_tiles = f.block / TILE_COLUMNS;
    const int64_t row_nbytes = n_in / f.block * f.block_nbytes;
    struct block blocks[GROUP];
    memset(blocks, 0, sizeof blocks);
    for (int64_t b = 0; b < n_in / f.block; b++) {
        for (int row = 0; row < n_rows; row++)
            decode(raw + row * row_nbytes + b * f.block_nbytes, &blocks[row]);
        for (int row = 0; row < GROUP; row++)
            pack_header(f, &blocks[row], row, packed);
        packed += header_nbytes(f);
        for (int t = 0; t < n_tiles; t++, packed += tile_nbytes(f)) {
            uint8_t q[GROUP][TILE_COLUMNS];
            u8x32 w[TILE_VECTORS];
            for (int row = 0; row < GROUP; row++) {
                pack_scales(f, &blocks[row], row, t, packed);
                memcpy(q[row], blocks[row].q + t * TILE_COLUMNS, TILE_COLUMNS);
            }
            interleave(q, w);
            pack_quants(f, w, packed + tile_scales_nbytes(f));
        }
    }
}

INLINE void pack_group_float(int element_nbytes, const uint8_t *raw, uint8_t *packed, int n_rows, int64_t n_in)
{
    for (int64_t column = 0; column < n_in; column++)
        for (int row = 0; row < GROUP; row++, packed += element_nbytes) {
            if (row < n_rows)
                memcpy(packed, raw + (row * n_in + column) * element_nbytes, (size_t)element_nbytes);
            else
                memset(packed, 0, (size_t)element_nbytes);
        }
}

typedef void (*pack_fn)(const uint8_t *raw, uint8_t *packed, int n_rows, int64_t n_in);

#define ROW(name, ...)                                                                               \
    static void pack_##name(const uint8_t *raw, uint8_t *packed, int n_rows, int64_t n_in)           \
    {                                                                                                \
        pack_group((struct layout){__VA_ARGS__}, decode_##name, raw, packed, n_rows, n_in);          \
    }
QUANTISED_FORMATS(ROW)
#undef ROW

#define ROW(name, element_nbytes)                                                                    \
    static void pack_##name(const uint8_t *raw, uint8_t *packed, int n_rows, int64_t n_in)           \
    {                                                                                                \
        pack_group_float(element_nbytes, raw, packed, n_rows, n_in);                                 \
    }
FLOAT_FORMATS(ROW)
#undef ROW

static const struct {
    const char *name;
    pack_fn pack;
    int quantised;
    struct layout layout; /* of floats: block 1 */
} FORMATS[N_FORMATS] = {
#define ROW(name, element_nbytes) {#name, pack_##name, 0, {1, element_nbytes, 0, 0, SCALES_D, 0}},
    FLOAT_FORMATS(ROW)
#undef ROW
#define ROW(name, ...) {#name, pack_##name, 1, {__VA_ARGS__}},
        QUANTISED_FORMATS(ROW)
#undef ROW
};

EXPORT const char *hf_format_name(int32_t i)
{
    return i >= 0 && i < N_FORMATS ? FORMATS[i].name : NULL;
}

static int64_t packed_group_nbytes(int32_t format, int64_t n_in)
{
    const struct layout f = FORMATS[format].layout;
    return FORMATS[format].quantised ? group_nbytes(f, n_in) : n_in * GROUP * f.block_nbytes;
}

EXPORT int64_t hf_packed_nbytes(int32_t format, int64_t n_out, int64_t n_in)
{
    return (n_out + GROUP - 1) / GROUP * packed_group_nbytes(format, n_in);
}

struct pack_job {
    int32_t format;
    const uint8_t *raw;
    uint8_t *packed;
    int64_t n_out, n_in;
};

static void pack_job(void *argument, struct worker *worker)
{
    const struct pack_job job = *(const struct pack_job *)argument;
    const struct layout f = FORMATS[job.format].layout;
    const int64_t n_groups = (job.n_out + GROUP - 1) / GROUP;
    for (int64_t group; (group = pool_claim(worker, n_groups, 1)) < n_groups;) {
        const int64_t row = group * GROUP, left = job.n_out - row;
        FORMATS[job.format].pack(job.raw + row * (job.n_in / f.block * f.block_nbytes),
                                 job.packed + group * packed_group_nbytes(job.format, job.n_in),
                                 left < GROUP ? (int)left : GROUP, job.n_in);
    }
}

EXPORT void hf_pack(struct pool *pool, int32_t format, const uint8_t *raw, uint8_t *packed, int64_t n_out, int64_t n_in)
{
    struct pack_job job = {format, raw, packed, n_out, n_in};
    pool_run(pool, pack_job, &job, NULL);
}
