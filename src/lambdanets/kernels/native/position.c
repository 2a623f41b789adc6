/* The position term: which algorithm computes it.
 *
 * Windows of a few positions are computed directly, large ones through Fourier transforms, whichever takes fewer operations.
 * Transforms round relative to the whole map, so that examples of a large dynamic range (range.h) would lose their small
 * outputs: these are transformed in double or computed directly, whichever takes less. Every example is judged by itself,
 * and what is computed of it does not depend on its neighbours. */
#include <string.h>

#include "algorithms.h"
#include "range.h"
#include "rows.h"

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

/* The tensors of a call, from one of its examples on. */
typedef struct {
    const real *q, *values, *table, *lc, *dy;
    real *y, *dq, *dvalues, *dtable, *dlc;
} tensors;

static tensors from_example(const lambda_problem *p, tensors t, int64_t example) {
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

static int run_direct(const lambda_problem *p, tensors t) {
    if (t.dy) return NAME(direct_backward)(p, t.q, t.values, t.table, t.lc, t.dy, t.dq, t.dvalues, t.dtable, t.dlc);
    return NAME(direct_forward)(p, t.q, t.values, t.table, t.lc, t.y);
}

static int run_fft(const lambda_problem *p, tensors t, unsigned char *left) {
    if (t.dy)
        return NAME(fft_backward)(p, t.q, t.values, t.table, t.lc, t.dy, t.dq, t.dvalues, t.dtable, t.dlc, RANGE_LIMIT,
                                  left);
    return NAME(fft_forward)(p, t.q, t.values, t.table, t.lc, t.y, RANGE_LIMIT, left);
}

#ifdef WIDE
/* Double rounds so much finer. */
#define WIDER_LIMIT (RANGE_LIMIT * (FLT_EPSILON / DBL_EPSILON))

static double *doubles(int64_t n) { return malloc(sizeof(double) * (size_t)(n > 0 ? n : 1)); }

/* Rows of `depth` numbers, `last` apart, of (examples, positions, heads), as contiguous doubles. */
static void widen(const real *from, const int64_t *strides, int64_t b, int64_t n, int64_t h, int64_t depth, double *to) {
    for (int64_t e = 0; e < b; e++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t z = 0; z < h; z++)
                for (int64_t c = 0; c < depth; c++)
                    *to++ = from[e * strides[0] + i * strides[1] + z * strides[2] + c * strides[3]];
}

static void narrow(const double *from, const int64_t *strides, int64_t b, int64_t n, int64_t h, int64_t depth, real *to) {
    for (int64_t e = 0; e < b; e++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t z = 0; z < h; z++)
                for (int64_t c = 0; c < depth; c++)
                    to[e * strides[0] + i * strides[1] + z * strides[2] + c * strides[3]] = (real)*from++;
}

/* Contiguous rows of `columns` numbers, normalised with the columns of the norm from `first` on. */
static void normalise_wide(const lambda_problem *p, int64_t first, int64_t rows, int64_t columns, double *x) {
    if (!p->norm) return;
    const int64_t all = p->h * p->k + p->v * p->u;
    const real *mean = (const real *)p->norm + first, *scale = mean + all, *shift = scale + all;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < columns; c++, x++) *x = (*x - mean[c]) * scale[c] + shift[c];
}

static void contiguous(int64_t *strides, int64_t n, int64_t h, int64_t depth) {
    strides[0] = n * h * depth;
    strides[1] = h * depth;
    strides[2] = depth;
    strides[3] = 1;
}

/* A few examples through transforms in double. Those that are too much for these as well are marked in `left`. */
static int run_wide(const lambda_problem *p, tensors t, unsigned char *left) {
    const int64_t b = p->b, n = p->queries[0] * p->queries[1], m = p->context[0] * p->context[1];
    const int64_t rows = p->scope[0] * p->scope[1] * p->k * p->u, lambdas = b * p->k * p->v;
    const int64_t q_size = b * n * p->h * p->k, v_size = b * m * p->v * p->u, y_size = b * n * p->h * p->v;
    const int64_t sizes[] = {q_size, v_size, rows, lambdas, y_size, t.dy ? q_size : 0, t.dy ? v_size : 0, t.dy ? rows : 0,
                             t.dy ? lambdas : 0};
    enum { Q, V, R, LC, Y, DQ, DV, DR, DLC, PARTS };
    double *part[PARTS];
    int failed = 0;
    for (int i = 0; i < PARTS; i++) failed |= !(part[i] = doubles(sizes[i]));
    if (!failed) {
        lambda_problem w = *p;
        w.norm = NULL;
        contiguous(w.q, n, p->h, p->k);
        contiguous(w.dq, n, p->h, p->k);
        contiguous(w.values, m, p->v, p->u);
        contiguous(w.dvalues, m, p->v, p->u);
        contiguous(w.y, n, p->h, p->v);
        widen(t.q, p->q, b, n, p->h, p->k, part[Q]);
        normalise_wide(p, 0, b * n, p->h * p->k, part[Q]);
        widen(t.values, p->values, b, m, p->v, p->u, part[V]);
        normalise_wide(p, p->h * p->k, b * m, p->v * p->u, part[V]);
        for (int64_t i = 0; i < rows; i++) part[R][i] = t.table[i];
        for (int64_t i = 0; t.lc && i < lambdas; i++) part[LC][i] = t.lc[i];
        const double *lc = t.lc ? part[LC] : NULL;
        if (t.dy) {
            widen(t.dy, p->y, b, n, p->h, p->v, part[Y]);
            failed = WIDE(fft_backward)(&w, part[Q], part[V], part[R], lc, part[Y], part[DQ], part[DV], part[DR],
                                        part[DLC], WIDER_LIMIT, left);
        } else {
            failed = WIDE(fft_forward)(&w, part[Q], part[V], part[R], lc, part[Y], WIDER_LIMIT, left);
        }
        for (int64_t e = 0; !failed && e < b; e++) {
            if (left[e]) continue;
            const tensors to = from_example(p, t, e);
            if (t.dy) {
                narrow(part[DQ] + e * (q_size / b), p->dq, 1, n, p->h, p->k, to.dq);
                narrow(part[DV] + e * (v_size / b), p->dvalues, 1, m, p->v, p->u, to.dvalues);
                for (int64_t i = 0; t.dlc && t.lc && i < p->k * p->v; i++)
                    to.dlc[i] = (real)part[DLC][e * p->k * p->v + i];
            } else {
                narrow(part[Y] + e * (y_size / b), p->y, 1, n, p->h, p->v, to.y);
            }
        }
        for (int64_t i = 0; !failed && t.dy && i < rows; i++) t.dtable[i] = (real)part[DR][i];
    }
    for (int i = 0; i < PARTS; i++) free(part[i]);
    return failed ? LAMBDA_NO_MEMORY : LAMBDA_OK;
}
#endif

/* Examples that transforms in the type of the operands would not compute accurately. */
typedef int run(const lambda_problem *, tensors, unsigned char *);

static int run_directly(const lambda_problem *p, tensors t, unsigned char *left) {
    memset(left, 0, (size_t)p->b);
    return run_direct(p, t);
}

/* The examples that are left, as many neighbours as there are at a time but at most `most`; dtable is added to. */
static int run_left(const lambda_problem *p, tensors t, unsigned char *left, int64_t most, run *with, real *room) {
    const int64_t rows = p->scope[0] * p->scope[1] * p->k * p->u;
    int failed = LAMBDA_OK;
    for (int64_t first = 0, end; first < p->b && !failed; first = end) {
        for (end = first; end < p->b && end < first + most && left[end]; end++) {
        }
        if (end == first) {
            end++;
            continue;
        }
        lambda_problem some = *p;
        some.b = end - first;
        tensors part = from_example(p, t, first);
        if (t.dy) part.dtable = room;
        failed = with(&some, part, left + first);
        if (!failed && t.dy) add_row(t.dtable, room, rows);
    }
    return failed;
}

static int run_position(const lambda_problem *p, tensors t) {
    const int backward = t.dy != NULL;
    if (!NAME(uses_fft)(p, backward)) return run_direct(p, t);
    /* Without memory for transforms there may be some for less. */
    if (p->algorithm == LAMBDA_FFT) return run_fft(p, t, NULL) == LAMBDA_OK ? LAMBDA_OK : run_direct(p, t);
    unsigned char *left = malloc((size_t)p->b);
    real *room = backward ? aligned(p->scope[0] * p->scope[1] * p->k * p->u) : NULL;
    int failed = !left || (backward && !room) || run_fft(p, t, left) != LAMBDA_OK;
    if (failed) {
        failed = run_direct(p, t);
    } else if (memchr(left, 1, (size_t)p->b)) {
#ifdef WIDE
        lambda_problem one = *p;
        one.b = p->threads; /* as if no thread were idle */
        if (WIDE(fft_operations)(&one, backward) < NAME(direct_operations)(&one, backward))
            run_left(p, t, left, p->threads, run_wide, room); /* what fails for lack of memory is still left */
#endif
        failed = run_left(p, t, left, p->b, run_directly, room);
    }
    free(left);
    free(room);
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
