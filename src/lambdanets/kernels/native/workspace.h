/* Memory and threads, as all kernels use them. */
#ifndef LAMBDANETS_WORKSPACE_H
#define LAMBDANETS_WORKSPACE_H

#include <stdlib.h>

#include "vector.h"

#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_thread_num() 0
#define omp_get_num_threads() 1
#endif

/* Aligned to cache lines; NULL without memory. */
static void *allocate(int64_t elements) {
    const size_t bytes = ROUND_UP(sizeof(real) * (size_t)(elements > 0 ? elements : 1), 64);
    return aligned_alloc(64, bytes);
}

/* One of the buffers that a workspace consists of. */
typedef struct {
    real **pointer;
    int64_t elements;
} buffer;

/* Places the buffers one after another in memory. Returns the elements that all of them take; without memory, that is all. */
static int64_t place_buffers(const buffer *buffers, size_t n, real *memory) {
    int64_t size = 0;
    for (size_t i = 0; i < n; i++) {
        *buffers[i].pointer = memory ? memory + size : NULL;
        size += ROUND_UP(buffers[i].elements, LANES);
    }
    return ROUND_UP(size, 64);
}

#endif
