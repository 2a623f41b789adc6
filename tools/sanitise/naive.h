/* Reference implementations: the definitions as loops, in double precision on contiguous arrays. */
#ifndef SANITISE_NAIVE_H
#define SANITISE_NAIVE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lambda.h"

/* The row of the table for query n and context position m, or -1: along each axis, p = (m - s n) / d + (scope - 1) / 2. */
static int64_t row_of(const lambda_problem *p, int64_t n, int64_t m) {
    const int64_t query[2] = {n / p->queries[1], n % p->queries[1]};
    const int64_t context[2] = {m / p->context[1], m % p->context[1]};
    int64_t row = 0;
    for (int a = 0; a < 2; a++) {
        const int64_t offset = context[a] - p->stride[a] * query[a];
        if (offset % p->dilation[a]) return -1;
        const int64_t along = offset / p->dilation[a] + (p->scope[a] - 1) / 2;
        if (along < 0 || along >= p->scope[a]) return -1;
        row = row * p->scope[a] + along;
    }
    return row < p->past ? row : -1;
}

typedef struct {
    const double *q, *values, *table, *lc, *dy;      /* lc may be NULL */
    double *y, *dq, *dvalues, *dtable, *dlc;         /* zeros */
} position_term;

static void naive_pair(const lambda_problem *p, const position_term *t, int64_t n, int64_t m, int64_t row) {
    const int64_t queries = p->queries[0] * p->queries[1], context = p->context[0] * p->context[1];
    for (int64_t b = 0; b < p->b; b++)
        for (int64_t h = 0; h < p->h; h++)
            for (int64_t u = 0; u < p->u; u++) {
                const int64_t query = (b * queries + n) * p->h + h, values = (b * context + m) * p->v * p->u + u;
                double s = 0, ds = 0;
                for (int64_t k = 0; k < p->k; k++)
                    s += t->q[query * p->k + k] * t->table[(row * p->k + k) * p->u + u];
                for (int64_t v = 0; v < p->v; v++) {
                    ds += t->dy[query * p->v + v] * t->values[values + v * p->u];
                    t->y[query * p->v + v] += s * t->values[values + v * p->u];
                    t->dvalues[values + v * p->u] += s * t->dy[query * p->v + v];
                }
                for (int64_t k = 0; k < p->k; k++) {
                    t->dq[query * p->k + k] += ds * t->table[(row * p->k + k) * p->u + u];
                    t->dtable[(row * p->k + k) * p->u + u] += ds * t->q[query * p->k + k];
                }
            }
}

/* y = q lc and its gradients, for all queries. */
static void naive_content(const lambda_problem *p, const position_term *t) {
    const int64_t each = p->queries[0] * p->queries[1] * p->h;
    for (int64_t query = 0; query < p->b * each; query++)
        for (int64_t k = 0; k < p->k; k++)
            for (int64_t v = 0; v < p->v; v++) {
                const int64_t lambda = (query / each * p->k + k) * p->v + v;
                t->y[query * p->v + v] += t->q[query * p->k + k] * t->lc[lambda];
                t->dq[query * p->k + k] += t->dy[query * p->v + v] * t->lc[lambda];
                t->dlc[lambda] += t->dy[query * p->v + v] * t->q[query * p->k + k];
            }
}

static void naive_term(const lambda_problem *p, const position_term *t) {
    for (int64_t n = 0; n < p->queries[0] * p->queries[1]; n++)
        for (int64_t m = 0; m < p->context[0] * p->context[1]; m++) {
            const int64_t row = row_of(p, n, m);
            if (row >= 0) naive_pair(p, t, n, m, row);
        }
    if (t->lc) naive_content(p, t);
}

/* (rows, columns), normalised by the columns of the norm's three rows from `first` on. The caller frees the result. */
static double *naive_normalised(const lambda_problem *p, const double *norm, int64_t first, const double *x, int64_t rows,
                                int64_t columns) {
    const int64_t all = p->h * p->k + p->v * p->u;
    double *y = malloc(sizeof(double) * (size_t)(rows * columns));
    if (!y) abort();
    for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t c = first + i % columns;
        y[i] = norm ? (x[i] - norm[c]) * norm[all + c] + norm[2 * all + c] : x[i];
    }
    return y;
}

typedef struct {
    const double *keys, *values, *dlc, *before;      /* before: what dvalues holds already */
    double *lc, *by_u, *softmax, *dkeys, *dvalues;   /* zeros */
    double *dkeys_magnitude;                         /* zeros: what is subtracted in dkeys, added up instead */
} content_lambdas;

static void naive_lambdas(const lambda_problem *p, const content_lambdas *t) {
    const int64_t m = p->context[0] * p->context[1];
    memcpy(t->dvalues, t->before, sizeof(double) * (size_t)(p->b * m * p->v * p->u));
    for (int64_t b = 0; b < p->b; b++)
        for (int64_t u = 0; u < p->u; u++)
            for (int64_t k = 0; k < p->k; k++) {
                const double *keys = t->keys + b * m * p->k * p->u + k * p->u + u;
                const double *values = t->values + b * m * p->v * p->u + u, *dlc = t->dlc + (b * p->k + k) * p->v;
                double *dkeys = t->dkeys + (keys - t->keys), *dvalues = t->dvalues + (values - t->values);
                double *magnitude = t->dkeys_magnitude + (keys - t->keys);
                double peak = keys[0], sum = 0, product = 0, product_magnitude = 0;
                for (int64_t i = 0; i < m; i++) peak = fmax(peak, keys[i * p->k * p->u]);
                for (int64_t i = 0; i < m; i++) sum += exp(keys[i * p->k * p->u] - peak);
                t->softmax[((b * 2 + 0) * p->u + u) * p->k + k] = peak;
                t->softmax[((b * 2 + 1) * p->u + u) * p->k + k] = 1 / sum;
                for (int64_t i = 0; i < m; i++) {
                    const double kbar = exp(keys[i * p->k * p->u] - peak) / sum;
                    double d = 0, d_magnitude = 0;
                    for (int64_t v = 0; v < p->v; v++) {
                        t->by_u[((b * p->u + u) * p->k + k) * p->v + v] += kbar * values[(i * p->v + v) * p->u];
                        t->lc[(b * p->k + k) * p->v + v] += kbar * values[(i * p->v + v) * p->u];
                        dvalues[(i * p->v + v) * p->u] += kbar * dlc[v];
                        d += dlc[v] * values[(i * p->v + v) * p->u];
                        d_magnitude += fabs(dlc[v] * values[(i * p->v + v) * p->u]);
                    }
                    dkeys[i * p->k * p->u] = d;
                    magnitude[i * p->k * p->u] = d_magnitude;
                    product += kbar * d;
                    product_magnitude += kbar * d_magnitude;
                }
                for (int64_t i = 0; i < m; i++) {
                    const double kbar = exp(keys[i * p->k * p->u] - peak) / sum;
                    dkeys[i * p->k * p->u] = kbar * (dkeys[i * p->k * p->u] - product);
                    magnitude[i * p->k * p->u] = kbar * (magnitude[i * p->k * p->u] + product_magnitude);
                }
            }
}

typedef struct {
    double *x, *weight, *g;
    double *mean, *var, *dx, *dweight, *dbias;     /* zeros */
    double steepest;                               /* the largest 1 / sqrt(var + eps): rounding errors grow by it */
} norm;

/* y = max(0, (x - center) scale + shift + (residual - its center) its scale), and g what is left of its gradient. */
static void naive_rectifier(int64_t rows, int64_t columns, const double *x, const double *center, const double *scale,
                            const double *shift, const double *residual, const double *residual_center,
                            const double *residual_scale, const double *dy, double *y, double *g) {
    for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t c = i % columns;
        double other = residual ? residual[i] : 0;
        if (residual_center) other = (other - residual_center[c]) * residual_scale[c];
        y[i] = fmax(0, (x[i] - center[c]) * scale[c] + shift[c] + other);
        g[i] = y[i] > 0 ? dy[i] : 0;
    }
}

static void naive_norm(int64_t rows, int64_t columns, double eps, norm *t) {
    t->steepest = 1;
    for (int64_t c = 0; c < columns; c++) {
        for (int64_t r = 0; r < rows; r++) t->mean[c] += t->x[r * columns + c] / (double)rows;
        for (int64_t r = 0; r < rows; r++) t->var[c] += pow(t->x[r * columns + c] - t->mean[c], 2) / (double)rows;
        const double inverse = 1 / sqrt(t->var[c] + eps);
        t->steepest = fmax(t->steepest, inverse);
        for (int64_t r = 0; r < rows; r++) {
            const double normal = (t->x[r * columns + c] - t->mean[c]) * inverse, g = t->g[r * columns + c];
            t->dweight[c] += g * normal;
            t->dbias[c] += g;
        }
        for (int64_t r = 0; r < rows; r++) {
            const double normal = (t->x[r * columns + c] - t->mean[c]) * inverse, g = t->g[r * columns + c];
            t->dx[r * columns + c] =
                t->weight[c] * inverse * (g - (t->dbias[c] + normal * t->dweight[c]) / (double)rows);
        }
    }
}

#endif
