/* Random inputs of the kernels, with the results that they should give. */
#ifndef SANITISE_CASES_H
#define SANITISE_CASES_H

#include "naive.h"
#include "problems.h"
#include "tensors.h"

/* Queries and values as the kernels receive them: not yet normalised, if there is a norm. */
typedef struct {
    lambda_problem p;
    layout q, dq, values, dvalues, y, table, lc, norms, keys, dkeys, by_u, softmax;
    double *raw_q, *raw_values, *norm; /* or NULL */
    int outlier;                       /* are some values much larger than the others? */
    position_term t, magnitudes;                /* the same of absolute values: what rounding errors are relative to */
    content_lambdas l;
} position_case;

typedef struct {
    int64_t rows, columns, stride, g_stride;
    double eps;
    layout x, dx, column;
    norm t;
    double *center, *scale, *shift, *residual, *residual_center, *residual_scale, *y, *dy; /* of a rectifier, or NULL */
} norm_case;

/* The first n numbers, and whatever shares their memory, are larger: too much for transforms in float, or in double. */
static void make_outlier(const layout *l, int64_t n, double factor, double *x) {
    double *factors = zeros(span_of(l));
    for (int64_t i = 0; i < n; i++) factors[element_offset(l, i)] = factor;
    for (int64_t i = 0; i < elements(l); i++) x[i] *= fmax(1, factors[element_offset(l, i)]);
    free(factors);
}

static double *absolute(const double *x, int64_t n) {
    if (!x) return NULL;
    double *y = zeros(n);
    for (int64_t i = 0; i < n; i++) y[i] = fabs(x[i]);
    return y;
}

static position_case make_position_case(void) {
    position_case c = {.p = make_problem()};
    lambda_problem *p = &c.p;
    const int64_t n = p->queries[0] * p->queries[1], m = p->context[0] * p->context[1];
    c.q = make_layout(p->b, n, p->h, p->k, 1);
    c.dq = make_layout(p->b, n, p->h, p->k, 0);
    c.values = make_layout(p->b, m, p->v, p->u, 1);
    c.dvalues = make_layout(p->b, m, p->v, p->u, 0);
    c.y = make_layout(p->b, n, p->h, p->v, 1);
    c.table = contiguous(p->scope[0] * p->scope[1], p->k, p->u);
    c.lc = contiguous(p->b, p->k, p->v);
    memcpy(p->q, c.q.stride, sizeof p->q);
    memcpy(p->dq, c.dq.stride, sizeof p->dq);
    memcpy(p->values, c.values.stride, sizeof p->values);
    memcpy(p->dvalues, c.dvalues.stride, sizeof p->dvalues);
    c.norms = contiguous(1, 3, p->h * p->k + p->v * p->u);
    c.keys = make_layout(p->b, m, p->k, p->u, 1);
    c.dkeys = make_layout(p->b, m, p->k, p->u, 0);
    c.by_u = contiguous(p->b * p->u, p->k, p->v);
    c.softmax = contiguous(p->b * 2, p->u, p->k);
    memcpy(p->keys, c.keys.stride, sizeof p->keys);
    memcpy(p->dkeys, c.dkeys.stride, sizeof p->dkeys);
    const int content = one_in(2);
    c.norm = one_in(2) ? random_values(&c.norms) : NULL;
    c.raw_q = random_values(&c.q);
    c.raw_values = random_values(&c.values);
    c.outlier = p->algorithm != LAMBDA_FFT && one_in(2); /* forced transforms round relative to the whole map */
    if (c.outlier) make_outlier(&c.values, p->v * p->u, one_in(2) ? 0x1p14 : 0x1p40, c.raw_values);
    double *q = naive_normalised(p, c.norm, 0, c.raw_q, p->b * n, p->h * p->k);
    double *values = naive_normalised(p, c.norm, p->h * p->k, c.raw_values, p->b * m, p->v * p->u);
    c.l = (content_lambdas){random_values(&c.keys),     values,
                            random_values(&c.lc),       random_values(&c.dvalues),
                            zeros(elements(&c.lc)),     zeros(elements(&c.by_u)),
                            zeros(elements(&c.softmax)), zeros(elements(&c.keys)),
                            zeros(elements(&c.values)), zeros(elements(&c.keys))};
    naive_lambdas(p, &c.l);
    c.t = (position_term){q, values, random_values(&c.table), content ? random_values(&c.lc) : NULL, random_values(&c.y),
                          zeros(elements(&c.y)), zeros(elements(&c.q)), zeros(elements(&c.values)),
                          zeros(elements(&c.table)), zeros(elements(&c.lc))};
    naive_term(p, &c.t);
    c.magnitudes = (position_term){absolute(q, elements(&c.q)), absolute(values, elements(&c.values)),
                          absolute(c.t.table, elements(&c.table)), absolute(c.t.lc, elements(&c.lc)),
                          absolute(c.t.dy, elements(&c.y)), zeros(elements(&c.y)), zeros(elements(&c.q)),
                          zeros(elements(&c.values)), zeros(elements(&c.table)), zeros(elements(&c.lc))};
    naive_term(p, &c.magnitudes);
    return c;
}

static norm_case make_norm_case(void) {
    norm_case c = {.rows = one_in(4) ? between(60, 70) : between(1, 200), .columns = between(1, one_in(8) ? 100 : 20)};
    const double choices[] = {1e-5, 1e-3, 1};
    c.eps = choices[between(0, 2)];
    const int rectified = one_in(2);
    c.stride = c.columns + (rectified || one_in(2) ? 0 : between(1, 20));
    c.g_stride = c.columns + (rectified || one_in(2) ? 0 : between(1, 20));
    c.x = (layout){{1, 1, c.rows, c.columns}, {0, 0, c.stride, 1}, one_in(3)};
    c.dx = (layout){{1, 1, c.rows, c.columns}, {0, 0, c.g_stride, 1}, one_in(3)};
    c.column = contiguous(1, 1, c.columns);
    c.t = (norm){random_values(&c.x), random_values(&c.column), random_values(&c.dx), zeros(c.columns), zeros(c.columns),
                 zeros(c.rows * c.columns), zeros(c.columns), zeros(c.columns), 1};
    if (rectified) {
        c.center = random_values(&c.column);
        c.scale = random_values(&c.column);
        c.shift = random_values(&c.column);
        c.residual = one_in(2) ? random_values(&c.dx) : NULL;
        c.residual_center = c.residual && one_in(2) ? random_values(&c.column) : NULL;
        c.residual_scale = c.residual_center ? random_values(&c.column) : NULL;
        c.y = zeros(c.rows * c.columns);
        c.dy = c.t.g;
        c.t.g = zeros(c.rows * c.columns);
        naive_rectifier(c.rows, c.columns, c.t.x, c.center, c.scale, c.shift, c.residual, c.residual_center,
                        c.residual_scale, c.dy, c.y, c.t.g);
    }
    naive_norm(c.rows, c.columns, c.eps, &c.t);
    return c;
}

static void free_cases(const position_case *c, const norm_case *normed) {
    const position_term *t = &c->t, *magnitudes = &c->magnitudes;
    const content_lambdas *l = &c->l;
    const norm *s = &normed->t;
    const void *all[] = {magnitudes->q, magnitudes->values, magnitudes->table, magnitudes->lc, magnitudes->dy,
                         magnitudes->y, magnitudes->dq, magnitudes->dvalues, magnitudes->dtable, magnitudes->dlc,
                         l->dkeys_magnitude,
                         t->q,    t->values, t->table,   t->lc,      t->dy,    t->y,       t->dq,       t->dvalues,
                         t->dtable, t->dlc,  c->raw_q,   c->raw_values, c->norm, l->keys,  l->dlc,      l->before,
                         l->lc,   l->by_u,   l->softmax, l->dkeys,   l->dvalues, s->x,     s->weight,   s->g,
                         s->mean, s->var,    s->dx,      s->dweight, s->dbias, normed->center, normed->scale,
                         normed->shift, normed->residual, normed->residual_center, normed->residual_scale, normed->y, normed->dy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free((void *)all[i]);
}

#endif
