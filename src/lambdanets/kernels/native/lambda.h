/* The C interface of the kernels: plain C, no torch. Every pointer is to memory of the caller, every stride counts
 * elements. Letters as in the paper: b examples, n queries of h heads, m context positions, depths k, v and u. */
#ifndef LAMBDANETS_LAMBDA_H
#define LAMBDANETS_LAMBDA_H

#include <stdint.h>

/* Counts up whenever a parameter or a field changes. */
#define LAMBDA_INTERFACE 6

/* A grid of queries that looks at a grid of context positions. Maps of one axis have a first axis of length 1. */
typedef struct {
    int64_t b, h, k, v, u;
    int64_t queries[2], context[2], scope[2], stride[2], dilation[2];
    int64_t past;       /* rows of the table that count, in raster order: all of them, or up to the middle if causal */
    int64_t threads;
    int64_t algorithm;  /* one of those below */
    int64_t q[4];       /* strides of q by (b, n, h, k) */
    int64_t dq[4];      /* of its gradient */
    int64_t values[4];  /* of the values by (b, m, v, u) */
    int64_t dvalues[4]; /* of their gradient */
    int64_t y[4];       /* of the output, or backward of its gradient, by (b, n, h, v) */
    int64_t keys[4];    /* of the keys by (b, m, k, u) */
    int64_t dkeys[4];   /* of their gradient */
    /* The mean, scale and shift of the columns (h, k) of q, then (v, u) of the values: what the kernels read is
     * (x - mean) scale + shift. A contiguous (3, h k + v u) of the kernel's type, or NULL for x itself. */
    const void *norm;
} lambda_problem;

/* How the position term is computed: query by query, or through Fourier transforms, which need strides and dilations of
 * 1, no causality, and memory; without these it is query by query. By default each example takes the faster one that is
 * accurate for it. Forced transforms have errors relative to the whole map, and NaN or Inf reach all of its positions. */
enum { LAMBDA_AUTO = 0, LAMBDA_DIRECT = 1, LAMBDA_FFT = 2 };

/* What a function returns. */
enum { LAMBDA_OK = 0, LAMBDA_NO_MEMORY = 1 };

/* Y[b,n,h,v] = sum_k Q[b,n,h,k] (lc[b,k,v] + sum_{m,u} R[r(n,m),k,u] V[b,m,v,u])
 * The table R is contiguous (p, k, u); the content lambdas lc, contiguous (b, k, v), may be NULL for none. */
#define LAMBDA_FORWARD(real) \
    (const lambda_problem *p, const real *q, const real *values, const real *table, const real *lc, real *y)
#define LAMBDA_BACKWARD(real)                                                                                    \
    (const lambda_problem *p, const real *q, const real *values, const real *table, const real *lc, const real *dy, \
     real *dq, real *dvalues, real *dtable, real *dlc)

/* Is the position term of ordinary examples computed through Fourier transforms? 1 or 0, and never an error. */
#define LAMBDA_USES_FFT (const lambda_problem *p, int backward)

/* The estimated cost of the position term by either algorithm, for one example: cost[0] direct, cost[1] by Fourier
 * transforms. Multiply-adds of a machine whose vectors are full and whose threads are all busy; idle lanes and threads
 * count as if they computed. Infinite where there are no transforms. LAMBDA_AUTO takes the smaller one. Reads the
 * sizes, the window and the number of threads only. */
#define LAMBDA_POSITION_COST (const lambda_problem *p, int backward, double *cost)

/* The content lambdas of keys normalised by a softmax over the context, lc[b,k,v] = sum_{m,u} Kbar[b,m,k,u] V[b,m,v,u].
 * Kept for the backward pass: by_u (b, u, k, v), of which lc is the sum, and softmax (b, 2, u, k), the largest key and
 * one over the sum of exponentials. All contiguous. The gradient of the values is added to what is there. */
#define LAMBDA_CONTENT_FORWARD(real) \
    (const lambda_problem *p, const real *keys, const real *values, real *lc, real *by_u, real *softmax)
#define LAMBDA_CONTENT_BACKWARD(real)                                                                            \
    (const lambda_problem *p, const real *keys, const real *values, const real *by_u, const real *softmax,         \
     const real *dlc, real *dkeys, real *dvalues)

/* Batch norm in training of a (rows, columns) matrix x: mean and variance of the columns; and backward, from the gradient
 * g of (x - mean) weight / sqrt(var + eps) + bias that of x, which may take its place. Rows are `stride` apart in x,
 * `g_stride` in g and dx.
 * With a rectifier behind it: y = max(0, (x - mean) scale + shift + (residual - residual_mean) residual_scale), where
 * the last two may be NULL for the residual as it is, and all three for none; and backward g is not read but written, as
 * dy where y is above 0. Then y, dy and the residual are contiguous. Without, y and dy are NULL. */
#define LAMBDA_NORM_RECTIFIED(real)                                                                              \
    (int64_t rows, int64_t columns, int64_t threads, const real *x, const real *mean, const real *scale,          \
     const real *shift, const real *residual, const real *residual_mean, const real *residual_scale, real *y)
#define LAMBDA_NORM_STATISTICS(real) \
    (int64_t rows, int64_t columns, int64_t stride, int64_t threads, const real *x, real *mean, real *var)
#define LAMBDA_NORM_BACKWARD(real)                                                                               \
    (int64_t rows, int64_t columns, int64_t stride, int64_t g_stride, int64_t threads, double eps, const real *x, \
     const real *weight, const real *mean, const real *var, const real *y, const real *dy, real *g, real *dx,     \
     real *dweight, real *dbias)

#endif
