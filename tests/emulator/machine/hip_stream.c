/* The emulated libamdhip64, second part: streams, events and launches.
 *
 * What is queued runs as late as HIP allows: when something waits for it. A host that reads a result too early, or
 * reuses pinned memory before a copy has read it, therefore sees the wrong bytes here, every time.
 */
#include <unistd.h>

#include "hip.h"

struct Event { Stream *stream; bool pending; u64 when; };

static struct { Stream null_stream, *all; } streams;
static u64 clock_now;

static void list_clear(List *list) { *list = (List){NULL, NULL}; }
void list_add(List *list, Command *command) {
    command->next = NULL;
    if (!list->first) list->end = &list->first;
    *list->end = command;
    list->end = &command->next;
}
Stream *all_streams(void) { return streams.all; }
static Stream *stream_of(Stream *stream) { return stream ? stream : &streams.null_stream; }
static Command *new_command(int kind) {
    Command *command = calloc(1, sizeof *command);
    if (!command) abort();
    command->kind = kind;
    return command;
}
void free_command(Command *command) {
    free(command->staged);
    free(command);
}
void free_list(List *list) {
    while (list->first) {
        Command *command = list->first;
        list->first = command->next;
        free_command(command);
    }
    list_clear(list);
}
Command *copy_of(const Command *command) {
    Command *copy = new_command(command->kind);
    *copy = *command;
    if (command->staged) {
        size_t n = command->kind == KERNEL ? command->shape.n_argument_bytes : command->n;
        copy->staged = malloc(n + 1);
        if (!copy->staged) abort();
        memcpy(copy->staged, command->staged, n);
        if (command->kind == KERNEL) copy->shape.arguments = copy->staged;
    }
    return copy;
}

static void fill(u8 *to, u32 value, u32 width, size_t n) {
    for (size_t k = 0; k < n; k++) memcpy(to + k * width, &value, width);
}

static Error run_one(Stream *stream);
static Error finish(Stream *stream) {
    Error error = SUCCESS;
    while (stream->queue.first && !error) error = run_one(stream);
    return error ? error : device_state();
}

/* A file that is there asks for one fault, of the next kernel, whichever process runs it. */
static bool fault_is_asked_for(void) {
    const char *file = getenv("HIP_EMULATOR_FAULT_FILE");
    return file && unlink(file) == 0;
}

/* Runs the oldest command of a stream. */
static Error run_one(Stream *stream) {
    Command *command = stream->queue.first;
    stream->queue.first = command->next;
    Error error = device_state();
    clock_now++;
    if (!error && command->kind == COPY) memmove(command->to, command->staged ? command->staged : command->from, command->n);
    if (!error && command->kind == FILL) fill(command->to, command->value, command->width, command->n);
    if (!error && command->kind == KERNEL && fault_is_asked_for()) {
        error = LAUNCH_FAILURE;
        device_failed(error, "asked for: by HIP_EMULATOR_FAULT_FILE\n");
    }
    if (!error && command->kind == KERNEL) {
        const char *report = run_kernel(command->function->module, command->function->kernel, &command->shape, instruction_limit());
        if (report) {
            error = strncmp(report, "out of bounds", 13) == 0 ? ILLEGAL_ADDRESS : LAUNCH_FAILURE;
            device_failed(error, report);
        }
        clock_now += instructions_run();
    }
    if (command->kind == RECORD) {
        command->event->pending = false;
        command->event->when = clock_now;
    }
    if (command->kind == WAIT) {
        Event *event = command->event;
        while (event->pending && event->stream->queue.first && !error) error = run_one(event->stream);
    }
    free_command(command);
    return error;
}

Error finish_all(void) {
    Error error = finish(&streams.null_stream);
    for (Stream *s = streams.all; s && !error; s = s->next) error = finish(s);
    return error ? error : device_state();
}

Error enqueue(Stream *stream, Command *command) {
    stream = stream_of(stream);
    if (stream->capture) return capture_command(stream->capture, command);
    list_add(&stream->queue, command);
    return device_state();
}

static Error check_copy(const void *to, const void *from, size_t n, int kind) {
    if (kind < 0 || kind > BY_ADDRESS || (n && (!to || !from))) return INVALID_VALUE;
    bool to_device = kind == HOST_TO_DEVICE || kind == DEVICE_TO_DEVICE, from_device = kind == DEVICE_TO_HOST || kind == DEVICE_TO_DEVICE;
    if ((to_device && !in_device_memory(to, n)) || (from_device && !in_device_memory(from, n))) return INVALID_VALUE;
    return SUCCESS;
}
bool is_within_memory(const Command *command) {
    if (command->kind == COPY) return check_copy(command->to, command->from, command->n, command->direction) == SUCCESS;
    return command->kind != FILL || in_device_memory(command->to, command->n * command->width);
}
API Error hipMemcpyAsync(void *to, const void *from, size_t n, int kind, Stream *stream) {
    Error error = check_copy(to, from, n, kind);
    if (error || n == 0) return done(error);
    Command *command = new_command(COPY);
    command->to = to;
    command->from = from;
    command->n = n;
    command->direction = kind;
    bool from_host = kind == HOST_TO_DEVICE || (kind == BY_ADDRESS && !in_device_memory(from, n));
    if (from_host && !is_pinned(from) && !stream_of(stream)->capture) {
        /* Pageable memory is read before the call returns. */
        command->staged = malloc(n);
        if (!command->staged) { free(command); return done(OUT_OF_MEMORY); }
        memcpy(command->staged, from, n);
    }
    return done(enqueue(stream, command));
}
API Error hipMemcpy(void *to, const void *from, size_t n, int kind) {
    if (capture_forbids()) return done(CAPTURE_UNSUPPORTED);
    Error error = check_copy(to, from, n, kind);
    if (error) return done(error);
    error = finish_all();
    if (!error) memmove(to, from, n);
    return done(error);
}
API Error hipMemcpyHtoD(void *to, const void *from, size_t n) { return hipMemcpy(to, from, n, HOST_TO_DEVICE); }
API Error hipMemcpyDtoH(void *to, const void *from, size_t n) { return hipMemcpy(to, from, n, DEVICE_TO_HOST); }
API Error hipMemcpyDtoD(void *to, const void *from, size_t n) { return hipMemcpy(to, from, n, DEVICE_TO_DEVICE); }
API Error hipMemcpyHtoDAsync(void *to, const void *from, size_t n, Stream *s) { return hipMemcpyAsync(to, from, n, HOST_TO_DEVICE, s); }
API Error hipMemcpyDtoHAsync(void *to, const void *from, size_t n, Stream *s) { return hipMemcpyAsync(to, from, n, DEVICE_TO_HOST, s); }
API Error hipMemcpyDtoDAsync(void *to, const void *from, size_t n, Stream *s) { return hipMemcpyAsync(to, from, n, DEVICE_TO_DEVICE, s); }

static Error set_async(void *to, u32 value, u32 width, size_t n, Stream *stream) {
    if (!in_device_memory(to, n * width)) return INVALID_VALUE;
    Command *command = new_command(FILL);
    command->to = to;
    command->value = value;
    command->width = width;
    command->n = n;
    return enqueue(stream, command);
}
API Error hipMemsetAsync(void *to, int value, size_t n, Stream *stream) { return done(set_async(to, (u32)value, 1, n, stream)); }
API Error hipMemsetD32Async(void *to, int value, size_t n, Stream *stream) { return done(set_async(to, (u32)value, 4, n, stream)); }
API Error hipMemset(void *to, int value, size_t n) {
    if (capture_forbids()) return done(CAPTURE_UNSUPPORTED);
    Error error = set_async(to, (u32)value, 1, n, NULL);
    return done(error ? error : finish_all());
}

/* The argument segment, gathered from a pointer per argument or from one packed buffer. */
static Error gather(const Kernel *kernel, void **parameters, void **extra, u8 **bytes, u32 *n_bytes) {
    u32 needed = 0;
    for (u32 n = 0; n < kernel->n_arguments; n++) {
        u32 end = kernel->arguments[n].offset + kernel->arguments[n].size;
        if (end > needed) needed = end;
    }
    const void *buffer = NULL;
    size_t given = 0;
    for (; extra && *extra != (void *)3; extra += 2) {
        if (*extra == (void *)1) buffer = extra[1];
        else if (*extra == (void *)2) given = *(const size_t *)extra[1];
        else return INVALID_VALUE;
    }
    if ((buffer && given < needed) || (!buffer && !parameters && needed)) return INVALID_VALUE;
    *n_bytes = needed;
    *bytes = calloc(1, needed + 1);
    if (!*bytes) return OUT_OF_MEMORY;
    if (buffer) memcpy(*bytes, buffer, needed);
    for (u32 n = 0; !buffer && n < kernel->n_arguments; n++) {
        memcpy(*bytes + kernel->arguments[n].offset, parameters[n], kernel->arguments[n].size);
    }
    return SUCCESS;
}
API Error hipModuleLaunchKernel(const Function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                unsigned block_y, unsigned block_z, unsigned lds_bytes, Stream *stream, void **parameters, void **extra) {
    Error error = device_state();
    if (error || !function) return done(error ? error : INVALID_HANDLE);
    u64 n_items = (u64)block_x * block_y * block_z;
    if (!n_items || !((u64)grid_x * grid_y * grid_z) || grid_y > 65535 || grid_z > 65535 || n_items > function->kernel->max_items ||
        function->kernel->lds_bytes + (u64)lds_bytes > 65536) {
        return done(INVALID_CONFIGURATION);
    }
    Command *command = new_command(KERNEL);
    command->function = function;
    command->shape = (LaunchShape){{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, lds_bytes, NULL, 0};
    error = gather(function->kernel, parameters, extra, &command->staged, &command->shape.n_argument_bytes);
    if (error) {
        free_command(command);
        return done(error);
    }
    command->shape.arguments = command->staged;
    return done(enqueue(stream, command));
}

API Error hipDeviceSynchronize(void) { return done(capture_forbids() ? CAPTURE_UNSUPPORTED : finish_all()); }
API Error hipStreamCreateWithFlags(Stream **stream, unsigned flags) {
    (void)flags;
    Stream *s = calloc(1, sizeof *s);
    if (!s) return done(OUT_OF_MEMORY);
    s->next = streams.all;
    streams.all = *stream = s;
    return done(device_state());
}
API Error hipStreamCreate(Stream **stream) { return hipStreamCreateWithFlags(stream, 0); }
API Error hipStreamDestroy(Stream *stream) {
    if (!stream) return done(INVALID_HANDLE);
    Error error = finish(stream);
    free_list(&stream->queue);
    capture_abandon(stream);
    for (Stream **at = &streams.all; *at; at = &(*at)->next) {
        if (*at != stream) continue;
        *at = stream->next;
        break;
    }
    free(stream);
    return done(error);
}
API Error hipStreamSynchronize(Stream *stream) {
    if (stream_of(stream)->capture) return done(capture_invalidated(stream));
    /* The default stream waits for all, and all wait for it. */
    if (!stream) return done(finish_all());
    Error error = finish(&streams.null_stream);
    return done(error ? error : finish(stream));
}
/* A poll makes a step of progress, so that polling ends. */
API Error hipStreamQuery(Stream *stream) {
    Stream *s = stream_of(stream);
    if (s->capture) return done(capture_invalidated(s));
    if (!s->queue.first) return done(device_state());
    Error error = run_one(s);
    return done(error ? error : s->queue.first ? NOT_READY : device_state());
}
API Error hipStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
    if (!event || flags) return done(INVALID_VALUE);
    if (stream_of(stream)->capture) return SUCCESS;
    Command *command = new_command(WAIT);
    command->event = event;
    return done(enqueue(stream, command));
}

API Error hipEventCreateWithFlags(Event **event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof **event);
    return done(*event ? SUCCESS : OUT_OF_MEMORY);
}
API Error hipEventCreate(Event **event) { return hipEventCreateWithFlags(event, 0); }
API Error hipEventDestroy(Event *event) {
    /* It may be named in a queue. */
    Error error = finish_all();
    free(event);
    return done(error);
}
API Error hipEventRecord(Event *event, Stream *stream) {
    if (!event) return done(INVALID_HANDLE);
    if (stream_of(stream)->capture) return SUCCESS;
    event->stream = stream_of(stream);
    event->pending = true;
    Command *command = new_command(RECORD);
    command->event = event;
    return done(enqueue(stream, command));
}
API Error hipEventSynchronize(Event *event) {
    Error error = SUCCESS;
    while (event->pending && event->stream->queue.first && !error) error = run_one(event->stream);
    return done(error ? error : device_state());
}
API Error hipEventQuery(Event *event) {
    if (event->pending && event->stream->queue.first) {
        Error error = run_one(event->stream);
        if (error) return done(error);
    }
    return done(event->pending ? NOT_READY : device_state());
}
/* Emulated time: a million instructions a millisecond. */
API Error hipEventElapsedTime(f32 *ms, const Event *from, const Event *to) {
    if (from->pending || to->pending) return done(NOT_READY);
    *ms = (f32)((f64)(to->when - from->when) / 1e6);
    return SUCCESS;
}
