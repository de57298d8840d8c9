/* Runs a step that a Python test took down, in a program of its own: under an emulator for another CPU.
 *
 * stdin: int64 n_regions, then for each int64 address, int64 nbytes and the bytes; then the addresses of the ops, int64
 * n_ops, the address of the step, the address and nbytes of what is to be written to stdout, int64 n_threads, int64
 * scratch_nbytes. Addresses are those of the process that wrote it; here they are looked up and replaced.
 *
 * With the argument "pack": int64 format, n_out, n_in, nbytes and the raw rows; the packed bytes go to stdout.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../hipfire/kernels/cpu/hipfire_cpu.h"

struct region {
    int64_t address, nbytes;
    uint8_t *copy;
};

static struct region *regions;
static int64_t n_regions;

static int64_t read_number(void)
{
    int64_t number;
    if (fread(&number, sizeof number, 1, stdin) != 1)
        exit(2);
    return number;
}

static uint8_t *read_bytes(int64_t nbytes)
{
    uint8_t *bytes = aligned_alloc(64, (size_t)(nbytes + 63) / 64 * 64 + 64);
    if (!bytes || fread(bytes, 1, (size_t)nbytes, stdin) != (size_t)nbytes)
        exit(2);
    return bytes;
}

static void *here(const void *there)
{
    const int64_t address = (int64_t)(intptr_t)there;
    if (!address)
        return NULL;
    for (struct region *r = regions; r < regions + n_regions; r++)
        if (address >= r->address && address < r->address + r->nbytes)
            return r->copy + (address - r->address);
    fprintf(stderr, "no region holds %#llx\n", (unsigned long long)address);
    exit(3);
}

#define MOVE(pointer) ((pointer) = here(pointer))

static void move_op(struct op *op)
{
    MOVE(op->out);
    MOVE(op->out_q16);
    MOVE(op->x);
    MOVE(op->x_q16);
    MOVE(op->residual);
    MOVE(op->weight);
    MOVE(op->angles);
    MOVE(op->q_norm);
    MOVE(op->k_norm);
    MOVE(op->keys);
    MOVE(op->values);
    MOVE(op->matrices);
    for (int i = 0; i < op->n_matrices; i++) {
        struct matrix *matrix = (struct matrix *)op->matrices + i;
        MOVE(matrix->packed);
        MOVE(matrix->bias);
    }
}

static void replay(void)
{
    n_regions = read_number();
    regions = calloc((size_t)n_regions, sizeof *regions);
    for (struct region *r = regions; r < regions + n_regions; r++) {
        r->address = read_number();
        r->nbytes = read_number();
        r->copy = read_bytes(r->nbytes);
    }
    struct op *ops = here((void *)(intptr_t)read_number());
    const int32_t n_ops = (int32_t)read_number();
    struct step *step = here((void *)(intptr_t)read_number());
    const uint8_t *result = here((void *)(intptr_t)read_number());
    const int64_t nbytes = read_number();
    const int32_t n_threads = (int32_t)read_number();
    struct pool *pool = hf_pool_open(n_threads, read_number());
    const int32_t cancel = 0;
    for (struct op *op = ops; op < ops + n_ops; op++)
        move_op(op);
    MOVE(step->token_ids);
    MOVE(step->positions);
    MOVE(step->slots);
    MOVE(step->output_rows);
    if (!pool || !hf_run(pool, ops, n_ops, step, &cancel, NULL))
        exit(4);
    hf_pool_close(pool);
    fwrite(result, 1, (size_t)nbytes, stdout);
}

static void pack(void)
{
    const int32_t format = (int32_t)read_number();
    const int64_t n_out = read_number(), n_in = read_number(), nbytes = hf_packed_nbytes(format, n_out, n_in);
    const uint8_t *raw = read_bytes(read_number());
    uint8_t *packed = calloc(1, (size_t)nbytes);
    struct pool *pool = hf_pool_open(2, 0);
    if (!pool || !packed)
        exit(4);
    hf_pack(pool, format, raw, packed, n_out, n_in);
    hf_pool_close(pool);
    fwrite(packed, 1, (size_t)nbytes, stdout);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "pack"))
        pack();
    else
        replay();
    return 0;
}
