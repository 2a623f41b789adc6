/* Packed layouts for the direct algorithm, and gradients back from them. Called by all threads, which share the loops. */
#ifndef LAMBDANETS_DIRECT_PACKING_H
#define LAMBDANETS_DIRECT_PACKING_H

#include <string.h>

#include "direct.h"

/* The tables that exist: of every class, or of the whole window only. */
static int64_t tables_n(const windows *w) { return w->class_tables ? w->classes_n : 1; }

/* The columns of the window that a table holds. */
static span table_columns(const windows *w, const table_class *c) {
    return w->class_tables ? (span){c->first, c->first + c->n} : (span){0, w->scope_u};
}

static void pack_tables(const direct_op *op) {
    const windows *w = &op->w;
    const lambda_problem *p = w->p;
    const int64_t rows = p->scope[0] * p->scope[1];
#pragma omp for schedule(static)
    for (int64_t k = 0; k < p->k; k++) {
        real *row = op->table_k_major + k * rows * p->u;
        for (int64_t o = 0; o < rows; o++)
            for (int64_t u = 0; u < p->u; u++)
                row[o * p->u + u] = o < p->past ? op->table[(o * p->k + k) * p->u + u] : 0;
        for (int64_t i = 0; i < tables_n(w); i++) {
            const table_class *c = &w->classes[i];
            const span columns = table_columns(w, c);
            for (int64_t group = 0; group < p->scope[0]; group += c->lines) {
                real *to = op->tables + line_offset(c, group) + k * c->k_stride;
                memset(to, 0, sizeof(real) * c->k_stride);
                for (int64_t a = group; a < MIN(group + c->lines, p->scope[0]); a++, to += c->line_stride)
                    memcpy(to, row + a * w->scope_u + columns.first, sizeof(real) * (columns.last - columns.first));
            }
        }
    }
}

/* The sum of the threads' gradients of all tables, as one table. */
static void unpack_tables(const direct_op *op, const real *dtables, int64_t threads, real *dtable) {
    const windows *w = &op->w;
    const lambda_problem *p = w->p;
    const int64_t rows = p->scope[0] * p->scope[1];
#pragma omp for schedule(static)
    for (int64_t k = 0; k < p->k; k++) {
        real *sum = op->table_k_major + k * rows * p->u; /* no longer needed */
        memset(sum, 0, sizeof(real) * rows * p->u);
        for (int64_t thread = 0; thread < threads; thread++)
            for (int64_t i = 0; i < tables_n(w); i++) {
                const table_class *c = &w->classes[i];
                const span columns = table_columns(w, c);
                for (int64_t group = 0; group < p->scope[0]; group += c->lines) {
                    const real *from = dtables + thread * tables_size(op) + line_offset(c, group) + k * c->k_stride;
                    for (int64_t a = group; a < MIN(group + c->lines, p->scope[0]); a++, from += c->line_stride)
                        add_row(sum + a * w->scope_u + columns.first, from, columns.last - columns.first);
                }
            }
        for (int64_t o = 0; o < rows; o++)
            for (int64_t u = 0; u < p->u; u++)
                dtable[(o * p->k + k) * p->u + u] = o < p->past ? sum[o * p->u + u] : 0;
    }
}

static void pack_table_offset_major(const direct_op *op) {
    const lambda_problem *p = op->w.p;
#pragma omp for schedule(static)
    for (int64_t o = 0; o < p->scope[0] * p->scope[1]; o++)
        for (int64_t u = 0; u < p->u; u++) {
            real *to = op->table_offset_major + (o * p->u + u) * op->k_padded;
            for (int64_t k = 0; k < p->k; k++) to[k] = o < p->past ? op->table[(o * p->k + k) * p->u + u] : 0;
            for (int64_t k = p->k; k < op->k_padded; k++) to[k] = 0;
        }
}

/* A packed row of values [m][v_padded] as [v][m], with margins. */
static void transpose_values(const direct_op *op, const real *line, real *transposed) {
    const windows *w = &op->w;
    const lambda_problem *p = w->p;
    const int64_t d = p->dilation[1];
    memset(transposed, 0, sizeof(real) * op->transposed_stride);
    for (int64_t c = 0; c < p->v; c++)
        for (int64_t phase = 0; phase < d; phase++) {
            const real *from = line + phase * w->phase * p->u * op->v_padded + c;
            real *to = transposed + c * op->transposed_width + phase * w->transposed_phase + w->margin;
            const int64_t columns = (p->context[1] - phase + d - 1) / d * p->u; /* later phases may have one less */
            for (int64_t m = 0; m < columns; m++) to[m] = from[m * op->v_padded];
        }
}

static void pack_values(const direct_op *op) {
    const windows *w = &op->w;
    const lambda_problem *p = w->p;
    const int64_t d = p->dilation[1];
#pragma omp for schedule(static)
    for (int64_t row = 0; row < p->b * p->context[0]; row++) {
        const real *from = op->values + row / p->context[0] * p->values[0] +
                           row % p->context[0] * p->context[1] * p->values[1];
        real *line = op->packed + row * w->width * op->v_padded;
        for (int64_t m = 0; m < p->context[1]; m++)
            for (int64_t u = 0; u < p->u; u++) {
                real *to = line + ((m % d * w->phase + m / d) * p->u + u) * op->v_padded;
                const real *v = from + m * p->values[1] + u * p->values[3];
                gather_row(to, v, p->v, p->values[2]);
                normalise_row(to, p->v, value_norm(p, op->norms, u));
                for (int64_t c = p->v; c < op->v_padded; c++) to[c] = 0;
            }
        if (op->transposed) transpose_values(op, line, op->transposed + row * op->transposed_stride);
    }
}

/* The sum of the gradients of the values from `parts` parts of every example. */
static void unpack_values(const direct_op *op, real *packed, int64_t parts, real *dvalues) {
    const windows *w = &op->w;
    const lambda_problem *p = w->p;
    const int64_t d = p->dilation[1], line = w->width * op->v_padded;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < p->b * p->context[0]; row++) {
        const int64_t example = row / p->context[0], i = row % p->context[0];
        real *to = dvalues + example * p->dvalues[0] + i * p->context[1] * p->dvalues[1];
        real *from = packed + example * parts * op->map_size + i * line;
        for (int64_t m = 0; m < p->context[1]; m++)
            for (int64_t u = 0; u < p->u; u++) {
                real *f = from + ((m % d * w->phase + m / d) * p->u + u) * op->v_padded;
                for (int64_t part = 1; part < parts; part++) add_row(f, f + part * op->map_size, p->v);
                scatter_row(to + m * p->dvalues[1] + u * p->dvalues[3], f, p->v, p->dvalues[2]);
            }
    }
}

/* The sum of the gradients of the content lambdas from `parts` parts of every example. */
static void unpack_content(const direct_op *op, const real *packed, int64_t parts, real *dlc) {
    const lambda_problem *p = op->w.p;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < p->b * p->k; row++)
        for (int64_t c = 0; c < p->v; c++) {
            const int64_t example = row / p->k, k = row % p->k;
            real sum = 0;
            for (int64_t part = 0; part < parts; part++)
                sum += packed[((example * parts + part) * p->k + k) * op->v_padded + c];
            dlc[row * p->v + c] = sum;
        }
}

#endif
