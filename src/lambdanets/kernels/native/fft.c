/* The position term, lambdas first, through Fourier transforms: where windows are large, a tenth of the operations that
 * direct.c has, which never makes a lambda. Compiled like that.
 *
 *   forward    lambda_k = R_k * V            y  = sum_k q_k lambda_k
 *   backward   dlambda_k = sum_h q_k g       dq_k = g' lambda_k       dV = sum_k R_k . dlambda_k       dR_k = dlambda_k . V
 *
 * with * for a convolution with the table read backwards, and . for a correlation: products of spectra. Two rows k of the
 * table are one complex signal, and so are their lambdas. The lanes are channels of the values, a vector of them at a time.
 *
 * Maps are padded with zeros to lengths l at which windows do not reach round. Their spectra are [j][i], column by column:
 * transforms run along the rows of a map first and along its columns second, and back the other way. */
#include <string.h>

#include "algorithms.h"
#include "fourier.h"
#include "range.h"
#include "rows.h"
#include "spans.h"

/* Elements of a desk that caches may still hold, and how many times slower larger ones are. */
enum { LARGE_DESK = 1 << 24, SLOWER = 3 };

/* Everything that does not change during a call. */
typedef struct {
    const lambda_problem *p;
    transform along[2]; /* the axes of a map */
    int64_t l0, l1, points;
    int64_t pairs;      /* of rows of the table, the last one perhaps alone */
    int64_t chunks;     /* vectors of channels */
    int y_here;         /* can outputs be written, and their gradients be read, where they are? */
    const real *q, *values, *table, *lc, *dy;
    real *y, *dq, *dvalues;
    real *norms;        /* of the values, see rows.h */
    real *spectra;      /* of the table, [pair][u][j][i][2], over the number of points */
    table_range *ranges; /* of the parts of the table, see below */
    table_range range;   /* of all of it */
    /* With a limit to the dynamic range: examples left out, windows that are all zeros and, backward, context positions
     * that no gradient reaches; and whether an example has any of these, 1 and 2. */
    double limit;
    unsigned char *left, *blank, *unreached, *has_blank;
} job;

/* Dot products over the lanes, gathered until a vector of them is full, which is added to where they belong. */
typedef struct {
    vec waiting[LANES_AT_MOST];
    int64_t n;
    real *to;
} dots;

/* What one thread works with. */
typedef struct {
    number *x, *room, *other_room;
    number *seen;     /* the spectra of the values, [u][j][i] */
    number *dseen;    /* and of their gradients */
    number *map;      /* of lambdas of two k, or of something else: [i][j] */
    real *q, *dq;     /* of an image, [pair][n][h][2] */
    real *row;        /* of queries as they come, [h][k] */
    real *y;          /* or its gradient: [n][h][lanes] */
    vec *lc;          /* the content lambda of a chunk, [2 pairs] */
    vec *dlc;
    dots *waiting;    /* for every u */
    real *dspectra;   /* of the table, summed */
    real *values;     /* of a position, of one u */
    double *energies, *windows, *gradients, *reached, *sums; /* for the dynamic range */
} desk;

/* A length that windows do not reach round: they see as many positions before the first and after the last query. */
static int64_t padded_length(const lambda_problem *p, int axis) {
    const int64_t n = p->queries[axis], m = p->context[axis], before = p->scope[axis] / 2;
    const int64_t after = LARGER(0, p->scope[axis] - 1 - before);
    return quick_length(LARGER(m + SMALLER(before, n - 1), n + SMALLER(after, m - 1)));
}

/* Where on an axis of the signal an offset of the window lies, or -1 if no query sees anything there. */
static int64_t place_of(const lambda_problem *p, int axis, int64_t offset, int64_t length) {
    const int64_t away = offset - p->scope[axis] / 2;
    if (away >= p->context[axis] || -away >= p->queries[axis]) return -1;
    return away > 0 ? length - away : -away;
}

static int64_t dots_of(const job *t) { return ROUND_UP(t->p->queries[1] * t->p->h * 2, LANES); }

static int64_t queries_of(const job *t) { return t->pairs * t->p->queries[0] * dots_of(t); }

/* The spectrum of a pair of rows of the table, and the padding that dot products need. */
static int64_t spectrum_of(const job *t) { return ROUND_UP(2 * t->points, LANES); }

static int64_t outputs_of(const job *t) { return t->p->queries[0] * t->p->queries[1] * t->p->h * LANES; }

static int64_t lay_out(const job *t, int backward, real *memory, desk *d) {
    const lambda_problem *p = t->p;
    const int64_t line = 2 * LANES, most = LARGER(t->l0, t->l1) * line;
    const int64_t n = p->queries[0] * p->queries[1], m = p->context[0] * p->context[1];
    const viewing seeing = queries_of_context(p), seen_by = context_of_queries(p);
    const int64_t each = sizeof(double) / sizeof(real), both = t->left && backward ? each : 0;
    const int64_t one = t->left ? each : 0, sums_room = LARGER(windows_room(&seeing), windows_room(&seen_by));
    real *x, *room, *other_room, *seen, *dseen, *map, *lc, *dlc, *waiting, *energies, *windows, *gradients, *reached, *sums;
    const placed parts[] = {{&x, most},
                            {&room, most},
                            {&other_room, most},
                            {&seen, p->u * t->points * line},
                            {&dseen, backward ? p->u * t->points * line : 0},
                            {&map, t->points * line},
                            {&d->q, queries_of(t)},
                            {&d->dq, backward ? queries_of(t) : 0},
                            {&d->row, p->h * p->k},
                            {&d->y, t->y_here ? 0 : outputs_of(t)},
                            {&lc, 2 * t->pairs * LANES},
                            {&dlc, backward ? 2 * t->pairs * LANES : 0},
                            {&waiting, backward ? p->u * (int64_t)(sizeof(dots) / sizeof(real)) : 0},
                            {&d->dspectra, backward ? t->pairs * p->u * spectrum_of(t) : 0},
                            {&d->values, LARGER(p->v, p->h * p->k)},
                            {&energies, one * m},
                            {&windows, one * n},
                            {&gradients, both * n},
                            {&reached, both * m},
                            {&sums, one * sums_room}};
    const int64_t size = place(parts, sizeof parts / sizeof *parts, memory);
    d->x = (number *)x;
    d->room = (number *)room;
    d->other_room = (number *)other_room;
    d->seen = (number *)seen;
    d->dseen = (number *)dseen;
    d->map = (number *)map;
    d->lc = (vec *)lc;
    d->dlc = (vec *)dlc;
    d->waiting = (dots *)waiting;
    d->energies = (double *)energies;
    d->windows = (double *)windows;
    d->gradients = (double *)gradients;
    d->reached = (double *)reached;
    d->sums = (double *)sums;
    return size;
}

static void measure(job *t, const lambda_problem *p) {
    t->p = p;
    t->l0 = padded_length(p, 0);
    t->l1 = padded_length(p, 1);
    t->points = t->l0 * t->l1;
    t->pairs = (p->k + 1) / 2;
    t->chunks = (p->v + LANES - 1) / LANES;
    t->y_here = p->y[3] == 1 && p->v % LANES == 0;
}

static int64_t parts_of(const job *t) { return (t->pairs + LANES - 1) / LANES * t->p->u; }

static int prepare(job *t, const lambda_problem *p) {
    const int64_t n = p->queries[0] * p->queries[1], m = p->context[0] * p->context[1];
    measure(t, p);
    t->norms = make_value_norms(p);
    t->spectra = aligned(t->pairs * p->u * t->points * 2);
    t->ranges = malloc(sizeof *t->ranges * (size_t)parts_of(t));
    t->blank = t->left ? malloc((size_t)(p->b * (n + m + 1))) : NULL;
    t->unreached = t->blank ? t->blank + p->b * n : NULL;
    t->has_blank = t->blank ? t->unreached + p->b * m : NULL;
    return make_transform(&t->along[0], t->l0) && make_transform(&t->along[1], t->l1) && t->spectra && t->ranges &&
           (t->blank || !t->left) && (t->norms || !p->norm);
}

static void clear(job *t) {
    free(t->norms);
    free(t->spectra);
    free(t->ranges);
    free(t->blank);
    free(t->along[0].turns);
    free(t->along[1].turns);
}

/* A row of a map becomes its spectrum. */
static void along_row(const job *t, desk *d, const number *x, number *out, int64_t end) {
    fourier(&t->along[1], x, d->room, d->other_room, out, 1, end);
}

static void along_column(const job *t, desk *d, const number *x, number *out, int64_t each, int64_t end) {
    fourier(&t->along[0], x, d->room, d->other_room, out, each, end);
}

/* Column j of the map, whose first rows are there and whose other ones are zero, becomes its spectrum. */
static void column_of_rows(const job *t, desk *d, int64_t rows, int64_t j, number *out) {
    for (int64_t i = 0; i < rows; i++) d->x[i] = d->map[i * t->l1 + j];
    for (int64_t i = rows; i < t->l0; i++) d->x[i] = (number){0};
    along_column(t, d, d->x, out, 1, t->l0);
}

ALWAYS_INLINE number swapped(number a) { return (number){a.im, a.re}; }

/* A spectrum becomes the first rows of the map but for the transform along them, and with its parts swapped. */
static void columns_back(const job *t, desk *d, const number *spectrum, int64_t rows) {
    for (int64_t j = 0; j < t->l1; j++) {
        for (int64_t i = 0; i < t->l0; i++) d->x[i] = swapped(spectrum[j * t->l0 + i]);
        along_column(t, d, d->x, d->map + j, t->l1, rows);
    }
}

/* A part of the table, whose pairs of rows are lanes here: `pairs` of them from `first` on, `rows` rows, of one u. */
typedef struct {
    int64_t u, first, pairs, rows;
} part;

static part part_of(const job *t, int64_t number) {
    const int64_t first = number / t->p->u * LANES, pairs = SMALLER(LANES, t->pairs - first);
    return (part){number % t->p->u, first, pairs, SMALLER(2 * pairs, t->p->k - 2 * first)};
}

/* Where in the map an offset of the window lies, or NULL if no query sees anything there. */
static real *at_offset(const job *t, const desk *d, int64_t o) {
    const lambda_problem *p = t->p;
    const int64_t i = place_of(p, 0, o / p->scope[1], t->l0), j = place_of(p, 1, o % p->scope[1], t->l1);
    return i < 0 || j < 0 ? NULL : (real *)&d->map[i * t->l1 + j];
}

/* The spectra of the table, and the largest of their squares. */
static void transform_table(job *t, desk *d) {
    const lambda_problem *p = t->p;
    const real scale = (real)1 / (real)t->points;
#pragma omp for schedule(static)
    for (int64_t z = 0; z < parts_of(t); z++) {
        const part of = part_of(t, z);
        table_range range = {0};
        vec peak = {0};
        memset(d->map, 0, sizeof(number) * t->points);
        for (int64_t o = 0; o < p->scope[0] * p->scope[1]; o++) {
            real *to = at_offset(t, d, o);
            for (int64_t c = 0; to && c < of.rows; c++) {
                const real r = t->table[(o * p->k + 2 * of.first + c) * p->u + of.u];
                range.energy += (double)r * (double)r;
                to[c % 2 * LANES + c / 2] = scale * r;
            }
        }
        for (int64_t i = 0; i < t->l0; i++) {
            memcpy(d->x, d->map + i * t->l1, sizeof(number) * t->l1);
            along_row(t, d, d->x, d->map + i * t->l1, t->l1);
        }
        for (int64_t j = 0; j < t->l1; j++) {
            column_of_rows(t, d, t->l0, j, d->seen);
            for (int64_t i = 0; i < t->l0; i++) {
                const vec square = d->seen[i].re * d->seen[i].re + d->seen[i].im * d->seen[i].im;
                for (int64_t c = 0; c < LANES; c++) peak[c] = square[c] > peak[c] ? square[c] : peak[c];
            }
            for (int64_t c = 0; c < of.pairs; c++) {
                real *to = t->spectra + (((of.first + c) * p->u + of.u) * t->points + j * t->l0) * 2;
                for (int64_t i = 0; i < t->l0; i++) {
                    to[2 * i] = d->seen[i].re[c];
                    to[2 * i + 1] = d->seen[i].im[c];
                }
            }
        }
        for (int64_t c = 0; c < of.pairs; c++) range.gain += (double)peak[c] * (double)t->points * (double)t->points;
        t->ranges[z] = range;
    }
#pragma omp single
    {
        for (int64_t z = 0; z < parts_of(t); z++) {
            t->range.energy += t->ranges[z].energy;
            t->range.gain += t->ranges[z].gain;
        }
        t->range.gain = t->range.energy == 0 ? 0 : t->range.gain / t->range.energy;
    }
}

static void fetch_query(const job *t, int64_t example, int64_t n, real *row) {
    const lambda_problem *p = t->p;
    const real *from = t->q + example * p->q[0] + n * p->q[1];
    for (int64_t h = 0; h < p->h; h++) copy_row(row + h * p->k, from + h * p->q[2], p->k, p->q[3]);
    normalise_row(row, p->h * p->k, query_norm(p));
}

/* The energies of the values of an example. */
static void value_energies(const job *t, desk *d, int64_t example) {
    const lambda_problem *p = t->p;
    const int here = p->values[2] == 1 && !t->norms;
    for (int64_t at = 0; at < p->context[0] * p->context[1]; at++) {
        const real *from = t->values + example * p->values[0] + at * p->values[1];
        d->energies[at] = 0;
        for (int64_t u = 0; u < p->u; u++, from += p->values[3]) {
            if (!here) {
                copy_row(d->values, from, p->v, p->values[2]);
                normalise_row(d->values, p->v, value_norm(p, t->norms, u));
            }
            d->energies[at] += row_energy(here ? from : d->values, p->v);
        }
    }
}

/* The energies of dlambda[n] = sum_h q[n,h] dy[n,h], as if its heads were orthogonal. */
static void gradient_energies(const job *t, desk *d, int64_t example) {
    const lambda_problem *p = t->p;
    const int q_here = p->q[3] == 1 && !p->norm, here = p->y[3] == 1;
    for (int64_t at = 0; at < p->queries[0] * p->queries[1]; at++) {
        const real *q = q_here ? t->q + example * p->q[0] + at * p->q[1] : d->row;
        const real *dy = t->dy + example * p->y[0] + at * p->y[1];
        if (!q_here) fetch_query(t, example, at, d->row);
        d->gradients[at] = 0;
        for (int64_t h = 0; h < p->h; h++, dy += p->y[2], q += q_here ? p->q[2] : p->k) {
            if (!here) copy_row(d->values, dy, p->v, p->y[3]);
            const double of_dy = row_energy(here ? dy : d->values, p->v), of_q = row_energy(q, p->k);
            d->gradients[at] += of_dy > 0 && of_q > 0 ? fmax(of_dy * of_q, DBL_MIN) : of_dy * of_q;
        }
    }
}

/* Which examples are left to others: shared among the threads. */
static void measure_examples(const job *t, desk *d) {
    const lambda_problem *p = t->p;
    const int64_t n = p->queries[0] * p->queries[1], m = p->context[0] * p->context[1];
    const viewing seeing = queries_of_context(p), seen_by = context_of_queries(p);
    const double points = (double)t->points, fewest = fewest_seen(&seeing), fewest_back = fewest_seen(&seen_by);
#pragma omp for schedule(static)
    for (int64_t example = 0; example < p->b; example++) {
        value_energies(t, d, example);
        loudness v = measure_positions(d->energies, m, fewest), g = {0};
        int fits = in_range(v, t->range, points, t->limit) && v.energy > 0;
        if (!fits) {
            windows_of(&seeing, d->energies, d->windows, d->sums);
            v = measure_windows(d->energies, m, d->windows, n, t->blank + example * n);
            fits = in_range(v, t->range, points, t->limit);
        }
        if (fits && t->dy) {
            gradient_energies(t, d, example);
            g = measure_positions(d->gradients, n, fewest_back);
            fits = in_range(g, t->range, points, t->limit) && g.energy > 0 && !v.blank;
            if (!fits) {
                windows_of(&seen_by, d->gradients, d->reached, d->sums);
                g = measure_windows(d->gradients, n, d->reached, m, t->unreached + example * m);
                fits = in_range(g, t->range, points, t->limit);
            }
            double seen = 0;
            for (int64_t i = 0; v.blank && i < n; i++) seen += sqrt(d->gradients[i] * d->windows[i]);
            fits = fits && (!v.blank || table_in_range(v, g, seen, points, t->limit));
        }
        t->left[example] = !fits;
        t->has_blank[example] = (unsigned char)(v.blank | g.blank << 1);
    }
}

/* What is exactly zero, since there was nothing but zeros to add up: in a row of a map, by its flags. */
static void hide(number *row, const unsigned char *flags, int64_t n) {
    for (int64_t j = 0; j < n; j++)
        if (flags[j]) row[j] = (number){0};
}

static const unsigned char *blank_row(const job *t, int64_t example, int64_t i) {
    const int64_t *n = t->p->queries;
    return t->left && t->has_blank[example] & 1 ? t->blank + (example * n[0] + i) * n[1] : NULL;
}

static const unsigned char *unreached_row(const job *t, int64_t example, int64_t i) {
    const int64_t *m = t->p->context;
    return t->left && t->has_blank[example] & 2 ? t->unreached + (example * m[0] + i) * m[1] : NULL;
}

/* The spectra of a chunk of the values of an image. */
static void transform_values(const job *t, desk *d, int64_t example, int64_t chunk) {
    const lambda_problem *p = t->p;
    const int64_t first = chunk * LANES, channels = SMALLER(LANES, p->v - first);
    const int whole = channels == LANES && p->values[2] == 1;
    for (int64_t u = 0; u < p->u; u++) {
        const row_norm norm = value_norm(p, t->norms, u);
        vec mean = {0}, scale = {0}, shift = {0};
        if (norm.mean) {
            memcpy(&mean, norm.mean + first, sizeof(real) * channels);
            memcpy(&scale, norm.scale + first, sizeof(real) * channels);
            memcpy(&shift, norm.shift + first, sizeof(real) * channels);
        }
        memset(d->x, 0, sizeof(number) * t->l1);
        for (int64_t i = 0; i < p->context[0]; i++) {
            const real *from = t->values + example * p->values[0] + i * p->context[1] * p->values[1] +
                               first * p->values[2] + u * p->values[3];
            for (int64_t j = 0; j < p->context[1]; j++, from += p->values[1]) {
                vec *to = &d->x[j].re;
                if (whole)
                    *to = LOAD(from);
                else
                    copy_row((real *)to, from, channels, p->values[2]);
                if (norm.mean) *to = (*to - mean) * scale + shift;
            }
            along_row(t, d, d->x, d->map + i * t->l1, t->l1);
        }
        for (int64_t j = 0; j < t->l1; j++)
            column_of_rows(t, d, p->context[0], j, d->seen + u * t->points + j * t->l0);
    }
}

/* The queries of an image by pairs of rows of the table, normalised if they come as they were projected. */
static void fetch_queries(const job *t, desk *d, int64_t example) {
    const lambda_problem *p = t->p;
    const int64_t image = p->queries[0] * dots_of(t);
    real *row = d->row;
    for (int64_t i = 0; i < p->queries[0]; i++)
        for (int64_t j = 0; j < p->queries[1]; j++) {
            fetch_query(t, example, i * p->queries[1] + j, row);
            for (int64_t h = 0; h < p->h; h++)
                for (int64_t k = 0; k < p->k; k++)
                    d->q[k / 2 * image + i * dots_of(t) + (j * p->h + h) * 2 + k % 2] = row[h * p->k + k];
        }
}

/* Of a chunk, in vectors; zero without content. */
static void load_content_lambda(const job *t, desk *d, int64_t example, int64_t chunk) {
    const lambda_problem *p = t->p;
    memset(d->lc, 0, sizeof(vec) * 2 * t->pairs);
    if (!t->lc) return;
    const int64_t first = chunk * LANES, channels = SMALLER(LANES, p->v - first);
    for (int64_t k = 0; k < p->k; k++)
        memcpy(&d->lc[k], t->lc + (example * p->k + k) * p->v + first, sizeof(real) * channels);
}

/* Outputs of a chunk, or their gradients: where the caller has them, or on the desk. */
typedef struct {
    real *first;
    int64_t n, h; /* distances */
} operand;

static operand outputs(const job *t, const desk *d, const real *of, int64_t example, int64_t chunk) {
    const lambda_problem *p = t->p;
    if (!t->y_here) return (operand){d->y, p->h * LANES, LANES};
    return (operand){(real *)of + example * p->y[0] + chunk * LANES, p->y[1], p->y[2]};
}

/* Between the caller's memory and the desk's. */
static real *callers(const job *t, const real *of, int64_t example, int64_t chunk, int64_t row) {
    const int64_t *strides = t->p->y, h = t->p->h;
    return (real *)of + example * strides[0] + row / h * strides[1] + row % h * strides[2] + chunk * LANES * strides[3];
}

static void fetch(const job *t, desk *d, int64_t example, int64_t chunk) {
    const lambda_problem *p = t->p;
    const int64_t channels = SMALLER(LANES, p->v - chunk * LANES);
    memset(d->y, 0, sizeof(real) * outputs_of(t));
    for (int64_t row = 0; row < p->queries[0] * p->queries[1] * p->h; row++)
        copy_row(d->y + row * LANES, callers(t, t->dy, example, chunk, row), channels, p->y[3]);
}

static void deliver(const job *t, desk *d, int64_t example, int64_t chunk) {
    const lambda_problem *p = t->p;
    const int64_t channels = SMALLER(LANES, p->v - chunk * LANES);
    for (int64_t row = 0; row < p->queries[0] * p->queries[1] * p->h; row++)
        spread_row(callers(t, t->y, example, chunk, row), d->y + row * LANES, channels, p->y[3]);
}

/* The lambdas of a pair of rows of the table, but for the transform along their rows, and with their parts swapped. */
static void make_lambdas(const job *t, desk *d, int64_t pair) {
    const lambda_problem *p = t->p;
    for (int64_t j = 0; j < t->l1; j++) {
        for (int64_t u = 0; u < p->u; u++) {
            const real *r = t->spectra + ((pair * p->u + u) * t->points + j * t->l0) * 2;
            const number *s = d->seen + u * t->points + j * t->l0;
            for (int64_t i = 0; i < t->l0; i++, r += 2) {
                const number l = swapped(times(s[i], r));
                d->x[i] = u ? plus(d->x[i], l) : l;
            }
        }
        along_column(t, d, d->x, d->map + j, t->l1, p->queries[0]);
    }
}

/* y += q lambda for a row of queries and two k. */
static void answer_row(const job *t, const real *q, const number *lambdas, const vec *lc, real *y, operand o, int first) {
    const int64_t h = t->p->h;
    for (int64_t j = 0; j < t->p->queries[1]; j++, y += o.n) {
        const vec one = lambdas[j].im + lc[0], two = lambdas[j].re + lc[1]; /* their parts are swapped */
        for (int64_t z = 0; z < h; z++, q += 2) {
            vec sum = one * q[0] + two * q[1];
            if (!first) sum += LOAD(y + z * o.h);
            STORE(y + z * o.h) = sum;
        }
    }
}

static void forward_unit(const job *t, desk *d, int64_t example, int64_t chunk) {
    const lambda_problem *p = t->p;
    const operand y = outputs(t, d, t->y, example, chunk);
    transform_values(t, d, example, chunk);
    load_content_lambda(t, d, example, chunk);
    for (int64_t pair = 0; pair < t->pairs; pair++) {
        make_lambdas(t, d, pair);
        for (int64_t i = 0; i < p->queries[0]; i++) {
            along_row(t, d, d->map + i * t->l1, d->x, p->queries[1]);
            if (blank_row(t, example, i)) hide(d->x, blank_row(t, example, i), p->queries[1]);
            answer_row(t, d->q + (pair * p->queries[0] + i) * dots_of(t), d->x, d->lc + 2 * pair,
                       y.first + i * p->queries[1] * y.n, y, pair == 0);
        }
    }
    if (!t->y_here) deliver(t, d, example, chunk);
}

int NAME(fft_forward) LAMBDA_FFT_FORWARD(real) {
    job t = {.q = q, .values = values, .table = table, .lc = lc, .y = y, .limit = limit, .left = left};
    desk sizes;
    int failed = !prepare(&t, p);
    const int64_t desk_size = lay_out(&t, 0, NULL, &sizes);
    real *memory = aligned(desk_size * p->threads);
    failed |= !memory;
    if (!failed) {
#pragma omp parallel num_threads((int)p->threads)
        {
            desk d = {0};
            lay_out(&t, 0, memory + desk_size * omp_get_thread_num(), &d);
            int64_t at = -1;
            memset(d.q, 0, sizeof(real) * queries_of(&t)); /* without an even number of k the last has no second */
            transform_table(&t, &d);
            if (left) measure_examples(&t, &d);
#pragma omp for schedule(dynamic)
            for (int64_t unit = 0; unit < p->b * t.chunks; unit++) {
                const int64_t example = unit / t.chunks;
                if (left && left[example]) continue;
                if (example != at) fetch_queries(&t, &d, at = example);
                forward_unit(&t, &d, example, unit % t.chunks);
            }
        }
    }
    clear(&t);
    free(memory);
    return failed ? LAMBDA_NO_MEMORY : LAMBDA_OK;
}

ALWAYS_INLINE void add_dot(dots *s, vec product) {
    s->waiting[s->n++] = product;
    if (s->n < LANES) return;
    STORE(s->to) = LOAD(s->to) + sums_of_lanes(s->waiting);
    s->to += LANES;
    s->n = 0;
}

/* What is left; the room behind it is the padding of a row. */
static void finish_dots(dots *s) {
    while (s->n) add_dot(s, (vec){0});
}

/* dq += g' lambda for a row of queries and two k, and in the place of lambda comes dlambda = sum_h q g. */
static void ask_row(const job *t, const real *q, number *lambdas, const vec *lc, const real *g, operand o, real *dq,
                    vec *dlc) {
    dots s = {.to = dq};
    number sum = {dlc[0], dlc[1]};
    for (int64_t j = 0; j < t->p->queries[1]; j++, g += o.n) {
        const vec one = lambdas[j].im + lc[0], two = lambdas[j].re + lc[1]; /* their parts are swapped */
        number d = {0};
        for (int64_t z = 0; z < t->p->h; z++, q += 2) {
            const vec from = LOAD(g + z * o.h);
            add_dot(&s, one * from);
            add_dot(&s, two * from);
            d.re += q[0] * from;
            d.im += q[1] * from;
        }
        sum = plus(sum, d);
        lambdas[j] = d;
    }
    finish_dots(&s);
    dlc[0] = sum.re;
    dlc[1] = sum.im;
}

/* What a pair of rows of the table adds to the spectra of the gradients, of the values and of its own. */
static void add_spectra(const job *t, desk *d, int64_t pair) {
    const lambda_problem *p = t->p;
    for (int64_t u = 0; u < p->u; u++) d->waiting[u] = (dots){.to = d->dspectra + (pair * p->u + u) * spectrum_of(t)};
    for (int64_t j = 0; j < t->l1; j++) {
        column_of_rows(t, d, p->queries[0], j, d->x);
        for (int64_t u = 0; u < p->u; u++) {
            const real *r = t->spectra + ((pair * p->u + u) * t->points + j * t->l0) * 2;
            const number *seen = d->seen + u * t->points + j * t->l0;
            number *dseen = d->dseen + u * t->points + j * t->l0;
            dots *s = &d->waiting[u];
            for (int64_t i = 0; i < t->l0; i++, r += 2) {
                const number z = d->x[i], v = seen[i];
                dseen[i].re += z.re * r[0] + z.im * r[1];
                dseen[i].im += z.im * r[0] - z.re * r[1];
                add_dot(s, z.re * v.re + z.im * v.im);
                add_dot(s, z.im * v.re - z.re * v.im);
            }
        }
    }
    for (int64_t u = 0; u < p->u; u++) finish_dots(&d->waiting[u]);
}

/* The gradient of a chunk of the values of an image, from its spectrum. */
static void values_back(const job *t, desk *d, int64_t example, int64_t chunk) {
    const lambda_problem *p = t->p;
    const int64_t first = chunk * LANES, channels = SMALLER(LANES, p->v - first);
    for (int64_t u = 0; u < p->u; u++) {
        columns_back(t, d, d->dseen + u * t->points, p->context[0]);
        for (int64_t i = 0; i < p->context[0]; i++) {
            along_row(t, d, d->map + i * t->l1, d->x, p->context[1]);
            if (unreached_row(t, example, i)) hide(d->x, unreached_row(t, example, i), p->context[1]);
            real *to = t->dvalues + example * p->dvalues[0] + i * p->context[1] * p->dvalues[1] +
                       first * p->dvalues[2] + u * p->dvalues[3];
            for (int64_t j = 0; j < p->context[1]; j++, to += p->dvalues[1])
                spread_row(to, (const real *)&d->x[j].im, channels, p->dvalues[2]);
        }
    }
}

static void queries_back(const job *t, desk *d, int64_t example) {
    const lambda_problem *p = t->p;
    const int64_t image = p->queries[0] * dots_of(t);
    for (int64_t i = 0; i < p->queries[0]; i++)
        for (int64_t j = 0; j < p->queries[1]; j++)
            for (int64_t h = 0; h < p->h; h++) {
                const real *from = d->dq + i * dots_of(t) + (j * p->h + h) * 2;
                real *to = t->dq + example * p->dq[0] + (i * p->queries[1] + j) * p->dq[1] + h * p->dq[2];
                for (int64_t k = 0; k < p->k; k++) to[k * p->dq[3]] = from[k / 2 * image + k % 2];
            }
}

static void backward_unit(const job *t, desk *d, int64_t example, int64_t chunk, real *dlc) {
    const lambda_problem *p = t->p;
    const operand g = outputs(t, d, t->dy, example, chunk);
    if (!t->y_here) fetch(t, d, example, chunk);
    transform_values(t, d, example, chunk);
    load_content_lambda(t, d, example, chunk);
    memset(d->dlc, 0, sizeof(vec) * 2 * t->pairs);
    memset(d->dseen, 0, sizeof(number) * p->u * t->points);
    for (int64_t pair = 0; pair < t->pairs; pair++) {
        make_lambdas(t, d, pair);
        for (int64_t i = 0; i < p->queries[0]; i++) {
            number *row = d->map + i * t->l1;
            const int64_t queries = (pair * p->queries[0] + i) * dots_of(t);
            along_row(t, d, row, d->x, p->queries[1]);
            if (blank_row(t, example, i)) hide(d->x, blank_row(t, example, i), p->queries[1]);
            ask_row(t, d->q + queries, d->x, d->lc + 2 * pair, g.first + i * p->queries[1] * g.n, g, d->dq + queries,
                    d->dlc + 2 * pair);
            memset(d->x + p->queries[1], 0, sizeof(number) * (t->l1 - p->queries[1]));
            along_row(t, d, d->x, row, t->l1);
        }
        add_spectra(t, d, pair);
    }
    values_back(t, d, example, chunk);
    const int64_t first = chunk * LANES, channels = SMALLER(LANES, p->v - first);
    for (int64_t k = 0; dlc && k < p->k; k++)
        memcpy(dlc + (example * p->k + k) * p->v + first, &d->dlc[k], sizeof(real) * channels);
}

/* The gradient of the table from the sum of the threads' spectra. */
static void table_back(const job *t, desk *d, const real *spectra, real *dtable) {
    const lambda_problem *p = t->p;
    const real scale = (real)1 / (real)t->points;
#pragma omp for schedule(static)
    for (int64_t z = 0; z < parts_of(t); z++) {
        const part of = part_of(t, z);
        memset(d->seen, 0, sizeof(number) * t->points);
        for (int64_t c = 0; c < of.pairs; c++) {
            const real *from = spectra + ((of.first + c) * p->u + of.u) * spectrum_of(t);
            for (int64_t f = 0; f < t->points; f++) {
                d->seen[f].re[c] = from[2 * f];
                d->seen[f].im[c] = from[2 * f + 1];
            }
        }
        columns_back(t, d, d->seen, t->l0);
        for (int64_t i = 0; i < t->l0; i++) {
            along_row(t, d, d->map + i * t->l1, d->x, t->l1);
            memcpy(d->map + i * t->l1, d->x, sizeof(number) * t->l1);
        }
        for (int64_t o = 0; o < p->scope[0] * p->scope[1]; o++) {
            const real *from = at_offset(t, d, o);
            for (int64_t c = 0; c < of.rows; c++) /* real and imaginary parts are swapped */
                dtable[(o * p->k + 2 * of.first + c) * p->u + of.u] = from ? scale * from[(1 - c % 2) * LANES + c / 2] : 0;
        }
    }
}

int NAME(fft_backward) LAMBDA_FFT_BACKWARD(real) {
    job t = {.q = q,   .values = values, .table = table,     .lc = lc,       .dy = dy,
             .dq = dq, .dvalues = dvalues, .limit = limit, .left = left};
    desk sizes;
    int failed = !prepare(&t, p);
    const int64_t desk_size = lay_out(&t, 1, NULL, &sizes), spectra = t.pairs * p->u * spectrum_of(&t);
    real *memory = aligned(desk_size * p->threads);
    failed |= !memory;
    if (!failed) {
#pragma omp parallel num_threads((int)p->threads)
        {
            desk d = {0};
            lay_out(&t, 1, memory + desk_size * omp_get_thread_num(), &d);
            memset(d.dspectra, 0, sizeof(real) * spectra);
            memset(d.q, 0, sizeof(real) * queries_of(&t)); /* without an even number of k the last has no second */
            transform_table(&t, &d);
            if (left) measure_examples(&t, &d);
            /* A fixed share of the work for each thread: sums keep their order from run to run. */
#pragma omp for schedule(static)
            for (int64_t example = 0; example < p->b; example++) {
                if (left && left[example]) continue;
                fetch_queries(&t, &d, example);
                memset(d.dq, 0, sizeof(real) * queries_of(&t));
                for (int64_t chunk = 0; chunk < t.chunks; chunk++) backward_unit(&t, &d, example, chunk, lc ? dlc : NULL);
                queries_back(&t, &d, example);
            }
            desk other;
            lay_out(&t, 1, memory, &other);
            real *sum = other.dspectra;
#pragma omp for schedule(static)
            for (int64_t at = 0; at < spectra; at += spectrum_of(&t))
                for (int64_t thread = 1; thread < omp_get_num_threads(); thread++) {
                    lay_out(&t, 1, memory + desk_size * thread, &other);
                    add_row(sum + at, other.dspectra + at, spectrum_of(&t));
                }
            table_back(&t, &d, sum, dtable);
        }
    }
    clear(&t);
    free(memory);
    return failed ? LAMBDA_NO_MEMORY : LAMBDA_OK;
}

/* Operations on vectors for an example, by one of the threads if there are enough examples for all of them. The number of
 * examples does not count otherwise: the same example is computed in the same way, alone or with others. */
double NAME(fft_operations)(const lambda_problem *p, int backward) {
    job t = {0};
    desk d;
    transform f;
    measure(&t, p);
    t.y_here = 0; /* the same cost for every layout */
    const double along_0 = factor(t.l0, &f), along_1 = factor(t.l1, &f), points = (double)t.points;
    const double outputs = (double)(p->queries[0] * p->queries[1] * p->h), u = (double)p->u;
    const double columns = along_0 * (double)t.l1, queries = columns + along_1 * (double)p->queries[0];
    const double values = u * (columns + along_1 * (double)p->context[0]);
    const double table = u * (columns + along_1 * (double)t.l0) * (double)((t.pairs + LANES - 1) / LANES);
    const double pair = backward ? 2 * queries + 18 * u * points + 14 * outputs : queries + 4 * u * points + 4 * outputs;
    const double chunk = (double)t.pairs * pair + (backward ? 2 : 1) * values;
    const int64_t units = backward ? p->b : p->b * t.chunks; /* that threads can share */
    const double busy = (double)SMALLER(units, p->threads), slower = lay_out(&t, backward, NULL, &d) > LARGE_DESK ? SLOWER : 1;
    return slower * (chunk * (double)t.chunks / busy + (backward ? 2 : 1) * table / (double)p->threads);
}

int NAME(fft_possible)(const lambda_problem *p) {
    const int64_t sizes[] = {p->b,         p->h,          p->k,          p->v,        p->u,       p->queries[0],
                             p->queries[1], p->context[0], p->context[1], p->scope[0], p->scope[1]};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < 1) return 0;
    if (p->stride[0] != 1 || p->stride[1] != 1 || p->dilation[0] != 1 || p->dilation[1] != 1) return 0;
    /* A transform mixes all positions: what rounding leaves of the future would be seen in the past. */
    return p->past >= p->scope[0] * p->scope[1];
}
