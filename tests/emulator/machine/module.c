/* Loads what emulator/encode.py made of a code object: instructions, kernels, and the image of its segments. */
#include "machine.h"

typedef struct {
    char magic[8], arch[16];
    u32 family, n_insns, n_kernels, n_index, n_strings, n_relocations;
    u64 image_size, code_offset, code_size;
} Header;
typedef struct { u64 at, value; } Relocation;

extern const OpRow __start_emulator_ops[], __stop_emulator_ops[];

/* Stands for every instruction that the table lacks. It is an error only when it is run. */
OP(unsupported) { fault(w, i, "unsupported", "instruction %s", w->launch->module->strings + i->text); }

static int by_name(const void *a, const void *b) { return strcmp(((const OpRow *)a)->name, ((const OpRow *)b)->name); }

static Op op_named(const char *name) {
    static OpRow *rows;
    static size_t n;
    if (!rows) {
        n = (size_t)(__stop_emulator_ops - __start_emulator_ops);
        rows = malloc(n * sizeof *rows);
        if (!rows) abort();
        memcpy(rows, __start_emulator_ops, n * sizeof *rows);
        qsort(rows, n, sizeof *rows, by_name);
    }
    OpRow key = {name, NULL};
    const OpRow *found = bsearch(&key, rows, n, sizeof *rows, by_name);
    return found ? found->run : op_unsupported;
}

static void *read_block(FILE *file, size_t size) {
    void *block = aligned_alloc(4096, (size + 4095) & ~4095ull);
    if (!block) return NULL;
    if (fread(block, 1, size, file) == size) return block;
    free(block);
    return NULL;
}

static bool read_blocks(FILE *file, Module *m, const Header *h) {
    m->insns = read_block(file, h->n_insns * sizeof *m->insns);
    m->index_of = read_block(file, h->n_index * sizeof *m->index_of);
    m->kernels = read_block(file, h->n_kernels * sizeof *m->kernels);
    m->strings = read_block(file, h->n_strings);
    m->image = read_block(file, h->image_size);
    if (!m->insns || !m->index_of || !m->kernels || !m->strings || !m->image) return false;
    for (u32 n = 0; n < h->n_relocations; n++) {
        Relocation relocation;
        if (fread(&relocation, sizeof relocation, 1, file) != 1) return false;
        u64 value = (u64)m->image + relocation.value;
        memcpy(m->image + relocation.at, &value, sizeof value);
    }
    return true;
}

Module *module_open(const char *path, char *reason, size_t size) {
    FILE *file = fopen(path, "rb");
    Header h;
    Module *m = calloc(1, sizeof *m);
    if (!m) abort();
    if (!file || fread(&h, sizeof h, 1, file) != 1 || memcmp(h.magic, "EMULATE1", 8) != 0) {
        snprintf(reason, size, "%s is not a translated code object of this version", path);
        if (file) fclose(file);
        free(m);
        return NULL;
    }
    *m = (Module){.family = (Family)h.family, .n_insns = h.n_insns, .n_kernels = h.n_kernels,
                  .image_size = h.image_size, .code_offset = h.code_offset, .code_size = h.code_size};
    memcpy(m->arch, h.arch, sizeof m->arch);
    bool complete = read_blocks(file, m, &h);
    fclose(file);
    if (!complete) {
        snprintf(reason, size, "%s is cut short", path);
        free(m);
        return NULL;
    }
    for (u32 n = 0; n < m->n_insns; n++) m->insns[n].run = op_named(m->strings + m->insns[n].name);
    allocation_add((u64)m->image, m->image_size, true, "code object");
    return m;
}

void module_close(Module *m) {
    allocation_remove((u64)m->image);
    forget_profile(m);
    while (m->functions) {
        Function *function = m->functions;
        m->functions = function->next;
        free(function);
    }
    free(m->insns);
    free(m->index_of);
    free(m->kernels);
    free(m->strings);
    free(m->image);
    free(m);
}
