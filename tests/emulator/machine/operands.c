/* Operands: reading and writing scalar registers, checking that what is read was written and has arrived. */
#include "machine.h"

static const char *const WAITS[] = {"vmcnt (loadcnt)", "vscnt (storecnt)", "lgkmcnt (dscnt)", "lgkmcnt (kmcnt)"};

/* Counts a memory operation as begun; returns the token that its destination waits for. */
u64 issue(Wave *w, int counter, bool unordered) {
    Counter *c = &w->counters[counter];
    c->issued++;
    if (unordered) c->unordered = c->issued;
    return (u64)(counter + 1) << SEQUENCE_BITS | c->issued;
}

/* A wait until at most `n_left` operations are outstanding. Where one of them may return out of order, only a wait
 * for zero says anything. */
void wait_for(Wave *w, int counter, u32 n_left) {
    Counter *c = &w->counters[counter];
    if (n_left == 0) {
        c->done = c->issued;
    } else if (c->unordered <= c->done && c->issued > n_left && c->issued - n_left > c->done) {
        c->done = c->issued - n_left;
    }
}

_Noreturn void not_arrived(const Wave *w, const Insn *i, u64 token, const char *file, u32 number) {
    fault(w, i, "missing wait", "%s%u is used while what was loaded into it may not have arrived: %s is not waited for", file,
          number, WAITS[(token >> SEQUENCE_BITS) - 1]);
}

static void arrival_check(Wave *w, const Insn *i, u64 token, const char *file, u32 number) {
    if (is_outstanding(w, token)) not_arrived(w, i, token, file, number);
}

/* A value that nothing wrote may be moved about, as compilers do with values that they know to be unused; it may not
 * decide anything. */
void must_be_written(const Wave *w, const Insn *i, const char *use) {
    if (w->taint & w->exec) {
        fault(w, i, "uninitialised", "lane %d %s by a register that nothing wrote", __builtin_ctzll(w->taint & w->exec), use);
    }
}

void scalar_check(Wave *w, const Insn *i, u32 reg) {
    if (!(w->s_defined[reg >> 6] >> (reg & 63) & 1)) w->taint = ~0ull;
    if (w->s_ready[reg]) arrival_check(w, i, w->s_ready[reg], "s", reg);
}

/* The value of source `n`, which is the same for every lane, as `n_words` 32-bit words. */
u64 scalar(Wave *w, const Insn *i, int n, int n_words) {
    u32 reg = i->src[n];
    if (reg < 128) {
        if (reg == NUL) return 0;
        scalar_check(w, i, reg);
        if (n_words == 1) return w->s[reg];
        scalar_check(w, i, reg + 1);
        return w->s[reg] | (u64)w->s[reg + 1] << 32;
    }
    switch (reg) {
    case CONSTANT: return i->k[n];
    case SRC_SHARED_BASE: return SHARED_APERTURE;
    case SRC_SHARED_LIMIT: return SHARED_APERTURE + APERTURE_SIZE - 1;
    case SRC_PRIVATE_BASE: return PRIVATE_APERTURE;
    case SRC_PRIVATE_LIMIT: return PRIVATE_APERTURE + APERTURE_SIZE - 1;
    case SRC_VCCZ: return (w->s[VCC] | (w->lanes == 64 ? w->s[VCC + 1] : 0)) == 0;
    case SRC_EXECZ: return w->exec == 0;
    case SRC_SCC: return w->scc;
    default: fault(w, i, "unsupported", "source operand %u", reg);
    }
}

void set_exec(Wave *w, u64 value) {
    if (w->lanes == 32) value = (u32)value;
    w->exec = value;
    w->all_active = value == (w->lanes == 64 ? ~0ull : 0xffffffffull);
    w->s[EXEC] = (u32)value;
    w->s[EXEC + 1] = (u32)(value >> 32);
    for (u32 l = 0; l < LANES_MAX; l++) w->mask[l] = value >> l & 1 ? ~0u : 0;
}

void set_scalar(Wave *w, const Insn *i, u32 reg, u64 value, int n_words) {
    if (reg == NUL) return;
    if (reg + (u32)n_words > 128) fault(w, i, "unsupported", "scalar destination %u", reg);
    if (reg + (u32)n_words > EXEC) must_be_written(w, i, "sets EXEC");
    for (int n = 0; n < n_words; n++, reg++) {
        if (w->s_ready[reg]) arrival_check(w, i, w->s_ready[reg], "s", reg);
        w->s_ready[reg] = 0;
        w->s[reg] = (u32)(value >> 32 * n);
        u64 bit = 1ull << (reg & 63);
        w->s_defined[reg >> 6] = (w->s_defined[reg >> 6] & ~bit) | (w->taint ? 0 : bit);
    }
    if (reg > EXEC) set_exec(w, w->s[EXEC] | (u64)w->s[EXEC + 1] << 32);
}

/* A bit per lane, as a compare or a carry leaves it: one scalar register, or two where a wave has 64 lanes. */
void set_mask_result(Wave *w, const Insn *i, u32 reg, u64 bits) {
    w->taint = 0; /* of the vector result, which is written */
    set_scalar(w, i, reg, bits, w->lanes == 64 ? 2 : 1);
}

u64 mask_source(Wave *w, const Insn *i, int n) { return scalar(w, i, n, w->lanes == 64 ? 2 : 1); }

void broadcast(u32 *to, u32 value) {
    for (int l = 0; l < LANES_MAX; l++) to[l] = value;
}
