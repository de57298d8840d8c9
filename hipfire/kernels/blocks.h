/* The raw block layouts of ggml's quantised formats, decoded one block at a time. Shared by the C and the HIP kernels.
 *
 * Each decoder turns a block into unsigned integers q and the fields that scale them. What they mean together:
 *   value[i] = d * sc[i / sub] * (q[i] - offset)                    formats without minimum
 *   value[i] = d * sc[i / sub] * q[i] + m * mn[i / sub]             formats with one (m already has its sign)
 * sc and mn are 1 in formats of 32. offset and sub are in the rows of cpu/formats.h. d and m are IEEE half bits.
 */
#pragma once

#include <stdint.h>
#include <string.h>

struct block {
    uint8_t q[256]; /* q8_0: int8 in the same bytes */
    uint16_t d, m;
    uint8_t sc[16]; /* q3_k, q6_k: int8 in the same bytes */
    uint8_t mn[16];
};

static inline uint16_t half_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint16_t negated_half_at(const uint8_t *p)
{
    return (uint16_t)(half_at(p) ^ 0x8000);
}

/* Sixteen bytes hold 32 nibbles: first all low ones, then all high ones. */
static inline void decode_nibbles(const uint8_t *qs, uint8_t *q, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) {
        q[i] = qs[i] & 15;
        q[i + n_bytes] = qs[i] >> 4;
    }
}

static inline void decode_fifth_bits(const uint8_t *qh, uint8_t *q)
{
    for (int i = 0; i < 32; i++)
        q[i] |= (uint8_t)((qh[i / 8] >> (i % 8) & 1) << 4);
}

static inline void decode_q4_0(const uint8_t *raw, struct block *out)
{
    out->d = half_at(raw);
    decode_nibbles(raw + 2, out->q, 16);
}

static inline void decode_q4_1(const uint8_t *raw, struct block *out)
{
    out->d = half_at(raw);
    out->m = half_at(raw + 2);
    decode_nibbles(raw + 4, out->q, 16);
}

static inline void decode_q5_0(const uint8_t *raw, struct block *out)
{
    out->d = half_at(raw);
    decode_nibbles(raw + 6, out->q, 16);
    decode_fifth_bits(raw + 2, out->q);
}

static inline void decode_q5_1(const uint8_t *raw, struct block *out)
{
    out->d = half_at(raw);
    out->m = half_at(raw + 2);
    decode_nibbles(raw + 8, out->q, 16);
    decode_fifth_bits(raw + 4, out->q);
}

static inline void decode_q8_0(const uint8_t *raw, struct block *out)
{
    out->d = half_at(raw);
    memcpy(out->q, raw + 2, 32);
}

/* 64 bytes hold 256 pairs of bits: 128 elements a half, in four runs of 32 that share their bytes. */
static inline void decode_pairs(const uint8_t *qs, uint8_t *q)
{
    for (int i = 0; i < 256; i++)
        q[i] = qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

static inline void decode_q2_k(const uint8_t *raw, struct block *out)
{
    for (int i = 0; i < 16; i++) {
        out->sc[i] = raw[i] & 15;
        out->mn[i] = raw[i] >> 4;
    }
    decode_pairs(raw + 16, out->q);
    out->d = half_at(raw + 80);
    out->m = negated_half_at(raw + 82);
}

static inline void decode_q3_k(const uint8_t *raw, struct block *out)
{
    const uint8_t *scales = raw + 96;
    decode_pairs(raw + 32, out->q);
    for (int i = 0; i < 256; i++)
        out->q[i] |= (uint8_t)((raw[i % 32] >> (i / 32) & 1) << 2);
    for (int i = 0; i < 16; i++) {
        int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
        int high = scales[8 + i % 4] >> (i / 4 * 2) & 3;
        out->sc[i] = (uint8_t)(int8_t)((low | high << 4) - 32);
    }
    out->d = half_at(raw + 108);
}

/* Twelve bytes hold eight 6-bit scales and eight 6-bit minima. */
static inline void decode_six_bit_scales(const uint8_t *s, uint8_t *sc, uint8_t *mn)
{
    for (int i = 0; i < 4; i++) {
        sc[i] = s[i] & 63;
        mn[i] = s[i + 4] & 63;
        sc[i + 4] = (uint8_t)((s[i + 8] & 15) | s[i] >> 6 << 4);
        mn[i + 4] = (uint8_t)(s[i + 8] >> 4 | s[i + 4] >> 6 << 4);
    }
}

static inline void decode_q4_k(const uint8_t *raw, struct block *out)
{
    out->d = half_at(raw);
    out->m = negated_half_at(raw + 2);
    decode_six_bit_scales(raw + 4, out->sc, out->mn);
    for (int run = 0; run < 4; run++)
        decode_nibbles(raw + 16 + 32 * run, out->q + 64 * run, 32);
}

static inline void decode_q5_k(const uint8_t *raw, struct block *out)
{
    const uint8_t *high = raw + 16;
    out->d = half_at(raw);
    out->m = negated_half_at(raw + 2);
    decode_six_bit_scales(raw + 4, out->sc, out->mn);
    for (int run = 0; run < 4; run++)
        decode_nibbles(raw + 48 + 32 * run, out->q + 64 * run, 32);
    for (int i = 0; i < 256; i++)
        out->q[i] |= (uint8_t)((high[i % 32] >> (i / 32) & 1) << 4);
}

static inline void decode_q6_k(const uint8_t *raw, struct block *out)
{
    for (int i = 0; i < 256; i++) {
        const uint8_t *low = raw + i / 128 * 64, *high = raw + 128 + i / 128 * 32;
        int run = i % 128 / 32, at = i % 32;
        int nibble = low[at + run % 2 * 32] >> (run / 2 * 4) & 15;
        out->q[i] = (uint8_t)(nibble | (high[at] >> (run * 2) & 3) << 4);
    }
    memcpy(out->sc, raw + 192, 16);
    out->d = half_at(raw + 208);
}
