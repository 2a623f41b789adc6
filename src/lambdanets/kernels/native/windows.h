/* Which part of the window every row and column of queries sees, and where it lies in packed memory.
 *
 * The columns of a window are pairs (offset, u), u fastest: an intra-depth u only makes windows and maps u times as
 * wide. Packed maps order their columns by phase, m modulo the dilation, so that a window's columns are neighbours. */
#ifndef LAMBDANETS_WINDOWS_H
#define LAMBDANETS_WINDOWS_H

#include <stdlib.h>

#include "lambda.h"
#include "products.h"
#include "spans.h"

/* A column of queries: n columns of the window from `lo` on meet n columns of the packed map from `start` on, or of
 * the map turned round from `turned` on. */
typedef struct {
    int64_t lo, n, start, turned, class;
} column;

/* Columns of queries that see the same part of the window share one table. It stands in groups of lines, the chunks
 * of the window, as [group][k][line], every line padded to whole units. Where tables of their own would take too much
 * memory, all read that of the whole window. */
typedef struct {
    int64_t lo, n;          /* of its columns */
    int64_t offset;         /* of its table among all tables */
    int64_t lines;          /* of a group */
    int64_t line, k, group; /* distance between lines, between rows of k, between groups */
} table_class;

typedef struct {
    const lambda_problem *p;
    int64_t chunk;          /* columns at most */
    int64_t phase;          /* packed columns of one phase */
    int64_t width;          /* packed columns of a map, u included */
    int64_t margin;         /* columns of zeros on both sides of every phase of a map turned round */
    int64_t turned_phase;   /* columns of one phase of it, these included */
    int64_t scope_u;        /* columns of the window */
    int64_t whole_lines;    /* of the window that causality leaves complete, and the columns it leaves of the next */
    int64_t partial;
    column *columns;
    table_class *classes;   /* the first is the whole window */
    int64_t classes_n;
    int own;                /* does every class have its own table? */
    int64_t tables;         /* elements of all tables */
} windows;

/* Columns of a chunk: its part of a table stays in the nearest cache while a tile of queries goes over it. The backward
 * pass has five operands there and takes less of each. */
#define CHUNK_FORWARD ((int64_t)((VECTOR_BYTES == 64 ? 1536 : 768) / sizeof(real)))
#define CHUNK_BACKWARD ((int64_t)(384 / sizeof(real)))

enum { OWN_TABLES_AT_MOST = 1 << 19 }; /* elements: 2 MB of float, what a core's own cache holds */

static table_class make_class(const lambda_problem *p, int64_t chunk, int64_t lo, int64_t n, int64_t unit) {
    const int64_t line = ROUND_UP(n, unit);
    /* As many lines as a chunk holds, or the end of a line that is longer. */
    const int64_t lines = n ? evenly(p->scope[0], LARGER(1, chunk / line)) : p->scope[0];
    const int64_t row = ROUND_UP(lines * line, LANES);
    return (table_class){lo, n, 0, lines, line, row, p->k * row};
}

static int64_t table_elements(const lambda_problem *p, const table_class *c) {
    return (p->scope[0] + c->lines - 1) / c->lines * c->group;
}

/* The column of a table where a line begins. */
static int64_t line_of(const table_class *c, int64_t line) {
    return c->offset + line / c->lines * c->group + line % c->lines * c->line;
}

static int make_windows(windows *w, const lambda_problem *p, int64_t chunk) {
    const int64_t d = p->dilation[1];
    w->p = p;
    w->chunk = chunk;
    w->phase = (p->context[1] + d - 1) / d;
    w->width = w->phase * d * p->u;
    w->scope_u = p->scope[1] * p->u;
    w->whole_lines = p->past / p->scope[1];
    w->partial = p->past % p->scope[1] * p->u;
    w->columns = malloc(sizeof(column) * (p->queries[1] + 1));
    w->classes = malloc(sizeof(table_class) * (p->queries[1] + 1));
    if (!w->columns || !w->classes) return LAMBDA_NO_MEMORY;
    w->classes[0] = make_class(p, chunk, 0, w->scope_u, UNIT);
    w->classes_n = 1;
    int64_t elements = table_elements(p, &w->classes[0]);
    for (int64_t j = 0; j < p->queries[1]; j++) {
        const int64_t at = j * p->stride[1];
        const span s = visible(at, p->context[1], p->scope[1], d);
        const int64_t m = at + d * (s.first - p->scope[1] / 2);
        column *c = &w->columns[j];
        c->lo = s.first * p->u;
        c->n = (s.last - s.first) * p->u;
        c->start = c->n ? (m % d * w->phase + m / d) * p->u : 0;
        c->class = 0; /* or that of the column before, or a new one: from left to right no other comes back */
        if (c->n == w->scope_u) continue;
        c->class = w->classes_n - 1;
        if (c->class > 0 && w->classes[c->class].lo == c->lo && w->classes[c->class].n == c->n) continue;
        w->classes[c->class = w->classes_n++] = make_class(p, chunk, c->lo, c->n, UNIT);
        elements += table_elements(p, &w->classes[c->class]);
    }
    w->own = p->scope[0] > 1 && elements <= OWN_TABLES_AT_MOST;
    /* What a vector has of neighbouring columns ends in a table's padding, or else in what others see of the table. */
    w->margin = w->own ? 0 : LANES;
    w->turned_phase = w->phase * p->u + 2 * w->margin;
    for (int64_t j = 0; j < p->queries[1]; j++) {
        column *c = &w->columns[j];
        c->turned = c->n ? c->start + (2 * (c->start / (w->phase * p->u)) + 1) * w->margin : w->margin;
    }
    const table_class whole = make_class(p, chunk, 0, w->scope_u, LANES);
    w->tables = w->own ? 0 : table_elements(p, &whole);
    for (int64_t z = 0; z < w->classes_n; z++) {
        table_class *c = &w->classes[z];
        if (w->own) {
            c->offset = w->tables;
            w->tables += table_elements(p, c);
        } else {
            *c = (table_class){c->lo, c->n, 0, whole.lines, whole.line, whole.k, whole.group};
        }
    }
    return LAMBDA_OK;
}

static void free_windows(windows *w) {
    free(w->columns);
    free(w->classes);
}

#endif
