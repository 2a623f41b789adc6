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

static void *aligned(int64_t elements) {
    const size_t bytes = ROUND_UP(sizeof(real) * (size_t)(elements > 0 ? elements : 1), 64);
    return aligned_alloc(64, bytes);
}

/* Parts that lie one behind the other in memory. */
typedef struct {
    real **part;
    int64_t elements;
} placed;

/* Where each part is; without memory, only how many elements all of them take. */
static int64_t place(const placed *parts, size_t n, real *memory) {
    int64_t size = 0;
    for (size_t i = 0; i < n; i++) {
        *parts[i].part = memory ? memory + size : NULL;
        size += ROUND_UP(parts[i].elements, LANES);
    }
    return ROUND_UP(size, 64);
}

#endif
