/* The two products that everything is made of. A few rows (the heads of a query) meet a matrix whose columns are the
 * lanes; the rows' numbers are broadcast, so that no sum ever runs across a vector.
 *
 *   multiply   C[r][x] (+)= sum_i A[r][i] B[i][x]      C in registers
 *   outer      D[i][x]  +=  sum_r A[r][i] T[r][x]      T in registers
 */
#ifndef LAMBDANETS_PRODUCTS_H
#define LAMBDANETS_PRODUCTS_H

#include "vector.h"

/* Several queries go one after the other through one block: `at` says where the operand of each begins. */
enum { QUERIES = 8 };
static const int64_t shared[QUERIES];

/* The sum over i may run over several groups of n. */
typedef struct {
    int64_t queries;
    real *c;
    const int64_t *c_at;
    int64_t c_row;
    const real *a;
    const int64_t *a_at;
    int64_t a_row, a_group;
    const real *b;
    const int64_t *b_at;
    int64_t b_group, b_i;
    int64_t groups, n;
    int accumulate;
    int64_t rows, vectors; /* of C, any number */
    int64_t step;          /* vectors at once, see `evenly` */
} product;

ALWAYS_INLINE void multiply_block(const product *p, const int rows, const int vectors, int64_t r0, int64_t x0) {
    const int ways = WAYS(rows, vectors), accumulate = p->accumulate;
    const int64_t n = p->n, b_i = p->b_i, a_row = p->a_row, c_row = p->c_row, groups = p->groups;
    const int64_t a_group = p->a_group, b_group = p->b_group;
    const real *const a0 = p->a + r0 * a_row, *const b0 = p->b + x0 * LANES;
    real *const c0 = p->c + r0 * c_row + x0 * LANES;
    for (int64_t j = 0; j < p->queries; j++) {
        const real *a = a0 + p->a_at[j], *b = b0 + p->b_at[j];
        vec sum[2][ROWS][VECTORS];
        UNROLL for (int w = 0; w < ways; w++)
            UNROLL for (int r = 0; r < rows; r++)
                UNROLL for (int x = 0; x < vectors; x++) sum[w][r][x] = (vec){0};
        for (int64_t g = 0; g < groups; g++, a += a_group, b += b_group) {
            const real *at = a, *line_at = b;
            int64_t left = n;
            for (; left >= ways; left -= ways)
                UNROLL for (int w = 0; w < ways; w++, at++, line_at += b_i) {
                    vec line[VECTORS];
                    UNROLL for (int x = 0; x < vectors; x++) {
                        line[x] = LOAD(line_at + x * LANES);
                        if (rows > 1) KEEP(line[x]);
                    }
                    UNROLL for (int r = 0; r < rows; r++)
                        UNROLL for (int x = 0; x < vectors; x++) sum[w][r][x] += at[r * a_row] * line[x];
                }
            if (ways == 2 && left)
                UNROLL for (int r = 0; r < rows; r++)
                    UNROLL for (int x = 0; x < vectors; x++) sum[0][r][x] += at[r * a_row] * LOAD(line_at + x * LANES);
        }
        real *to = c0 + p->c_at[j];
        UNROLL for (int r = 0; r < rows; r++, to += c_row) {
            if (ways == 2)
                UNROLL for (int x = 0; x < vectors; x++) sum[0][r][x] += sum[1][r][x];
            if (accumulate)
                UNROLL for (int x = 0; x < vectors; x++) sum[0][r][x] += LOAD(to + x * LANES);
            UNROLL for (int x = 0; x < vectors; x++) STORE(to + x * LANES) = sum[0][r][x];
        }
    }
}

/* D[i][x] += sum_r a[r][i] t[r][x] for n i. */
ALWAYS_INLINE void add_outer(real *d, int64_t d_i, const real *a, int64_t a_row, vec t[ROWS][VECTORS], int64_t n,
                             const int rows, const int vectors) {
    for (int64_t left = n; left > 0; left--, a++, d += d_i) {
        vec line[VECTORS];
        UNROLL for (int x = 0; x < vectors; x++) line[x] = LOAD(d + x * LANES);
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int x = 0; x < vectors; x++) line[x] += a[r * a_row] * t[r][x];
        UNROLL for (int x = 0; x < vectors; x++) STORE(d + x * LANES) = line[x];
    }
}

typedef struct {
    int64_t queries;
    real *d;
    const int64_t *d_at;
    int64_t d_group, d_i;
    const real *a;
    const int64_t *a_at;
    int64_t a_row, a_group;
    const real *t;
    const int64_t *t_at;
    int64_t t_row;
    int64_t groups, n;
    int64_t rows, vectors, step;
} outer_product;

ALWAYS_INLINE void outer_block(const outer_product *p, const int rows, const int vectors, int64_t r0, int64_t x0) {
    const int64_t a_row = p->a_row, t_row = p->t_row, d_i = p->d_i, n = p->n, groups = p->groups;
    const int64_t a_group = p->a_group, d_group = p->d_group;
    const real *const a0 = p->a + r0 * a_row, *const t0 = p->t + r0 * t_row + x0 * LANES;
    real *const d0 = p->d + x0 * LANES;
    for (int64_t j = 0; j < p->queries; j++) {
        const real *a = a0 + p->a_at[j], *from = t0 + p->t_at[j];
        real *d = d0 + p->d_at[j];
        vec t[ROWS][VECTORS];
        UNROLL for (int r = 0; r < rows; r++, from += t_row)
            UNROLL for (int x = 0; x < vectors; x++) t[r][x] = LOAD(from + x * LANES);
        for (int64_t g = 0; g < groups; g++, a += a_group, d += d_group) add_outer(d, d_i, a, a_row, t, n, rows, vectors);
    }
}

/* As few blocks of at most `limit` as cover `all`, as equal as can be: their size. */
static int64_t evenly(int64_t all, int64_t limit) {
    const int64_t blocks = (all + limit - 1) / limit;
    return blocks > 1 ? (all + blocks - 1) / blocks : all;
}

/* Any number of rows and vectors, in blocks that fit the registers: one function for each size of block. */
#define ONE(block, type, r, x)                                                                                 \
    static __attribute__((noinline)) void block##_##r##_##x(const type *p, int64_t r0, int64_t x0) {            \
        block(p, r, x, r0, x0);                                                                                \
    }
#if REGISTERS == 32
#define EACH_VECTOR(block, type, r)                                                                            \
    ONE(block, type, r, 1) ONE(block, type, r, 2) ONE(block, type, r, 3) ONE(block, type, r, 4)                \
    ONE(block, type, r, 5) ONE(block, type, r, 6)
#define NAMES(block, r)                                                                                        \
    {block##_##r##_1, block##_##r##_2, block##_##r##_3, block##_##r##_4, block##_##r##_5, block##_##r##_6}
#else
#define EACH_VECTOR(block, type, r) ONE(block, type, r, 1) ONE(block, type, r, 2) ONE(block, type, r, 3)
#define NAMES(block, r) {block##_##r##_1, block##_##r##_2, block##_##r##_3}
#endif
#define BLOCKS(name, type, block)                                                                              \
    EACH_VECTOR(block, type, 1) EACH_VECTOR(block, type, 2) EACH_VECTOR(block, type, 3) EACH_VECTOR(block, type, 4) \
    static void name(const type *p) {                                                                          \
        static void (*const of_size[ROWS][VECTORS])(const type *, int64_t, int64_t) = {                        \
            NAMES(block, 1), NAMES(block, 2), NAMES(block, 3), NAMES(block, 4)};                               \
        for (int64_t r0 = 0; r0 < p->rows; r0 += ROWS)                                                         \
            for (int64_t x0 = 0; x0 < p->vectors; x0 += p->step)                                               \
                of_size[SMALLER(ROWS, p->rows - r0) - 1][SMALLER(p->step, p->vectors - x0) - 1](p, r0, x0);    \
    }

BLOCKS(multiply, product, multiply_block)
BLOCKS(outer, outer_product, outer_block)

#endif
