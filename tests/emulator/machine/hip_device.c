/* The emulated libamdhip64, first part: devices, memory and modules.
 *
 * Environment: HIP_EMULATOR_ARCH names the devices (gfx1100,gfx942); HIP_EMULATOR_MEMORY is the memory of each (16G);
 * HIP_EMULATOR_CACHE is where translated code objects are kept; HIP_EMULATOR_ON_FAULT=abort ends the process as a
 * real driver does; HIP_EMULATOR_MAX_INSTRUCTIONS ends a launch that never would. HIP_VISIBLE_DEVICES means the same
 * as for HIP.
 */
#include <errno.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hip.h"

extern char **environ;

enum { DEVICES_MAX = 8, POISON_MAX = 256 << 20, ALIGNMENT = 256, RUNTIME_VERSION = 60300000 };

typedef struct { char arch[16]; u64 used; int number; } Device;
typedef struct Block { void *pointer; size_t size; int device; struct Block *next; } Block;

static struct {
    bool ready;
    int n, current;
    Device devices[DEVICES_MAX];
    u64 memory;
    Block *blocks, *pinned;
    Error last, failed;
    char report[2048];
} gpu;

Error done(Error error) {
    if (error != SUCCESS && error != NOT_READY) gpu.last = error;
    return error;
}
Error device_state(void) { return gpu.failed; }
void device_failed(Error error, const char *report) {
    gpu.failed = error;
    snprintf(gpu.report, sizeof gpu.report, "%s", report);
    fprintf(stderr, "emulated GPU fault: %s", report);
    const char *action = getenv("HIP_EMULATOR_ON_FAULT");
    if (action && strcmp(action, "abort") == 0) abort();
}
/* The report of the fault that ended a launch; empty where there was none. */
API const char *emulatorLastFault(void) { return gpu.report; }
/* Forgets a fault, which a real device never does: for tests that look at many. */
API void emulatorClearFault(void) {
    gpu.failed = gpu.last = SUCCESS;
    gpu.report[0] = 0;
}
API unsigned long long emulatorInstructionsRun(void) { return instructions_run(); }
/* What the last launch ran, line by line, while its module is loaded; the length without the zero at the end, as snprintf. */
API size_t emulatorProfile(char *text, size_t size) { return instruction_profile(text, size); }

u64 instruction_limit(void) {
    const char *text = getenv("HIP_EMULATOR_MAX_INSTRUCTIONS");
    return text ? strtoull(text, NULL, 10) : 20000000000ull;
}

static u64 bytes_from(const char *text) {
    char *end;
    f64 value = strtod(text, &end);
    return (u64)(value * (*end == 'G' ? 1 << 30 : *end == 'M' ? 1 << 20 : *end == 'K' ? 1 << 10 : 1));
}

static bool is_visible(int number) {
    const char *text = getenv("HIP_VISIBLE_DEVICES");
    if (!text) return true;
    while (*text) {
        char *end;
        long one = strtol(text, &end, 10);
        if (end == text) return false;
        if (one == number) return true;
        text = *end == ',' ? end + 1 : end;
    }
    return false;
}

static Error start(void) {
    if (!gpu.ready) {
        const char *list = getenv("HIP_EMULATOR_ARCH"), *memory = getenv("HIP_EMULATOR_MEMORY");
        gpu.memory = bytes_from(memory ? memory : "16G");
        for (int number = 0; list && *list && gpu.n < DEVICES_MAX; number++) {
            size_t n = strcspn(list, ",");
            if (is_visible(number)) {
                snprintf(gpu.devices[gpu.n].arch, sizeof gpu.devices[gpu.n].arch, "%.*s", (int)n, list);
                gpu.devices[gpu.n++].number = number;
            }
            list += n + (list[n] == ',');
        }
        gpu.ready = true;
    }
    return gpu.n ? SUCCESS : NO_DEVICE;
}

API Error hipInit(unsigned flags) { return done(flags ? INVALID_VALUE : start()); }
API Error hipGetDeviceCount(int *count) {
    Error error = start();
    *count = gpu.n;
    return done(error);
}
API Error hipGetDevice(int *device) { *device = gpu.current; return done(start()); }
API Error hipSetDevice(int device) {
    Error error = start();
    if (error) return done(error);
    if (device < 0 || device >= gpu.n) return done(INVALID_DEVICE);
    gpu.current = device;
    return SUCCESS;
}
API Error hipDeviceGet(int *device, int ordinal) {
    Error error = start();
    *device = ordinal;
    return done(error ? error : ordinal < 0 || ordinal >= gpu.n ? INVALID_DEVICE : SUCCESS);
}
API Error hipDriverGetVersion(int *version) { *version = RUNTIME_VERSION; return SUCCESS; }
API Error hipRuntimeGetVersion(int *version) { *version = RUNTIME_VERSION; return SUCCESS; }
API Error hipGetLastError(void) { Error last = gpu.last; gpu.last = SUCCESS; return last; }
API Error hipPeekAtLastError(void) { return gpu.last; }

static int lanes_of(const Device *d) { return strncmp(d->arch, "gfx9", 4) == 0 ? 64 : 32; }
static void name_of(const Device *d, char *to, size_t size) { snprintf(to, size, "Emulated %s", d->arch); }
static int arch_part(const Device *d, bool major) {
    size_t n = strlen(d->arch);
    return major ? atoi(d->arch + 3) / 100 : n >= 2 ? d->arch[n - 2] - '0' : 0;
}

/* Fields by their offsets: (ROCm 6's layout, the older one), -1 where a layout lacks the field. */
static void put_int(u8 *to, int at, int value) { if (at >= 0) memcpy(to + at, &value, 4); }
static void put_size(u8 *to, int at, u64 value) { if (at >= 0) memcpy(to + at, &value, 8); }
static Error properties(u8 *to, int device, bool r0600) {
    Error error = start();
    if (error || device < 0 || device >= gpu.n) return error ? error : INVALID_DEVICE;
    const Device *d = &gpu.devices[device];
    memset(to, 0, r0600 ? 1472 : 792);
    name_of(d, (char *)to, 256);
    if (r0600) snprintf((char *)to + 256, 16, "emulated-%06d", d->number);
    put_size(to, r0600 ? 288 : 256, gpu.memory);
    put_size(to, r0600 ? 296 : 264, 65536);
    put_int(to, r0600 ? 304 : 272, 65536);
    put_int(to, r0600 ? 308 : 276, lanes_of(d));
    put_int(to, r0600 ? 320 : 280, 1024);
    for (int n = 0; n < 3; n++) put_int(to, (r0600 ? 324 : 284) + 4 * n, 1024);
    for (int n = 0; n < 3; n++) put_int(to, (r0600 ? 336 : 296) + 4 * n, n ? 65535 : 2147483647);
    put_int(to, r0600 ? 348 : 308, 2000000);
    put_int(to, r0600 ? 608 : 312, 1000000);
    put_int(to, r0600 ? 612 : 316, 256);
    put_int(to, r0600 ? 360 : 328, arch_part(d, true));
    put_int(to, r0600 ? 364 : 332, arch_part(d, false));
    put_int(to, r0600 ? 388 : 336, 8);
    put_int(to, r0600 ? 616 : 340, 4 << 20);
    put_int(to, r0600 ? 624 : 344, 2048);
    put_int(to, r0600 ? 592 : 364, 0);
    put_int(to, r0600 ? 584 : 368, 3 + d->number);
    snprintf((char *)to + (r0600 ? 1160 : 396), 256, "%s", d->arch);
    return SUCCESS;
}
API Error hipGetDevicePropertiesR0600(void *to, int device) { return done(properties(to, device, true)); }
API Error hipGetDeviceProperties(void *to, int device) { return done(properties(to, device, false)); }

API Error hipDeviceGetName(char *name, int size, int device) {
    if (device < 0 || device >= gpu.n) return done(INVALID_DEVICE);
    name_of(&gpu.devices[device], name, (size_t)size);
    return SUCCESS;
}
API Error hipDeviceGetPCIBusId(char *id, int size, int device) {
    if (device < 0 || device >= gpu.n) return done(INVALID_DEVICE);
    snprintf(id, (size_t)size, "0000:%02x:00.0", 3 + gpu.devices[device].number);
    return SUCCESS;
}
API Error hipDeviceGetUuid(char *uuid, int device) {
    if (device < 0 || device >= gpu.n) return done(INVALID_DEVICE);
    memset(uuid, 0, 16);
    snprintf(uuid, 16, "emulated-%06d", gpu.devices[device].number);
    return SUCCESS;
}
API Error hipDeviceGetAttribute(int *value, int attribute, int device) {
    if (device < 0 || device >= gpu.n) return done(INVALID_DEVICE);
    const Device *d = &gpu.devices[device];
    switch (attribute) {
    case 16: *value = 0; break;                       /* integrated */
    case 19: *value = 4 << 20; break;                 /* L2 */
    case 23: *value = arch_part(d, true); break;
    case 61: *value = arch_part(d, false); break;
    case 56: *value = 1024; break;                    /* threads per block */
    case 57: *value = 2048; break;                    /* threads per multiprocessor */
    case 59: *value = 256; break;                     /* memory bus */
    case 5: case 60: *value = 2000000; break;         /* clocks */
    case 63: *value = 8; break;                       /* multiprocessors */
    case 67: *value = 3 + d->number; break;           /* PCI bus, device, domain */
    case 68: case 69: *value = 0; break;
    case 74: *value = 65536; break;                   /* LDS per block */
    case 87: *value = lanes_of(d); break;
    default: return done(INVALID_VALUE);
    }
    return SUCCESS;
}

API Error hipMemGetInfo(size_t *free_bytes, size_t *total) {
    Error error = start();
    if (error) return done(error);
    *total = gpu.memory;
    *free_bytes = gpu.memory - gpu.devices[gpu.current].used;
    return done(device_state());
}

static Error new_block(void **pointer, size_t size, Block **list, const char *what) {
    Block *block = malloc(sizeof *block);
    size_t room = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *memory = aligned_alloc(ALIGNMENT, room);
    if (!block || !memory) { free(block); free(memory); return OUT_OF_MEMORY; }
    /* Fresh memory is anything: NaNs show who counts on zeros. */
    memset(memory, 0xff, room < POISON_MAX ? room : POISON_MAX);
    *block = (Block){memory, size, gpu.current, *list};
    *list = block;
    allocation_add((u64)memory, size, false, what);
    *pointer = memory;
    return SUCCESS;
}
static Block *take_block(const void *pointer, Block **list) {
    for (; *list; list = &(*list)->next) {
        if ((*list)->pointer != pointer) continue;
        Block *block = *list;
        *list = block->next;
        allocation_remove((u64)pointer);
        free(block->pointer);
        return block;
    }
    return NULL;
}

API Error hipMalloc(void **pointer, size_t size) {
    Error error = start();
    if (error || (error = device_state())) return done(error);
    if (!pointer) return done(INVALID_VALUE);
    if (capture_forbids()) return done(CAPTURE_UNSUPPORTED);
    *pointer = NULL;
    if (size == 0) return SUCCESS;
    Device *d = &gpu.devices[gpu.current];
    if (size > gpu.memory - d->used) return done(OUT_OF_MEMORY);
    error = new_block(pointer, size, &gpu.blocks, "device memory");
    if (!error) d->used += size;
    return done(error);
}
API Error hipFree(void *pointer) {
    if (!pointer) return SUCCESS;
    if (capture_forbids()) return done(CAPTURE_UNSUPPORTED);
    Error error = finish_all();
    Block *block = take_block(pointer, &gpu.blocks);
    if (!block) return done(INVALID_VALUE);
    gpu.devices[block->device].used -= block->size;
    free(block);
    return done(error);
}
API Error hipHostMalloc(void **pointer, size_t size, unsigned flags) {
    (void)flags;
    Error error = start();
    *pointer = NULL;
    if (error || size == 0) return done(error);
    if (capture_forbids()) return done(CAPTURE_UNSUPPORTED);
    return done(new_block(pointer, size, &gpu.pinned, "pinned host memory"));
}
API Error hipHostFree(void *pointer) {
    if (!pointer) return SUCCESS;
    if (capture_forbids()) return done(CAPTURE_UNSUPPORTED);
    Error error = finish_all();
    Block *block = take_block(pointer, &gpu.pinned);
    if (!block) return done(INVALID_VALUE);
    free(block);
    return done(error);
}
API Error hipHostGetDevicePointer(void **device, void *host, unsigned flags) {
    *device = host;
    return done(flags || !is_pinned(host) ? INVALID_VALUE : SUCCESS);
}
bool is_pinned(const void *pointer) {
    for (const Block *b = gpu.pinned; b; b = b->next) {
        if ((u64)pointer - (u64)b->pointer < b->size) return true;
    }
    return false;
}
bool in_device_memory(const void *pointer, size_t n_bytes) {
    const Allocation *row = allocation_near((u64)pointer);
    u64 at = row ? (u64)pointer - row->base : 0;
    return row && (u64)pointer >= row->base && at <= row->size && row->size - at >= n_bytes;
}

/* Bytes of an ELF file in memory: its table of sections comes last. */
static size_t elf_size(const u8 *image) {
    u64 sections;
    u16 entry, n;
    if (memcmp(image, "\177ELF", 4) != 0) return 0;
    memcpy(&sections, image + 40, 8);
    memcpy(&entry, image + 58, 2);
    memcpy(&n, image + 60, 2);
    return (size_t)(sections + (u64)entry * n);
}
static u64 hash(const u8 *data, size_t n, u64 seed) {
    u64 h = 0xcbf29ce484222325ull ^ seed;
    for (size_t k = 0; k < n; k++) h = (h ^ data[k]) * 0x100000001b3ull;
    return h;
}

/* Runs the translator, which is Python: once for each code object, never in a launch. */
static bool translate(const char *from, const char *to) {
    char python_path[4096 + 16];
    const char *python = getenv("HIP_EMULATOR_PYTHON");
    snprintf(python_path, sizeof python_path, "PYTHONPATH=%s", PACKAGE_PARENT);
    size_t n = 0;
    while (environ[n]) n++;
    char **environment = calloc(n + 2, sizeof *environment);
    if (!environment) return false;
    size_t kept = 0;
    for (size_t k = 0; k < n; k++) {
        if (strncmp(environ[k], "PYTHONPATH=", 11) != 0) environment[kept++] = environ[k];
    }
    environment[kept] = python_path;
    char *arguments[] = {(char *)(python ? python : PYTHON), "-m", "emulator.translate", (char *)from, (char *)to, NULL};
    pid_t child;
    int status = -1;
    if (posix_spawn(&child, arguments[0], NULL, NULL, arguments, environment) == 0) {
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    }
    free(environment);
    return status == 0;
}

static const char *cache_folder(char *room, size_t size) {
    const char *folder = getenv("HIP_EMULATOR_CACHE");
    snprintf(room, size, "%s/hip-emulator-%u", P_tmpdir, (unsigned)getuid());
    return folder ? folder : room;
}
/* Where the translation of a code object is kept, whether or not it is there. */
API Error emulatorTranslatedPath(const u8 *image, char *path, size_t room) {
    char other[512];
    const char *folder = cache_folder(other, sizeof other);
    size_t size = elf_size(image);
    if (!size) return INVALID_IMAGE;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) return FILE_NOT_FOUND;
    snprintf(path, room, "%s/%016llx%016llx-%s.emu", folder, (unsigned long long)hash(image, size, 0),
             (unsigned long long)hash(image, size, size), TRANSLATOR);
    return SUCCESS;
}
static Error have_translated(const u8 *image, const char *path) {
    char other[512], source[1100];
    if (access(path, R_OK) == 0) return SUCCESS;
    snprintf(source, sizeof source, "%s/code-XXXXXX", cache_folder(other, sizeof other));
    int file = mkstemp(source);
    if (file < 0) return FILE_NOT_FOUND;
    size_t size = elf_size(image);
    bool written = write(file, image, size) == (ssize_t)size;
    close(file);
    bool good = written && translate(source, path);
    unlink(source);
    return good ? SUCCESS : INVALID_IMAGE;
}

API Error hipModuleLoadData(Module **module, const void *image) {
    char path[1024], reason[1200];
    Error error = start();
    if (error || (error = device_state())) return done(error);
    error = emulatorTranslatedPath(image, path, sizeof path);
    if (!error) error = have_translated(image, path);
    if (error) return done(error);
    *module = module_open(path, reason, sizeof reason);
    if (!*module) {
        fprintf(stderr, "emulator: %s\n", reason);
        return done(INVALID_IMAGE);
    }
    if (strcmp((*module)->arch, gpu.devices[gpu.current].arch) != 0) {
        module_close(*module);
        return done(NO_BINARY_FOR_GPU);
    }
    return SUCCESS;
}
API Error hipModuleLoad(Module **module, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return done(FILE_NOT_FOUND);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    u8 *image = calloc(1, (size_t)size + 64);
    bool complete = image && fread(image, 1, (size_t)size, file) == (size_t)size;
    fclose(file);
    Error error = complete ? hipModuleLoadData(module, image) : FILE_NOT_FOUND;
    free(image);
    return done(error);
}
API Error hipModuleUnload(Module *module) {
    if (!module) return done(INVALID_HANDLE);
    Error error = finish_all();
    graphs_lose_module(module);
    module_close(module);
    return done(error);
}
API Error hipModuleGetFunction(Function **function, Module *module, const char *name) {
    for (u32 n = 0; module && n < module->n_kernels; n++) {
        if (strcmp(module->kernels[n].name, name) != 0) continue;
        Function *f = malloc(sizeof *f);
        if (!f) return done(OUT_OF_MEMORY);
        *f = (Function){module, &module->kernels[n], module->functions};
        module->functions = *function = f;
        return SUCCESS;
    }
    return done(module ? NOT_FOUND : INVALID_HANDLE);
}
API Error hipFuncGetAttribute(int *value, int attribute, const Function *function) {
    const u32 values[] = {function->kernel->max_items, function->kernel->lds_bytes, 0, function->kernel->scratch_bytes, function->kernel->n_vgpr};
    if (attribute < 0 || attribute > 4) return done(INVALID_VALUE);
    *value = (int)values[attribute];
    return SUCCESS;
}

static const struct { Error error; const char *name, *text; } ERRORS[] = {
    {SUCCESS, "hipSuccess", "no error"},
    {INVALID_VALUE, "hipErrorInvalidValue", "invalid argument"},
    {OUT_OF_MEMORY, "hipErrorOutOfMemory", "out of memory"},
    {NOT_INITIALIZED, "hipErrorNotInitialized", "initialization error"},
    {INVALID_CONFIGURATION, "hipErrorInvalidConfiguration", "invalid configuration argument"},
    {NO_DEVICE, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {INVALID_DEVICE, "hipErrorInvalidDevice", "invalid device ordinal"},
    {INVALID_IMAGE, "hipErrorInvalidImage", "device kernel image is invalid"},
    {NO_BINARY_FOR_GPU, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {FILE_NOT_FOUND, "hipErrorFileNotFound", "file not found"},
    {INVALID_HANDLE, "hipErrorInvalidHandle", "invalid resource handle"},
    {NOT_FOUND, "hipErrorNotFound", "named symbol not found"},
    {NOT_READY, "hipErrorNotReady", "device not ready"},
    {ILLEGAL_ADDRESS, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {LAUNCH_FAILURE, "hipErrorLaunchFailure", "unspecified launch failure"},
    {NOT_SUPPORTED, "hipErrorNotSupported", "operation not supported"},
    {CAPTURE_UNSUPPORTED, "hipErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "hipErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {CAPTURE_WRONG_THREAD, "hipErrorStreamCaptureWrongThread", "attempt to end a capture of another thread"},
    {ILLEGAL_STATE, "hipErrorIllegalState", "the operation cannot be performed in the present state"},
};
static size_t error_row(Error error) {
    size_t n = sizeof ERRORS / sizeof *ERRORS;
    for (size_t k = 0; k < n; k++) if (ERRORS[k].error == error) return k;
    return n;
}
API const char *hipGetErrorName(Error error) {
    size_t row = error_row(error);
    return row < sizeof ERRORS / sizeof *ERRORS ? ERRORS[row].name : "hipErrorUnknown";
}
API const char *hipGetErrorString(Error error) {
    size_t row = error_row(error);
    return row < sizeof ERRORS / sizeof *ERRORS ? ERRORS[row].text : "unknown error";
}
