/* The state of the emulated GPU, and how an instruction's operands are reached.
 *
 * A register file is a row of lanes per VGPR. Operands are numbered as the ISA's 9-bit source field numbers them:
 * 0..127 scalar registers, 235..254 special values, 255 a constant, 256..511 VGPRs; above that 512..767 are the
 * accumulation VGPRs and TEMP are rows that only the emulator writes (DPP and SDWA put a permuted operand there).
 */
#ifndef EMULATOR_MACHINE_H
#define EMULATOR_MACHINE_H

#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef int16_t i16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;
typedef int64_t i64;
typedef float f32;
typedef double f64;
typedef _Float16 f16;

enum { LANES_MAX = 64, WAVES_MAX = 32, LDS_MAX = 160 * 1024 };
enum { VCC = 106, TTMP = 108, NUL = 124, M0 = 125, EXEC = 126, CONSTANT = 255, VGPR = 256, AGPR = 512, TEMP = 768, N_ROWS = 520 };
enum { SRC_SHARED_BASE = 235, SRC_SHARED_LIMIT, SRC_PRIVATE_BASE, SRC_PRIVATE_LIMIT, SRC_VCCZ = 251, SRC_EXECZ, SRC_SCC };

#define SHARED_APERTURE 0x0001000000000000ull
#define PRIVATE_APERTURE 0x0002000000000000ull
#define APERTURE_SIZE 0x100000000ull

/* Families differ in a few rules: what a 16-bit result does to the other half, which counter a store counts in. */
typedef enum { CDNA = 0, RDNA3 = 3, RDNA4 = 4 } Family;

typedef struct Wave Wave;
typedef struct Insn Insn;
typedef void (*Op)(Wave *w, const Insn *i);

typedef struct { const char *name; Op run; } OpRow;

/* One decoded instruction. Written by emulator/encode.py (ENTRY there is its twin); `op` is replaced by a pointer. */
struct Insn {
    union { u64 name; Op run; };
    u64 k[4];       /* constants of the four sources, as bits of the operand's own type */
    u32 pc;         /* byte offset in the code section */
    u32 text;       /* offset of its text in the module's strings */
    i32 offset;     /* of an address, in bytes; of a branch, the index of the target instruction */
    u32 extra;      /* by instruction: swizzle, wait count, matrix shape, ... */
    u16 dst, sdst;
    u16 src[4];
    u8 neg, abs, neg_hi, opsel, opsel_hi; /* a bit per operand; bit 3 of opsel is the destination's half */
    u8 clamp, omod;
    u8 n_bytes;     /* of memory per lane */
    u8 flags;
    u8 variant;     /* DPP, SDWA */
    u8 sel[4];      /* SDWA: dst, src0, src1 selects, unused; DPP: row mask, bank mask */
    u16 dpp;
    u32 generation;  /* of the allocation table when base and limit were kept: the allocation that it touched last */
    u64 base, limit;
};

/* flags of a memory instruction, and of a DPP one */
enum { SIGNED = 1, D16 = 2, D16_HI = 4, HAS_VADDR = 8, HAS_SADDR = 16, RETURNS = 32, HAS_INDEX = 64, TWO_ADDRESSES = 128 };
enum { DPP_BOUND = 1, DPP_FETCH_INACTIVE = 2 };
enum { PLAIN = 0, DPP16, DPP8, SDWA };

/* Outstanding memory operations count in one of these; `issued` and `done` are running numbers. */
enum { LOADS, STORES, LDS_OPS, SCALAR_LOADS, N_COUNTERS };
typedef struct { u32 issued, done, unordered; } Counter;

typedef struct { u32 offset, size, kind; } Hidden;

typedef struct {
    char name[256];
    u32 entry;          /* index of its first instruction */
    u32 lanes, n_vgpr, n_sgpr, lds_bytes, scratch_bytes, kernarg_bytes, n_user_sgpr, properties, rsrc2, preload;
    u32 packed_ids, max_items, n_hidden, n_arguments;
    Hidden hidden[32];
    struct { u32 offset, size; } arguments[64]; /* those that a caller gives, in bytes */
} Kernel;

typedef struct Module Module;
typedef struct Function { const Module *module; const Kernel *kernel; struct Function *next; } Function;

struct Module {
    Family family;
    char arch[16];
    u32 n_insns, n_kernels;
    Insn *insns;
    u32 *index_of;      /* instruction index by (byte offset / 4) */
    Kernel *kernels;
    char *strings;
    u8 *image;          /* the loaded segments, code included */
    u64 image_size, code_offset, code_size;
    Function *functions; /* handles that were given out */
};

/* What each 4-byte word of LDS saw in the present stretch between barriers: who wrote each byte, and who read it. */
typedef struct { u32 epoch, writers, readers; } Shadow;
enum { NOBODY = 0xff, SEVERAL = 0xfe, ATOMIC = 0xfd };

typedef struct {
    const Module *module;
    const Kernel *kernel;
    u32 grid[3], block[3], group[3];
    u32 lds_bytes, n_waves;
    u8 *lds, *scratch, *kernarg, *packet;
    Shadow *shadow;
    u32 epoch;
    u64 n_executed, max_executed, *counts;
} Launch;

struct Wave {
    Launch *launch;
    u32 lanes, id;
    u32 next;                 /* index of the next instruction */
    bool ended, at_barrier;
    u32 scc;
    u64 taint;                /* lanes for which the present instruction read something never written */
    u64 exec;
    bool all_active;          /* EXEC has every lane */
    u32 s[128];
    u64 s_defined[2];
    _Alignas(64) u32 mask[LANES_MAX]; /* EXEC, all ones or zero per lane */
    u64 undefined[N_ROWS];  /* lanes of a row that were never written */
    u64 ready[N_ROWS];      /* counter and number of the load that a row waits for */
    u64 s_ready[128];
    Counter counters[N_COUNTERS];
    u32 lds_stores;           /* number in LDS_OPS of the last LDS store */
    u32 *rows;                /* the register file: [row][lane] */
};

/* machine.c */
enum { HIDDEN_BLOCK_COUNT, HIDDEN_GROUP_SIZE = 3, HIDDEN_REMAINDER = 6, HIDDEN_GRID_DIMS = 9, HIDDEN_DYNAMIC_LDS };
typedef struct { u32 grid[3], block[3], lds_bytes; const void *arguments; u32 n_argument_bytes; } LaunchShape;
/* Runs a kernel to its end. Returns NULL, or what went wrong: a report of several lines that the next run replaces. */
const char *run_kernel(const Module *module, const Kernel *kernel, const LaunchShape *shape, u64 max_instructions);
u64 instructions_run(void);
/* Writes a line "times instruction" for each instruction that the last launch ran, and returns the length of all. */
size_t instruction_profile(char *text, size_t size);
void forget_profile(const Module *module);

/* module.c */
/* Reads a file that emulator/encode.py wrote. NULL where it cannot, with the reason in `reason`. */
Module *module_open(const char *path, char *reason, size_t size);
void module_close(Module *module);
void run_with_variant(Wave *w, const Insn *i);

/* faults.c */
extern jmp_buf fault_exit;
const char *fault_report(void);
_Noreturn void fault(const Wave *w, const Insn *i, const char *kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* allocations.c */
typedef struct { u64 base, size; bool read_only; const char *what; } Allocation;
void allocation_add(u64 base, u64 size, bool read_only, const char *what);
bool allocation_remove(u64 base);
const Allocation *allocation_near(u64 address);
extern u32 allocation_generation; /* changes whenever the table does */
u8 *global_memory(const Wave *w, const Insn *i, u64 address, u32 n_bytes, int lane, bool write);

/* operands.c */
void must_be_written(const Wave *w, const Insn *i, const char *use);
void scalar_check(Wave *w, const Insn *i, u32 reg);
u64 scalar(Wave *w, const Insn *i, int n, int n_words);
void set_scalar(Wave *w, const Insn *i, u32 reg, u64 value, int n_words);
void set_exec(Wave *w, u64 value);
void broadcast(u32 *to, u32 value);
void set_mask_result(Wave *w, const Insn *i, u32 reg, u64 bits);
u64 mask_source(Wave *w, const Insn *i, int n);
void wait_for(Wave *w, int counter, u32 n_left);
u64 issue(Wave *w, int counter, bool unordered);
_Noreturn void not_arrived(const Wave *w, const Insn *i, u64 token, const char *file, u32 number);

#define ROW(reg) ((reg) - VGPR)

enum { SEQUENCE_BITS = 32 };
static inline bool is_outstanding(const Wave *w, u64 token) {
    return token && (u32)token > w->counters[(token >> SEQUENCE_BITS) - 1].done;
}

/* A row is about to be read: notes the lanes that nothing wrote, and sees that a load into it has arrived. */
static inline void fetch_check(Wave *w, const Insn *i, u32 row) {
    w->taint |= w->undefined[row];
    if (is_outstanding(w, w->ready[row])) not_arrived(w, i, w->ready[row], row < 256 ? "v" : "a", row & 255);
}

/* A row was written, by an operation that is complete. */
static inline void written(Wave *w, const Insn *i, u32 row) {
    if (is_outstanding(w, w->ready[row])) not_arrived(w, i, w->ready[row], row < 256 ? "v" : "a", row & 255);
    w->ready[row] = 0;
    w->undefined[row] = (w->undefined[row] & ~w->exec) | (w->taint & w->exec);
}

static inline u32 *row_of(Wave *w, const Insn *i, u32 reg) {
    if (reg < VGPR || reg >= TEMP + 8) fault(w, i, "unsupported", "operand %u is not a vector register", reg);
    return w->rows + (size_t)ROW(reg) * w->lanes;
}

/* For every lane, in blocks that the compiler can unroll; lanes are independent of each other. */
#define EACH_LANE(w) \
    for (u32 block_ = 0; block_ < (w)->lanes; block_ += 32) \
        _Pragma("clang loop vectorize(assume_safety)") for (u32 l = block_; l < block_ + 32; l++)

#define ACTIVE(w, l) ((w)->exec >> (l) & 1)

/* Puts an instruction's function into the table in which the loader looks names up. */
#define REGISTER(NAME) \
    __attribute__((section("emulator_ops"), used, aligned(8))) static const OpRow row_##NAME = {#NAME, op_##NAME};
#define OP(NAME) static void op_##NAME(Wave *w, const Insn *i)

static inline f32 as_f32(u32 x) { f32 y; memcpy(&y, &x, 4); return y; }
static inline u32 as_u32(f32 x) { u32 y; memcpy(&y, &x, 4); return y; }
static inline f64 as_f64(u64 x) { f64 y; memcpy(&y, &x, 8); return y; }
static inline u64 as_u64(f64 x) { u64 y; memcpy(&y, &x, 8); return y; }
static inline f32 half_to_f32(u32 x) { u16 h = (u16)x; f16 y; memcpy(&y, &h, 2); return (f32)y; }
static inline u32 f32_to_half(f32 x) { f16 y = (f16)x; u16 h; memcpy(&h, &y, 2); return h; }
static inline f32 bf16_to_f32(u32 x) { return as_f32(x << 16); }
static inline u32 f32_to_bf16(f32 x) {
    u32 u = as_u32(x);
    return x != x ? (u >> 16 | 0x40) & 0xffff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

#endif
