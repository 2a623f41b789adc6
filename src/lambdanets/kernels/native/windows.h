/* Which part of the window every row and column of queries sees, and where it lies in packed memory.
 *
 * A window consists of lines, the rows of the table's grid. Its columns are pairs (offset, u), u fastest: an intra-depth u
 * only makes windows and maps u times as wide. Packed maps order their columns by phase, m modulo the dilation, so that the
 * columns of a window are contiguous. */
#ifndef LAMBDANETS_WINDOWS_H
#define LAMBDANETS_WINDOWS_H

#include <stdlib.h>

#include "lambda.h"
#include "products.h"
#include "spans.h"

/* A column of queries: n columns of the window from `first` on meet n columns of the packed map from `start` on, or of
 * the transposed map from `transposed_start` on. */
typedef struct {
    int64_t first, n, start, transposed_start, class;
} column;

/* Columns of queries that see the same part of the window form a class. Each has a table of its own, cut to that part, as
 * [group][k][line]: a group is as many lines as a chunk holds, every line padded to whole segments. Where these tables
 * would take too much memory, all classes read the table of the whole window. */
typedef struct {
    int64_t first, n; /* of its columns */
    int64_t offset;   /* of its table among all tables */
    int64_t lines;    /* of a group */
    int64_t line_stride, k_stride, group_stride;
} table_class;

typedef struct {
    const lambda_problem *p;
    int64_t chunk;            /* most columns of a chunk */
    int64_t phase;            /* packed columns of one phase */
    int64_t width;            /* packed columns of a map, u included */
    int64_t margin;           /* columns of zeros on both sides of every phase of a transposed map */
    int64_t transposed_phase; /* columns of one phase of it, margins included */
    int64_t scope_u;          /* columns of the window */
    int64_t whole_lines;      /* lines that causality leaves whole */
    int64_t partial_columns;  /* columns that it leaves of the next line */
    column *columns;
    table_class *classes;     /* the first is the whole window */
    int64_t classes_n;
    int class_tables;         /* does every class have a table of its own? */
    int64_t tables;           /* elements of all tables */
} windows;

/* Columns of a chunk: its part of a table stays in the L1 cache while a tile of queries uses it. The backward pass has
 * five operands there and takes less of each. */
#define CHUNK_FORWARD ((int64_t)((VECTOR_BYTES == 64 ? 1536 : 768) / sizeof(real)))
#define CHUNK_BACKWARD ((int64_t)(384 / sizeof(real)))

enum { MAX_CLASS_TABLES = 1 << 19 }; /* elements: 2 MB of float, the size of an L2 cache */

static table_class make_class(const lambda_problem *p, int64_t chunk, int64_t first, int64_t n, int64_t align) {
    const int64_t line = ROUND_UP(n, align);
    const int64_t lines = n ? balanced(p->scope[0], MAX(1, chunk / line)) : p->scope[0];
    const int64_t k_stride = ROUND_UP(lines * line, LANES);
    return (table_class){first, n, 0, lines, line, k_stride, p->k * k_stride};
}

static int64_t table_elements(const lambda_problem *p, const table_class *c) {
    return (p->scope[0] + c->lines - 1) / c->lines * c->group_stride;
}

/* Where a line begins among all tables. */
static int64_t line_offset(const table_class *c, int64_t line) {
    return c->offset + line / c->lines * c->group_stride + line % c->lines * c->line_stride;
}

/* The columns of queries and their classes. Returns the elements of the classes' tables. */
static int64_t make_classes(windows *w) {
    const lambda_problem *p = w->p;
    const int64_t d = p->dilation[1];
    w->classes[0] = make_class(p, w->chunk, 0, w->scope_u, SEGMENT);
    w->classes_n = 1;
    int64_t elements = table_elements(p, &w->classes[0]);
    for (int64_t j = 0; j < p->queries[1]; j++) {
        const int64_t at = j * p->stride[1];
        const span s = visible(at, p->context[1], p->scope[1], d);
        const int64_t m = at + d * (s.first - p->scope[1] / 2);
        column *c = &w->columns[j];
        c->first = s.first * p->u;
        c->n = (s.last - s.first) * p->u;
        c->start = c->n ? (m % d * w->phase + m / d) * p->u : 0;
        c->class = 0; /* or that of the column before, or a new one: from left to right no other class recurs */
        if (c->n == w->scope_u) continue;
        c->class = w->classes_n - 1;
        if (c->class > 0 && w->classes[c->class].first == c->first && w->classes[c->class].n == c->n) continue;
        w->classes[c->class = w->classes_n++] = make_class(p, w->chunk, c->first, c->n, SEGMENT);
        elements += table_elements(p, &w->classes[c->class]);
    }
    return elements;
}

static int make_windows(windows *w, const lambda_problem *p, int64_t chunk) {
    const int64_t d = p->dilation[1];
    w->p = p;
    w->chunk = chunk;
    w->phase = (p->context[1] + d - 1) / d;
    w->width = w->phase * d * p->u;
    w->scope_u = p->scope[1] * p->u;
    w->whole_lines = p->past / p->scope[1];
    w->partial_columns = p->past % p->scope[1] * p->u;
    w->columns = malloc(sizeof(column) * (p->queries[1] + 1));
    w->classes = malloc(sizeof(table_class) * (p->queries[1] + 1));
    if (!w->columns || !w->classes) return LAMBDA_NO_MEMORY;
    w->class_tables = make_classes(w) <= MAX_CLASS_TABLES && p->scope[0] > 1;
    /* A vector may read beyond the columns of a class: there it meets the padding of the class's table, or else, in the
     * table of the whole window, columns of others, which must then meet zeros. */
    w->margin = w->class_tables ? 0 : LANES;
    w->transposed_phase = w->phase * p->u + 2 * w->margin;
    for (int64_t j = 0; j < p->queries[1]; j++) {
        column *c = &w->columns[j];
        c->transposed_start = c->n ? c->start + (2 * (c->start / (w->phase * p->u)) + 1) * w->margin : w->margin;
    }
    const table_class whole = make_class(p, chunk, 0, w->scope_u, LANES);
    w->tables = w->class_tables ? 0 : table_elements(p, &whole);
    for (int64_t i = 0; i < w->classes_n; i++) {
        table_class *c = &w->classes[i];
        if (w->class_tables) {
            c->offset = w->tables;
            w->tables += table_elements(p, c);
        } else {
            *c = (table_class){c->first, c->n, 0, whole.lines, whole.line_stride, whole.k_stride, whole.group_stride};
        }
    }
    return LAMBDA_OK;
}

static void free_windows(windows *w) {
    free(w->columns);
    free(w->classes);
}

#endif
