#include "device.h"

// Each thread adds what the next one loaded, by way of LDS: a wait for the load, for the store and for the read.
KERNEL staged(const float *a, float *out, int n) {
    SHARED static float room[256];
    int i = index();
    room[thread()] = i < n ? a[i] : 0;
    barrier();
    if (i < n) out[i] = a[i] + room[(thread() + 1) & 255];
}

// Writes over what other waves may not have read yet: a second barrier is missing.
KERNEL reused(const float *a, float *out, int n) {
    SHARED static float room[256];
    int i = index();
    room[thread()] = i < n ? a[i] : 0;
    barrier();
    float next = room[(thread() + 1) & 255];
    room[thread()] = next;
    barrier();
    if (i < n) out[i] = room[(thread() + 1) & 255];
}
