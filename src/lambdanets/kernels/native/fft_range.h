/* Which examples of a call the transforms would not compute accurately, by range.h. */
#ifndef LAMBDANETS_FFT_RANGE_H
#define LAMBDANETS_FFT_RANGE_H

#include "fft.h"

/* The queries of one position, [h][k], normalised if they come with a norm. */
static void gather_query(const fft_op *op, int64_t example, int64_t n, real *query) {
    const lambda_problem *p = op->p;
    const real *from = op->q + example * p->q[0] + n * p->q[1];
    for (int64_t h = 0; h < p->h; h++) gather_row(query + h * p->k, from + h * p->q[2], p->k, p->q[3]);
    normalise_row(query, p->h * p->k, query_norm(p));
}

/* Of the values at every context position. */
static void measure_values(const fft_op *op, fft_workspace *ws, int64_t example) {
    const lambda_problem *p = op->p;
    const int in_place = p->values[2] == 1 && !op->norms;
    for (int64_t at = 0; at < p->context[0] * p->context[1]; at++) {
        const real *from = op->values + example * p->values[0] + at * p->values[1];
        ws->value_energies[at] = 0;
        for (int64_t u = 0; u < p->u; u++, from += p->values[3]) {
            if (!in_place) {
                gather_row(ws->row, from, p->v, p->values[2]);
                normalise_row(ws->row, p->v, value_norm(p, op->norms, u));
            }
            ws->value_energies[at] += row_energy(in_place ? from : ws->row, p->v);
        }
    }
}

/* Of dlambda[n] = sum_h q[n,h] dy[n,h], as if its heads were orthogonal. */
static void measure_gradients(const fft_op *op, fft_workspace *ws, int64_t example) {
    const lambda_problem *p = op->p;
    const int q_in_place = p->q[3] == 1 && !p->norm, dy_in_place = p->y[3] == 1;
    for (int64_t at = 0; at < p->queries[0] * p->queries[1]; at++) {
        const real *q = q_in_place ? op->q + example * p->q[0] + at * p->q[1] : ws->query;
        const real *dy = op->dy + example * p->y[0] + at * p->y[1];
        if (!q_in_place) gather_query(op, example, at, ws->query);
        ws->gradient_energies[at] = 0;
        for (int64_t h = 0; h < p->h; h++, dy += p->y[2], q += q_in_place ? p->q[2] : p->k) {
            if (!dy_in_place) gather_row(ws->row, dy, p->v, p->y[3]);
            const double of_dy = row_energy(dy_in_place ? dy : ws->row, p->v), of_q = row_energy(q, p->k);
            ws->gradient_energies[at] += of_dy > 0 && of_q > 0 ? fmax(of_dy * of_q, DBL_MIN) : of_dy * of_q;
        }
    }
}

/* Sets the flags of rejected examples, empty windows and unreached positions. The threads share the loop. */
static void check_ranges(const fft_op *op, fft_workspace *ws) {
    const lambda_problem *p = op->p;
    const int64_t n = p->queries[0] * p->queries[1], m = p->context[0] * p->context[1];
    const pooling by_query = query_windows(p), by_context = context_windows(p);
    const double points = (double)op->points;
    const double fewest = fewest_positions(&by_query), fewest_back = fewest_positions(&by_context);
#pragma omp for schedule(static)
    for (int64_t example = 0; example < p->b; example++) {
        measure_values(op, ws, example);
        map_range v = measure_positions(ws->value_energies, m, fewest), g = {0};
        int fits = in_range(v, op->range, points, op->limit) && v.energy > 0;
        if (!fits) {
            pool(&by_query, ws->value_energies, ws->windows, ws->pooling);
            v = measure_windows(ws->value_energies, m, ws->windows, n, op->empty + example * n);
            fits = in_range(v, op->range, points, op->limit);
        }
        if (fits && op->dy) {
            measure_gradients(op, ws, example);
            g = measure_positions(ws->gradient_energies, n, fewest_back);
            fits = in_range(g, op->range, points, op->limit) && g.energy > 0 && !v.has_empty;
            if (!fits) {
                pool(&by_context, ws->gradient_energies, ws->reached, ws->pooling);
                g = measure_windows(ws->gradient_energies, n, ws->reached, m, op->unreached + example * m);
                fits = in_range(g, op->range, points, op->limit);
            }
            double seen = 0;
            for (int64_t i = 0; v.has_empty && i < n; i++) seen += sqrt(ws->gradient_energies[i] * ws->windows[i]);
            fits = fits && (!v.has_empty || table_in_range(v, g, seen, points, op->limit));
        }
        op->rejected[example] = !fits;
        op->has_empty[example] = (unsigned char)(v.has_empty | g.has_empty << 1);
    }
}

#endif
