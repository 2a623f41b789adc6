/* What the parts of the direct algorithm share: its operator, and the workspace of a thread. */
#ifndef LAMBDANETS_DIRECT_H
#define LAMBDANETS_DIRECT_H

#include "algorithms.h"
#include "rows.h"
#include "windows.h"

enum { TILE_BYTES = 16 << 10, MAX_BLOCK_ROWS = 8, MAX_BLOCK_COLUMNS = 512 };

/* A row of s or ds: a chunk, and what its first and last vectors have beyond it. */
#define S_STRIDE (CHUNK_FORWARD + 2 * LANES)

/* Everything that does not change during a call. */
typedef struct {
    windows w;
    int64_t v_padded, k_padded;   /* depths in whole vectors */
    int64_t map_size;             /* elements of a packed map of values */
    int64_t transposed_width;     /* columns of a row of the transposed map, for one v */
    int64_t transposed_stride;    /* between its rows: one vector more, since 4 KB would map all rows to one cache set */
    int64_t tile_queries;         /* at most */
    int64_t rows, columns;        /* of a block of queries, the unit of parallel work */
    int64_t column_blocks, blocks; /* of one example */
    int q_in_place, y_in_place, dq_in_place; /* can the caller's tensors be read and written without a copy? */
    const real *q, *values, *table, *lc, *dy;
    real *y, *dq;
    real *packed;             /* V [b][row][m][v_padded] */
    real *transposed;         /* V' [b][row][v][m], backward only */
    real *table_k_major;      /* R [k][offset][u] */
    real *tables;             /* of every class */
    real *table_offset_major; /* R [offset][u][k_padded], backward only */
    real *norms;              /* of the values, see rows.h */
} direct_op;

/* Of one thread. */
typedef struct {
    real *q, *y, *dy, *dq;          /* of the queries of a tile: [h][k], [h][v_padded], [h][v_padded], [h][k_padded] */
    real *s, *ds;                   /* scores of a chunk and their gradients, h rows for each query of a batch */
    int64_t s_offsets[QUERY_BATCH]; /* where each of these queries has its rows */
    real *lc, *lc_transposed;       /* the content lambda of the example, [k][v_padded] and, backward, [v][k_padded] */
    real *dlc, *dvalues, *dtables;  /* gradients, summed */
} direct_workspace;

/* Places the buffers of a workspace in memory; returns its size in elements. */
static int64_t place_workspace(const direct_op *op, real *memory, direct_workspace *ws) {
    const lambda_problem *p = op->w.p;
    const int64_t rows = op->tile_queries * p->h;
    const buffer buffers[] = {{&ws->s, QUERY_BATCH * p->h * S_STRIDE},
                              {&ws->ds, QUERY_BATCH * p->h * S_STRIDE},
                              {&ws->lc, p->k * op->v_padded},
                              {&ws->lc_transposed, p->v * op->k_padded},
                              {&ws->q, op->q_in_place ? 0 : rows * p->k},
                              {&ws->y, op->y_in_place ? 0 : rows * op->v_padded},
                              {&ws->dy, op->y_in_place ? 0 : rows * op->v_padded},
                              {&ws->dq, op->dq_in_place ? 0 : rows * op->k_padded}};
    for (int64_t j = 0; j < QUERY_BATCH; j++) ws->s_offsets[j] = j * p->h * S_STRIDE;
    return place_buffers(buffers, sizeof buffers / sizeof *buffers, memory);
}

static int64_t workspace_size(const direct_op *op) {
    direct_workspace ws;
    return place_workspace(op, NULL, &ws);
}

/* Elements of the tables of all classes, and of what the last vectors read beyond them. */
static int64_t tables_size(const direct_op *op) { return op->w.tables + CHUNK_FORWARD; }

static int64_t transposed_size(const direct_op *op) {
    return op->w.p->b * op->w.p->context[0] * op->transposed_stride + CHUNK_FORWARD;
}

static void set_sizes(direct_op *op, const lambda_problem *p, int backward) {
    op->v_padded = ROUND_UP(p->v, LANES);
    op->k_padded = ROUND_UP(p->k, LANES);
    op->map_size = p->context[0] * op->w.width * op->v_padded;
    op->transposed_width = ROUND_UP(op->w.transposed_phase * p->dilation[1], LANES);
    op->transposed_stride = p->v * op->transposed_width + LANES;
    const int64_t query_bytes = (int64_t)sizeof(real) * p->h * (p->k + op->v_padded) * (backward ? 2 : 1);
    op->tile_queries = MAX(MAX_BLOCK_ROWS, TILE_BYTES / query_bytes);
    /* Enough blocks for every thread to have a few. The number of examples counts only if some threads had none: an example
     * gives the same bits alone and in a batch. */
    const int64_t share = p->b < p->threads ? p->b * p->queries[0] / (4 * p->threads) : MAX_BLOCK_ROWS;
    op->rows = balanced(MAX(1, p->queries[0]), MAX(1, MIN(MAX_BLOCK_ROWS, share)));
    op->columns = balanced(MAX(1, p->queries[1]), MAX_BLOCK_COLUMNS);
    op->column_blocks = (p->queries[1] + op->columns - 1) / op->columns;
    op->blocks = (p->queries[0] + op->rows - 1) / op->rows * op->column_blocks;
    op->q_in_place = p->q[3] == 1 && !p->norm;
    op->y_in_place = p->y[3] == 1 && op->v_padded == p->v;
    op->dq_in_place = p->dq[3] == 1 && op->k_padded == p->k;
}

/* Sizes and memory; `free_op` is needed even if this fails. */
static int make_op(direct_op *op, const lambda_problem *p, int backward) {
    if (make_windows(&op->w, p, backward ? CHUNK_BACKWARD : CHUNK_FORWARD) != LAMBDA_OK) return LAMBDA_NO_MEMORY;
    set_sizes(op, p, backward);
    op->norms = make_value_norms(p);
    op->packed = allocate(p->b * op->map_size);
    op->table_k_major = allocate(p->k * p->scope[0] * op->w.scope_u);
    op->tables = allocate(tables_size(op));
    if ((p->norm && !op->norms) || !op->packed || !op->table_k_major || !op->tables) return LAMBDA_NO_MEMORY;
    memset(op->tables + op->w.tables, 0, sizeof(real) * CHUNK_FORWARD);
    if (!backward) return LAMBDA_OK;
    op->transposed = allocate(transposed_size(op));
    op->table_offset_major = allocate(p->scope[0] * op->w.scope_u * op->k_padded);
    if (!op->transposed || !op->table_offset_major) return LAMBDA_NO_MEMORY;
    memset(op->transposed + transposed_size(op) - CHUNK_FORWARD, 0, sizeof(real) * CHUNK_FORWARD);
    return LAMBDA_OK;
}

static void free_op(direct_op *op) {
    free(op->norms);
    free(op->packed);
    free(op->transposed);
    free(op->table_k_major);
    free(op->tables);
    free(op->table_offset_major);
    free_windows(&op->w);
}

#endif
