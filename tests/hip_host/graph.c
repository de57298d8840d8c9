/* Graphs of kernels, for the host's libamdhip64: their arguments are copied when they are captured, as HIP does. */
#include <string.h>

#include "runtime.h"

enum { MAX_ARGUMENTS_NBYTES = 256, MAX_NODES = 1024 };

struct node {
    const struct host_kernel *function;
    unsigned grid[3], n_threads;
    _Alignas(8) char arguments[MAX_ARGUMENTS_NBYTES];
};
struct graph {
    int n_nodes;
    struct node nodes[MAX_NODES];
};

int capture_kernel(struct stream *stream, const struct host_kernel *function, const unsigned grid[3],
                   unsigned n_threads, const void *arguments, size_t nbytes)
{
    struct graph *graph = stream->capture;
    if (graph->n_nodes == MAX_NODES || nbytes > MAX_ARGUMENTS_NBYTES)
        return OUT_OF_MEMORY;
    struct node *node = &graph->nodes[graph->n_nodes++];
    node->function = function;
    memcpy(node->grid, grid, sizeof node->grid);
    node->n_threads = n_threads;
    memcpy(node->arguments, arguments, nbytes);
    return SUCCESS;
}

int hipStreamBeginCapture(struct stream *stream, int mode)
{
    if (stream->capture)
        return ILLEGAL_STATE;
    const int status = allocate((void **)&stream->capture, sizeof *stream->capture);
    if (!status)
        stream->capture->n_nodes = 0;
    return (void)mode, status;
}

int hipStreamEndCapture(struct stream *stream, struct graph **graph)
{
    if (!stream->capture)
        return ILLEGAL_STATE;
    *graph = stream->capture;
    stream->capture = NULL;
    return SUCCESS;
}

int hipGraphInstantiateWithFlags(struct graph **executable, const struct graph *graph, unsigned long long flags)
{
    const int status = flags ? INVALID_VALUE : allocate((void **)executable, sizeof **executable);
    if (!status)
        memcpy(*executable, graph, sizeof *graph);
    return status;
}

int hipGraphLaunch(const struct graph *executable, struct stream *stream)
{
    if (stream->capture)
        return CAPTURE_UNSUPPORTED;
    int status = SUCCESS;
    for (const struct node *node = executable->nodes; !status && node < executable->nodes + executable->n_nodes; node++)
        status = run_kernel(node->function, node->grid, node->n_threads, node->arguments);
    return status;
}

int hipGraphDestroy(struct graph *graph) { return release(graph); }
int hipGraphExecDestroy(struct graph *executable) { return release(executable); }
