/* Transforms of maps for the FFT algorithm: of the table and of the values, and of their gradients back.
 *
 * Maps are padded with zeros to lengths at which windows do not wrap around. Their spectra are [j][i], column by column:
 * transforms run along the rows of a map first and along its columns second, and inverse transforms the other way. */
#ifndef LAMBDANETS_FFT_MAPS_H
#define LAMBDANETS_FFT_MAPS_H

#include <string.h>

#include "fft.h"

static void transform_row(const fft_op *op, fft_workspace *ws, const complex_vec *x, complex_vec *out, int64_t count) {
    fft1d(&op->axis[1], x, ws->scratch, out, 1, count);
}

static void transform_column(const fft_op *op, fft_workspace *ws, const complex_vec *x, complex_vec *out, int64_t stride,
                             int64_t count) {
    fft1d(&op->axis[0], x, ws->scratch, out, stride, count);
}

/* The spectrum of column j of the map, whose first rows are there and whose other rows are zero. */
static void transform_map_column(const fft_op *op, fft_workspace *ws, int64_t rows, int64_t j, complex_vec *out) {
    for (int64_t i = 0; i < rows; i++) ws->line[i] = ws->map[i * op->columns + j];
    for (int64_t i = rows; i < op->rows; i++) ws->line[i] = (complex_vec){0};
    transform_column(op, ws, ws->line, out, 1, op->rows);
}

/* The first rows of the map from its spectrum, but for the transform along rows, and with real and imaginary part swapped. */
static void inverse_columns(const fft_op *op, fft_workspace *ws, const complex_vec *spectrum, int64_t rows) {
    for (int64_t j = 0; j < op->columns; j++) {
        for (int64_t i = 0; i < op->rows; i++) ws->line[i] = c_swap(spectrum[j * op->rows + i]);
        transform_column(op, ws, ws->line, ws->map + j, op->columns, rows);
    }
}

/* A part of the table: its pairs of rows k are lanes here. `pairs` of them from `first` on, `rows` rows, of one u. */
typedef struct {
    int64_t u, first, pairs, rows;
} table_part;

static table_part get_table_part(const fft_op *op, int64_t i) {
    const int64_t first = i / op->p->u * LANES, pairs = MIN(LANES, op->pairs - first);
    return (table_part){i % op->p->u, first, pairs, MIN(2 * pairs, op->p->k - 2 * first)};
}

/* Where along an axis of the padded map an offset of the window lies, or -1 if no query sees anything there. */
static int64_t offset_position(const lambda_problem *p, int axis, int64_t offset, int64_t length) {
    const int64_t distance = offset - p->scope[axis] / 2;
    if (distance >= p->context[axis] || -distance >= p->queries[axis]) return -1;
    return distance > 0 ? length - distance : -distance;
}

/* The element of the map for row o of the table, or NULL if no query sees anything there. */
static real *table_element(const fft_op *op, const fft_workspace *ws, int64_t o) {
    const lambda_problem *p = op->p;
    const int64_t i = offset_position(p, 0, o / p->scope[1], op->rows);
    const int64_t j = offset_position(p, 1, o % p->scope[1], op->columns);
    return i < 0 || j < 0 ? NULL : (real *)&ws->map[i * op->columns + j];
}

/* Puts a part of the table into the map; returns its energy. */
static double load_table_part(const fft_op *op, fft_workspace *ws, table_part part) {
    const lambda_problem *p = op->p;
    const real scale = (real)1 / (real)op->points;
    double energy = 0;
    memset(ws->map, 0, sizeof(complex_vec) * op->points);
    for (int64_t o = 0; o < p->scope[0] * p->scope[1]; o++) {
        real *to = table_element(op, ws, o);
        for (int64_t c = 0; to && c < part.rows; c++) {
            const real r = op->table[(o * p->k + 2 * part.first + c) * p->u + part.u];
            energy += (double)r * (double)r;
            to[c % 2 * LANES + c / 2] = scale * r;
        }
    }
    return energy;
}

/* The spectra of the table, and its range. The threads share the loop. */
static void transform_table(fft_op *op, fft_workspace *ws) {
    const lambda_problem *p = op->p;
    complex_vec *column = ws->value_spectra; /* not yet needed */
#pragma omp for schedule(static)
    for (int64_t z = 0; z < table_parts(op); z++) {
        const table_part part = get_table_part(op, z);
        table_range range = {load_table_part(op, ws, part), 0};
        vec peak = {0};
        for (int64_t i = 0; i < op->rows; i++) {
            memcpy(ws->line, ws->map + i * op->columns, sizeof(complex_vec) * op->columns);
            transform_row(op, ws, ws->line, ws->map + i * op->columns, op->columns);
        }
        for (int64_t j = 0; j < op->columns; j++) {
            transform_map_column(op, ws, op->rows, j, column);
            for (int64_t i = 0; i < op->rows; i++) {
                const vec square = column[i].re * column[i].re + column[i].im * column[i].im;
                for (int64_t c = 0; c < LANES; c++) peak[c] = square[c] > peak[c] ? square[c] : peak[c];
            }
            for (int64_t c = 0; c < part.pairs; c++) {
                real *to = op->table_spectra + (((part.first + c) * p->u + part.u) * op->points + j * op->rows) * 2;
                for (int64_t i = 0; i < op->rows; i++) {
                    to[2 * i] = column[i].re[c];
                    to[2 * i + 1] = column[i].im[c];
                }
            }
        }
        for (int64_t c = 0; c < part.pairs; c++) range.gain += (double)peak[c] * (double)op->points * (double)op->points;
        op->part_ranges[z] = range;
    }
#pragma omp single
    {
        for (int64_t z = 0; z < table_parts(op); z++) {
            op->range.energy += op->part_ranges[z].energy;
            op->range.gain += op->part_ranges[z].gain;
        }
        op->range.gain = op->range.energy == 0 ? 0 : op->range.gain / op->range.energy;
    }
}

/* The gradient of the table from its spectra. The threads share the loop. */
static void inverse_table(const fft_op *op, fft_workspace *ws, const real *dspectra, real *dtable) {
    const lambda_problem *p = op->p;
    const real scale = (real)1 / (real)op->points;
    complex_vec *spectrum = ws->value_spectra; /* no longer needed */
#pragma omp for schedule(static)
    for (int64_t z = 0; z < table_parts(op); z++) {
        const table_part part = get_table_part(op, z);
        memset(spectrum, 0, sizeof(complex_vec) * op->points);
        for (int64_t c = 0; c < part.pairs; c++) {
            const real *from = dspectra + ((part.first + c) * p->u + part.u) * dspectrum_size(op);
            for (int64_t f = 0; f < op->points; f++) {
                spectrum[f].re[c] = from[2 * f];
                spectrum[f].im[c] = from[2 * f + 1];
            }
        }
        inverse_columns(op, ws, spectrum, op->rows);
        for (int64_t i = 0; i < op->rows; i++) {
            transform_row(op, ws, ws->map + i * op->columns, ws->line, op->columns);
            memcpy(ws->map + i * op->columns, ws->line, sizeof(complex_vec) * op->columns);
        }
        for (int64_t o = 0; o < p->scope[0] * p->scope[1]; o++) {
            const real *from = table_element(op, ws, o);
            for (int64_t c = 0; c < part.rows; c++) /* real and imaginary parts are swapped */
                dtable[(o * p->k + 2 * part.first + c) * p->u + part.u] =
                    from ? scale * from[(1 - c % 2) * LANES + c / 2] : 0;
        }
    }
}

/* The spectra of a block of channels of the values of an example. */
static void transform_values(const fft_op *op, fft_workspace *ws, int64_t example, int64_t block) {
    const lambda_problem *p = op->p;
    const int64_t first = block * LANES, channels = MIN(LANES, p->v - first);
    const int contiguous = channels == LANES && p->values[2] == 1;
    for (int64_t u = 0; u < p->u; u++) {
        const row_norm norm = value_norm(p, op->norms, u);
        vec mean = {0}, scale = {0}, shift = {0};
        if (norm.mean) {
            memcpy(&mean, norm.mean + first, sizeof(real) * channels);
            memcpy(&scale, norm.scale + first, sizeof(real) * channels);
            memcpy(&shift, norm.shift + first, sizeof(real) * channels);
        }
        memset(ws->line, 0, sizeof(complex_vec) * op->columns);
        for (int64_t i = 0; i < p->context[0]; i++) {
            const real *from = op->values + example * p->values[0] + i * p->context[1] * p->values[1] +
                               first * p->values[2] + u * p->values[3];
            for (int64_t j = 0; j < p->context[1]; j++, from += p->values[1]) {
                vec *to = &ws->line[j].re;
                if (contiguous)
                    *to = LOAD(from);
                else
                    gather_row((real *)to, from, channels, p->values[2]);
                if (norm.mean) *to = (*to - mean) * scale + shift;
            }
            transform_row(op, ws, ws->line, ws->map + i * op->columns, op->columns);
        }
        for (int64_t j = 0; j < op->columns; j++)
            transform_map_column(op, ws, p->context[0], j, ws->value_spectra + u * op->points + j * op->rows);
    }
}

/* Outputs are exactly zero where only zeros were summed: the flagged elements of a row of a map. */
static void zero_flagged(complex_vec *row, const unsigned char *flags, int64_t n) {
    for (int64_t j = 0; flags && j < n; j++)
        if (flags[j]) row[j] = (complex_vec){0};
}

/* Flags of a row of queries with empty windows, and of a row of context positions that no gradient reaches; or NULL. */
static const unsigned char *empty_row(const fft_op *op, int64_t example, int64_t i) {
    const int64_t *n = op->p->queries;
    return op->rejected && op->has_empty[example] & 1 ? op->empty + (example * n[0] + i) * n[1] : NULL;
}

static const unsigned char *unreached_row(const fft_op *op, int64_t example, int64_t i) {
    const int64_t *m = op->p->context;
    return op->rejected && op->has_empty[example] & 2 ? op->unreached + (example * m[0] + i) * m[1] : NULL;
}

/* The gradient of a block of channels of the values of an example, from its spectra. */
static void inverse_values(const fft_op *op, fft_workspace *ws, int64_t example, int64_t block) {
    const lambda_problem *p = op->p;
    const int64_t first = block * LANES, channels = MIN(LANES, p->v - first);
    for (int64_t u = 0; u < p->u; u++) {
        inverse_columns(op, ws, ws->dvalue_spectra + u * op->points, p->context[0]);
        for (int64_t i = 0; i < p->context[0]; i++) {
            transform_row(op, ws, ws->map + i * op->columns, ws->line, p->context[1]);
            zero_flagged(ws->line, unreached_row(op, example, i), p->context[1]);
            real *to = op->dvalues + example * p->dvalues[0] + i * p->context[1] * p->dvalues[1] +
                       first * p->dvalues[2] + u * p->dvalues[3];
            for (int64_t j = 0; j < p->context[1]; j++, to += p->dvalues[1])
                scatter_row(to, (const real *)&ws->line[j].im, channels, p->dvalues[2]);
        }
    }
}

#endif
