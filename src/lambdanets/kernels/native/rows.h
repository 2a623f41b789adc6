/* Rows of numbers, brought from where the caller has them to where vectors can be read. */
#ifndef LAMBDANETS_ROWS_H
#define LAMBDANETS_ROWS_H

#include <string.h>

#include "lambda.h"
#include "workspace.h"

/* For common intra-depths with code of their own, which has vectors. */
#define EACH_STRIDE(COPY)                                                                                      \
    switch (stride) {                                                                                          \
        case 1: COPY(1) break;                                                                                 \
        case 2: COPY(2) break;                                                                                 \
        case 4: COPY(4) break;                                                                                 \
        case 8: COPY(8) break;                                                                                 \
        default: COPY(stride)                                                                                  \
    }
#define GATHER(stride) for (int64_t c = 0; c < n; c++) to[c] = from[c * (stride)];
#define SPREAD(stride) for (int64_t c = 0; c < n; c++) to[c * (stride)] = from[c];

/* n numbers that are `stride` apart. */
static void copy_row(real *restrict to, const real *restrict from, int64_t n, int64_t stride) { EACH_STRIDE(GATHER) }

/* n numbers to where they are `stride` apart. */
static inline void spread_row(real *restrict to, const real *restrict from, int64_t n, int64_t stride) {
    EACH_STRIDE(SPREAD)
}

static inline void add_row(real *restrict to, const real *restrict from, int64_t n) {
    for (int64_t c = 0; c < n; c++) to[c] += from[c];
}

/* The mean, scale and shift of a row, three rows themselves; or nothing to do. */
typedef struct {
    const real *mean, *scale, *shift;
} row_norm;

static void normalise_row(real *restrict row, int64_t n, row_norm norm) {
    if (norm.mean)
        for (int64_t c = 0; c < n; c++) row[c] = (row[c] - norm.mean[c]) * norm.scale[c] + norm.shift[c];
}

/* Of the queries of one position, all their heads. */
static inline row_norm query_norm(const lambda_problem *p) {
    if (!p->norm) return (row_norm){0};
    const int64_t columns = p->h * p->k + p->v * p->u;
    const real *mean = p->norm;
    return (row_norm){mean, mean + columns, mean + 2 * columns};
}

/* Of the values, for every u: [3][u][v], to be freed; NULL without memory, and without a norm. */
static real *make_value_norms(const lambda_problem *p) {
    real *norms = p->norm ? aligned(3 * p->u * p->v) : NULL;
    for (int64_t i = 0; norms && i < 3; i++)
        for (int64_t u = 0; u < p->u; u++)
            copy_row(norms + (i * p->u + u) * p->v,
                     (const real *)p->norm + i * (p->h * p->k + p->v * p->u) + p->h * p->k + u, p->v, p->u);
    return norms;
}

static row_norm value_norm(const lambda_problem *p, const real *norms, int64_t u) {
    if (!norms) return (row_norm){0};
    const real *mean = norms + u * p->v;
    return (row_norm){mean, mean + p->u * p->v, mean + 2 * p->u * p->v};
}

#endif
