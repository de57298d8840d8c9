#include "device.h"

// Faults that tests put in: each must be noticed.
#ifdef DROP_LAST
#define LENGTH(n) ((n) - 1)
#else
#define LENGTH(n) (n)
#endif
#ifdef OFF_BY_ONE_ROW
#define ROW(r) ((r) + 1)
#else
#define ROW(r) (r)
#endif
#ifdef WRONG_SCALE
#define SCALE 1.001f
#else
#define SCALE 1.0f
#endif
#ifdef MISSING_BARRIER
#define BARRIER()
#else
#define BARRIER() barrier()
#endif

SHARED float partial[1024];

template <typename F> DEVICE float reduce(float x, F combine) {
    BARRIER();
    partial[thread()] = x;
    BARRIER();
    for (int step = block_size() / 2; step > 0; step /= 2) {
        if (thread() < step) partial[thread()] = combine(partial[thread()], partial[thread() + step]);
        BARRIER();
    }
    return partial[0];
}

KERNEL rmsnorm(const float *x, const float *weight, float *out, int n, float epsilon) {
    const float *row = x + (u64)ROW(block()) * n;
    float squares = 0;
    for (int i = thread(); i < LENGTH(n); i += block_size()) squares += row[i] * row[i];
    squares = reduce(squares, [](float a, float b) { return a + b; });
    float scale = SCALE / __builtin_sqrtf(squares / n + epsilon);
    for (int i = thread(); i < n; i += block_size()) out[(u64)block() * n + i] = row[i] * scale * weight[i];
}

KERNEL softmax(const float *x, float *out, int n) {
    const float *row = x + (u64)ROW(block()) * n;
    float largest = -__builtin_inff();
    for (int i = thread(); i < LENGTH(n); i += block_size()) largest = __builtin_fmaxf(largest, row[i]);
    largest = reduce(largest, [](float a, float b) { return __builtin_fmaxf(a, b); });
    float total = 0;
    for (int i = thread(); i < LENGTH(n); i += block_size()) total += __builtin_expf(row[i] - largest);
    total = reduce(total, [](float a, float b) { return a + b; });
    for (int i = thread(); i < n; i += block_size()) out[(u64)block() * n + i] = SCALE * __builtin_expf(row[i] - largest) / total;
}

// A tile turned over in dynamic LDS, with two-dimensional blocks and grids.
extern SHARED float tile[];
KERNEL transpose(const float *in, float *out, int rows, int columns) {
    int x = __builtin_amdgcn_workitem_id_x(), y = __builtin_amdgcn_workitem_id_y();
    int bx = __builtin_amdgcn_workgroup_id_x() * 16, by = __builtin_amdgcn_workgroup_id_y() * 16;
    if (bx + x < columns && by + y < rows) tile[y * 17 + x] = in[(by + y) * columns + bx + x];
    barrier();
    if (bx + y < columns && by + x < rows) out[(bx + y) * rows + by + x] = tile[x * 17 + y];
}
