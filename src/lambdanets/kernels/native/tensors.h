/* The tensors of a call to the position term, as one argument. */
#ifndef LAMBDANETS_TENSORS_H
#define LAMBDANETS_TENSORS_H

#include "lambda.h"

/* Forward: y. Backward: dy and the gradients. */
typedef struct {
    const real *q, *values, *table, *lc, *dy;
    real *y, *dq, *dvalues, *dtable, *dlc;
} tensors;

/* The tensors from an example on. */
static tensors at_example(const lambda_problem *p, tensors t, int64_t example) {
    const int64_t lambda = example * p->k * p->v;
    t.q += example * p->q[0];
    t.values += example * p->values[0];
    if (t.lc) t.lc += lambda;
    if (t.dy) {
        t.dy += example * p->y[0];
        t.dq += example * p->dq[0];
        t.dvalues += example * p->dvalues[0];
        if (t.dlc) t.dlc += lambda;
    } else {
        t.y += example * p->y[0];
    }
    return t;
}

#endif
