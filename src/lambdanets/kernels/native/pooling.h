/* Sum pooling of a map over the windows of its queries, in double precision. */
#ifndef LAMBDANETS_POOLING_H
#define LAMBDANETS_POOLING_H

#include "lambda.h"
#include "vector.h"

/* Maps of `in` positions are summed over windows of `scope` positions, `before` of which lie before the window's own. */
typedef struct {
    int64_t in[2], out[2], scope[2], before[2];
} pooling;

/* The windows of the queries, over the context. */
static pooling query_windows(const lambda_problem *p) {
    pooling w;
    for (int a = 0; a < 2; a++) {
        w.in[a] = p->context[a];
        w.out[a] = p->queries[a];
        w.scope[a] = p->scope[a];
        w.before[a] = p->scope[a] / 2;
    }
    return w;
}

/* The transpose: for every context position, the queries that see it. */
static pooling context_windows(const lambda_problem *p) {
    pooling w;
    for (int a = 0; a < 2; a++) {
        w.in[a] = p->queries[a];
        w.out[a] = p->context[a];
        w.scope[a] = p->scope[a];
        w.before[a] = p->scope[a] - 1 - p->scope[a] / 2;
    }
    return w;
}

/* How many positions the window with the fewest has. */
static double fewest_positions(const pooling *w) {
    double fewest = 1;
    for (int a = 0; a < 2; a++) {
        int64_t least = w->scope[a];
        for (int64_t at = 0; at < w->out[a]; at++) {
            const int64_t first = MAX(0, at - w->before[a]), last = MIN(w->in[a], at - w->before[a] + w->scope[a]);
            least = MIN(least, MAX(0, last - first));
        }
        fewest *= (double)least;
    }
    return fewest;
}

/* Window sums along one axis, without differences of running sums, in which a small sum would lose its digits: the line is
 * cut into blocks as long as a window, and a window is the end of one block and the beginning of the next. Needs twice
 * `padded_line` elements of scratch. */
static int64_t padded_line(int64_t out, int64_t scope) { return out + scope - 1; }

static void pool_line(const double *x, int64_t in, int64_t out, int64_t scope, int64_t before, double *y, int64_t stride,
                      double *scratch) {
    const int64_t n = padded_line(out, scope);
    double *prefix = scratch, *suffix = scratch + n; /* sums from the beginning and to the end of a block */
    double sum = 0;
    for (int64_t t = 0, block = 0; t < n; t++) {
        const double value = t >= before && t - before < in ? x[t - before] : 0;
        prefix[t] = sum = block ? sum + value : value;
        suffix[t] = value;
        if (++block == scope) block = 0;
    }
    for (int64_t t = n - 2, left = n - 1; t >= 0; t--) {
        if (left >= scope) left %= scope; /* once: how far t + 1 is in its block */
        if (left) suffix[t] += suffix[t + 1];
        left = left ? left - 1 : scope - 1;
    }
    for (int64_t t = 0, block = 0; t < out; t++) {
        y[t * stride] = block ? suffix[t] + prefix[t + scope - 1] : prefix[t + scope - 1];
        if (++block == scope) block = 0;
    }
}

/* Elements of scratch that `pool` needs. */
static int64_t pooling_scratch(const pooling *w) {
    int64_t longest = 0;
    for (int a = 0; a < 2; a++) longest = MAX(longest, padded_line(w->out[a], w->scope[a]));
    return w->in[0] * w->out[1] + 2 * longest;
}

static void pool(const pooling *w, const double *map, double *out, double *scratch) {
    double *half = scratch, *line = scratch + w->in[0] * w->out[1]; /* half is pooled along rows, [out 1][in 0] */
    for (int64_t i = 0; i < w->in[0]; i++)
        pool_line(map + i * w->in[1], w->in[1], w->out[1], w->scope[1], w->before[1], half + i, w->in[0], line);
    for (int64_t j = 0; j < w->out[1]; j++)
        pool_line(half + j * w->in[0], w->in[0], w->out[0], w->scope[0], w->before[0], out + j, w->out[1], line);
}

#endif
