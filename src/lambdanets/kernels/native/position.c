/* The position term: the choice of the algorithm that computes it.
 *
 * Small windows are computed directly, large ones by Fourier transforms, whichever costs less. Transforms round relative
 * to the whole map, so that examples of a large dynamic range (range.h) would lose their small outputs: these are
 * transformed in double or computed directly, whichever costs less. Every example is judged by itself, and its results do
 * not depend on the rest of the batch. */
#include <string.h>

#include "algorithms.h"
#include "range.h"
#include "rows.h"
#include "tensors.h"
#ifdef NAME_F64
#include "promoted.h"
#endif

int NAME(position_cost) LAMBDA_POSITION_COST;
int NAME(position_cost) LAMBDA_POSITION_COST {
    const double lanes = (double)(LANES * p->threads); /* of all threads */
    cost[0] = lanes * NAME(direct_operations)(p, backward);
    cost[1] = NAME(fft_possible)(p) ? lanes * NAME(fft_operations)(p, backward) : INFINITY;
    return LAMBDA_OK;
}

int NAME(uses_fft) LAMBDA_USES_FFT;
int NAME(uses_fft) LAMBDA_USES_FFT {
    if (p->algorithm != LAMBDA_AUTO) return p->algorithm == LAMBDA_FFT && NAME(fft_possible)(p);
    double cost[2];
    NAME(position_cost)(p, backward, cost);
    return cost[1] < cost[0];
}

static int run_direct(const lambda_problem *p, tensors t) {
    if (t.dy) return NAME(direct_backward)(p, t.q, t.values, t.table, t.lc, t.dy, t.dq, t.dvalues, t.dtable, t.dlc);
    return NAME(direct_forward)(p, t.q, t.values, t.table, t.lc, t.y);
}

static int run_fft(const lambda_problem *p, tensors t, unsigned char *rejected) {
    if (t.dy)
        return NAME(fft_backward)(p, t.q, t.values, t.table, t.lc, t.dy, t.dq, t.dvalues, t.dtable, t.dlc, RANGE_LIMIT,
                                  rejected);
    return NAME(fft_forward)(p, t.q, t.values, t.table, t.lc, t.y, RANGE_LIMIT, rejected);
}

/* Computes examples that the transforms rejected; what it rejects itself stays flagged. */
typedef int fallback(const lambda_problem *, tensors, unsigned char *);

static int fall_back_to_direct(const lambda_problem *p, tensors t, unsigned char *rejected) {
    memset(rejected, 0, (size_t)p->b);
    return run_direct(p, t);
}

/* Runs the rejected examples, as many adjacent ones at a time as there are but at most `limit`, and adds to dtable, with
 * scratch memory of its size. */
static int run_rejected(const lambda_problem *p, tensors t, unsigned char *rejected, int64_t limit, fallback *with,
                        real *dtable) {
    const int64_t rows = p->scope[0] * p->scope[1] * p->k * p->u;
    int failed = LAMBDA_OK;
    for (int64_t first = 0, end; first < p->b && !failed; first = end) {
        for (end = first; end < p->b && end < first + limit && rejected[end]; end++) {
        }
        if (end == first) {
            end++;
            continue;
        }
        lambda_problem some = *p;
        some.b = end - first;
        tensors part = at_example(p, t, first);
        if (t.dy) part.dtable = dtable;
        failed = with(&some, part, rejected + first);
        if (!failed && t.dy) add_row(t.dtable, dtable, rows);
    }
    return failed;
}

static int run_position(const lambda_problem *p, tensors t) {
    const int backward = t.dy != NULL;
    if (!NAME(uses_fft)(p, backward)) return run_direct(p, t);
    /* The direct algorithm needs less memory, so it may succeed where the transforms do not. */
    if (p->algorithm == LAMBDA_FFT) return run_fft(p, t, NULL) == LAMBDA_OK ? LAMBDA_OK : run_direct(p, t);
    unsigned char *rejected = malloc((size_t)p->b);
    real *dtable = backward ? allocate(p->scope[0] * p->scope[1] * p->k * p->u) : NULL;
    int failed = !rejected || (backward && !dtable) || run_fft(p, t, rejected) != LAMBDA_OK;
    if (failed) {
        failed = run_direct(p, t);
    } else if (memchr(rejected, 1, (size_t)p->b)) {
#ifdef NAME_F64
        lambda_problem busy = *p;
        busy.b = p->threads; /* as if no thread were idle */
        if (NAME_F64(fft_operations)(&busy, backward) < NAME(direct_operations)(&busy, backward))
            run_rejected(p, t, rejected, p->threads, run_promoted, dtable); /* without memory they stay rejected */
#endif
        failed = run_rejected(p, t, rejected, p->b, fall_back_to_direct, dtable);
    }
    free(rejected);
    free(dtable);
    return failed;
}

int NAME(forward) LAMBDA_FORWARD(real);
int NAME(forward) LAMBDA_FORWARD(real) {
    return run_position(p, (tensors){.q = q, .values = values, .table = table, .lc = lc, .y = y});
}

int NAME(backward) LAMBDA_BACKWARD(real);
int NAME(backward) LAMBDA_BACKWARD(real) {
    return run_position(p, (tensors){.q = q, .values = values, .table = table, .lc = lc, .dy = dy, .dq = dq,
                                     .dvalues = dvalues, .dtable = dtable, .dlc = dlc});
}
