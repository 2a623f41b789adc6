/* The position term, query first: per query, s = q R over its window, then y = s V; lambdas are never materialised.
 * Compiled once for each instruction set and each of float and double; see dispatch.c.
 *
 *   forward    s = q R         y  += s V
 *   backward   s = q R         dV += s' dy       ds = dy V'       dR += q' ds       dq += ds R'
 *
 * Every product has its lanes contiguous in a packed layout: V as [m][v] for y and dV and as [v][m] for ds, R as
 * [k][offset] for s and dR and as [offset][k] for dq. */
#include <string.h>

#include "direct.h"
#include "direct_packing.h"
#include "direct_tiles.h"
#include "fused_product.h"

/* Terms of a sum in one accumulator: in longer sums the rounding errors of equal numbers would add up. */
enum { PARTIAL_SUM = 96 };

/* The scores s = q R of a chunk. */
static void compute_scores(const direct_op *op, direct_workspace *ws, const query_tile *tile, const chunk *c,
                           const operand *q, const int64_t *q_offsets) {
    multiply(&(multiply_args){.queries = c->queries,
                              .c = ws->s, .c_offsets = ws->s_offsets, .ldc = S_STRIDE,
                              .a = q->first, .a_offsets = q_offsets, .lda = q->row_stride,
                              .b = op->tables + c->table, .b_offsets = no_offsets, .ldb = tile->class->k_stride,
                              .groups = 1, .n = op->w.p->k, .rows = op->w.p->h, .vectors = c->vectors});
}

/* Where the window of query z has the chunk in a packed map of such lines and elements, but for its first column. */
static int64_t map_offset(const direct_op *op, const query_tile *tile, const chunk *c, int64_t z, int64_t line,
                          int64_t element) {
    const lambda_problem *p = op->w.p;
    const int64_t i = (tile->i + c->i[z]) * p->stride[0];
    return (i + p->dilation[0] * (c->line - p->scope[0] / 2)) * line + c->at * element;
}

static void forward_chunk(const direct_op *op, direct_workspace *ws, const query_tile *tile, const chunk *c) {
    const lambda_problem *p = op->w.p;
    const int64_t v_row = op->w.width * op->v_padded, v_line = p->dilation[0] * v_row, s_line = tile->class->line_stride;
    const operand q = q_operand(op, ws, tile), y = y_operand(op, ws, tile);
    int64_t q_offsets[QUERY_BATCH], y_offsets[QUERY_BATCH], v_offsets[QUERY_BATCH];
    query_offsets(&q, c, q_offsets);
    query_offsets(&y, c, y_offsets);
    for (int64_t z = 0; z < c->queries; z++)
        v_offsets[z] = map_offset(op, tile, c, z, v_row, op->v_padded) +
                       op->w.columns[tile->j + c->j[z]].start * op->v_padded;
    compute_scores(op, ws, tile, c, &q, q_offsets);
    const real *values = op->packed + tile->example * op->map_size;
    const int64_t lines = MAX(1, PARTIAL_SUM / c->n);
    for (int64_t g = 0; g < c->lines; g += lines)
        for (int64_t i = 0; i < c->n; i += PARTIAL_SUM)
            multiply(&(multiply_args){.queries = c->queries, .accumulate = 1,
                                      .c = y.first, .c_offsets = y_offsets, .ldc = y.row_stride,
                                      .a = ws->s + c->skip + g * s_line + i, .a_offsets = ws->s_offsets, .lda = S_STRIDE,
                                      .a_group_stride = s_line,
                                      .b = values + g * v_line + i * op->v_padded, .b_offsets = v_offsets,
                                      .b_group_stride = v_line, .ldb = op->v_padded,
                                      .groups = MIN(lines, c->lines - g), .n = MIN(PARTIAL_SUM, c->n - i),
                                      .rows = p->h, .vectors = op->v_padded / LANES});
}

static void backward_chunk(const direct_op *op, direct_workspace *ws, const query_tile *tile, const chunk *c) {
    const lambda_problem *p = op->w.p;
    const int64_t v_row = op->w.width * op->v_padded, transposed_row = op->transposed_stride;
    const int64_t s_line = tile->class->line_stride;
    const operand q = q_operand(op, ws, tile), dy = dy_operand(op, ws, tile), dq = dq_operand(op, ws, tile);
    int64_t q_offsets[QUERY_BATCH], dy_offsets[QUERY_BATCH], dq_offsets[QUERY_BATCH];
    int64_t v_offsets[QUERY_BATCH], transposed_offsets[QUERY_BATCH];
    query_offsets(&q, c, q_offsets);
    query_offsets(&dy, c, dy_offsets);
    query_offsets(&dq, c, dq_offsets);
    for (int64_t z = 0; z < c->queries; z++) {
        const column *column = &op->w.columns[tile->j + c->j[z]];
        v_offsets[z] = map_offset(op, tile, c, z, v_row, op->v_padded) + column->start * op->v_padded;
        transposed_offsets[z] = map_offset(op, tile, c, z, transposed_row, 1) + column->transposed_start - c->skip;
    }
    compute_scores(op, ws, tile, c, &q, q_offsets);
    outer(&(outer_args){.queries = c->queries,
                        .d = ws->dvalues, .d_offsets = v_offsets, .d_group_stride = p->dilation[0] * v_row,
                        .ldd = op->v_padded,
                        .a = ws->s + c->skip, .a_offsets = ws->s_offsets, .lda = S_STRIDE, .a_group_stride = s_line,
                        .t = dy.first, .t_offsets = dy_offsets, .ldt = dy.row_stride,
                        .groups = c->lines, .n = c->n, .rows = p->h, .vectors = op->v_padded / LANES});
    multiply_outer(&(fused_args){.queries = c->queries,
                                 .t = ws->ds, .t_offsets = ws->s_offsets, .ldt = S_STRIDE,
                                 .a = dy.first, .a_offsets = dy_offsets, .lda = dy.row_stride, .n = p->v,
                                 .b = op->transposed + tile->example * p->context[0] * transposed_row,
                                 .b_offsets = transposed_offsets, .b_line_stride = p->dilation[0] * transposed_row,
                                 .ldb = op->transposed_width,
                                 .q = q.first, .q_offsets = q_offsets, .ldq = q.row_stride, .k = p->k,
                                 .d = ws->dtables + c->table, .ldd = tile->class->k_stride,
                                 .rows = p->h, .lines = c->lines, .segments = c->segments});
    const int64_t table_row = c->line * op->w.scope_u + tile->class->first + c->at;
    multiply(&(multiply_args){.queries = c->queries, .accumulate = 1,
                              .c = dq.first, .c_offsets = dq_offsets, .ldc = dq.row_stride,
                              .a = ws->ds + c->skip, .a_offsets = ws->s_offsets, .lda = S_STRIDE, .a_group_stride = s_line,
                              .b = op->table_offset_major + table_row * op->k_padded, .b_offsets = no_offsets,
                              .b_group_stride = op->w.scope_u * op->k_padded, .ldb = op->k_padded,
                              .groups = c->lines, .n = c->n, .rows = p->h, .vectors = op->k_padded / LANES});
}

/* y = q lc, or zero without content lambdas; the position term is added to it. */
static void forward_content(const direct_op *op, direct_workspace *ws, const query_tile *tile, const chunk *c) {
    const operand q = q_operand(op, ws, tile), y = y_operand(op, ws, tile);
    int64_t q_offsets[QUERY_BATCH], y_offsets[QUERY_BATCH];
    query_offsets(&q, c, q_offsets);
    query_offsets(&y, c, y_offsets);
    multiply(&(multiply_args){.queries = c->queries,
                              .c = y.first, .c_offsets = y_offsets, .ldc = y.row_stride,
                              .a = q.first, .a_offsets = q_offsets, .lda = q.row_stride,
                              .b = ws->lc, .b_offsets = no_offsets, .ldb = op->v_padded,
                              .groups = op->lc != NULL, .n = op->w.p->k,
                              .rows = op->w.p->h, .vectors = op->v_padded / LANES});
}

static void backward_content(const direct_op *op, direct_workspace *ws, const query_tile *tile, const chunk *c) {
    const lambda_problem *p = op->w.p;
    const operand q = q_operand(op, ws, tile), dy = dy_operand(op, ws, tile), dq = dq_operand(op, ws, tile);
    int64_t q_offsets[QUERY_BATCH], dy_offsets[QUERY_BATCH], dq_offsets[QUERY_BATCH];
    query_offsets(&q, c, q_offsets);
    query_offsets(&dy, c, dy_offsets);
    query_offsets(&dq, c, dq_offsets);
    multiply(&(multiply_args){.queries = c->queries,
                              .c = dq.first, .c_offsets = dq_offsets, .ldc = dq.row_stride,
                              .a = dy.first, .a_offsets = dy_offsets, .lda = dy.row_stride,
                              .b = ws->lc_transposed, .b_offsets = no_offsets, .ldb = op->k_padded,
                              .groups = op->lc != NULL, .n = p->v, .rows = p->h, .vectors = op->k_padded / LANES});
    outer(&(outer_args){.queries = c->queries,
                        .d = ws->dlc, .d_offsets = no_offsets, .ldd = op->v_padded,
                        .a = q.first, .a_offsets = q_offsets, .lda = q.row_stride,
                        .t = dy.first, .t_offsets = dy_offsets, .ldt = dy.row_stride,
                        .groups = op->lc != NULL, .n = p->k, .rows = p->h, .vectors = op->v_padded / LANES});
}

static void forward_tile(const direct_op *op, direct_workspace *ws, const query_tile *tile) {
    const lambda_problem *p = op->w.p;
    if (!op->q_in_place) gather_queries(op, tile, ws->q);
    for_queries(op, ws, tile, forward_content);
    for_chunks(op, ws, tile, forward_chunk);
    if (!op->y_in_place) scatter_tile(op, tile, p->y, op->y, p->v, ws->y, op->v_padded);
}

static void backward_tile(const direct_op *op, direct_workspace *ws, const query_tile *tile) {
    const lambda_problem *p = op->w.p;
    if (!op->q_in_place) gather_queries(op, tile, ws->q);
    if (!op->y_in_place) gather_tile(op, tile, p->y, op->dy, p->v, ws->dy, op->v_padded);
    for_queries(op, ws, tile, backward_content);
    for_chunks(op, ws, tile, backward_chunk);
    if (!op->dq_in_place) scatter_tile(op, tile, p->dq, op->dq, p->k, ws->dq, op->k_padded);
}

static void load_content_lambda(const direct_op *op, direct_workspace *ws, int64_t example) {
    const lambda_problem *p = op->w.p;
    if (!op->lc) return;
    const real *lc = op->lc + example * p->k * p->v;
    for (int64_t k = 0; k < p->k; k++)
        for (int64_t c = 0; c < op->v_padded; c++) ws->lc[k * op->v_padded + c] = c < p->v ? lc[k * p->v + c] : 0;
    if (!op->dy) return;
    for (int64_t c = 0; c < p->v; c++)
        for (int64_t k = 0; k < op->k_padded; k++)
            ws->lc_transposed[c * op->k_padded + k] = k < p->k ? lc[k * p->v + c] : 0;
}

/* A block of queries of one example, cut into tiles of one class. */
static void run_block(const direct_op *op, direct_workspace *ws, int64_t example, int64_t block) {
    const windows *w = &op->w;
    const lambda_problem *p = w->p;
    const int64_t i = block / op->column_blocks * op->rows, first = block % op->column_blocks * op->columns;
    const int64_t rows = MIN(op->rows, p->queries[0] - i);
    const int64_t end = MIN(first + op->columns, p->queries[1]);
    for (int64_t j = first, next; j < end; j = next) {
        const int64_t limit = j + op->tile_queries / rows;
        for (next = j + 1; next < end && next < limit && w->columns[next].class == w->columns[j].class; next++) {
        }
        const query_tile tile = {example, i, rows, j, next - j, &w->classes[w->columns[j].class]};
        if (op->dy)
            backward_tile(op, ws, &tile);
        else
            forward_tile(op, ws, &tile);
    }
}

int NAME(direct_forward) LAMBDA_FORWARD(real) {
    direct_op op = {.q = q, .values = values, .table = table, .lc = lc, .y = y};
    int failed = make_op(&op, p, 0);
    const int64_t size = failed ? 0 : workspace_size(&op);
    real *workspaces = failed ? NULL : allocate(size * p->threads);
    if (!workspaces) failed = LAMBDA_NO_MEMORY;
    if (!failed) {
#pragma omp parallel num_threads((int)p->threads)
        {
            direct_workspace ws = {0};
            place_workspace(&op, workspaces + size * omp_get_thread_num(), &ws);
            int64_t loaded = -1;
            pack_tables(&op);
            pack_values(&op);
#pragma omp for schedule(dynamic)
            for (int64_t block = 0; block < p->b * op.blocks; block++) {
                const int64_t example = block / op.blocks;
                if (example != loaded) load_content_lambda(&op, &ws, loaded = example);
                run_block(&op, &ws, example, block % op.blocks);
            }
        }
    }
    free(workspaces);
    free_op(&op);
    return failed;
}

/* Buffers of the backward pass for gradients that are summed at its end: of every thread, or of every part of an example. */
typedef struct {
    real *dtables, *dvalues, *dlc;
} partial_gradients;

static void backward_part(const direct_op *op, direct_workspace *ws, const partial_gradients *sums, int64_t part,
                          int64_t parts) {
    const lambda_problem *p = op->w.p;
    const int64_t example = part / parts, i = part % parts, lc_size = p->k * op->v_padded;
    ws->dvalues = sums->dvalues + part * op->map_size;
    ws->dlc = sums->dlc + part * lc_size;
    memset(ws->dvalues, 0, sizeof(real) * op->map_size);
    memset(ws->dlc, 0, sizeof(real) * lc_size);
    load_content_lambda(op, ws, example);
    for (int64_t block = i * op->blocks / parts; block < (i + 1) * op->blocks / parts; block++)
        run_block(op, ws, example, block);
}

int NAME(direct_backward) LAMBDA_BACKWARD(real) {
    direct_op op = {.q = q, .values = values, .table = table, .lc = lc, .dy = dy, .dq = dq};
    int failed = make_op(&op, p, 1);
    const int64_t size = failed ? 0 : workspace_size(&op);
    /* Examples are shared out among the threads; if that leaves some idle, each is cut into parts with their own sums. */
    const int64_t wanted = p->b >= 4 * p->threads || (p->b && p->b % p->threads == 0) ? 1 : p->threads;
    const int64_t parts = MAX(1, MIN(wanted, failed ? 1 : op.blocks));
    real *workspaces = NULL;
    partial_gradients sums = {0};
    if (!failed) {
        workspaces = allocate(size * p->threads);
        sums.dtables = allocate(tables_size(&op) * p->threads);
        sums.dvalues = allocate(p->b * parts * op.map_size);
        sums.dlc = allocate(p->b * parts * p->k * op.v_padded);
        if (!workspaces || !sums.dtables || !sums.dvalues || !sums.dlc) failed = LAMBDA_NO_MEMORY;
    }
    if (!failed) {
#pragma omp parallel num_threads((int)p->threads)
        {
            direct_workspace ws = {0};
            place_workspace(&op, workspaces + size * omp_get_thread_num(), &ws);
            ws.dtables = sums.dtables + tables_size(&op) * omp_get_thread_num();
            memset(ws.dtables, 0, sizeof(real) * tables_size(&op));
            pack_tables(&op);
            pack_table_offset_major(&op);
            pack_values(&op);
            /* A static schedule, so that sums keep their order from run to run. */
#pragma omp for schedule(static)
            for (int64_t part = 0; part < p->b * parts; part++) backward_part(&op, &ws, &sums, part, parts);
            unpack_values(&op, sums.dvalues, parts, dvalues);
            unpack_tables(&op, sums.dtables, omp_get_num_threads(), dtable); /* there may be fewer than requested */
            if (lc) unpack_content(&op, sums.dlc, parts, dlc);
        }
    }
    free(workspaces);
    free(sums.dtables);
    free(sums.dvalues);
    free(sums.dlc);
    free_op(&op);
    return failed;
}

double NAME(direct_operations)(const lambda_problem *p, int backward) {
    double pairs[2] = {0, 0}; /* of a query and a position in its window, along each axis */
    for (int axis = 0; axis < 2; axis++)
        for (int64_t n = 0; n < p->queries[axis]; n++) {
            const span s = visible(n * p->stride[axis], p->context[axis], p->scope[axis], p->dilation[axis]);
            pairs[axis] += (double)(s.last - s.first);
        }
    const double causal = (double)p->past / (double)(p->scope[0] * p->scope[1]);
    const int64_t h = MAX(2, p->h); /* a single head leaves part of the FMA throughput unused */
    const double k = (double)p->k / (double)LANES, v = (double)((p->v + LANES - 1) / LANES);
    return pairs[0] * pairs[1] * causal * (double)(p->u * h) * (backward ? 3 * k + 2 * v : k + v) / (double)p->threads;
}
