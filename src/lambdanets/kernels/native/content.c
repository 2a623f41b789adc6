/* Content lambdas, from keys that a softmax over the context normalises.
 *
 *   forward    Kbar = exp(K - maximum) / sum         lc = Kbar' V
 *   backward   dV += Kbar dlc         dKbar = V dlc'         dK = Kbar (dKbar - sum_m Kbar dKbar)
 *
 * The last sum equals sum_v lc dlc for every k and u and needs no pass of its own. The difference is taken before the
 * product, dK = Kbar sum_v (V - lc) dlc: where a single key has all the weight, V equals lc and dK is exactly zero, while
 * two sums with different rounding errors would leave a gradient as large as those.
 *
 * The context is cut into slices, which do not depend on the number of threads. Each has its own maximum and sums; they are
 * combined in order. Within a slice, a few positions at a time are copied to contiguous memory. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "exponential.h"
#include "lambda.h"
#include "products.h"
#include "rows.h"

enum { SLICE = 512, POSITIONS = 16 };

/* Below every finite key; itself finite, so that exp(-inf - maximum) is 0 and not NaN. */
#define LOWEST ((real)(sizeof(real) == 4 ? -FLT_MAX : -DBL_MAX))

typedef struct {
    const lambda_problem *p;
    const real *keys, *values;
    int64_t m, slices;          /* of an example */
    int64_t v_padded, k_padded; /* depths in whole vectors */
    real *norms;                /* of the values, see rows.h */
} content_op;

static content_op make_op(const lambda_problem *p, const real *keys, const real *values) {
    content_op op = {.p = p, .keys = keys, .values = values, .m = p->context[0] * p->context[1]};
    op.slices = (op.m + SLICE - 1) / SLICE;
    op.v_padded = ROUND_UP(p->v, LANES);
    op.k_padded = ROUND_UP(p->k, LANES);
    op.norms = make_value_norms(p);
    return op;
}

/* Positions [at, at + n) of an example as [u][POSITIONS][padded], zeros in the padding. */
static void gather_positions(const content_op *op, const real *from, const int64_t *strides, int64_t depth,
                             int64_t padded, const real *norms, int64_t example, int64_t at, int64_t n, real *to) {
    for (int64_t u = 0; u < op->p->u; u++)
        for (int64_t z = 0; z < n; z++) {
            real *o = to + (u * POSITIONS + z) * padded;
            gather_row(o, from + example * strides[0] + (at + z) * strides[1] + u * strides[3], depth, strides[2]);
            normalise_row(o, depth, value_norm(op->p, norms, u));
            for (int64_t c = depth; c < padded; c++) o[c] = 0;
        }
}

static void gather_keys(const content_op *op, int64_t example, int64_t at, int64_t n, real *to) {
    gather_positions(op, op->keys, op->p->keys, op->p->k, op->k_padded, NULL, example, at, n, to);
}

static void gather_values(const content_op *op, int64_t example, int64_t at, int64_t n, real *to) {
    gather_positions(op, op->values, op->p->values, op->p->v, op->v_padded, op->norms, example, at, n, to);
}

/* exp(K - maximum), in place, for the gathered keys of n positions and maxima [u][k_padded]. */
static void exponentials(const content_op *op, int64_t n, const real *maxima, real *keys) {
    for (int64_t u = 0; u < op->p->u; u++)
        for (int64_t z = 0; z < n; z++)
            for (int64_t k = 0; k < op->k_padded; k += LANES) {
                real *at = keys + (u * POSITIONS + z) * op->k_padded + k;
                STORE(at) = exponential(LOAD(at) - LOAD(maxima + u * op->k_padded + k));
            }
}

/* Of one slice: its maxima and sums [u][k_padded], and sum_m exp(K - maximum) V as [u][k][v_padded]. */
typedef struct {
    real *maxima, *sums, *lambdas;
} slice;

static int64_t slice_size(const content_op *op) { return op->p->u * (2 * op->k_padded + op->p->k * op->v_padded); }

static slice slice_at(const content_op *op, real *slices, int64_t i) {
    real *at = slices + i * slice_size(op);
    return (slice){at, at + op->p->u * op->k_padded, at + 2 * op->p->u * op->k_padded};
}

static void forward_slice(const content_op *op, int64_t example, int64_t first, slice s, real *keys, real *values) {
    const lambda_problem *p = op->p;
    const int64_t end = MIN(first + SLICE, op->m), width = p->u * op->k_padded;
    memset(s.sums, 0, sizeof(real) * (width + p->u * p->k * op->v_padded));
    for (int64_t k = 0; k < width; k++) s.maxima[k] = LOWEST;
    for (int64_t at = first, n; at < end; at += n) {
        n = MIN(POSITIONS, end - at);
        gather_keys(op, example, at, n, keys);
        for (int64_t u = 0; u < p->u; u++)
            for (int64_t z = 0; z < n; z++)
                for (int64_t k = 0; k < op->k_padded; k++) {
                    const real x = keys[(u * POSITIONS + z) * op->k_padded + k];
                    real *maximum = &s.maxima[u * op->k_padded + k];
                    *maximum = x > *maximum ? x : *maximum;
                }
    }
    for (int64_t at = first, n; at < end; at += n) {
        n = MIN(POSITIONS, end - at);
        gather_keys(op, example, at, n, keys);
        gather_values(op, example, at, n, values);
        exponentials(op, n, s.maxima, keys);
        for (int64_t u = 0; u < p->u; u++) {
            for (int64_t z = 0; z < n; z++)
                for (int64_t k = 0; k < op->k_padded; k++)
                    s.sums[u * op->k_padded + k] += keys[(u * POSITIONS + z) * op->k_padded + k];
            outer(&(outer_args){.queries = 1,
                                .d = s.lambdas + u * p->k * op->v_padded, .d_offsets = no_offsets, .ldd = op->v_padded,
                                .a = keys + u * POSITIONS * op->k_padded, .a_offsets = no_offsets, .lda = op->k_padded,
                                .t = values + u * POSITIONS * op->v_padded, .t_offsets = no_offsets, .ldt = op->v_padded,
                                .groups = 1, .n = p->k, .rows = n, .vectors = op->v_padded / LANES});
        }
    }
}

static void combine_slices(const content_op *op, int64_t example, real *slices, real *lc, real *by_u, real *softmax) {
    const lambda_problem *p = op->p;
    real *const maxima = softmax + example * 2 * p->u * p->k, *const inverse = maxima + p->u * p->k;
    lc += example * p->k * p->v;
    by_u += example * p->u * p->k * p->v;
    memset(lc, 0, sizeof(real) * p->k * p->v);
    memset(by_u, 0, sizeof(real) * p->u * p->k * p->v);
    for (int64_t u = 0; u < p->u; u++)
        for (int64_t k = 0; k < p->k; k++) {
            const int64_t row = u * p->k + k;
            real maximum = LOWEST;
            double sum = 0;
            for (int64_t z = 0; z < op->slices; z++) {
                const real own = slice_at(op, slices, example * op->slices + z).maxima[u * op->k_padded + k];
                maximum = own > maximum ? own : maximum;
            }
            for (int64_t z = 0; z < op->slices; z++) {
                const slice s = slice_at(op, slices, example * op->slices + z);
                sum += s.sums[u * op->k_padded + k] * exp((double)s.maxima[u * op->k_padded + k] - maximum);
            }
            maxima[row] = maximum;
            inverse[row] = (real)(1 / sum);
            for (int64_t z = 0; z < op->slices; z++) {
                const slice s = slice_at(op, slices, example * op->slices + z);
                const real share = (real)(exp((double)s.maxima[u * op->k_padded + k] - maximum) / sum);
                for (int64_t v = 0; v < p->v; v++) by_u[row * p->v + v] += share * s.lambdas[row * op->v_padded + v];
            }
            for (int64_t v = 0; v < p->v; v++) lc[k * p->v + v] += by_u[row * p->v + v];
        }
}

int NAME(content_forward) LAMBDA_CONTENT_FORWARD(real);
int NAME(content_forward)(const lambda_problem *p, const real *keys, const real *values, real *lc, real *by_u,
                          real *softmax) {
    const content_op op = make_op(p, keys, values);
    const int64_t positions = POSITIONS * p->u * (op.k_padded + op.v_padded);
    real *slices = allocate(p->b * op.slices * slice_size(&op) + p->threads * positions);
    if (!slices || (p->norm && !op.norms)) {
        free(slices);
        free(op.norms);
        return LAMBDA_NO_MEMORY;
    }
#pragma omp parallel num_threads((int)p->threads)
    {
        real *own = slices + p->b * op.slices * slice_size(&op) + omp_get_thread_num() * positions;
#pragma omp for schedule(static)
        for (int64_t z = 0; z < p->b * op.slices; z++)
            forward_slice(&op, z / op.slices, z % op.slices * SLICE, slice_at(&op, slices, z), own,
                          own + POSITIONS * p->u * op.k_padded);
#pragma omp for schedule(static)
        for (int64_t example = 0; example < p->b; example++) combine_slices(&op, example, slices, lc, by_u, softmax);
    }
    free(slices);
    free(op.norms);
    return LAMBDA_OK;
}

/* Of one thread in the backward pass; the first three lines are of an example. */
typedef struct {
    real *maxima, *inverse;    /* [u][k_padded] */
    real *dlc, *dlc_transposed; /* [k][v_padded] and [v][k_padded] */
    real *lambdas;             /* [u][v][k_padded] */
    real *keys, *dkeys;        /* [u][POSITIONS][k_padded] */
    real *values, *dvalues;    /* [u][POSITIONS][v_padded] */
} content_workspace;

static int64_t place_workspace(const content_op *op, real *memory, content_workspace *ws) {
    const lambda_problem *p = op->p;
    const buffer buffers[] = {{&ws->maxima, p->u * op->k_padded},
                              {&ws->inverse, p->u * op->k_padded},
                              {&ws->dlc, p->k * op->v_padded},
                              {&ws->dlc_transposed, p->v * op->k_padded},
                              {&ws->lambdas, p->u * p->v * op->k_padded},
                              {&ws->keys, p->u * POSITIONS * op->k_padded},
                              {&ws->dkeys, p->u * POSITIONS * op->k_padded},
                              {&ws->values, p->u * POSITIONS * op->v_padded},
                              {&ws->dvalues, p->u * POSITIONS * op->v_padded}};
    return place_buffers(buffers, sizeof buffers / sizeof *buffers, memory);
}

static void load_example(const content_op *op, content_workspace *ws, int64_t example, const real *by_u,
                         const real *softmax, const real *dlc) {
    const lambda_problem *p = op->p;
    const real *maxima = softmax + example * 2 * p->u * p->k, *inverse = maxima + p->u * p->k;
    by_u += example * p->u * p->k * p->v;
    dlc += example * p->k * p->v;
    memset(ws->maxima, 0, sizeof(real) * p->u * op->k_padded);
    memset(ws->inverse, 0, sizeof(real) * p->u * op->k_padded);
    memset(ws->lambdas, 0, sizeof(real) * p->u * p->v * op->k_padded);
    memset(ws->dlc, 0, sizeof(real) * p->k * op->v_padded);
    memset(ws->dlc_transposed, 0, sizeof(real) * p->v * op->k_padded);
    for (int64_t k = 0; k < p->k; k++)
        for (int64_t v = 0; v < p->v; v++)
            ws->dlc[k * op->v_padded + v] = ws->dlc_transposed[v * op->k_padded + k] = dlc[k * p->v + v];
    for (int64_t u = 0; u < p->u; u++)
        for (int64_t k = 0; k < p->k; k++) {
            for (int64_t v = 0; v < p->v; v++)
                ws->lambdas[(u * p->v + v) * op->k_padded + k] = by_u[(u * p->k + k) * p->v + v];
            ws->maxima[u * op->k_padded + k] = maxima[u * p->k + k];
            ws->inverse[u * op->k_padded + k] = inverse[u * p->k + k];
        }
}

/* dk[z][k] = sum_v (values[z][v] - lambdas[v][k]) dlc[v][k] of so many positions, for a vector of k. */
ALWAYS_INLINE void difference_block(const int positions, int64_t v, const real *values, int64_t value_row,
                                    const real *lambdas, const real *dlc, real *dk, int64_t row) {
    vec sum[8];
    UNROLL for (int z = 0; z < positions; z++) sum[z] = (vec){0};
    for (int64_t c = 0; c < v; c++, lambdas += row, dlc += row) {
        const vec lambda = LOAD(lambdas), gradient = LOAD(dlc);
        UNROLL for (int z = 0; z < positions; z++) sum[z] += (values[z * value_row + c] - lambda) * gradient;
    }
    UNROLL for (int z = 0; z < positions; z++) STORE(dk + z * row) = sum[z];
}

static void differences(const content_op *op, int64_t n, const real *values, const real *lambdas, const real *dlc,
                        real *dk) {
    const int64_t v = op->p->v, ldv = op->v_padded, ldk = op->k_padded;
    for (int64_t k = 0; k < ldk; k += LANES) {
        int64_t z = 0;
        for (; z + 8 <= n; z += 8)
            difference_block(8, v, values + z * ldv, ldv, lambdas + k, dlc + k, dk + z * ldk + k, ldk);
        for (; z < n; z++) difference_block(1, v, values + z * ldv, ldv, lambdas + k, dlc + k, dk + z * ldk + k, ldk);
    }
}

static void backward_positions(const content_op *op, content_workspace *ws, int64_t example, int64_t at, int64_t n,
                               real *dkeys, real *dvalues) {
    const lambda_problem *p = op->p;
    gather_keys(op, example, at, n, ws->keys);
    gather_values(op, example, at, n, ws->values);
    exponentials(op, n, ws->maxima, ws->keys);
    for (int64_t u = 0; u < p->u; u++) {
        real *keys = ws->keys + u * POSITIONS * op->k_padded, *values = ws->values + u * POSITIONS * op->v_padded;
        real *dk = ws->dkeys + u * POSITIONS * op->k_padded, *dv = ws->dvalues + u * POSITIONS * op->v_padded;
        for (int64_t z = 0; z < n; z++)
            for (int64_t k = 0; k < op->k_padded; k++) keys[z * op->k_padded + k] *= ws->inverse[u * op->k_padded + k];
        multiply(&(multiply_args){.queries = 1,
                                  .c = dv, .c_offsets = no_offsets, .ldc = op->v_padded,
                                  .a = keys, .a_offsets = no_offsets, .lda = op->k_padded,
                                  .b = ws->dlc, .b_offsets = no_offsets, .ldb = op->v_padded,
                                  .groups = 1, .n = p->k, .rows = n, .vectors = op->v_padded / LANES});
        differences(op, n, values, ws->lambdas + u * p->v * op->k_padded, ws->dlc_transposed, dk);
        for (int64_t z = 0; z < n; z++) {
            real *to = dkeys + example * p->dkeys[0] + (at + z) * p->dkeys[1] + u * p->dkeys[3];
            for (int64_t k = 0; k < p->k; k++)
                to[k * p->dkeys[2]] = keys[z * op->k_padded + k] * dk[z * op->k_padded + k];
            to = dvalues + example * p->dvalues[0] + (at + z) * p->dvalues[1] + u * p->dvalues[3];
            for (int64_t v = 0; v < p->v; v++) to[v * p->dvalues[2]] += dv[z * op->v_padded + v];
        }
    }
}

int NAME(content_backward) LAMBDA_CONTENT_BACKWARD(real);
int NAME(content_backward)(const lambda_problem *p, const real *keys, const real *values, const real *by_u,
                           const real *softmax, const real *dlc, real *dkeys, real *dvalues) {
    const content_op op = make_op(p, keys, values);
    content_workspace sizes;
    const int64_t size = place_workspace(&op, NULL, &sizes);
    real *memory = allocate(p->threads * size);
    if (!memory || (p->norm && !op.norms)) {
        free(memory);
        free(op.norms);
        return LAMBDA_NO_MEMORY;
    }
#pragma omp parallel num_threads((int)p->threads)
    {
        content_workspace ws;
        place_workspace(&op, memory + omp_get_thread_num() * size, &ws);
#pragma omp for schedule(static)
        for (int64_t z = 0; z < p->b * op.slices; z++) {
            const int64_t example = z / op.slices, first = z % op.slices * SLICE, end = MIN(first + SLICE, op.m);
            load_example(&op, &ws, example, by_u, softmax, dlc);
            for (int64_t at = first; at < end; at += POSITIONS)
                backward_positions(&op, &ws, example, at, MIN(POSITIONS, end - at), dkeys, dvalues);
        }
    }
    free(memory);
    free(op.norms);
    return LAMBDA_OK;
}
