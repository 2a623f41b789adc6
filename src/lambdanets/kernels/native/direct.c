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

#include "algorithms.h"
#include "products.h"
#include "rows.h"
#include "through.h"
#include "windows.h"

enum { TILE_BYTES = 16 << 10, ROWS_AT_MOST = 8, COLUMNS_AT_MOST = 512 };

/* Of a sum in one go. */
enum { TERMS = 96 };

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
    real *norms;           /* of the values, see rows.h */
} job;

/* What one thread works with. */
typedef struct {
    real *q, *y, *g, *dq;  /* of the queries of a tile: [h][k], [h][vp], [h][vp], [h][kp] */
    real *s, *ds;          /* of a chunk of a few queries, h rows each */
    int64_t s_at[QUERIES]; /* where each of them has its rows */
    real *lc, *lc_turned;  /* the content lambda of the image, [k][vp] and, backward, [v][kp] */
    real *dlc, *dv, *dr;   /* sums */
} desk;

static int64_t lay_out(const job *t, real *memory, desk *d) {
    const lambda_problem *p = t->w.p;
    const int64_t rows = t->tile * p->h;
    const placed parts[] = {{&d->s, QUERIES * p->h * S_ROW},
                            {&d->ds, QUERIES * p->h * S_ROW},
                            {&d->lc, p->k * t->vp},
                            {&d->lc_turned, p->v * t->kp},
                            {&d->q, t->q_here ? 0 : rows * p->k},
                            {&d->y, t->y_here ? 0 : rows * t->vp},
                            {&d->g, t->y_here ? 0 : rows * t->vp},
                            {&d->dq, t->dq_here ? 0 : rows * t->kp}};
    for (int64_t z = 0; z < QUERIES; z++) d->s_at[z] = z * p->h * S_ROW;
    return place(parts, sizeof parts / sizeof *parts, memory);
}

static int prepare(job *t, const lambda_problem *p, int backward) {
    if (make_windows(&t->w, p, backward ? CHUNK_BACKWARD : CHUNK_FORWARD) != LAMBDA_OK) return LAMBDA_NO_MEMORY;
    t->vp = ROUND_UP(p->v, LANES);
    t->kp = ROUND_UP(p->k, LANES);
    t->v_step = evenly(t->vp / LANES, VECTORS);
    t->k_step = evenly(t->kp / LANES, VECTORS);
    t->image = p->context[0] * t->w.width * t->vp;
    t->turned = ROUND_UP(t->w.turned_phase * p->dilation[1], LANES);
    t->turned_line = p->v * t->turned + LANES;
    const int64_t one = (int64_t)sizeof(real) * p->h * (p->k + t->vp) * (backward ? 2 : 1);
    t->tile = LARGER(ROWS_AT_MOST, TILE_BYTES / one);
    /* Enough units for every thread to have a few. The number of examples counts only if some threads had none: an example
     * has the same bits alone and in a batch. */
    const int64_t share = p->b < p->threads ? p->b * p->queries[0] / (4 * p->threads) : ROWS_AT_MOST;
    t->rows = evenly(LARGER(1, p->queries[0]), LARGER(1, SMALLER(ROWS_AT_MOST, share)));
    t->columns = evenly(LARGER(1, p->queries[1]), COLUMNS_AT_MOST);
    t->column_blocks = (p->queries[1] + t->columns - 1) / t->columns;
    t->units = (p->queries[0] + t->rows - 1) / t->rows * t->column_blocks;
    t->q_here = p->q[3] == 1 && !p->norm;
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
        for (int64_t z = 0; z < (w->own ? w->classes_n : 1); z++) {
            const table_class *c = &w->classes[z];
            const int64_t lo = w->own ? c->lo : 0, n = w->own ? c->n : w->scope_u;
            for (int64_t group = 0; group < p->scope[0]; group += c->lines) {
                real *to = t->tables + line_of(c, group) + k * c->k;
                memset(to, 0, sizeof(real) * c->k);
                for (int64_t a = group; a < SMALLER(group + c->lines, p->scope[0]); a++, to += c->line)
                    memcpy(to, by_k + a * w->scope_u + lo, sizeof(real) * n);
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
                copy_row(to, v, p->v, p->values[2]);
                normalise_row(to, p->v, value_norm(p, t->norms, u));
                for (int64_t c = p->v; c < t->vp; c++) to[c] = 0;
            }
        if (!t->turned_packed) continue;
        real *turned = t->turned_packed + row * t->turned_line;
        memset(turned, 0, sizeof(real) * t->turned_line);
        for (int64_t c = 0; c < p->v; c++)
            for (int64_t phase = 0; phase < d; phase++) {
                const real *f = line + phase * w->phase * p->u * t->vp + c;
                real *to = turned + c * t->turned + phase * w->turned_phase + w->margin;
                const int64_t columns = (p->context[1] - phase + d - 1) / d * p->u; /* later phases may have one less */
                for (int64_t m = 0; m < columns; m++) to[m] = f[m * t->vp];
            }
    }
}

/* One tile: queries (i, j) of `rows` x `columns`, all of one class. */
typedef struct {
    int64_t example, i, rows, j, columns;
    const table_class *class;
} tile;

/* A chunk of the windows of a few queries: `lines` lines from `line` on, of each `n` columns from `at` on. */
typedef struct {
    int64_t queries;
    int64_t i[QUERIES], j[QUERIES]; /* within the tile */
    int64_t line, lines, at, n;
    int64_t table; /* where it begins in the tables, in whole vectors */
    int64_t skip;  /* columns of its first vector that come before it */
    int64_t units; /* of a line */
    int64_t vectors;
} chunk;

typedef void work(const job *, desk *, const tile *, const chunk *);

/* What a tile's queries have, h rows of numbers each: where the caller has it, or in the tile. */
typedef struct {
    real *first;
    int64_t i, j, row; /* distances */
} operand;

static operand find(const job *t, const tile *x, int here, const int64_t *strides, const real *of, real *tiles,
                    int64_t row) {
    const int64_t width = t->w.p->queries[1], next = t->w.p->h * row;
    if (!here) return (operand){tiles, x->columns * next, next, row};
    real *first = (real *)of + x->example * strides[0] + (x->i * width + x->j) * strides[1];
    return (operand){first, width * strides[1], strides[1], strides[2]};
}

static operand q_of(const job *t, const desk *d, const tile *x) {
    return find(t, x, t->q_here, t->w.p->q, t->q, d->q, t->w.p->k);
}

static operand y_of(const job *t, const desk *d, const tile *x) {
    return find(t, x, t->y_here, t->w.p->y, t->y, d->y, t->vp);
}

static operand dy_of(const job *t, const desk *d, const tile *x) {
    return find(t, x, t->y_here, t->w.p->y, t->dy, d->g, t->vp);
}

static operand dq_of(const job *t, const desk *d, const tile *x) {
    return find(t, x, t->dq_here, t->w.p->dq, t->dq, d->dq, t->kp);
}

/* Where the queries of a chunk have theirs, from the first on. */
static void locate(const operand *o, const chunk *c, int64_t *at) {
    for (int64_t z = 0; z < c->queries; z++) at[z] = c->i[z] * o->i + c->j[z] * o->j;
}

static void finish(const job *t, desk *d, const tile *x, work *with, chunk *c) {
    with(t, d, x, c);
    c->queries = 0;
}

/* A row of queries for a chunk; whenever it has as many as it can take, it is finished. */
static void gather(const job *t, desk *d, const tile *x, work *with, chunk *c, int64_t i) {
    for (int64_t j = 0; j < x->columns; j++) {
        c->i[c->queries] = i;
        c->j[c->queries++] = j;
        if (c->queries == QUERIES) finish(t, d, x, with, c);
    }
}

/* All queries of a tile, without their windows. */
static void over_queries(const job *t, desk *d, const tile *x, work *with) {
    chunk c = {0};
    for (int64_t i = 0; i < x->rows; i++) gather(t, d, x, with, &c, i);
    if (c.queries) finish(t, d, x, with, &c);
}

/* Lines [a, b) of the windows of all queries of a tile, n columns of them, in pieces of at most a chunk. */
static void over_pieces(const job *t, desk *d, const tile *x, work *with, const span *lines, int64_t a, int64_t b,
                        int64_t n) {
    const windows *w = &t->w;
    const table_class *z = x->class;
    const int64_t before = w->own ? 0 : z->lo; /* columns of a line of the table that come before */
    const int64_t piece = ROUND_UP(evenly(before % LANES + n, w->chunk), LANES);
    for (int64_t at = 0, next; at < n; at = next) {
        const int64_t skip = (before + at) % LANES;
        next = SMALLER(n, at + piece - skip);
        chunk c = {.at = at, .n = next - at, .skip = skip};
        for (int64_t i = 0; i < x->rows; i++) {
            const int64_t from = LARGER(a, lines[i].first), to = SMALLER(b, lines[i].last);
            if (from >= to) continue;
            if (c.queries && (from != c.line || to - from != c.lines)) finish(t, d, x, with, &c);
            c.line = from;
            c.lines = to - from;
            c.table = line_of(z, from) + before + at - skip;
            c.units = c.lines > 1 ? z->line / UNIT : (skip + c.n + UNIT - 1) / UNIT;
            c.vectors = (c.lines * c.units + UNITS - 1) / UNITS;
            gather(t, d, x, with, &c, i);
        }
        if (c.queries) finish(t, d, x, with, &c);
    }
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
    const int64_t whole = w->whole_lines, end = SMALLER(w->partial - z->lo, z->n);
    /* Only lines from their beginning on can be taken together. */
    const int64_t step = w->own || z->n == w->scope_u ? z->lines : 1;
    for (int64_t a = first / step * step; a < SMALLER(last, whole); a += step)
        over_pieces(t, d, x, with, lines, a, SMALLER(a + step, whole), z->n);
    if (end > 0) over_pieces(t, d, x, with, lines, whole, whole + 1, end); /* the line that causality cuts */
}

/* The scores s = q R of a chunk. */
static product scores(const job *t, const desk *d, const tile *x, const chunk *c, const operand *q, const int64_t *q_at) {
    return (product){.queries = c->queries, .c = d->s, .c_at = d->s_at, .c_row = S_ROW, .a = q->first, .a_at = q_at,
                     .a_row = q->row, .b = t->tables + c->table, .b_at = shared, .b_i = x->class->k, .groups = 1,
                     .n = t->w.p->k, .rows = t->w.p->h, .vectors = c->vectors, .step = evenly(c->vectors, VECTORS)};
}

/* Where in a packed map, with such lines and elements, a chunk begins, but for the start of its column. */
static int64_t corner(const job *t, const tile *x, const chunk *c, int64_t z, int64_t line, int64_t element) {
    const lambda_problem *p = t->w.p;
    const int64_t i = (x->i + c->i[z]) * p->stride[0];
    return (i + p->dilation[0] * (c->line - p->scope[0] / 2)) * line + c->at * element;
}

static void forward_chunk(const job *t, desk *d, const tile *x, const chunk *c) {
    const lambda_problem *p = t->w.p;
    const int64_t line = t->w.width * t->vp;
    const operand q = q_of(t, d, x), y = y_of(t, d, x);
    int64_t q_at[QUERIES], y_at[QUERIES], v_at[QUERIES];
    locate(&q, c, q_at);
    locate(&y, c, y_at);
    for (int64_t z = 0; z < c->queries; z++)
        v_at[z] = corner(t, x, c, z, line, t->vp) + t->w.columns[x->j + c->j[z]].start * t->vp;
    const product s = scores(t, d, x, c, &q, q_at);
    multiply(&s);
    /* Piece by piece: in longer sums, the rounding errors of equal numbers add up. */
    const int64_t lines = LARGER(1, TERMS / c->n), v_line = p->dilation[0] * line;
    for (int64_t g = 0; g < c->lines; g += lines)
        for (int64_t i = 0; i < c->n; i += TERMS)
            multiply(&(product){.queries = c->queries, .c = y.first, .c_at = y_at, .c_row = y.row,
                                .a = d->s + c->skip + g * x->class->line + i, .a_at = d->s_at, .a_row = S_ROW,
                                .a_group = x->class->line,
                                .b = t->packed + x->example * t->image + g * v_line + i * t->vp, .b_at = v_at,
                                .b_group = v_line, .b_i = t->vp, .groups = SMALLER(lines, c->lines - g),
                                .n = SMALLER(TERMS, c->n - i), .accumulate = 1, .rows = p->h,
                                .vectors = t->vp / LANES, .step = t->v_step});
}

static void backward_chunk(const job *t, desk *d, const tile *x, const chunk *c) {
    const lambda_problem *p = t->w.p;
    const int64_t line = t->w.width * t->vp, turned = t->turned_line;
    const operand q = q_of(t, d, x), g = dy_of(t, d, x), dq = dq_of(t, d, x);
    int64_t q_at[QUERIES], g_at[QUERIES], dq_at[QUERIES], v_at[QUERIES], turned_at[QUERIES];
    locate(&q, c, q_at);
    locate(&g, c, g_at);
    locate(&dq, c, dq_at);
    for (int64_t z = 0; z < c->queries; z++) {
        const column *column = &t->w.columns[x->j + c->j[z]];
        v_at[z] = corner(t, x, c, z, line, t->vp) + column->start * t->vp;
        turned_at[z] = corner(t, x, c, z, turned, 1) + column->turned - c->skip;
    }
    const product s = scores(t, d, x, c, &q, q_at);
    multiply(&s);
    outer(&(outer_product){.queries = c->queries, .d = d->dv, .d_at = v_at, .d_group = p->dilation[0] * line,
                           .d_i = t->vp, .a = d->s + c->skip, .a_at = d->s_at, .a_row = S_ROW,
                           .a_group = x->class->line, .t = g.first, .t_at = g_at, .t_row = g.row, .groups = c->lines,
                           .n = c->n, .rows = p->h, .vectors = t->vp / LANES, .step = t->v_step});
    through(&(two_products){.queries = c->queries, .t = d->ds, .t_at = d->s_at, .t_row = S_ROW, .a = g.first,
                            .a_at = g_at, .a_row = g.row, .n = p->v,
                            .b = t->turned_packed + x->example * p->context[0] * turned, .b_at = turned_at,
                            .b_line = p->dilation[0] * turned, .b_i = t->turned, .q = q.first, .q_at = q_at,
                            .q_row = q.row, .k = p->k, .d = d->dr + c->table, .d_i = x->class->k,
                            .rows = p->h, .lines = c->lines, .units = c->units});
    multiply(&(product){.queries = c->queries, .c = dq.first, .c_at = dq_at, .c_row = dq.row, .a = d->ds + c->skip,
                        .a_at = d->s_at, .a_row = S_ROW, .a_group = x->class->line,
                        .b = t->by_offset + (c->line * t->w.scope_u + x->class->lo + c->at) * t->kp, .b_at = shared,
                        .b_group = t->w.scope_u * t->kp, .b_i = t->kp, .groups = c->lines, .n = c->n,
                        .accumulate = 1, .rows = p->h, .vectors = t->kp / LANES, .step = t->k_step});
}

/* Between the caller's memory and the tile's: h rows of `depth` numbers for every query. */
static real *callers(const job *t, const tile *x, const int64_t *strides, const real *of, int64_t i, int64_t j) {
    return (real *)of + x->example * strides[0] + ((x->i + i) * t->w.p->queries[1] + x->j + j) * strides[1];
}

static void fetch(const job *t, const tile *x, const int64_t *strides, const real *from, int64_t depth, real *to,
                  int64_t row) {
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++)
            for (int64_t h = 0; h < t->w.p->h; h++, to += row) {
                const real *f = callers(t, x, strides, from, i, j) + h * strides[2];
                copy_row(to, f, depth, strides[3]);
                for (int64_t c = depth; c < row; c++) to[c] = 0;
            }
}

/* The queries, normalised if they come as they were projected. */
static void fetch_queries(const job *t, const tile *x, real *to) {
    const lambda_problem *p = t->w.p;
    const int64_t depth = p->h * p->k;
    fetch(t, x, p->q, t->q, p->k, to, p->k);
    for (int64_t z = 0; z < x->rows * x->columns; z++) normalise_row(to + z * depth, depth, query_norm(p));
}

static void deliver(const job *t, const tile *x, const int64_t *strides, real *to, int64_t depth, const real *from,
                    int64_t row) {
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++)
            for (int64_t h = 0; h < t->w.p->h; h++, from += row) {
                real *f = callers(t, x, strides, to, i, j) + h * strides[2];
                spread_row(f, from, depth, strides[3]);
            }
}

/* The content term is where the position term begins, or zero. */
static void forward_content(const job *t, desk *d, const tile *x, const chunk *c) {
    const operand q = q_of(t, d, x), y = y_of(t, d, x);
    int64_t q_at[QUERIES], y_at[QUERIES];
    locate(&q, c, q_at);
    locate(&y, c, y_at);
    multiply(&(product){.queries = c->queries, .c = y.first, .c_at = y_at, .c_row = y.row, .a = q.first, .a_at = q_at,
                        .a_row = q.row, .b = d->lc, .b_at = shared, .b_i = t->vp, .groups = t->lc != NULL,
                        .n = t->w.p->k, .rows = t->w.p->h, .vectors = t->vp / LANES, .step = t->v_step});
}

static void backward_content(const job *t, desk *d, const tile *x, const chunk *c) {
    const lambda_problem *p = t->w.p;
    const operand q = q_of(t, d, x), g = dy_of(t, d, x), dq = dq_of(t, d, x);
    int64_t q_at[QUERIES], g_at[QUERIES], dq_at[QUERIES];
    locate(&q, c, q_at);
    locate(&g, c, g_at);
    locate(&dq, c, dq_at);
    multiply(&(product){.queries = c->queries, .c = dq.first, .c_at = dq_at, .c_row = dq.row, .a = g.first,
                        .a_at = g_at, .a_row = g.row, .b = d->lc_turned, .b_at = shared, .b_i = t->kp,
                        .groups = t->lc != NULL, .n = p->v, .rows = p->h, .vectors = t->kp / LANES,
                        .step = t->k_step});
    outer(&(outer_product){.queries = c->queries, .d = d->dlc, .d_at = shared, .d_i = t->vp, .a = q.first,
                           .a_at = q_at, .a_row = q.row, .t = g.first, .t_at = g_at, .t_row = g.row,
                           .groups = t->lc != NULL, .n = p->k, .rows = p->h, .vectors = t->vp / LANES,
                           .step = t->v_step});
}

static void forward_tile(const job *t, desk *d, const tile *x) {
    const lambda_problem *p = t->w.p;
    if (!t->q_here) fetch_queries(t, x, d->q);
    over_queries(t, d, x, forward_content);
    over_chunks(t, d, x, forward_chunk);
    if (!t->y_here) deliver(t, x, p->y, t->y, p->v, d->y, t->vp);
}

static void backward_tile(const job *t, desk *d, const tile *x) {
    const lambda_problem *p = t->w.p;
    if (!t->q_here) fetch_queries(t, x, d->q);
    if (!t->y_here) fetch(t, x, p->y, t->dy, p->v, d->g, t->vp);
    over_queries(t, d, x, backward_content);
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

int NAME(direct_forward) LAMBDA_FORWARD(real) {
    job t = {.q = q, .values = values, .table = table, .lc = lc, .y = y};
    int failed = prepare(&t, p, 0);
    desk sizes;
    const int64_t desk_size = failed ? 0 : lay_out(&t, NULL, &sizes);
    real *memory = NULL;
    if (!failed) {
        t.norms = make_value_norms(p);
        t.packed = aligned(p->b * t.image);
        t.by_k = aligned(p->k * p->scope[0] * t.w.scope_u);
        t.tables = aligned(t.w.tables + CHUNK_FORWARD);
        memory = aligned(desk_size * p->threads);
        failed = (p->norm && !t.norms) || !t.packed || !t.by_k || !t.tables || !memory ? LAMBDA_NO_MEMORY : LAMBDA_OK;
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
    free(t.norms);
    free(t.packed);
    free(t.by_k);
    free(t.tables);
    free(memory);
    free_windows(&t.w);
    return failed;
}

/* The sum of the parts' gradients of the values, in the caller's layout. */
static void unpack_values(const job *t, real *parts, int64_t parts_n, real *dvalues) {
    const windows *w = &t->w;
    const lambda_problem *p = w->p;
    const int64_t d = p->dilation[1], line = w->width * t->vp;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < p->b * p->context[0]; row++) {
        const int64_t example = row / p->context[0], i = row % p->context[0];
        real *to = dvalues + example * p->dvalues[0] + i * p->context[1] * p->dvalues[1];
        real *from = parts + example * parts_n * t->image + i * line;
        for (int64_t m = 0; m < p->context[1]; m++)
            for (int64_t u = 0; u < p->u; u++) {
                real *f = from + ((m % d * w->phase + m / d) * p->u + u) * t->vp;
                for (int64_t part = 1; part < parts_n; part++) add_row(f, f + part * t->image, p->v);
                spread_row(to + m * p->dvalues[1] + u * p->dvalues[3], f, p->v, p->dvalues[2]);
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
            for (int64_t z = 0; z < (w->own ? w->classes_n : 1); z++) {
                const table_class *c = &w->classes[z];
                const int64_t lo = w->own ? c->lo : 0, n = w->own ? c->n : w->scope_u;
                for (int64_t group = 0; group < p->scope[0]; group += c->lines) {
                    const real *from = threads + thread * size + line_of(c, group) + k * c->k;
                    for (int64_t a = group; a < SMALLER(group + c->lines, p->scope[0]); a++, from += c->line)
                        add_row(sum + a * w->scope_u + lo, from, n);
                }
            }
        for (int64_t o = 0; o < rows; o++)
            for (int64_t u = 0; u < p->u; u++)
                dtable[(o * p->k + k) * p->u + u] = o < p->past ? sum[o * p->u + u] : 0;
    }
}

int NAME(direct_backward) LAMBDA_BACKWARD(real) {
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
        t.norms = make_value_norms(p);
        t.packed = aligned(p->b * t.image);
        t.turned_packed = aligned(p->b * p->context[0] * t.turned_line + CHUNK_FORWARD);
        t.by_k = aligned(p->k * p->scope[0] * t.w.scope_u);
        t.tables = aligned(table_size);
        t.by_offset = aligned(p->scope[0] * t.w.scope_u * t.kp);
        memory = aligned(desk_size * p->threads);
        dr = aligned(table_size * p->threads);
        dv = aligned(p->b * parts * t.image);
        dlc_parts = aligned(p->b * parts * lc_size);
        if ((p->norm && !t.norms) || !t.packed || !t.turned_packed || !t.by_k || !t.tables || !t.by_offset || !memory ||
            !dr || !dv || !dlc_parts)
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
    free(t.norms);
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

double NAME(direct_operations)(const lambda_problem *p, int backward) {
    double seen[2] = {0, 0}; /* pairs of a query and a position in its window */
    for (int axis = 0; axis < 2; axis++)
        for (int64_t n = 0; n < p->queries[axis]; n++) {
            const span s = visible(n * p->stride[axis], p->context[axis], p->scope[axis], p->dilation[axis]);
            seen[axis] += (double)(s.last - s.first);
        }
    const double causal = (double)p->past / (double)(p->scope[0] * p->scope[1]);
    const int64_t h = LARGER(2, p->h); /* a single head leaves part of the machine idle */
    const double k = (double)p->k / (double)LANES, v = (double)((p->v + LANES - 1) / LANES);
    return seen[0] * seen[1] * causal * (double)(p->u * h) * (backward ? 3 * k + 2 * v : k + v) / (double)p->threads;
}
