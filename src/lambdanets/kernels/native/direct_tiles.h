/* How the direct algorithm walks over queries and windows.
 *
 * A tile is a few rows and columns of queries of one class, which share a table. Their windows are taken in chunks, so that
 * the chunk of the table stays in the L1 cache while all queries of the tile use it, a batch of queries at a time. */
#ifndef LAMBDANETS_DIRECT_TILES_H
#define LAMBDANETS_DIRECT_TILES_H

#include "direct.h"

/* Queries (i, j) of `rows` x `columns`, all of one class. */
typedef struct {
    int64_t example, i, rows, j, columns;
    const table_class *class;
} query_tile;

/* A chunk of the windows of a batch of queries: `lines` lines from `line` on, of each `n` columns from `at` on. */
typedef struct {
    int64_t queries;
    int64_t i[QUERY_BATCH], j[QUERY_BATCH]; /* within the tile */
    int64_t line, lines, at, n;
    int64_t table;    /* where it begins in the tables, in whole vectors */
    int64_t skip;     /* columns of its first vector that come before it */
    int64_t segments; /* of a line */
    int64_t vectors;  /* of all lines */
} chunk;

typedef void chunk_kernel(const direct_op *, direct_workspace *, const query_tile *, const chunk *);

/* The h rows of every query of a tile: in the caller's tensor, or in the workspace. */
typedef struct {
    real *first;
    int64_t i_stride, j_stride, row_stride;
} operand;

static operand make_operand(const direct_op *op, const query_tile *tile, int in_place, const int64_t *strides,
                            const real *tensor, real *copy, int64_t row_stride) {
    const int64_t width = op->w.p->queries[1], query = op->w.p->h * row_stride;
    if (!in_place) return (operand){copy, tile->columns * query, query, row_stride};
    real *first = (real *)tensor + tile->example * strides[0] + (tile->i * width + tile->j) * strides[1];
    return (operand){first, width * strides[1], strides[1], strides[2]};
}

static operand q_operand(const direct_op *op, const direct_workspace *ws, const query_tile *tile) {
    return make_operand(op, tile, op->q_in_place, op->w.p->q, op->q, ws->q, op->w.p->k);
}

static operand y_operand(const direct_op *op, const direct_workspace *ws, const query_tile *tile) {
    return make_operand(op, tile, op->y_in_place, op->w.p->y, op->y, ws->y, op->v_padded);
}

static operand dy_operand(const direct_op *op, const direct_workspace *ws, const query_tile *tile) {
    return make_operand(op, tile, op->y_in_place, op->w.p->y, op->dy, ws->dy, op->v_padded);
}

static operand dq_operand(const direct_op *op, const direct_workspace *ws, const query_tile *tile) {
    return make_operand(op, tile, op->dq_in_place, op->w.p->dq, op->dq, ws->dq, op->k_padded);
}

/* Where the queries of a chunk have their rows, from the operand's first on. */
static void query_offsets(const operand *o, const chunk *c, int64_t *offsets) {
    for (int64_t z = 0; z < c->queries; z++) offsets[z] = c->i[z] * o->i_stride + c->j[z] * o->j_stride;
}

static void flush(const direct_op *op, direct_workspace *ws, const query_tile *tile, chunk_kernel *kernel, chunk *c) {
    if (c->queries) kernel(op, ws, tile, c);
    c->queries = 0;
}

/* Adds a row of queries to the batch, which the kernel takes whenever it is full. */
static void add_queries(const direct_op *op, direct_workspace *ws, const query_tile *tile, chunk_kernel *kernel, chunk *c,
                        int64_t i) {
    for (int64_t j = 0; j < tile->columns; j++) {
        c->i[c->queries] = i;
        c->j[c->queries++] = j;
        if (c->queries == QUERY_BATCH) flush(op, ws, tile, kernel, c);
    }
}

/* All queries of a tile, without their windows. */
static void for_queries(const direct_op *op, direct_workspace *ws, const query_tile *tile, chunk_kernel *kernel) {
    chunk c = {0};
    for (int64_t i = 0; i < tile->rows; i++) add_queries(op, ws, tile, kernel, &c, i);
    flush(op, ws, tile, kernel, &c);
}

/* Lines [a, b) of the windows of all queries of a tile, n columns of them, in chunks. */
static void for_lines(const direct_op *op, direct_workspace *ws, const query_tile *tile, chunk_kernel *kernel,
                      const span *lines, int64_t a, int64_t b, int64_t n) {
    const windows *w = &op->w;
    const table_class *class = tile->class;
    const int64_t before = w->class_tables ? 0 : class->first; /* columns of a line of the table that come before */
    const int64_t step = ROUND_UP(balanced(before % LANES + n, w->chunk), LANES);
    for (int64_t at = 0, next; at < n; at = next) {
        const int64_t skip = (before + at) % LANES;
        next = MIN(n, at + step - skip);
        chunk c = {.at = at, .n = next - at, .skip = skip};
        for (int64_t i = 0; i < tile->rows; i++) {
            const int64_t from = MAX(a, lines[i].first), to = MIN(b, lines[i].last);
            if (from >= to) continue;
            if (from != c.line || to - from != c.lines) flush(op, ws, tile, kernel, &c);
            c.line = from;
            c.lines = to - from;
            c.table = line_offset(class, from) + before + at - skip;
            c.segments = c.lines > 1 ? class->line_stride / SEGMENT : (skip + c.n + SEGMENT - 1) / SEGMENT;
            c.vectors = (c.lines * c.segments + SEGMENTS - 1) / SEGMENTS;
            add_queries(op, ws, tile, kernel, &c, i);
        }
        flush(op, ws, tile, kernel, &c);
    }
}

/* All chunks of the windows of a tile; each chunk meets all queries before the next. */
static void for_chunks(const direct_op *op, direct_workspace *ws, const query_tile *tile, chunk_kernel *kernel) {
    const windows *w = &op->w;
    const lambda_problem *p = w->p;
    const table_class *class = tile->class;
    span lines[MAX_BLOCK_ROWS];
    int64_t first = p->scope[0], last = 0;
    for (int64_t i = 0; i < tile->rows; i++) {
        lines[i] = visible((tile->i + i) * p->stride[0], p->context[0], p->scope[0], p->dilation[0]);
        first = MIN(first, lines[i].first);
        last = MAX(last, lines[i].last);
    }
    const int64_t whole = w->whole_lines, partial = MIN(w->partial_columns - class->first, class->n);
    /* Only whole lines of a table can be taken together. */
    const int64_t step = w->class_tables || class->n == w->scope_u ? class->lines : 1;
    for (int64_t a = first / step * step; a < MIN(last, whole); a += step)
        for_lines(op, ws, tile, kernel, lines, a, MIN(a + step, whole), class->n);
    if (partial > 0) for_lines(op, ws, tile, kernel, lines, whole, whole + 1, partial); /* the line that causality cuts */
}

/* The rows of a query in the caller's tensor. */
static real *query_rows(const direct_op *op, const query_tile *tile, const int64_t *strides, const real *tensor, int64_t i,
                        int64_t j) {
    const int64_t n = (tile->i + i) * op->w.p->queries[1] + tile->j + j;
    return (real *)tensor + tile->example * strides[0] + n * strides[1];
}

/* Copies `depth` elements of all rows of a tile into rows of `padded` elements. */
static void gather_tile(const direct_op *op, const query_tile *tile, const int64_t *strides, const real *from,
                        int64_t depth, real *to, int64_t padded) {
    for (int64_t i = 0; i < tile->rows; i++)
        for (int64_t j = 0; j < tile->columns; j++)
            for (int64_t h = 0; h < op->w.p->h; h++, to += padded) {
                gather_row(to, query_rows(op, tile, strides, from, i, j) + h * strides[2], depth, strides[3]);
                for (int64_t c = depth; c < padded; c++) to[c] = 0;
            }
}

static void scatter_tile(const direct_op *op, const query_tile *tile, const int64_t *strides, real *to, int64_t depth,
                         const real *from, int64_t padded) {
    for (int64_t i = 0; i < tile->rows; i++)
        for (int64_t j = 0; j < tile->columns; j++)
            for (int64_t h = 0; h < op->w.p->h; h++, from += padded)
                scatter_row(query_rows(op, tile, strides, to, i, j) + h * strides[2], from, depth, strides[3]);
}

/* The queries, normalised if they come with a norm. */
static void gather_queries(const direct_op *op, const query_tile *tile, real *to) {
    const lambda_problem *p = op->w.p;
    const int64_t depth = p->h * p->k;
    gather_tile(op, tile, p->q, op->q, p->k, to, p->k);
    for (int64_t z = 0; z < tile->rows * tile->columns; z++) normalise_row(to + z * depth, depth, query_norm(p));
}

#endif
