/* Runs a launch: workgroup after workgroup, each wave up to its next barrier, one wave after the other. */
#include "machine.h"

enum { KERNARG_ROOM = 8192, PACKET_BYTES = 64, ROWS_BYTES = N_ROWS * LANES_MAX * 4 };
enum { WANTS_SEGMENT_BUFFER = 1, WANTS_DISPATCH = 2, WANTS_QUEUE = 4, WANTS_KERNARG = 8, WANTS_DISPATCH_ID = 16, WANTS_FLAT_SCRATCH = 32, WANTS_SEGMENT_SIZE = 64 };

/* Memory that launches share; it only grows. */
static struct {
    u8 *kernarg, *packet, *lds, *scratch;
    Shadow *shadow;
    Wave *waves;
    u32 *rows, n_waves, epoch;
    size_t scratch_size;
    u64 n_executed, *counts; /* of each row of the module that ran last */
    const Module *module;
    u32 n_counts;
} room;

static void *zeroed(size_t size) {
    void *block = aligned_alloc(64, (size + 63) & ~63ull);
    if (!block) abort();
    return memset(block, 0, size);
}

static void make_room(u32 n_waves, size_t scratch_size) {
    if (!room.kernarg) {
        room.kernarg = zeroed(KERNARG_ROOM);
        room.packet = zeroed(PACKET_BYTES);
        room.lds = zeroed(LDS_MAX + 64);
        room.shadow = zeroed((LDS_MAX / 4 + 1) * sizeof *room.shadow);
        allocation_add((u64)room.kernarg, KERNARG_ROOM, true, "kernel arguments");
        allocation_add((u64)room.packet, PACKET_BYTES, true, "dispatch packet");
    }
    if (n_waves > room.n_waves) {
        free(room.waves);
        free(room.rows);
        room.waves = zeroed(n_waves * sizeof *room.waves);
        room.rows = zeroed((size_t)n_waves * ROWS_BYTES);
        room.n_waves = n_waves;
    }
    if (scratch_size > room.scratch_size) {
        free(room.scratch);
        room.scratch = zeroed(scratch_size);
        room.scratch_size = scratch_size;
    }
}

u64 instructions_run(void) { return room.n_executed; }

/* Counts of the rows of a module, all zero. */
static u64 *start_counts(const Module *module) {
    if (module->n_insns > room.n_counts) {
        free(room.counts);
        room.counts = zeroed(module->n_insns * sizeof *room.counts);
        room.n_counts = module->n_insns;
    }
    room.module = module;
    return memset(room.counts, 0, module->n_insns * sizeof *room.counts);
}

size_t instruction_profile(char *text, size_t size) {
    size_t length = 0;
    for (u32 n = 0; room.module && n < room.module->n_insns; n++) {
        const Insn *i = &room.module->insns[n];
        /* A dual-issue pair is two or three rows and one instruction. */
        if (!room.counts[n] || (n && i[-1].pc == i->pc)) continue;
        bool fits = length < size;
        length += (size_t)snprintf(fits ? text + length : NULL, fits ? size - length : 0, "%llu %s\n",
                                   (unsigned long long)room.counts[n], room.module->strings + i->text);
    }
    return length;
}

void forget_profile(const Module *module) {
    if (room.module == module) room.module = NULL;
}

static void fill_arguments(const Launch *launch, const LaunchShape *shape) {
    const Kernel *k = launch->kernel;
    memset(launch->kernarg, 0, KERNARG_ROOM);
    memcpy(launch->kernarg, shape->arguments, shape->n_argument_bytes);
    for (u32 n = 0; n < k->n_hidden; n++) {
        const Hidden *h = &k->hidden[n];
        u32 axis = h->kind % 3, value = 0;
        if (h->kind == HIDDEN_GRID_DIMS) value = launch->grid[2] * launch->block[2] > 1 ? 3 : launch->grid[1] * launch->block[1] > 1 ? 2 : 1;
        else if (h->kind == HIDDEN_DYNAMIC_LDS) value = shape->lds_bytes;
        else if (h->kind < HIDDEN_GROUP_SIZE) value = launch->grid[axis];
        else if (h->kind < HIDDEN_REMAINDER) value = launch->block[axis];
        memcpy(launch->kernarg + h->offset, &value, h->size < 4 ? h->size : 4);
    }
}

static void fill_packet(const Launch *launch) {
    u16 sizes[4] = {(u16)launch->block[0], (u16)launch->block[1], (u16)launch->block[2], 0};
    u32 rest[5];
    for (int n = 0; n < 3; n++) rest[n] = launch->grid[n] * launch->block[n];
    rest[3] = launch->kernel->scratch_bytes;
    rest[4] = launch->lds_bytes;
    u64 kernarg = (u64)launch->kernarg;
    memset(launch->packet, 0, PACKET_BYTES);
    memcpy(launch->packet + 4, sizes, sizeof sizes);
    memcpy(launch->packet + 12, rest, sizeof rest);
    memcpy(launch->packet + 40, &kernarg, sizeof kernarg);
}

static void put_initial(Wave *w, u32 *at, u64 value, int n_words) {
    for (int n = 0; n < n_words; n++, ++*at) {
        w->s[*at] = (u32)(value >> 32 * n);
        w->s_defined[*at >> 6] |= 1ull << (*at & 63);
    }
}

/* The scalar registers that the hardware fills before the first instruction. */
static void start_scalars(Wave *w) {
    const Launch *launch = w->launch;
    const Kernel *k = launch->kernel;
    u32 at = 0, wanted = k->properties;
    if (wanted & WANTS_SEGMENT_BUFFER) at += 4;
    if (wanted & WANTS_DISPATCH) put_initial(w, &at, (u64)launch->packet, 2);
    if (wanted & WANTS_QUEUE) at += 2;
    if (wanted & WANTS_KERNARG) put_initial(w, &at, (u64)launch->kernarg, 2);
    if (wanted & WANTS_DISPATCH_ID) put_initial(w, &at, 0, 2);
    if (wanted & WANTS_FLAT_SCRATCH) put_initial(w, &at, 0, 2);
    if (wanted & WANTS_SEGMENT_SIZE) put_initial(w, &at, k->scratch_bytes, 1);
    for (u32 n = 0; n < (k->preload & 127); n++) {
        u32 word;
        memcpy(&word, launch->kernarg + 4 * ((k->preload >> 7) + n), 4);
        put_initial(w, &at, word, 1);
    }
    at = k->n_user_sgpr;
    for (int n = 0; n < 3; n++) {
        if (k->rsrc2 >> (7 + n) & 1) put_initial(w, &at, launch->group[n], 1);
    }
    if (launch->module->family == RDNA4) {
        u32 ttmp = TTMP + 7;
        put_initial(w, &ttmp, launch->group[1] | launch->group[2] << 16, 1);
        put_initial(w, &ttmp, w->id << 25, 1);
        put_initial(w, &ttmp, launch->group[0], 1);
    }
    u32 always = M0;
    put_initial(w, &always, 0, 3);
}

static void start_wave(Wave *w, Launch *launch, u32 id) {
    u32 *rows = room.rows + (size_t)id * (ROWS_BYTES / 4);
    memset(w, 0, sizeof *w);
    w->launch = launch;
    w->id = id;
    w->rows = rows;
    w->lanes = launch->kernel->lanes;
    w->next = launch->kernel->entry;
    memset(w->undefined, 0xff, sizeof w->undefined);
    start_scalars(w);
    u32 n_items = launch->block[0] * launch->block[1] * launch->block[2], first = id * w->lanes, n_ids = 1 + (launch->kernel->rsrc2 >> 11 & 3);
    u32 n_here = n_items - first < w->lanes ? n_items - first : w->lanes;
    set_exec(w, n_here == 64 ? ~0ull : (1ull << n_here) - 1);
    for (u32 l = 0; l < w->lanes; l++) {
        u32 item = first + l, x = item % launch->block[0], y = item / launch->block[0] % launch->block[1], z = item / launch->block[0] / launch->block[1];
        rows[l] = launch->kernel->packed_ids ? x | y << 10 | z << 20 : x;
        rows[w->lanes + l] = y;
        rows[2 * w->lanes + l] = z;
    }
    for (u32 n = 0; n < (launch->kernel->packed_ids ? 1 : n_ids); n++) w->undefined[n] = ~w->exec;
}

/* Runs until the wave ends or stands at a barrier. */
static void run_wave(Wave *w, u64 max_executed) {
    Launch *launch = w->launch;
    const Insn *insns = launch->module->insns;
    while (!w->ended && !w->at_barrier) {
        launch->counts[w->next]++;
        const Insn *i = &insns[w->next++];
        w->taint = 0;
        if (++launch->n_executed > max_executed) fault(w, i, "endless", "the launch ran %llu instructions", (unsigned long long)max_executed);
        if (i->variant) run_with_variant(w, i);
        else i->run(w, i);
    }
}

static void run_group(Launch *launch, u64 max_executed) {
    Wave *waves = room.waves;
    u32 n_ended = 0;
    /* LDS starts with anything; NaNs show where a kernel counts on zeros. */
    memset(launch->lds, 0xff, launch->lds_bytes);
    launch->epoch = ++room.epoch;
    for (u32 n = 0; n < launch->n_waves; n++) start_wave(&waves[n], launch, n);
    while (n_ended < launch->n_waves) {
        n_ended = 0;
        for (u32 n = 0; n < launch->n_waves; n++) {
            waves[n].at_barrier = false;
            run_wave(&waves[n], max_executed);
            n_ended += waves[n].ended;
        }
        launch->epoch = ++room.epoch;
    }
}

const char *run_kernel(const Module *module, const Kernel *kernel, const LaunchShape *shape, u64 max_instructions) {
    u32 n_items = shape->block[0] * shape->block[1] * shape->block[2];
    static Launch launch; /* outlives the jump out of a fault */
    launch = (Launch){.module = module, .kernel = kernel, .lds_bytes = kernel->lds_bytes + shape->lds_bytes};
    launch.n_waves = (n_items + kernel->lanes - 1) / kernel->lanes;
    make_room(launch.n_waves, (size_t)launch.n_waves * kernel->lanes * kernel->scratch_bytes);
    memcpy(launch.grid, shape->grid, sizeof launch.grid);
    memcpy(launch.block, shape->block, sizeof launch.block);
    launch.lds = room.lds;
    launch.shadow = room.shadow;
    launch.scratch = room.scratch;
    launch.kernarg = room.kernarg;
    launch.packet = room.packet;
    launch.counts = start_counts(module);
    fill_arguments(&launch, shape);
    fill_packet(&launch);
    if (setjmp(fault_exit)) {
        room.n_executed = launch.n_executed;
        return fault_report();
    }
    for (launch.group[2] = 0; launch.group[2] < launch.grid[2]; launch.group[2]++) {
        for (launch.group[1] = 0; launch.group[1] < launch.grid[1]; launch.group[1]++) {
            for (launch.group[0] = 0; launch.group[0] < launch.grid[0]; launch.group[0]++) run_group(&launch, max_instructions);
        }
    }
    room.n_executed = launch.n_executed;
    return NULL;
}
