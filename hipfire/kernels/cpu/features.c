/* Which variants of this library the machine can run. The baseline variant's copy is asked: it runs everywhere. */
#include <string.h>

#include "hipfire_cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>

enum { XMM_YMM = 6, XMM_YMM_ZMM = 0xe6, AVX_VNNI = 1 << 4 };

/* Whether the system saves all of these parts of a thread's registers. */
static bool os_saves(uint32_t parts)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
    return (low & parts) == parts;
}

/* AVX2, FMA, F16C, BMI1, BMI2, LZCNT, MOVBE: the level x86-64-v3. */
static bool has_x86_64_v3(void)
{
    const uint32_t leaf1 = bit_FMA | bit_MOVBE | bit_OSXSAVE | bit_AVX | bit_F16C;
    const uint32_t leaf7 = bit_BMI | bit_AVX2 | bit_BMI2;
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & leaf1) != leaf1 || !os_saves(XMM_YMM))
        return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & leaf7) != leaf7)
        return false;
    return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & bit_LZCNT);
}

/* x86-64-v3 and AVX-VNNI. */
static bool has_x86_64_v3_vnni(void)
{
    uint32_t n_subleaves, a, b, c, d;
    if (!has_x86_64_v3() || !__get_cpuid_count(7, 0, &n_subleaves, &b, &c, &d) || n_subleaves < 1)
        return false;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX_VNNI);
}

/* x86-64-v4 (AVX512 F, BW, CD, DQ, VL) and AVX512-VNNI. */
static bool has_x86_64_v4_vnni(void)
{
    const uint32_t leaf7_b = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    uint32_t a, b, c, d;
    if (!has_x86_64_v3() || !os_saves(XMM_YMM_ZMM) || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    return (b & leaf7_b) == leaf7_b && (c & bit_AVX512VNNI);
}
#endif

EXPORT bool hf_machine_has(const char *variant)
{
#if defined(__x86_64__)
    return !strcmp(variant, "x86_64") || (!strcmp(variant, "x86_64_avx2") && has_x86_64_v3()) ||
           (!strcmp(variant, "x86_64_avxvnni") && has_x86_64_v3_vnni()) ||
           (!strcmp(variant, "x86_64_avx512") && has_x86_64_v4_vnni());
#elif defined(__aarch64__)
    return !strcmp(variant, "aarch64");
#else
    (void)variant;
    return false;
#endif
}
