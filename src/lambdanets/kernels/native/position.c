/* The position term, query first: per query, s = q R over its window, then y = s V; no lambda ever exists.
 * Compiled once for each instruction set and each of float and double; see dispatch.c.
 *
 *   forward    s = q R         y  += s V
 *   backward   s = q R         dV += s' g       ds = g V'       dR += q' ds       dq += ds R'
 *
 * A tile of queries that share a table takes the window in chunks, so that the chunk of the table stays in the nearest
 * cache. Packed layouts give every product its lanes: V as [m][v] for y and dV and as [v][m] for ds, R as [k][offset]
 * for s and dR and as [offset][k] for dq. */
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_thread_num() 0
#define omp_get_num_threads() 1
#endif

#include "lambda.h"
#include "products.h"
#include "windows.h"

enum { TILE_BYTES = 16 << 10, ROWS_AT_MOST = 8, COLUMNS_AT_MOST = 512 };

/* A row of s or ds: a chunk, and room for the ends of its outer vectors. */
#define S_ROW (CHUNK_FORWARD + 2 * LANES)

/* Everything that does not change during a call. */
typedef struct {
    windows w;
    int64_t vp, kp;        /* depths in whole vectors, and how many of these go at once */
    int64_t v_step, k_step;
    int64_t image;         /* elements of a packed map of values */
    int64_t turned;        /* columns of a packed map of values turned round, [v][m] */
    int64_t turned_line;   /* elements of its rows: one vector more, for rows 4 KB apart would crowd one another out */
    int64_t tile;          /* queries at most */
    int64_t rows, columns; /* of queries in a unit of work */
    int64_t column_blocks, units; /* of one image */
    int q_here, y_here, dq_here; /* can queries, outputs and their gradients be read and written where they are? */
    const real *q, *values, *table, *lc, *dy;
    real *y, *dq;
    real *packed;          /* V [b][row][m][vp] */
    real *turned_packed;   /* V' [b][row][v][m] */
    real *by_k;            /* R [k][offset] */
    real *tables;          /* of every class, cut and grouped from it */
    real *by_offset;       /* R [offset][kp] */
} job;

/* What one thread works with. */
typedef struct {
    real *q, *y, *g, *dq;  /* of the queries of a tile: [h][k], [h][vp], [h][vp], [h][kp] */
    real *s, *ds;          /* of a chunk of one query, h rows */
    real *lc, *lc_turned;  /* the content lambda of the image, [k][vp] and, backward, [v][kp] */
    real *dlc, *dv, *dr;   /* sums */
} desk;

static void *aligned(int64_t elements) {
    const size_t bytes = ROUND_UP(sizeof(real) * (size_t)(elements > 0 ? elements : 1), 64);
    return aligned_alloc(64, bytes);
}

/* The parts of a desk lie one behind the other in its memory; without memory, only their size is found. */
static int64_t lay_out(const job *t, real *memory, desk *d) {
    const lambda_problem *p = t->w.p;
    const int64_t rows = t->tile * p->h;
    const struct {
        real **part;
        int64_t elements;
    } parts[] = {{&d->s, p->h * S_ROW},
                 {&d->ds, p->h * S_ROW},
                 {&d->lc, p->k * t->vp},
                 {&d->lc_turned, p->v * t->kp},
                 {&d->q, t->q_here ? 0 : rows * p->k},
                 {&d->y, t->y_here ? 0 : rows * t->vp},
                 {&d->g, t->y_here ? 0 : rows * t->vp},
                 {&d->dq, t->dq_here ? 0 : rows * t->kp}};
    int64_t size = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].part = memory ? memory + size : NULL;
        size += ROUND_UP(parts[i].elements, LANES);
    }
    return ROUND_UP(size, 64);
}

static int prepare(job *t, const lambda_problem *p, int backward) {
    if (make_windows(&t->w, p, backward ? CHUNK_BACKWARD : CHUNK_FORWARD) != LAMBDA_OK) return LAMBDA_NO_MEMORY;
    t->vp = ROUND_UP(p->v, LANES);
    t->kp = ROUND_UP(p->k, LANES);
    t->v_step = evenly(t->vp / LANES, VECTORS);
    t->k_step = evenly(t->kp / LANES, VECTORS);
    t->image = p->context[0] * t->w.width * t->vp;
    t->turned = ROUND_UP(t->w.width, LANES);
    t->turned_line = p->v * t->turned + LANES;
    const int64_t one = (int64_t)sizeof(real) * p->h * (p->k + t->vp) * (backward ? 2 : 1);
    t->tile = LARGER(ROWS_AT_MOST, TILE_BYTES / one);
    /* Enough units for every thread to have a few. */
    const int64_t share = p->b * p->queries[0] / (4 * p->threads);
    t->rows = evenly(LARGER(1, p->queries[0]), LARGER(1, SMALLER(ROWS_AT_MOST, share)));
    t->columns = evenly(LARGER(1, p->queries[1]), COLUMNS_AT_MOST);
    t->column_blocks = (p->queries[1] + t->columns - 1) / t->columns;
    t->units = (p->queries[0] + t->rows - 1) / t->rows * t->column_blocks;
    t->q_here = p->q[3] == 1;
    t->y_here = p->y[3] == 1 && t->vp == p->v;
    t->dq_here = p->dq[3] == 1 && t->kp == p->k;
    return LAMBDA_OK;
}

/* Packing; each is called by all threads and shares its loop among them. */

static void pack_tables(const job *t) {
    const windows *w = &t->w;
    const lambda_problem *p = w->p;
    const int64_t rows = p->scope[0] * p->scope[1];
#pragma omp for schedule(static)
    for (int64_t k = 0; k < p->k; k++) {
        real *by_k = t->by_k + k * rows * p->u;
        for (int64_t o = 0; o < rows; o++)
            for (int64_t u = 0; u < p->u; u++)
                by_k[o * p->u + u] = o < p->past ? t->table[(o * p->k + k) * p->u + u] : 0;
        for (int64_t z = 0; z < w->classes_n; z++) {
            const table_class *c = &w->classes[z];
            if (!c->own) continue;
            for (int64_t group = 0; group < p->scope[0]; group += c->lines) {
                const int64_t lines = SMALLER(c->lines, p->scope[0] - group);
                real *to = t->tables + line_of(c, group) + k * c->k;
                for (int64_t a = 0; a < lines; a++)
                    memcpy(to + a * c->n, by_k + (group + a) * w->scope_u + c->lo, sizeof(real) * c->n);
                for (int64_t o = lines * c->n; o < c->k; o++) to[o] = 0; /* the end of the last vector */
            }
        }
    }
}

static void pack_by_offset(const job *t) {
    const lambda_problem *p = t->w.p;
#pragma omp for schedule(static)
    for (int64_t o = 0; o < p->scope[0] * p->scope[1]; o++)
        for (int64_t u = 0; u < p->u; u++) {
            real *to = t->by_offset + (o * p->u + u) * t->kp;
            for (int64_t k = 0; k < p->k; k++) to[k] = o < p->past ? t->table[(o * p->k + k) * p->u + u] : 0;
            for (int64_t k = p->k; k < t->kp; k++) to[k] = 0;
        }
}

static void pack_values(const job *t) {
    const windows *w = &t->w;
    const lambda_problem *p = w->p;
    const int64_t d = p->dilation[1];
#pragma omp for schedule(static)
    for (int64_t row = 0; row < p->b * p->context[0]; row++) {
        const real *from = t->values + row / p->context[0] * p->values[0] +
                           row % p->context[0] * p->context[1] * p->values[1];
        real *line = t->packed + row * w->width * t->vp;
        for (int64_t m = 0; m < p->context[1]; m++)
            for (int64_t u = 0; u < p->u; u++) {
                real *to = line + ((m % d * w->phase + m / d) * p->u + u) * t->vp;
                const real *v = from + m * p->values[1] + u * p->values[3];
                if (p->values[2] == 1)
                    memcpy(to, v, sizeof(real) * p->v);
                else
                    for (int64_t c = 0; c < p->v; c++) to[c] = v[c * p->values[2]];
                for (int64_t c = p->v; c < t->vp; c++) to[c] = 0;
            }
        if (!t->turned_packed) continue;
        real *turned = t->turned_packed + row * t->turned_line;
        for (int64_t c = 0; c < p->v; c++) {
            for (int64_t m = 0; m < w->width; m++) turned[c * t->turned + m] = line[m * t->vp + c];
            for (int64_t m = w->width; m < t->turned; m++) turned[c * t->turned + m] = 0;
        }
        memset(turned + p->v * t->turned, 0, sizeof(real) * LANES);
    }
}

/* One tile: queries (i, j) of `rows` x `columns`, all of one class. */
typedef struct {
    int64_t example, i, rows, j, columns;
    const table_class *class;
} tile;

/* A chunk of the window of one row of queries: `lines` lines from `line` on, of each `n` columns from `at` on. */
typedef struct {
    int64_t i;
    int64_t line, lines, at, n;
    int64_t table; /* where it begins in the tables, in whole vectors */
    int64_t skip;  /* columns of its first vector that come before it */
    int64_t vectors;
} chunk;

static chunk make_chunk(int64_t table, int64_t i, int64_t line, int64_t lines, int64_t at, int64_t n) {
    const int64_t skip = table & (LANES - 1);
    return (chunk){i, line, lines, at, n, table - skip, skip, (skip + lines * n + LANES - 1) / LANES};
}

typedef void work(const job *, desk *, const tile *, const chunk *);

/* The queries of one row of a tile, h rows of numbers each: where the caller has them, or in the tile. */
typedef struct {
    real *at;
    int64_t row, next;
} queries;

static real *callers(const job *t, const tile *x, const int64_t *strides, const real *of, int64_t i) {
    return (real *)of + x->example * strides[0] + (i * t->w.p->queries[1] + x->j) * strides[1];
}

static queries find(const job *t, const tile *x, int here, const int64_t *strides, const real *of, real *tiles,
                    int64_t row, int64_t i) {
    const int64_t next = t->w.p->h * row;
    if (here) return (queries){callers(t, x, strides, of, i), strides[2], strides[1]};
    return (queries){tiles + (i - x->i) * x->columns * next, row, next};
}

static queries q_of(const job *t, const desk *d, const tile *x, int64_t i) {
    return find(t, x, t->q_here, t->w.p->q, t->q, d->q, t->w.p->k, i);
}

static queries y_of(const job *t, const desk *d, const tile *x, int64_t i) {
    return find(t, x, t->y_here, t->w.p->y, t->y, d->y, t->vp, i);
}

static queries dy_of(const job *t, const desk *d, const tile *x, int64_t i) {
    return find(t, x, t->y_here, t->w.p->y, t->dy, d->g, t->vp, i);
}

static queries dq_of(const job *t, const desk *d, const tile *x, int64_t i) {
    return find(t, x, t->dq_here, t->w.p->dq, t->dq, d->dq, t->kp, i);
}

/* All chunks of a tile's windows; each chunk goes through all queries before the next. */
static void over_chunks(const job *t, desk *d, const tile *x, work *with) {
    const windows *w = &t->w;
    const lambda_problem *p = w->p;
    const table_class *z = x->class;
    span lines[ROWS_AT_MOST];
    int64_t first = p->scope[0], last = 0;
    for (int64_t i = 0; i < x->rows; i++) {
        lines[i] = visible((x->i + i) * p->stride[0], p->context[0], p->scope[0], p->dilation[0]);
        first = SMALLER(first, lines[i].first);
        last = LARGER(last, lines[i].last);
    }
    const int64_t step = z->n == z->line ? z->lines : 1, whole = w->whole_lines;
    const int64_t piece = z->n > w->chunk ? ROUND_UP(evenly(z->n, w->chunk), LANES) : z->n;
    for (int64_t a = first / step * step; a < SMALLER(last, whole); a += step) {
        const int64_t table = line_of(z, a);
        for (int64_t at = 0; at < z->n; at += piece)
            for (int64_t i = 0; i < x->rows; i++) {
                const int64_t from = LARGER(a, lines[i].first), to = SMALLER(a + step, SMALLER(lines[i].last, whole));
                if (from >= to) continue;
                const chunk c = make_chunk(table + (from - a) * z->line + at, x->i + i, from, to - from, at,
                                           SMALLER(piece, z->n - at));
                with(t, d, x, &c);
            }
    }
    /* The line of the window that ends in the middle, if causal. */
    const int64_t end = SMALLER(w->partial - z->lo, z->n);
    for (int64_t at = 0; at < end; at += piece)
        for (int64_t i = 0; i < x->rows; i++) {
            if (lines[i].first > whole || lines[i].last <= whole) continue;
            const chunk c = make_chunk(line_of(z, whole) + at, x->i + i, whole, 1, at, SMALLER(piece, end - at));
            with(t, d, x, &c);
        }
}

/* The scores s = q R of a chunk, for queries still to be named. */
static product scores(const job *t, const desk *d, const tile *x, const chunk *c) {
    return (product){.c = d->s, .c_row = S_ROW, .c_at = &consecutive, .b = t->tables + c->table, .b_i = x->class->k,
                     .b_at = &consecutive, .groups = 1, .n = t->w.p->k, .rows = t->w.p->h, .vectors = c->vectors,
                     .step = evenly(c->vectors, VECTORS)};
}

/* The element of a packed map with such lines and elements where a chunk begins, but for the start of its column. */
static int64_t corner(const job *t, const chunk *c, int64_t line, int64_t element) {
    const lambda_problem *p = t->w.p;
    return (c->i * p->stride[0] + p->dilation[0] * (c->line - p->scope[0] / 2)) * line + c->at * element;
}

static void forward_chunk(const job *t, desk *d, const tile *x, const chunk *c) {
    const lambda_problem *p = t->w.p;
    const int64_t line = t->w.width * t->vp;
    const queries q = q_of(t, d, x, c->i), o = y_of(t, d, x, c->i);
    const real *values = t->packed + x->example * t->image + corner(t, c, line, t->vp);
    product s = scores(t, d, x, c);
    product y = {.c_row = o.row, .c_at = &consecutive, .a = d->s + c->skip, .a_row = S_ROW, .a_group = c->n,
                 .b_group = p->dilation[0] * line, .b_i = t->vp, .b_at = &consecutive, .groups = c->lines, .n = c->n,
                 .accumulate = 1, .rows = p->h, .vectors = t->vp / LANES, .step = t->v_step};
    s.a_row = q.row;
    for (int64_t j = 0; j < x->columns; j++) {
        s.a = q.at + j * q.next;
        multiply(&s);
        y.b = values + t->w.columns[x->j + j].start * t->vp;
        y.c = o.at + j * o.next;
        multiply(&y);
    }
}

static void backward_chunk(const job *t, desk *d, const tile *x, const chunk *c) {
    const lambda_problem *p = t->w.p;
    const int64_t line = t->w.width * t->vp, turned = t->turned_line, columns = c->lines * c->n;
    const queries q = q_of(t, d, x, c->i), g = dy_of(t, d, x, c->i), o = dq_of(t, d, x, c->i);
    real *dvalues = d->dv + corner(t, c, line, t->vp);
    const real *turned_values = t->turned_packed + x->example * p->context[0] * turned + corner(t, c, turned, 1);
    product s = scores(t, d, x, c);
    outer_product dv = {.d_group = p->dilation[0] * line, .d_i = t->vp, .a = d->s + c->skip, .a_row = S_ROW,
                        .a_group = c->n, .t_row = g.row, .groups = c->lines, .n = c->n,
                        .rows = p->h, .vectors = t->vp / LANES, .step = t->v_step};
    /* ds takes the vectors of several lines at once. Stored in order, a line overwrites what stands behind the end of
     * the line before it. */
    const int64_t per_line = (c->n + LANES - 1) / LANES, at_once = evenly(c->lines, LARGER(1, VECTORS / per_line));
    offsets from = consecutive, to = consecutive;
    for (int64_t l = 0, z = 0; l < at_once && at_once > 1; l++)
        for (int64_t v = 0; v < per_line; v++, z++) {
            from.at[z] = l * p->dilation[0] * turned + v * LANES;
            to.at[z] = l * c->n + v * LANES;
        }
    product ds = {.c_row = S_ROW, .c_at = &to, .a_row = g.row, .b_i = t->turned, .b_at = &from, .groups = 1, .n = p->v,
                  .rows = p->h, .step = at_once > 1 ? VECTORS : evenly(per_line, VECTORS)};
    outer_product dr = {.d = d->dr + c->table, .d_i = x->class->k, .a_row = q.row, .t = d->ds, .t_row = S_ROW,
                        .groups = 1, .n = p->k, .rows = p->h, .vectors = c->vectors, .step = s.step};
    product dq = {.c_row = o.row, .c_at = &consecutive, .a = d->ds + c->skip, .a_row = S_ROW, .a_group = c->n,
                  .b = t->by_offset + (c->line * t->w.scope_u + x->class->lo + c->at) * t->kp,
                  .b_group = t->w.scope_u * t->kp, .b_i = t->kp, .b_at = &consecutive, .groups = c->lines, .n = c->n,
                  .accumulate = 1, .rows = p->h, .vectors = t->kp / LANES, .step = t->k_step};
    s.a_row = q.row;
    for (int64_t j = 0; j < x->columns; j++) {
        const int64_t start = t->w.columns[x->j + j].start;
        s.a = dr.a = q.at + j * q.next;
        dv.t = ds.a = g.at + j * g.next;
        multiply(&s);
        dv.d = dvalues + start * t->vp;
        outer(&dv);
        for (int64_t h = 0; h < p->h; h++) STORE(d->ds + h * S_ROW) = (vec){0}; /* what is skipped */
        for (int64_t l = 0; l < c->lines; l += at_once) {
            ds.c = d->ds + c->skip + l * c->n;
            ds.b = turned_values + start + l * p->dilation[0] * turned;
            ds.vectors = per_line * SMALLER(at_once, c->lines - l);
            multiply(&ds);
        }
        for (int64_t h = 0; h < p->h; h++) STORE(d->ds + h * S_ROW + c->skip + columns) = (vec){0};
        outer(&dr);
        dq.c = o.at + j * o.next;
        multiply(&dq);
    }
}

/* Between the caller's memory and the tile's: h rows of `depth` numbers for every query. */
static void fetch(const job *t, const tile *x, const int64_t *strides, const real *from, int64_t depth, real *to,
                  int64_t row) {
    for (int64_t i = x->i; i < x->i + x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++)
            for (int64_t h = 0; h < t->w.p->h; h++, to += row) {
                const real *f = callers(t, x, strides, from, i) + j * strides[1] + h * strides[2];
                for (int64_t c = 0; c < depth; c++) to[c] = f[c * strides[3]];
                for (int64_t c = depth; c < row; c++) to[c] = 0;
            }
}

static void deliver(const job *t, const tile *x, const int64_t *strides, real *to, int64_t depth, const real *from,
                    int64_t row) {
    for (int64_t i = x->i; i < x->i + x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++)
            for (int64_t h = 0; h < t->w.p->h; h++, from += row) {
                real *f = callers(t, x, strides, to, i) + j * strides[1] + h * strides[2];
                for (int64_t c = 0; c < depth; c++) f[c * strides[3]] = from[c];
            }
}

/* The content term is where the position term begins, or zero. */
static void forward_tile(const job *t, desk *d, const tile *x) {
    const lambda_problem *p = t->w.p;
    if (!t->q_here) fetch(t, x, p->q, t->q, p->k, d->q, p->k);
    for (int64_t i = x->i; i < x->i + x->rows; i++) {
        const queries q = q_of(t, d, x, i), o = y_of(t, d, x, i);
        product y = {.c_row = o.row, .c_at = &consecutive, .a_row = q.row, .b = d->lc, .b_i = t->vp,
                     .b_at = &consecutive, .groups = t->lc != NULL, .n = p->k,
                     .rows = p->h, .vectors = t->vp / LANES, .step = t->v_step};
        for (int64_t j = 0; j < x->columns; j++) {
            y.a = q.at + j * q.next;
            y.c = o.at + j * o.next;
            multiply(&y);
        }
    }
    over_chunks(t, d, x, forward_chunk);
    if (!t->y_here) deliver(t, x, p->y, t->y, p->v, d->y, t->vp);
}

static void backward_tile(const job *t, desk *d, const tile *x) {
    const lambda_problem *p = t->w.p;
    if (!t->q_here) fetch(t, x, p->q, t->q, p->k, d->q, p->k);
    if (!t->y_here) fetch(t, x, p->y, t->dy, p->v, d->g, t->vp);
    for (int64_t i = x->i; i < x->i + x->rows; i++) {
        const queries q = q_of(t, d, x, i), g = dy_of(t, d, x, i), o = dq_of(t, d, x, i);
        product dq = {.c_row = o.row, .c_at = &consecutive, .a_row = g.row, .b = d->lc_turned, .b_i = t->kp,
                      .b_at = &consecutive, .groups = t->lc != NULL, .n = p->v,
                      .rows = p->h, .vectors = t->kp / LANES, .step = t->k_step};
        outer_product dlc = {.d = d->dlc, .d_i = t->vp, .a_row = q.row, .t_row = g.row, .groups = t->lc != NULL,
                             .n = p->k, .rows = p->h, .vectors = t->vp / LANES, .step = t->v_step};
        for (int64_t j = 0; j < x->columns; j++) {
            dlc.a = q.at + j * q.next;
            dlc.t = dq.a = g.at + j * g.next;
            dq.c = o.at + j * o.next;
            multiply(&dq);
            outer(&dlc);
        }
    }
    over_chunks(t, d, x, backward_chunk);
    if (!t->dq_here) deliver(t, x, p->dq, t->dq, p->k, d->dq, t->kp);
}

static void load_content_lambda(const job *t, desk *d, int64_t example) {
    const lambda_problem *p = t->w.p;
    if (!t->lc) return;
    const real *lc = t->lc + example * p->k * p->v;
    for (int64_t k = 0; k < p->k; k++)
        for (int64_t c = 0; c < t->vp; c++) d->lc[k * t->vp + c] = c < p->v ? lc[k * p->v + c] : 0;
    if (!t->dy) return;
    for (int64_t c = 0; c < p->v; c++)
        for (int64_t k = 0; k < t->kp; k++) d->lc_turned[c * t->kp + k] = k < p->k ? lc[k * p->v + c] : 0;
}

/* A unit of work: a block of rows and columns of queries of one image, cut into tiles of equal class. */
static void run_unit(const job *t, desk *d, int64_t example, int64_t unit) {
    const windows *w = &t->w;
    const lambda_problem *p = w->p;
    const int64_t i = unit / t->column_blocks * t->rows, first = unit % t->column_blocks * t->columns;
    const int64_t rows = SMALLER(t->rows, p->queries[0] - i);
    const int64_t end = SMALLER(first + t->columns, p->queries[1]);
    for (int64_t j = first, next; j < end; j = next) {
        const int64_t most = j + t->tile / rows;
        for (next = j + 1; next < end && next < most && w->columns[next].class == w->columns[j].class; next++) {
        }
        const tile x = {example, i, rows, j, next - j, &w->classes[w->columns[j].class]};
        if (t->dy)
            backward_tile(t, d, &x);
        else
            forward_tile(t, d, &x);
    }
}

int NAME(forward) LAMBDA_FORWARD(real);
int NAME(forward)(const lambda_problem *p, const real *q, const real *values, const real *table, const real *lc,
                  real *y) {
    job t = {.q = q, .values = values, .table = table, .lc = lc, .y = y};
    int failed = prepare(&t, p, 0);
    desk sizes;
    const int64_t desk_size = failed ? 0 : lay_out(&t, NULL, &sizes);
    real *memory = NULL;
    if (!failed) {
        t.packed = aligned(p->b * t.image);
        t.by_k = aligned(p->k * p->scope[0] * t.w.scope_u);
        t.tables = aligned(t.w.tables + CHUNK_FORWARD);
        memory = aligned(desk_size * p->threads);
        failed = !t.packed || !t.by_k || !t.tables || !memory ? LAMBDA_NO_MEMORY : LAMBDA_OK;
    }
    if (!failed) {
        memset(t.tables + t.w.tables, 0, sizeof(real) * CHUNK_FORWARD);
#pragma omp parallel num_threads((int)p->threads)
        {
            desk d = {0};
            lay_out(&t, memory + desk_size * omp_get_thread_num(), &d);
            int64_t at = -1;
            pack_tables(&t);
            pack_values(&t);
#pragma omp for schedule(dynamic)
            for (int64_t unit = 0; unit < p->b * t.units; unit++) {
                if (unit / t.units != at) load_content_lambda(&t, &d, at = unit / t.units);
                run_unit(&t, &d, at, unit % t.units);
            }
        }
    }
    free(t.packed);
    free(t.by_k);
    free(t.tables);
    free(memory);
    free_windows(&t.w);
    return failed;
}

/* The sum of the parts' gradients of the values, in the caller's layout. */
static void unpack_values(const job *t, const real *parts, int64_t parts_n, real *dvalues) {
    const windows *w = &t->w;
    const lambda_problem *p = w->p;
    const int64_t d = p->dilation[1], line = w->width * t->vp;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < p->b * p->context[0]; row++) {
        const int64_t example = row / p->context[0], i = row % p->context[0];
        real *to = dvalues + example * p->dvalues[0] + i * p->context[1] * p->dvalues[1];
        const real *from = parts + example * parts_n * t->image + i * line;
        for (int64_t m = 0; m < p->context[1]; m++)
            for (int64_t u = 0; u < p->u; u++) {
                const real *f = from + ((m % d * w->phase + m / d) * p->u + u) * t->vp;
                real *o = to + m * p->dvalues[1] + u * p->dvalues[3];
                for (int64_t c = 0; c < p->v; c++) {
                    real sum = 0;
                    for (int64_t part = 0; part < parts_n; part++) sum += f[part * t->image + c];
                    o[c * p->dvalues[2]] = sum;
                }
            }
    }
}

/* The sum of the threads' gradients of all classes' tables, as one table. */
static void unpack_tables(const job *t, const real *threads, int64_t threads_n, real *dtable) {
    const windows *w = &t->w;
    const lambda_problem *p = w->p;
    const int64_t rows = p->scope[0] * p->scope[1], size = w->tables + CHUNK_FORWARD;
#pragma omp for schedule(static)
    for (int64_t k = 0; k < p->k; k++) {
        real *sum = t->by_k + k * rows * p->u; /* R is no longer needed */
        memset(sum, 0, sizeof(real) * rows * p->u);
        for (int64_t thread = 0; thread < threads_n; thread++)
            for (int64_t z = 0; z < w->classes_n; z++) {
                const table_class *c = &w->classes[z];
                if (!c->own) continue; /* it wrote into the whole window's table */
                const real *from = threads + thread * size + k * c->k;
                for (int64_t a = 0; a < p->scope[0]; a++)
                    for (int64_t o = 0; o < c->n; o++)
                        sum[a * w->scope_u + c->lo + o] += from[line_of(c, a) + o];
            }
        for (int64_t o = 0; o < rows; o++)
            for (int64_t u = 0; u < p->u; u++)
                dtable[(o * p->k + k) * p->u + u] = o < p->past ? sum[o * p->u + u] : 0;
    }
}

int NAME(backward) LAMBDA_BACKWARD(real);
int NAME(backward)(const lambda_problem *p, const real *q, const real *values, const real *table, const real *lc,
                   const real *dy, real *dq, real *dvalues, real *dtable, real *dlc) {
    job t = {.q = q, .values = values, .table = table, .lc = lc, .dy = dy, .dq = dq};
    int failed = prepare(&t, p, 1);
    desk sizes;
    const int64_t desk_size = failed ? 0 : lay_out(&t, NULL, &sizes), table_size = t.w.tables + CHUNK_FORWARD;
    /* Images are shared out among the threads; if that leaves some idle, each is cut into parts with their own sums. */
    const int64_t wanted = p->b >= 4 * p->threads || (p->b && p->b % p->threads == 0) ? 1 : p->threads;
    const int64_t parts = LARGER(1, SMALLER(wanted, failed ? 1 : t.units));
    const int64_t lc_size = p->k * t.vp;
    real *memory = NULL, *dr = NULL, *dv = NULL, *dlc_parts = NULL;
    if (!failed) {
        t.packed = aligned(p->b * t.image);
        t.turned_packed = aligned(p->b * p->context[0] * t.turned_line + CHUNK_FORWARD);
        t.by_k = aligned(p->k * p->scope[0] * t.w.scope_u);
        t.tables = aligned(table_size);
        t.by_offset = aligned(p->scope[0] * t.w.scope_u * t.kp);
        memory = aligned(desk_size * p->threads);
        dr = aligned(table_size * p->threads);
        dv = aligned(p->b * parts * t.image);
        dlc_parts = aligned(p->b * parts * lc_size);
        if (!t.packed || !t.turned_packed || !t.by_k || !t.tables || !t.by_offset || !memory || !dr || !dv || !dlc_parts)
            failed = LAMBDA_NO_MEMORY;
    }
    if (!failed) {
        memset(t.tables + t.w.tables, 0, sizeof(real) * CHUNK_FORWARD);
        memset(t.turned_packed + p->b * p->context[0] * t.turned_line, 0, sizeof(real) * CHUNK_FORWARD);
#pragma omp parallel num_threads((int)p->threads)
        {
            const int thread = omp_get_thread_num();
            desk d = {0};
            lay_out(&t, memory + desk_size * thread, &d);
            d.dr = dr + table_size * thread;
            memset(d.dr, 0, sizeof(real) * table_size);
            pack_tables(&t);
            pack_by_offset(&t);
            pack_values(&t);
            /* A fixed share of the work for each thread: sums keep their order from run to run. */
#pragma omp for schedule(static)
            for (int64_t part = 0; part < p->b * parts; part++) {
                const int64_t example = part / parts, own = part % parts;
                d.dv = dv + part * t.image;
                d.dlc = dlc_parts + part * lc_size;
                memset(d.dv, 0, sizeof(real) * t.image);
                memset(d.dlc, 0, sizeof(real) * lc_size);
                load_content_lambda(&t, &d, example);
                for (int64_t unit = own * t.units / parts; unit < (own + 1) * t.units / parts; unit++)
                    run_unit(&t, &d, example, unit);
            }
            unpack_values(&t, dv, parts, dvalues);
            unpack_tables(&t, dr, omp_get_num_threads(), dtable); /* there may be fewer than asked for */
            if (lc) {
#pragma omp for schedule(static)
                for (int64_t row = 0; row < p->b * p->k; row++)
                    for (int64_t c = 0; c < p->v; c++) {
                        const int64_t example = row / p->k, k = row % p->k;
                        real sum = 0;
                        for (int64_t part = 0; part < parts; part++)
                            sum += dlc_parts[(example * parts + part) * lc_size + k * t.vp + c];
                        dlc[row * p->v + c] = sum;
                    }
            }
        }
    }
    free(t.packed);
    free(t.turned_packed);
    free(t.tables);
    free(t.by_offset);
    free(memory);
    free(dr);
    free(dv);
    free(dlc_parts);
    free(t.by_k);
    free_windows(&t.w);
    return failed;
}
