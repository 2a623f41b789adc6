/* Random problems for the kernels: every kind of window and edge, with a bounded amount of work. */
#ifndef SANITISE_PROBLEMS_H
#define SANITISE_PROBLEMS_H

#include <stdio.h>

#include "lambda.h"
#include "random.h"

/* An upper bound of the multiply-adds of a forward pass and of the elements of packed tables. */
static int64_t multiplies(const lambda_problem *p) {
    int64_t pairs = p->b * p->h * p->u * (p->k + p->v), tables = p->scope[0] * p->scope[1] * p->k * p->u;
    for (int a = 0; a < 2; a++) {
        const int64_t seen = p->scope[a] < p->context[a] ? p->scope[a] : p->context[a];
        pairs *= p->queries[a] * seen;
    }
    return pairs + tables * p->queries[1];
}

/* A depth is mostly small, and sometimes larger than any register block. */
static int64_t depth(int64_t most) { return between(1, one_in(16) ? 4 * most : most); }

static lambda_problem make_problem(void) {
    lambda_problem p = {.b = between(1, one_in(8) ? 9 : 3), .h = between(1, 9), .k = depth(20), .v = depth(40),
                        .u = one_in(2) ? 1 : between(2, 4)};
    const int flat = one_in(3), alike = one_in(2);
    for (int a = 0; a < 2; a++) {
        const int single = flat && a == 0;
        const int64_t longest = flat && one_in(8) ? 1200 : 20; /* rows of more than one block of columns too */
        p.queries[a] = single ? 1 : between(1, longest);
        p.context[a] = single ? 1 : alike ? p.queries[a] : between(1, longest);
        p.scope[a] = single ? 1 : 2 * between(0, 12) + 1;
        p.stride[a] = single || one_in(2) ? 1 : between(2, 3);
        p.dilation[a] = single || one_in(2) ? 1 : between(2, 3);
    }
    /* A few large ones, since some code only runs there. Sizes shrink at random until the work is within the budget. */
    const int64_t budget = one_in(64) ? 1 << 21 : one_in(8) ? 1 << 18 : 1 << 16;
    int64_t *sizes[] = {&p.b, &p.h, &p.k, &p.v, &p.u, p.queries, p.queries + 1, p.context, p.context + 1};
    while (multiplies(&p) > budget) {
        int64_t *size = sizes[between(0, 8)];
        *size = between((*size + 1) / 2, *size);
        const int axis = (int)between(0, 1);
        if (one_in(4)) p.scope[axis] = 2 * between(p.scope[axis] / 4, p.scope[axis] / 2) + 1;
    }
    const int64_t rows = p.scope[0] * p.scope[1], pasts[] = {rows, rows, rows / 2 + 1, rows / 2};
    p.past = pasts[between(0, 3)];
    p.algorithm = between(LAMBDA_AUTO, LAMBDA_FFT);
    if (p.algorithm == LAMBDA_FFT && !one_in(8)) { /* mostly what can be transformed */
        for (int a = 0; a < 2; a++) p.stride[a] = p.dilation[a] = 1;
        p.past = rows;
    }
    if (one_in(24)) { /* global windows in one dimension, for which AUTO takes the transforms */
        const int64_t n = between(80, 140);
        p = (lambda_problem){.b = between(1, 4), .h = between(3, 5), .k = between(1, 9), .v = between(1, 20), .u = between(1, 2),
                             .queries = {1, n}, .context = {1, n}, .scope = {1, 2 * n - 1}, .stride = {1, 1},
                             .dilation = {1, 1}, .past = 2 * n - 1};
    }
    return p;
}

static void print_strides(const char *name, const int64_t *s) {
    fprintf(stderr, " %s %lld,%lld,%lld,%lld", name, (long long)s[0], (long long)s[1], (long long)s[2], (long long)s[3]);
}

static void print_problem(const lambda_problem *p) {
    const int64_t all[] = {p->b, p->h, p->k, p->v, p->u};
    for (int i = 0; i < 5; i++) fprintf(stderr, " %c %lld", "bhkvu"[i], (long long)all[i]);
    const char *names[] = {"queries", "context", "scope", "stride", "dilation"};
    const int64_t *axes[] = {p->queries, p->context, p->scope, p->stride, p->dilation};
    for (int i = 0; i < 5; i++) fprintf(stderr, " %s %lldx%lld", names[i], (long long)axes[i][0], (long long)axes[i][1]);
    fprintf(stderr, " past %lld, algorithm %lld, strides of", (long long)p->past,
            (long long)p->algorithm);
    print_strides("q", p->q);
    print_strides("dq", p->dq);
    print_strides("values", p->values);
    print_strides("dvalues", p->dvalues);
    print_strides("y or dy", p->y);
    fprintf(stderr, "\n");
}

#endif
