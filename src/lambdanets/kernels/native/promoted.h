/* Examples in float, transformed in double. */
#ifndef LAMBDANETS_PROMOTED_H
#define LAMBDANETS_PROMOTED_H

#include "algorithms.h"
#include "range.h"
#include "rows.h"
#include "tensors.h"

/* Double rounds that much finer. */
#define PROMOTED_LIMIT (RANGE_LIMIT * (FLT_EPSILON / DBL_EPSILON))

/* A strided (b, n, h, depth) as contiguous doubles, and back. */
static void promote(const real *from, const int64_t *strides, int64_t b, int64_t n, int64_t h, int64_t depth, double *to) {
    for (int64_t e = 0; e < b; e++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t z = 0; z < h; z++)
                for (int64_t c = 0; c < depth; c++)
                    *to++ = from[e * strides[0] + i * strides[1] + z * strides[2] + c * strides[3]];
}

static void demote(const double *from, const int64_t *strides, int64_t n, int64_t h, int64_t depth, real *to) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t z = 0; z < h; z++)
            for (int64_t c = 0; c < depth; c++) to[i * strides[1] + z * strides[2] + c * strides[3]] = (real)*from++;
}

/* Normalises contiguous rows with the columns of the norm from `first` on. */
static void normalise_promoted(const lambda_problem *p, int64_t first, int64_t rows, int64_t columns, double *x) {
    if (!p->norm) return;
    const int64_t all = p->h * p->k + p->v * p->u;
    const real *mean = (const real *)p->norm + first, *scale = mean + all, *shift = scale + all;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < columns; c++, x++) *x = (*x - mean[c]) * scale[c] + shift[c];
}

static void set_contiguous(int64_t *strides, int64_t n, int64_t h, int64_t depth) {
    strides[0] = n * h * depth;
    strides[1] = h * depth;
    strides[2] = depth;
    strides[3] = 1;
}

/* The same problem with contiguous, normalised tensors. */
static lambda_problem promoted_problem(const lambda_problem *p, int64_t n, int64_t m) {
    lambda_problem w = *p;
    w.norm = NULL;
    set_contiguous(w.q, n, p->h, p->k);
    set_contiguous(w.dq, n, p->h, p->k);
    set_contiguous(w.values, m, p->v, p->u);
    set_contiguous(w.dvalues, m, p->v, p->u);
    set_contiguous(w.y, n, p->h, p->v);
    return w;
}

/* Examples that are too much for double as well are rejected. */
static int run_promoted(const lambda_problem *p, tensors t, unsigned char *rejected) {
    enum { Q, V, R, LC, Y, DQ, DV, DR, DLC, PARTS };
    const int64_t b = p->b, n = p->queries[0] * p->queries[1], m = p->context[0] * p->context[1];
    const int64_t rows = p->scope[0] * p->scope[1] * p->k * p->u, lambda = p->k * p->v;
    const int64_t q_size = n * p->h * p->k, v_size = m * p->v * p->u, y_size = n * p->h * p->v; /* of an example */
    const int64_t forward[] = {b * q_size, b * v_size, rows, b * lambda, b * y_size};
    const int64_t backward[] = {b * q_size, b * v_size, rows, b * lambda};
    double *part[PARTS];
    int failed = LAMBDA_OK;
    for (int i = 0; i < PARTS; i++) {
        const int64_t size = i < DQ ? forward[i] : t.dy ? backward[i - DQ] : 0;
        part[i] = malloc(sizeof(double) * (size_t)MAX(1, size));
        if (!part[i]) failed = LAMBDA_NO_MEMORY;
    }
    if (!failed) {
        const lambda_problem w = promoted_problem(p, n, m);
        promote(t.q, p->q, b, n, p->h, p->k, part[Q]);
        normalise_promoted(p, 0, b * n, p->h * p->k, part[Q]);
        promote(t.values, p->values, b, m, p->v, p->u, part[V]);
        normalise_promoted(p, p->h * p->k, b * m, p->v * p->u, part[V]);
        for (int64_t i = 0; i < rows; i++) part[R][i] = t.table[i];
        for (int64_t i = 0; t.lc && i < b * lambda; i++) part[LC][i] = t.lc[i];
        const double *lc = t.lc ? part[LC] : NULL;
        if (t.dy) {
            promote(t.dy, p->y, b, n, p->h, p->v, part[Y]);
            failed = NAME_F64(fft_backward)(&w, part[Q], part[V], part[R], lc, part[Y], part[DQ], part[DV], part[DR],
                                            part[DLC], PROMOTED_LIMIT, rejected);
        } else {
            failed = NAME_F64(fft_forward)(&w, part[Q], part[V], part[R], lc, part[Y], PROMOTED_LIMIT, rejected);
        }
    }
    for (int64_t e = 0; !failed && e < b; e++) {
        if (rejected[e]) continue;
        const tensors to = at_example(p, t, e);
        if (t.dy) {
            demote(part[DQ] + e * q_size, p->dq, n, p->h, p->k, to.dq);
            demote(part[DV] + e * v_size, p->dvalues, m, p->v, p->u, to.dvalues);
            for (int64_t i = 0; t.dlc && t.lc && i < lambda; i++) to.dlc[i] = (real)part[DLC][e * lambda + i];
        } else {
            demote(part[Y] + e * y_size, p->y, n, p->h, p->v, to.y);
        }
    }
    for (int64_t i = 0; !failed && t.dy && i < rows; i++) t.dtable[i] = (real)part[DR][i];
    for (int i = 0; i < PARTS; i++) free(part[i]);
    return failed;
}

#endif
