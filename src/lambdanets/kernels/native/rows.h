/* Rows of the caller's strided tensors: gathered into contiguous memory, normalised, scattered back. */
#ifndef LAMBDANETS_ROWS_H
#define LAMBDANETS_ROWS_H

#include <string.h>

#include "lambda.h"
#include "workspace.h"

/* Strides of common intra-depths are constants, so that the compiler can vectorise them. */
#define FOR_STRIDE(COPY)                                                                                       \
    switch (stride) {                                                                                          \
        case 1: COPY(1) break;                                                                                 \
        case 2: COPY(2) break;                                                                                 \
        case 4: COPY(4) break;                                                                                 \
        case 8: COPY(8) break;                                                                                 \
        default: COPY(stride)                                                                                  \
    }
#define GATHER(stride) for (int64_t c = 0; c < n; c++) to[c] = from[c * (stride)];
#define SCATTER(stride) for (int64_t c = 0; c < n; c++) to[c * (stride)] = from[c];

static void gather_row(real *restrict to, const real *restrict from, int64_t n, int64_t stride) { FOR_STRIDE(GATHER) }

static inline void scatter_row(real *restrict to, const real *restrict from, int64_t n, int64_t stride) {
    FOR_STRIDE(SCATTER)
}

static inline void add_row(real *restrict to, const real *restrict from, int64_t n) {
    for (int64_t c = 0; c < n; c++) to[c] += from[c];
}

/* The mean, scale and shift of every element of a row; NULL for no norm. */
typedef struct {
    const real *mean, *scale, *shift;
} row_norm;

static void normalise_row(real *restrict row, int64_t n, row_norm norm) {
    if (norm.mean)
        for (int64_t c = 0; c < n; c++) row[c] = (row[c] - norm.mean[c]) * norm.scale[c] + norm.shift[c];
}

/* For the queries (h, k) of one position. */
static inline row_norm query_norm(const lambda_problem *p) {
    if (!p->norm) return (row_norm){0};
    const int64_t columns = p->h * p->k + p->v * p->u;
    const real *mean = p->norm;
    return (row_norm){mean, mean + columns, mean + 2 * columns};
}

/* For the values, transposed to [3][u][v]. The caller frees it. NULL without a norm, and without memory. */
static real *make_value_norms(const lambda_problem *p) {
    real *norms = p->norm ? allocate(3 * p->u * p->v) : NULL;
    for (int64_t i = 0; norms && i < 3; i++)
        for (int64_t u = 0; u < p->u; u++)
            gather_row(norms + (i * p->u + u) * p->v,
                       (const real *)p->norm + i * (p->h * p->k + p->v * p->u) + p->h * p->k + u, p->v, p->u);
    return norms;
}

static row_norm value_norm(const lambda_problem *p, const real *norms, int64_t u) {
    if (!norms) return (row_norm){0};
    const real *mean = norms + u * p->v;
    return (row_norm){mean, mean + p->u * p->v, mean + 2 * p->u * p->v};
}

#endif
