/* Content lambdas, with the softmax of the keys over the context that they begin with.
 *
 *   forward    Kbar = exp(K - peak) / sum         lc = Kbar' V
 *   backward   dV += Kbar dlc         dKbar = V dlc'         dK = Kbar (dKbar - sum_m Kbar dKbar)
 *
 * The last sum is sum_v lc dlc, for every k and u, and needs no pass of its own. The difference is taken before the
 * product: dK = Kbar sum_v (V - lc) dlc. Where a single key has all the weight, V is lc and dK exactly zero; two sums that
 * were rounded each in its own way would leave a gradient as large as what cancels.
 *
 * The context is taken in slices, the same ones whatever the number of threads; each has its own peak and sums, which
 * are joined in order. Within a slice a few positions at a time are copied to where vectors can be read. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "exponential.h"
#include "lambda.h"
#include "products.h"
#include "rows.h"

enum { SLICE = 512, POSITIONS = 16 };

/* Below every key that counts; finite, so that keys of minus infinity are as far below it as they should be. */
#define LOWEST ((real)(sizeof(real) == 4 ? -FLT_MAX : -DBL_MAX))

typedef struct {
    const lambda_problem *p;
    const real *keys, *values;
    int64_t m, slices;       /* of an example */
    int64_t vp, kp;          /* depths in whole vectors */
    real *norms;             /* of the values, see rows.h */
} content;

static content read_content(const lambda_problem *p, const real *keys, const real *values) {
    content t = {.p = p, .keys = keys, .values = values, .m = p->context[0] * p->context[1]};
    t.slices = (t.m + SLICE - 1) / SLICE;
    t.vp = ROUND_UP(p->v, LANES);
    t.kp = ROUND_UP(p->k, LANES);
    t.norms = make_value_norms(p);
    return t;
}

/* Positions [at, at + n) of an example as [u][POSITIONS][padded], zeros in the padding. */
static void read_positions(const content *t, const real *from, const int64_t *strides, int64_t depth, int64_t padded,
                           const real *norms, int64_t example, int64_t at, int64_t n, real *to) {
    for (int64_t u = 0; u < t->p->u; u++)
        for (int64_t z = 0; z < n; z++) {
            real *o = to + (u * POSITIONS + z) * padded;
            copy_row(o, from + example * strides[0] + (at + z) * strides[1] + u * strides[3], depth, strides[2]);
            normalise_row(o, depth, value_norm(t->p, norms, u));
            for (int64_t c = depth; c < padded; c++) o[c] = 0;
        }
}

static void read_keys(const content *t, int64_t example, int64_t at, int64_t n, real *to) {
    read_positions(t, t->keys, t->p->keys, t->p->k, t->kp, NULL, example, at, n, to);
}

static void read_values(const content *t, int64_t example, int64_t at, int64_t n, real *to) {
    read_positions(t, t->values, t->p->values, t->p->v, t->vp, t->norms, example, at, n, to);
}

/* Keys of n positions, as read, become exponentials below the peaks [u][kp]. */
static void exponentials(const content *t, int64_t n, const real *peaks, real *keys) {
    for (int64_t u = 0; u < t->p->u; u++)
        for (int64_t z = 0; z < n; z++)
            for (int64_t k = 0; k < t->kp; k += LANES) {
                real *at = keys + (u * POSITIONS + z) * t->kp + k;
                STORE(at) = exponential(LOAD(at) - LOAD(peaks + u * t->kp + k));
            }
}

/* Of one slice: its peaks and sums [u][kp], and sum_m exp(K - peak) V as [u][k][vp]. */
typedef struct {
    real *peaks, *sums, *lambdas;
} slice;

static int64_t slice_size(const content *t) { return t->p->u * (2 * t->kp + t->p->k * t->vp); }

static slice slice_at(const content *t, real *slices, int64_t number) {
    real *at = slices + number * slice_size(t);
    return (slice){at, at + t->p->u * t->kp, at + 2 * t->p->u * t->kp};
}

static void forward_slice(const content *t, int64_t example, int64_t first, slice s, real *keys, real *values) {
    const lambda_problem *p = t->p;
    const int64_t end = SMALLER(first + SLICE, t->m), width = p->u * t->kp;
    memset(s.sums, 0, sizeof(real) * (width + p->u * p->k * t->vp));
    for (int64_t k = 0; k < width; k++) s.peaks[k] = LOWEST;
    for (int64_t at = first, n; at < end; at += n) {
        n = SMALLER(POSITIONS, end - at);
        read_keys(t, example, at, n, keys);
        for (int64_t u = 0; u < p->u; u++)
            for (int64_t z = 0; z < n; z++)
                for (int64_t k = 0; k < t->kp; k++) {
                    const real x = keys[(u * POSITIONS + z) * t->kp + k];
                    real *peak = &s.peaks[u * t->kp + k];
                    *peak = x > *peak ? x : *peak;
                }
    }
    for (int64_t at = first, n; at < end; at += n) {
        n = SMALLER(POSITIONS, end - at);
        read_keys(t, example, at, n, keys);
        read_values(t, example, at, n, values);
        exponentials(t, n, s.peaks, keys);
        for (int64_t u = 0; u < p->u; u++) {
            for (int64_t z = 0; z < n; z++)
                for (int64_t k = 0; k < t->kp; k++)
                    s.sums[u * t->kp + k] += keys[(u * POSITIONS + z) * t->kp + k];
            outer(&(outer_product){.queries = 1, .d = s.lambdas + u * p->k * t->vp, .d_at = shared, .d_i = t->vp,
                                   .a = keys + u * POSITIONS * t->kp, .a_at = shared, .a_row = t->kp,
                                   .t = values + u * POSITIONS * t->vp, .t_at = shared, .t_row = t->vp, .groups = 1,
                                   .n = p->k, .rows = n, .vectors = t->vp / LANES,
                                   .step = evenly(t->vp / LANES, VECTORS)});
        }
    }
}

static void join_slices(const content *t, int64_t example, real *slices, real *lc, real *by_u, real *softmax) {
    const lambda_problem *p = t->p;
    real *const peaks = softmax + example * 2 * p->u * p->k, *const inverse = peaks + p->u * p->k;
    lc += example * p->k * p->v;
    by_u += example * p->u * p->k * p->v;
    memset(lc, 0, sizeof(real) * p->k * p->v);
    memset(by_u, 0, sizeof(real) * p->u * p->k * p->v);
    for (int64_t u = 0; u < p->u; u++)
        for (int64_t k = 0; k < p->k; k++) {
            const int64_t row = u * p->k + k;
            real peak = LOWEST;
            double sum = 0;
            for (int64_t z = 0; z < t->slices; z++) {
                const real its = slice_at(t, slices, example * t->slices + z).peaks[u * t->kp + k];
                peak = its > peak ? its : peak;
            }
            for (int64_t z = 0; z < t->slices; z++) {
                const slice s = slice_at(t, slices, example * t->slices + z);
                sum += s.sums[u * t->kp + k] * exp((double)s.peaks[u * t->kp + k] - peak);
            }
            peaks[row] = peak;
            inverse[row] = (real)(1 / sum);
            for (int64_t z = 0; z < t->slices; z++) {
                const slice s = slice_at(t, slices, example * t->slices + z);
                const real share = (real)(exp((double)s.peaks[u * t->kp + k] - peak) / sum);
                for (int64_t v = 0; v < p->v; v++) by_u[row * p->v + v] += share * s.lambdas[row * t->vp + v];
            }
            for (int64_t v = 0; v < p->v; v++) lc[k * p->v + v] += by_u[row * p->v + v];
        }
}

int NAME(content_forward) LAMBDA_CONTENT_FORWARD(real);
int NAME(content_forward)(const lambda_problem *p, const real *keys, const real *values, real *lc, real *by_u,
                          real *softmax) {
    const content t = read_content(p, keys, values);
    const int64_t positions = POSITIONS * p->u * (t.kp + t.vp);
    real *slices = aligned(p->b * t.slices * slice_size(&t) + p->threads * positions);
    if (!slices || (p->norm && !t.norms)) {
        free(slices);
        free(t.norms);
        return LAMBDA_NO_MEMORY;
    }
#pragma omp parallel num_threads((int)p->threads)
    {
        real *own = slices + p->b * t.slices * slice_size(&t) + omp_get_thread_num() * positions;
#pragma omp for schedule(static)
        for (int64_t z = 0; z < p->b * t.slices; z++)
            forward_slice(&t, z / t.slices, z % t.slices * SLICE, slice_at(&t, slices, z), own,
                          own + POSITIONS * p->u * t.kp);
#pragma omp for schedule(static)
        for (int64_t example = 0; example < p->b; example++) join_slices(&t, example, slices, lc, by_u, softmax);
    }
    free(slices);
    free(t.norms);
    return LAMBDA_OK;
}

/* What a thread works with in the backward pass; the first three lines are of an example. */
typedef struct {
    real *peaks, *inverse;            /* [u][kp] */
    real *dlc, *turned;               /* [k][vp] and [v][kp] */
    real *lambdas;                    /* [u][v][kp] */
    real *keys, *dkeys;               /* [u][POSITIONS][kp] */
    real *values, *dvalues;           /* [u][POSITIONS][vp] */
} bench;

static int64_t lay_out_bench(const content *t, real *memory, bench *d) {
    const lambda_problem *p = t->p;
    const placed parts[] = {{&d->peaks, p->u * t->kp},
                            {&d->inverse, p->u * t->kp},
                            {&d->dlc, p->k * t->vp},
                            {&d->turned, p->v * t->kp},
                            {&d->lambdas, p->u * p->v * t->kp},
                            {&d->keys, p->u * POSITIONS * t->kp},
                            {&d->dkeys, p->u * POSITIONS * t->kp},
                            {&d->values, p->u * POSITIONS * t->vp},
                            {&d->dvalues, p->u * POSITIONS * t->vp}};
    return place(parts, sizeof parts / sizeof *parts, memory);
}

static void load_example(const content *t, bench *d, int64_t example, const real *by_u, const real *softmax,
                         const real *dlc) {
    const lambda_problem *p = t->p;
    const real *peaks = softmax + example * 2 * p->u * p->k, *inverse = peaks + p->u * p->k;
    by_u += example * p->u * p->k * p->v;
    dlc += example * p->k * p->v;
    memset(d->peaks, 0, sizeof(real) * p->u * t->kp);
    memset(d->inverse, 0, sizeof(real) * p->u * t->kp);
    memset(d->lambdas, 0, sizeof(real) * p->u * p->v * t->kp);
    memset(d->dlc, 0, sizeof(real) * p->k * t->vp);
    memset(d->turned, 0, sizeof(real) * p->v * t->kp);
    for (int64_t k = 0; k < p->k; k++)
        for (int64_t v = 0; v < p->v; v++) d->dlc[k * t->vp + v] = d->turned[v * t->kp + k] = dlc[k * p->v + v];
    for (int64_t u = 0; u < p->u; u++)
        for (int64_t k = 0; k < p->k; k++) {
            for (int64_t v = 0; v < p->v; v++) d->lambdas[(u * p->v + v) * t->kp + k] = by_u[(u * p->k + k) * p->v + v];
            d->peaks[u * t->kp + k] = peaks[u * p->k + k];
            d->inverse[u * t->kp + k] = inverse[u * p->k + k];
        }
}

/* dk[z][k] = sum_v (values[z][v] - lambdas[v][k]) turned[v][k] of so many positions, for a vector of k. */
ALWAYS_INLINE void difference_block(const int positions, int64_t v, const real *values, int64_t value_row,
                                    const real *lambdas, const real *turned, real *dk, int64_t row) {
    vec sum[8];
    UNROLL for (int z = 0; z < positions; z++) sum[z] = (vec){0};
    for (int64_t c = 0; c < v; c++, lambdas += row, turned += row) {
        const vec lambda = LOAD(lambdas), gradient = LOAD(turned);
        UNROLL for (int z = 0; z < positions; z++) sum[z] += (values[z * value_row + c] - lambda) * gradient;
    }
    UNROLL for (int z = 0; z < positions; z++) STORE(dk + z * row) = sum[z];
}

static void differences(const content *t, int64_t n, const real *values, const real *lambdas, const real *turned,
                        real *dk) {
    const int64_t v = t->p->v, vp = t->vp, kp = t->kp;
    for (int64_t k = 0; k < kp; k += LANES) {
        int64_t z = 0;
        for (; z + 8 <= n; z += 8)
            difference_block(8, v, values + z * vp, vp, lambdas + k, turned + k, dk + z * kp + k, kp);
        for (; z < n; z++) difference_block(1, v, values + z * vp, vp, lambdas + k, turned + k, dk + z * kp + k, kp);
    }
}

static void backward_positions(const content *t, bench *d, int64_t example, int64_t at, int64_t n, real *dkeys,
                               real *dvalues) {
    const lambda_problem *p = t->p;
    read_keys(t, example, at, n, d->keys);
    read_values(t, example, at, n, d->values);
    exponentials(t, n, d->peaks, d->keys);
    for (int64_t u = 0; u < p->u; u++) {
        real *keys = d->keys + u * POSITIONS * t->kp, *values = d->values + u * POSITIONS * t->vp;
        real *dk = d->dkeys + u * POSITIONS * t->kp, *dv = d->dvalues + u * POSITIONS * t->vp;
        for (int64_t z = 0; z < n; z++)
            for (int64_t k = 0; k < t->kp; k++) keys[z * t->kp + k] *= d->inverse[u * t->kp + k];
        multiply(&(product){.queries = 1, .c = dv, .c_at = shared, .c_row = t->vp, .a = keys, .a_at = shared,
                            .a_row = t->kp, .b = d->dlc, .b_at = shared, .b_i = t->vp, .groups = 1, .n = p->k,
                            .rows = n, .vectors = t->vp / LANES, .step = evenly(t->vp / LANES, VECTORS)});
        differences(t, n, values, d->lambdas + u * p->v * t->kp, d->turned, dk);
        for (int64_t z = 0; z < n; z++) {
            real *to = dkeys + example * p->dkeys[0] + (at + z) * p->dkeys[1] + u * p->dkeys[3];
            for (int64_t k = 0; k < p->k; k++)
                to[k * p->dkeys[2]] = keys[z * t->kp + k] * dk[z * t->kp + k];
            to = dvalues + example * p->dvalues[0] + (at + z) * p->dvalues[1] + u * p->dvalues[3];
            for (int64_t v = 0; v < p->v; v++) to[v * p->dvalues[2]] += dv[z * t->vp + v];
        }
    }
}

int NAME(content_backward) LAMBDA_CONTENT_BACKWARD(real);
int NAME(content_backward)(const lambda_problem *p, const real *keys, const real *values, const real *by_u,
                           const real *softmax, const real *dlc, real *dkeys, real *dvalues) {
    const content t = read_content(p, keys, values);
    bench sizes;
    const int64_t size = lay_out_bench(&t, NULL, &sizes);
    real *memory = aligned(p->threads * size);
    if (!memory || (p->norm && !t.norms)) {
        free(memory);
        free(t.norms);
        return LAMBDA_NO_MEMORY;
    }
#pragma omp parallel num_threads((int)p->threads)
    {
        bench d;
        lay_out_bench(&t, memory + omp_get_thread_num() * size, &d);
#pragma omp for schedule(static)
        for (int64_t z = 0; z < p->b * t.slices; z++) {
            const int64_t example = z / t.slices, first = z % t.slices * SLICE, end = SMALLER(first + SLICE, t.m);
            load_example(&t, &d, example, by_u, softmax, dlc);
            for (int64_t at = first; at < end; at += POSITIONS)
                backward_positions(&t, &d, example, at, SMALLER(POSITIONS, end - at), dkeys, dvalues);
        }
    }
    free(memory);
    free(t.norms);
    return LAMBDA_OK;
}
