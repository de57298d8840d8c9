/* The emulated libamdhip64, third part: capture and graphs.
 *
 * A graph is a list: what one stream captured, in its order. A kernel's arguments are copied when it is captured, the
 * bytes of a copy are read when the graph runs. A launch puts the list into a stream, where it runs as late as all else.
 */
#include <pthread.h>

#include "hip.h"

enum { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED };
enum { CAPTURING_NOT, CAPTURING, CAPTURING_INVALID };

typedef struct Graph {
    List commands;
    bool executable, module_is_gone;
    struct Graph *next;
} Graph;
struct Capture { Graph *graph; int mode; pthread_t thread; bool invalid; };

static Graph *graphs; /* all that live: what is not here is no graph any more */

static bool is_live(const Graph *graph, bool executable) {
    for (const Graph *g = graphs; g; g = g->next) if (g == graph) return g->executable == executable;
    return false;
}
static Graph *new_graph(bool executable) {
    Graph *graph = calloc(1, sizeof *graph);
    if (!graph) abort();
    graph->executable = executable;
    graph->next = graphs;
    graphs = graph;
    return graph;
}
static Error destroy(Graph *graph, bool executable) {
    if (!is_live(graph, executable)) return INVALID_VALUE;
    Graph **at = &graphs;
    while (*at != graph) at = &(*at)->next;
    *at = graph->next;
    free_list(&graph->commands);
    free(graph);
    return SUCCESS;
}

bool capture_forbids(void) {
    bool forbidden = false;
    for (Stream *s = all_streams(); s; s = s->next) {
        Capture *c = s->capture;
        if (!c || c->mode == CAPTURE_RELAXED) continue;
        if (c->mode == CAPTURE_THREAD_LOCAL && !pthread_equal(c->thread, pthread_self())) continue;
        c->invalid = forbidden = true;
    }
    return forbidden;
}
Error capture_invalidated(Stream *stream) {
    stream->capture->invalid = true;
    return CAPTURE_UNSUPPORTED;
}
Error capture_command(Capture *capture, Command *command) {
    if (capture->invalid) {
        free_command(command);
        return CAPTURE_INVALIDATED;
    }
    list_add(&capture->graph->commands, command);
    return device_state();
}
void capture_abandon(Stream *stream) {
    if (!stream->capture) return;
    destroy(stream->capture->graph, false);
    free(stream->capture);
    stream->capture = NULL;
}
void graphs_lose_module(const Module *module) {
    for (Graph *g = graphs; g; g = g->next) {
        for (const Command *c = g->module_is_gone ? NULL : g->commands.first; c; c = c->next) {
            if (c->kind == KERNEL && c->function->module == module) g->module_is_gone = true;
        }
    }
}

API Error hipStreamBeginCapture(Stream *stream, int mode) {
    if (!stream) return done(CAPTURE_UNSUPPORTED);
    if (mode < CAPTURE_GLOBAL || mode > CAPTURE_RELAXED) return done(INVALID_VALUE);
    if (stream->capture) return done(ILLEGAL_STATE);
    Error error = device_state();
    if (error) return done(error);
    stream->capture = malloc(sizeof *stream->capture);
    if (!stream->capture) return done(OUT_OF_MEMORY);
    *stream->capture = (Capture){new_graph(false), mode, pthread_self(), false};
    return SUCCESS;
}
API Error hipStreamIsCapturing(Stream *stream, int *status) {
    *status = !stream || !stream->capture ? CAPTURING_NOT : stream->capture->invalid ? CAPTURING_INVALID : CAPTURING;
    return SUCCESS;
}
API Error hipStreamEndCapture(Stream *stream, Graph **graph) {
    if (!stream || !stream->capture) return done(ILLEGAL_STATE);
    Capture *c = stream->capture;
    if (c->mode != CAPTURE_RELAXED && !pthread_equal(c->thread, pthread_self())) return done(CAPTURE_WRONG_THREAD);
    *graph = NULL;
    if (c->invalid) {
        capture_abandon(stream);
        return done(CAPTURE_INVALIDATED);
    }
    *graph = c->graph;
    free(c);
    stream->capture = NULL;
    return done(device_state());
}

API Error hipGraphInstantiate(Graph **executable, const Graph *graph, void *node, char *log, size_t log_size) {
    (void)node;
    (void)log;
    (void)log_size;
    if (!is_live(graph, false)) return done(INVALID_VALUE);
    if (capture_forbids()) return done(CAPTURE_UNSUPPORTED);
    *executable = new_graph(true);
    (*executable)->module_is_gone = graph->module_is_gone;
    for (const Command *c = graph->commands.first; c; c = c->next) list_add(&(*executable)->commands, copy_of(c));
    return done(device_state());
}
API Error hipGraphInstantiateWithFlags(Graph **executable, const Graph *graph, u64 flags) {
    return flags ? done(INVALID_VALUE) : hipGraphInstantiate(executable, graph, NULL, NULL, 0);
}
/* What the graph was made of must still be there. Memory that its kernels use is watched when they run. */
static const char *what_is_gone(const Graph *graph) {
    if (graph->module_is_gone) return "out of bounds: a graph has kernels of a module that was unloaded\n";
    for (const Command *c = graph->commands.first; c; c = c->next) {
        if (!is_within_memory(c)) return "out of bounds: a graph copies or fills memory that was freed\n";
    }
    return NULL;
}
API Error hipGraphLaunch(const Graph *executable, Stream *stream) {
    if (!is_live(executable, true)) return done(INVALID_VALUE);
    Error error = device_state();
    const char *report = error ? NULL : what_is_gone(executable);
    if (report) device_failed(error = ILLEGAL_ADDRESS, report);
    for (const Command *c = executable->commands.first; c && !error; c = c->next) error = enqueue(stream, copy_of(c));
    return done(error);
}
API Error hipGraphDestroy(Graph *graph) { return done(destroy(graph, false)); }
API Error hipGraphExecDestroy(Graph *executable) { return done(destroy(executable, true)); }
