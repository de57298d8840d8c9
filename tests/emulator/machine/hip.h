/* What the parts of the emulated libamdhip64 share: devices and memory, streams, graphs. Numbers and layouts are HIP's
 * own (ROCm 5 and 6). */
#ifndef EMULATOR_HIP_H
#define EMULATOR_HIP_H
#include "machine.h"

#define API __attribute__((visibility("default")))

typedef enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_CONFIGURATION = 9, NO_DEVICE = 100,
    INVALID_DEVICE = 101, INVALID_IMAGE = 200, NO_BINARY_FOR_GPU = 209, FILE_NOT_FOUND = 301, INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_FAILURE = 719,
    NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_WRONG_THREAD = 908, UNKNOWN = 999
} Error;

enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS };

enum { COPY, FILL, KERNEL, RECORD, WAIT };

typedef struct Event Event;
typedef struct Capture Capture;

/* Work of a stream, or of a graph. */
typedef struct Command {
    int kind;
    struct Command *next;
    void *to;
    const void *from;         /* of a copy; `staged` where the bytes were taken when it was queued */
    u8 *staged;               /* also a kernel's arguments */
    size_t n;
    int direction;
    u32 value, width;
    const Function *function;
    LaunchShape shape;
    Event *event;
} Command;
typedef struct { Command *first, **end; } List;
typedef struct Stream { List queue; Capture *capture; struct Stream *next; } Stream;

/* Every entry point ends with this: it keeps the error for hipGetLastError. */
Error done(Error error);
/* The error that a faulting kernel left, which every later call gives back, as on a real device. */
Error device_state(void);
void device_failed(Error error, const char *report);
u64 instruction_limit(void);
bool is_pinned(const void *pointer);
/* Whether a range lies in one allocation of device or pinned memory. */
bool in_device_memory(const void *pointer, size_t n_bytes);
/* Runs everything that was queued on every stream. */
Error finish_all(void);

/* hip_stream.c */
Stream *all_streams(void);
void list_add(List *list, Command *command);
void free_list(List *list);
void free_command(Command *command);
Command *copy_of(const Command *command);
/* Queues a command, or captures it. Takes it. */
Error enqueue(Stream *stream, Command *command);
/* Whether what a copy or a fill touches is there, as far as that can be known. */
bool is_within_memory(const Command *command);

/* hip_graph.c */
/* Whether some capture forbids the caller a call that waits or allocates. Such a call makes the capture invalid. */
bool capture_forbids(void);
/* For a call on a stream that captures, which never may do that. */
Error capture_invalidated(Stream *stream);
/* Takes the command. */
Error capture_command(Capture *capture, Command *command);
void capture_abandon(Stream *stream);
/* A module goes: graphs that have its kernels fault when they are launched. */
void graphs_lose_module(const Module *module);

#endif
