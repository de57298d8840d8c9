/* What the two halves of the emulated libamdhip64 share: devices and memory, streams and graphs. Numbers and layouts
 * are HIP's own (ROCm 5 and 6). */
#ifndef EMULATOR_HIP_H
#define EMULATOR_HIP_H
#include "machine.h"

#define API __attribute__((visibility("default")))

typedef enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_CONFIGURATION = 9, NO_DEVICE = 100,
    INVALID_DEVICE = 101, INVALID_IMAGE = 200, NO_BINARY_FOR_GPU = 209, FILE_NOT_FOUND = 301, INVALID_HANDLE = 400,
    NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_FAILURE = 719, NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_UNMATCHED = 903, UNKNOWN = 999
} Error;

enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS };

typedef struct Stream Stream;

/* Every entry point ends with this: it keeps the error for hipGetLastError. */
Error done(Error error);
/* The error that a faulting kernel left, which every later call gives back, as on a real device. */
Error device_state(void);
void device_failed(Error error, const char *report);
u64 instruction_limit(void);
bool is_pinned(const void *pointer);
/* Whether a range lies in one allocation of device or pinned memory. */
bool in_device_memory(const void *pointer, size_t n_bytes);
/* Whether some stream captures in the mode that forbids synchronous calls. */
bool capture_forbids(void);
/* Runs everything that was queued on every stream. */
Error finish_all(void);

#endif
