/* What the parts of the FFT algorithm share: its operator, and the workspace of a thread. */
#ifndef LAMBDANETS_FFT_H
#define LAMBDANETS_FFT_H

#include "algorithms.h"
#include "dot_products.h"
#include "fft1d.h"
#include "pooling.h"
#include "range.h"
#include "rows.h"

/* Everything that does not change during a call. */
typedef struct {
    const lambda_problem *p;
    fft_plan axis[2];
    int64_t rows, columns, points; /* of a padded map */
    int64_t pairs;                 /* of rows k of the table, the last one perhaps single */
    int64_t channel_blocks;        /* vectors of channels of the values */
    int y_in_place;                /* can outputs be written, and their gradients be read, without a copy? */
    const real *q, *values, *table, *lc, *dy;
    real *y, *dq, *dvalues;
    real *norms;              /* of the values, see rows.h */
    real *table_spectra;      /* [pair][u][j][i][2], divided by the number of points */
    table_range *part_ranges; /* of the parts of the table, see fft_maps.h */
    table_range range;        /* of all of it */
    /* With a limit to the dynamic range: flags of the examples that are rejected, of windows that are empty and, backward,
     * of context positions that no gradient reaches; and whether an example has any of these, 1 and 2. */
    double limit;
    unsigned char *rejected, *empty, *unreached, *has_empty;
} fft_op;

/* Of one thread. */
typedef struct {
    complex_vec *line, *scratch[2]; /* a row or column of a map, and the buffers of its transform */
    complex_vec *value_spectra;     /* [u][j][i] */
    complex_vec *dvalue_spectra;
    complex_vec *map;               /* [i][j]: lambdas of two k, values, or a part of the table */
    real *q, *dq;                   /* of an example, [pair][i][j][h][2], rows padded for dot products */
    real *query;                    /* of one position, [h][k] */
    real *y;                        /* or its gradient, of a block of channels: [n][h][lanes] */
    vec *lc, *dlc;                  /* the content lambda of a block of channels, [2 pairs] */
    dot_products *dots;             /* for every u */
    real *dtable_spectra;           /* summed */
    real *row;                      /* of the values, of one u, or of dy */
    double *value_energies, *windows, *gradient_energies, *reached, *pooling; /* for the dynamic range */
} fft_workspace;

/* A length at which windows do not wrap around: they see as many positions before the first and after the last query. */
static int64_t padded_length(const lambda_problem *p, int axis) {
    const int64_t n = p->queries[axis], m = p->context[axis], before = p->scope[axis] / 2;
    const int64_t after = MAX(0, p->scope[axis] - 1 - before);
    return next_fast_length(MAX(m + MIN(before, n - 1), n + MIN(after, m - 1)));
}

/* Elements of a row of queries of one pair. */
static int64_t query_row_size(const fft_op *op) { return ROUND_UP(op->p->queries[1] * op->p->h * 2, LANES); }

static int64_t queries_size(const fft_op *op) { return op->pairs * op->p->queries[0] * query_row_size(op); }

/* Of the gradient of the spectrum of a pair, padded for dot products. */
static int64_t dspectrum_size(const fft_op *op) { return ROUND_UP(2 * op->points, LANES); }

static int64_t outputs_size(const fft_op *op) { return op->p->queries[0] * op->p->queries[1] * op->p->h * LANES; }

/* Parts of the table whose pairs fill the lanes of a vector, of one u each. */
static int64_t table_parts(const fft_op *op) { return (op->pairs + LANES - 1) / LANES * op->p->u; }

/* Places the buffers of a workspace in memory; returns its size in elements. */
static int64_t place_workspace(const fft_op *op, int backward, real *memory, fft_workspace *ws) {
    const lambda_problem *p = op->p;
    const int64_t element = 2 * LANES, longest = MAX(op->rows, op->columns) * element;
    const int64_t n = p->queries[0] * p->queries[1], m = p->context[0] * p->context[1];
    const pooling by_query = query_windows(p), by_context = context_windows(p);
    const int64_t per_double = sizeof(double) / sizeof(real), forward = op->rejected ? per_double : 0;
    const int64_t both = backward ? forward : 0;
    real *line, *scratch[2], *spectra, *dspectra, *map, *lc, *dlc, *dots, *value_energies, *windows, *gradient_energies;
    real *reached, *pooling;
    const buffer buffers[] = {{&line, longest},
                              {&scratch[0], longest},
                              {&scratch[1], longest},
                              {&spectra, p->u * op->points * element},
                              {&dspectra, backward ? p->u * op->points * element : 0},
                              {&map, op->points * element},
                              {&ws->q, queries_size(op)},
                              {&ws->dq, backward ? queries_size(op) : 0},
                              {&ws->query, p->h * p->k},
                              {&ws->y, op->y_in_place ? 0 : outputs_size(op)},
                              {&lc, 2 * op->pairs * LANES},
                              {&dlc, backward ? 2 * op->pairs * LANES : 0},
                              {&dots, backward ? p->u * (int64_t)(sizeof(dot_products) / sizeof(real)) : 0},
                              {&ws->dtable_spectra, backward ? op->pairs * p->u * dspectrum_size(op) : 0},
                              {&ws->row, MAX(p->v, p->h * p->k)},
                              {&value_energies, forward * m},
                              {&windows, forward * n},
                              {&gradient_energies, both * n},
                              {&reached, both * m},
                              {&pooling, forward * MAX(pooling_scratch(&by_query), pooling_scratch(&by_context))}};
    const int64_t size = place_buffers(buffers, sizeof buffers / sizeof *buffers, memory);
    ws->line = (complex_vec *)line;
    ws->scratch[0] = (complex_vec *)scratch[0];
    ws->scratch[1] = (complex_vec *)scratch[1];
    ws->value_spectra = (complex_vec *)spectra;
    ws->dvalue_spectra = (complex_vec *)dspectra;
    ws->map = (complex_vec *)map;
    ws->lc = (vec *)lc;
    ws->dlc = (vec *)dlc;
    ws->dots = (dot_products *)dots;
    ws->value_energies = (double *)value_energies;
    ws->windows = (double *)windows;
    ws->gradient_energies = (double *)gradient_energies;
    ws->reached = (double *)reached;
    ws->pooling = (double *)pooling;
    return size;
}

static int64_t workspace_size(const fft_op *op, int backward) {
    fft_workspace ws;
    return place_workspace(op, backward, NULL, &ws);
}

static void set_sizes(fft_op *op, const lambda_problem *p) {
    op->p = p;
    op->rows = padded_length(p, 0);
    op->columns = padded_length(p, 1);
    op->points = op->rows * op->columns;
    op->pairs = (p->k + 1) / 2;
    op->channel_blocks = (p->v + LANES - 1) / LANES;
    op->y_in_place = p->y[3] == 1 && p->v % LANES == 0;
}

/* Sizes and memory; `free_op` is needed even if this fails. */
static int make_op(fft_op *op, const lambda_problem *p) {
    const int64_t n = p->queries[0] * p->queries[1], m = p->context[0] * p->context[1];
    set_sizes(op, p);
    op->norms = make_value_norms(p);
    op->table_spectra = allocate(op->pairs * p->u * op->points * 2);
    op->part_ranges = malloc(sizeof *op->part_ranges * (size_t)table_parts(op));
    op->empty = op->rejected ? malloc((size_t)(p->b * (n + m + 1))) : NULL;
    op->unreached = op->empty ? op->empty + p->b * n : NULL;
    op->has_empty = op->empty ? op->unreached + p->b * m : NULL;
    const int ok = make_fft_plan(&op->axis[0], op->rows) && make_fft_plan(&op->axis[1], op->columns) &&
                   op->table_spectra && op->part_ranges && (op->empty || !op->rejected) && (op->norms || !p->norm);
    return ok ? LAMBDA_OK : LAMBDA_NO_MEMORY;
}

static void free_op(fft_op *op) {
    free(op->norms);
    free(op->table_spectra);
    free(op->part_ranges);
    free(op->empty);
    free(op->axis[0].twiddles);
    free(op->axis[1].twiddles);
}

#endif
