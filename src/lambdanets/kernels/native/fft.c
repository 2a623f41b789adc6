/* The position term, lambdas first, by Fourier transforms: for large windows a tenth of the operations of direct.c.
 * Compiled like that.
 *
 *   forward    lambda_k = R_k * V            y  = sum_k q_k lambda_k
 *   backward   dlambda_k = sum_h q_k dy      dq_k = dy' lambda_k      dV = sum_k R_k . dlambda_k      dR_k = dlambda_k . V
 *
 * where * is a convolution with the reversed table and . a correlation: products of spectra. Two rows k of the table are
 * the real and imaginary part of one signal, and so are their lambdas. The lanes are channels of the values, one vector of
 * them at a time. */
#include <string.h>

#include "fft.h"
#include "fft_maps.h"
#include "fft_range.h"

/* Elements of a workspace beyond which the caches do not hold it, and how much slower everything is then. */
enum { CACHED_WORKSPACE = 1 << 24, UNCACHED_SLOWDOWN = 3 };

/* The queries of an example by pairs. */
static void pack_queries(const fft_op *op, fft_workspace *ws, int64_t example) {
    const lambda_problem *p = op->p;
    const int64_t row = query_row_size(op), pair = p->queries[0] * row;
    for (int64_t i = 0; i < p->queries[0]; i++)
        for (int64_t j = 0; j < p->queries[1]; j++) {
            gather_query(op, example, i * p->queries[1] + j, ws->query);
            for (int64_t h = 0; h < p->h; h++)
                for (int64_t k = 0; k < p->k; k++)
                    ws->q[k / 2 * pair + i * row + (j * p->h + h) * 2 + k % 2] = ws->query[h * p->k + k];
        }
}

static void unpack_query_gradients(const fft_op *op, fft_workspace *ws, int64_t example) {
    const lambda_problem *p = op->p;
    const int64_t row = query_row_size(op), pair = p->queries[0] * row;
    for (int64_t i = 0; i < p->queries[0]; i++)
        for (int64_t j = 0; j < p->queries[1]; j++)
            for (int64_t h = 0; h < p->h; h++) {
                const real *from = ws->dq + i * row + (j * p->h + h) * 2;
                real *to = op->dq + example * p->dq[0] + (i * p->queries[1] + j) * p->dq[1] + h * p->dq[2];
                for (int64_t k = 0; k < p->k; k++) to[k * p->dq[3]] = from[k / 2 * pair + k % 2];
            }
}

/* Of a block of channels; zero without content lambdas. */
static void load_content_lambda(const fft_op *op, fft_workspace *ws, int64_t example, int64_t block) {
    const lambda_problem *p = op->p;
    memset(ws->lc, 0, sizeof(vec) * 2 * op->pairs);
    if (!op->lc) return;
    const int64_t first = block * LANES, channels = MIN(LANES, p->v - first);
    for (int64_t k = 0; k < p->k; k++)
        memcpy(&ws->lc[k], op->lc + (example * p->k + k) * p->v + first, sizeof(real) * channels);
}

/* A block of channels of the outputs, or of their gradients: in the caller's tensor, or in the workspace. */
typedef struct {
    real *first;
    int64_t n_stride, h_stride;
} operand;

static operand output_operand(const fft_op *op, const fft_workspace *ws, const real *tensor, int64_t example,
                              int64_t block) {
    const lambda_problem *p = op->p;
    if (!op->y_in_place) return (operand){ws->y, p->h * LANES, LANES};
    return (operand){(real *)tensor + example * p->y[0] + block * LANES, p->y[1], p->y[2]};
}

/* The channels of one query and head, in the caller's tensor. */
static real *output_row(const fft_op *op, const real *tensor, int64_t example, int64_t block, int64_t row) {
    const int64_t *strides = op->p->y, h = op->p->h;
    return (real *)tensor + example * strides[0] + row / h * strides[1] + row % h * strides[2] +
           block * LANES * strides[3];
}

static void gather_dy(const fft_op *op, fft_workspace *ws, int64_t example, int64_t block) {
    const lambda_problem *p = op->p;
    const int64_t channels = MIN(LANES, p->v - block * LANES);
    memset(ws->y, 0, sizeof(real) * outputs_size(op));
    for (int64_t row = 0; row < p->queries[0] * p->queries[1] * p->h; row++)
        gather_row(ws->y + row * LANES, output_row(op, op->dy, example, block, row), channels, p->y[3]);
}

static void scatter_y(const fft_op *op, fft_workspace *ws, int64_t example, int64_t block) {
    const lambda_problem *p = op->p;
    const int64_t channels = MIN(LANES, p->v - block * LANES);
    for (int64_t row = 0; row < p->queries[0] * p->queries[1] * p->h; row++)
        scatter_row(output_row(op, op->y, example, block, row), ws->y + row * LANES, channels, p->y[3]);
}

/* The lambdas of a pair into the map, but for the transform along rows, and with real and imaginary part swapped. */
static void make_lambdas(const fft_op *op, fft_workspace *ws, int64_t pair) {
    const lambda_problem *p = op->p;
    for (int64_t j = 0; j < op->columns; j++) {
        for (int64_t u = 0; u < p->u; u++) {
            const real *r = op->table_spectra + ((pair * p->u + u) * op->points + j * op->rows) * 2;
            const complex_vec *v = ws->value_spectra + u * op->points + j * op->rows;
            for (int64_t i = 0; i < op->rows; i++, r += 2) {
                const complex_vec l = c_swap(c_mul(v[i], r));
                ws->line[i] = u ? c_add(ws->line[i], l) : l;
            }
        }
        transform_column(op, ws, ws->line, ws->map + j, op->columns, p->queries[0]);
    }
}

/* y (+)= q lambda for a row of queries and a pair of k. */
static void apply_lambdas(const fft_op *op, const real *q, const complex_vec *lambdas, const vec *lc, real *y, operand o,
                          int accumulate) {
    const int64_t h = op->p->h;
    for (int64_t j = 0; j < op->p->queries[1]; j++, y += o.n_stride) {
        const vec lambda_0 = lambdas[j].im + lc[0], lambda_1 = lambdas[j].re + lc[1]; /* their parts are swapped */
        for (int64_t z = 0; z < h; z++, q += 2) {
            vec sum = lambda_0 * q[0] + lambda_1 * q[1];
            if (accumulate) sum += LOAD(y + z * o.h_stride);
            STORE(y + z * o.h_stride) = sum;
        }
    }
}

static void forward_channels(const fft_op *op, fft_workspace *ws, int64_t example, int64_t block) {
    const lambda_problem *p = op->p;
    const operand y = output_operand(op, ws, op->y, example, block);
    transform_values(op, ws, example, block);
    load_content_lambda(op, ws, example, block);
    for (int64_t pair = 0; pair < op->pairs; pair++) {
        make_lambdas(op, ws, pair);
        for (int64_t i = 0; i < p->queries[0]; i++) {
            transform_row(op, ws, ws->map + i * op->columns, ws->line, p->queries[1]);
            zero_flagged(ws->line, empty_row(op, example, i), p->queries[1]);
            apply_lambdas(op, ws->q + (pair * p->queries[0] + i) * query_row_size(op), ws->line, ws->lc + 2 * pair,
                          y.first + i * p->queries[1] * y.n_stride, y, pair > 0);
        }
    }
    if (!op->y_in_place) scatter_y(op, ws, example, block);
}

int NAME(fft_forward) LAMBDA_FFT_FORWARD(real) {
    fft_op op = {.q = q, .values = values, .table = table, .lc = lc, .y = y, .limit = limit, .rejected = rejected};
    int failed = make_op(&op, p);
    const int64_t size = workspace_size(&op, 0);
    real *workspaces = allocate(size * p->threads);
    if (!workspaces) failed = LAMBDA_NO_MEMORY;
    if (!failed) {
#pragma omp parallel num_threads((int)p->threads)
        {
            fft_workspace ws = {0};
            place_workspace(&op, 0, workspaces + size * omp_get_thread_num(), &ws);
            int64_t packed = -1;
            memset(ws.q, 0, sizeof(real) * queries_size(&op)); /* the last k of an odd number has no partner */
            transform_table(&op, &ws);
            if (rejected) check_ranges(&op, &ws);
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < p->b * op.channel_blocks; i++) {
                const int64_t example = i / op.channel_blocks;
                if (rejected && rejected[example]) continue;
                if (example != packed) pack_queries(&op, &ws, packed = example);
                forward_channels(&op, &ws, example, i % op.channel_blocks);
            }
        }
    }
    free_op(&op);
    free(workspaces);
    return failed;
}

/* dq += dy' lambda for a row of queries and a pair of k; lambda is replaced by dlambda = sum_h q dy. */
static void apply_lambdas_backward(const fft_op *op, const real *q, complex_vec *lambdas, const vec *lc, const real *dy,
                                   operand o, real *dq, vec *dlc) {
    dot_products dots = {.to = dq};
    complex_vec sum = {dlc[0], dlc[1]};
    for (int64_t j = 0; j < op->p->queries[1]; j++, dy += o.n_stride) {
        const vec lambda_0 = lambdas[j].im + lc[0], lambda_1 = lambdas[j].re + lc[1]; /* their parts are swapped */
        complex_vec dlambda = {0};
        for (int64_t z = 0; z < op->p->h; z++, q += 2) {
            const vec gradient = LOAD(dy + z * o.h_stride);
            add_dot(&dots, lambda_0 * gradient);
            add_dot(&dots, lambda_1 * gradient);
            dlambda.re += q[0] * gradient;
            dlambda.im += q[1] * gradient;
        }
        sum = c_add(sum, dlambda);
        lambdas[j] = dlambda;
    }
    flush_dots(&dots);
    dlc[0] = sum.re;
    dlc[1] = sum.im;
}

/* Adds what a pair contributes to the spectra of the gradients of the values and of the table. */
static void add_gradient_spectra(const fft_op *op, fft_workspace *ws, int64_t pair) {
    const lambda_problem *p = op->p;
    for (int64_t u = 0; u < p->u; u++)
        ws->dots[u] = (dot_products){.to = ws->dtable_spectra + (pair * p->u + u) * dspectrum_size(op)};
    for (int64_t j = 0; j < op->columns; j++) {
        transform_map_column(op, ws, p->queries[0], j, ws->line);
        for (int64_t u = 0; u < p->u; u++) {
            const real *r = op->table_spectra + ((pair * p->u + u) * op->points + j * op->rows) * 2;
            const complex_vec *values = ws->value_spectra + u * op->points + j * op->rows;
            complex_vec *dvalues = ws->dvalue_spectra + u * op->points + j * op->rows;
            dot_products *dots = &ws->dots[u];
            for (int64_t i = 0; i < op->rows; i++, r += 2) {
                const complex_vec z = ws->line[i], v = values[i];
                dvalues[i].re += z.re * r[0] + z.im * r[1];
                dvalues[i].im += z.im * r[0] - z.re * r[1];
                add_dot(dots, z.re * v.re + z.im * v.im);
                add_dot(dots, z.im * v.re - z.re * v.im);
            }
        }
    }
    for (int64_t u = 0; u < p->u; u++) flush_dots(&ws->dots[u]);
}

static void backward_channels(const fft_op *op, fft_workspace *ws, int64_t example, int64_t block, real *dlc) {
    const lambda_problem *p = op->p;
    const operand dy = output_operand(op, ws, op->dy, example, block);
    if (!op->y_in_place) gather_dy(op, ws, example, block);
    transform_values(op, ws, example, block);
    load_content_lambda(op, ws, example, block);
    memset(ws->dlc, 0, sizeof(vec) * 2 * op->pairs);
    memset(ws->dvalue_spectra, 0, sizeof(complex_vec) * p->u * op->points);
    for (int64_t pair = 0; pair < op->pairs; pair++) {
        make_lambdas(op, ws, pair);
        for (int64_t i = 0; i < p->queries[0]; i++) {
            complex_vec *row = ws->map + i * op->columns;
            const int64_t queries = (pair * p->queries[0] + i) * query_row_size(op);
            transform_row(op, ws, row, ws->line, p->queries[1]);
            zero_flagged(ws->line, empty_row(op, example, i), p->queries[1]);
            apply_lambdas_backward(op, ws->q + queries, ws->line, ws->lc + 2 * pair,
                                   dy.first + i * p->queries[1] * dy.n_stride, dy, ws->dq + queries, ws->dlc + 2 * pair);
            memset(ws->line + p->queries[1], 0, sizeof(complex_vec) * (op->columns - p->queries[1]));
            transform_row(op, ws, ws->line, row, op->columns);
        }
        add_gradient_spectra(op, ws, pair);
    }
    inverse_values(op, ws, example, block);
    const int64_t first = block * LANES, channels = MIN(LANES, p->v - first);
    for (int64_t k = 0; dlc && k < p->k; k++)
        memcpy(dlc + (example * p->k + k) * p->v + first, &ws->dlc[k], sizeof(real) * channels);
}

/* Adds the table spectra of all threads into those of the first, which it returns. The threads share the loop. */
static const real *reduce_table_spectra(const fft_op *op, real *workspaces, int64_t size) {
    const int64_t spectrum = dspectrum_size(op);
    fft_workspace ws;
    place_workspace(op, 1, workspaces, &ws);
    real *sum = ws.dtable_spectra;
#pragma omp for schedule(static)
    for (int64_t at = 0; at < op->pairs * op->p->u * spectrum; at += spectrum)
        for (int64_t thread = 1; thread < omp_get_num_threads(); thread++) {
            place_workspace(op, 1, workspaces + size * thread, &ws);
            add_row(sum + at, ws.dtable_spectra + at, spectrum);
        }
    return sum;
}

int NAME(fft_backward) LAMBDA_FFT_BACKWARD(real) {
    fft_op op = {.q = q,   .values = values,   .table = table, .lc = lc,            .dy = dy,
                 .dq = dq, .dvalues = dvalues, .limit = limit, .rejected = rejected};
    int failed = make_op(&op, p);
    const int64_t size = workspace_size(&op, 1);
    real *workspaces = allocate(size * p->threads);
    if (!workspaces) failed = LAMBDA_NO_MEMORY;
    if (!failed) {
#pragma omp parallel num_threads((int)p->threads)
        {
            fft_workspace ws = {0};
            place_workspace(&op, 1, workspaces + size * omp_get_thread_num(), &ws);
            memset(ws.dtable_spectra, 0, sizeof(real) * op.pairs * p->u * dspectrum_size(&op));
            memset(ws.q, 0, sizeof(real) * queries_size(&op)); /* the last k of an odd number has no partner */
            transform_table(&op, &ws);
            if (rejected) check_ranges(&op, &ws);
            /* A static schedule, so that sums keep their order from run to run. */
#pragma omp for schedule(static)
            for (int64_t example = 0; example < p->b; example++) {
                if (rejected && rejected[example]) continue;
                pack_queries(&op, &ws, example);
                memset(ws.dq, 0, sizeof(real) * queries_size(&op));
                for (int64_t block = 0; block < op.channel_blocks; block++)
                    backward_channels(&op, &ws, example, block, lc ? dlc : NULL);
                unpack_query_gradients(&op, &ws, example);
            }
            inverse_table(&op, &ws, reduce_table_spectra(&op, workspaces, size), dtable);
        }
    }
    free_op(&op);
    free(workspaces);
    return failed;
}

double NAME(fft_operations)(const lambda_problem *p, int backward) {
    fft_op op = {0};
    fft_plan f;
    set_sizes(&op, p);
    op.y_in_place = 0; /* the same cost for every layout */
    const double along_column = factor(op.rows, &f), along_row = factor(op.columns, &f), points = (double)op.points;
    const double outputs = (double)(p->queries[0] * p->queries[1] * p->h), u = (double)p->u;
    const double columns = along_column * (double)op.columns, queries = columns + along_row * (double)p->queries[0];
    const double values = u * (columns + along_row * (double)p->context[0]);
    const double table = u * (columns + along_row * (double)op.rows) * (double)((op.pairs + LANES - 1) / LANES);
    const double pair = backward ? 2 * queries + 18 * u * points + 14 * outputs : queries + 4 * u * points + 4 * outputs;
    const double block = (double)op.pairs * pair + (backward ? 2 : 1) * values;
    /* Threads share examples, and forward also blocks of channels. Beyond that the number of examples does not count: the
     * same example is computed in the same way, alone or in a batch. */
    const double busy = (double)MIN(backward ? p->b : p->b * op.channel_blocks, p->threads);
    const double slowdown = workspace_size(&op, backward) > CACHED_WORKSPACE ? UNCACHED_SLOWDOWN : 1;
    return slowdown *
           (block * (double)op.channel_blocks / busy + (backward ? 2 : 1) * table / (double)p->threads);
}

int NAME(fft_possible)(const lambda_problem *p) {
    const int64_t sizes[] = {p->b,         p->h,          p->k,          p->v,        p->u,       p->queries[0],
                             p->queries[1], p->context[0], p->context[1], p->scope[0], p->scope[1]};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < 1) return 0;
    if (p->stride[0] != 1 || p->stride[1] != 1 || p->dilation[0] != 1 || p->dilation[1] != 1) return 0;
    /* Transforms mix all positions: rounding errors of the future would reach the past. */
    return p->past >= p->scope[0] * p->scope[1];
}
