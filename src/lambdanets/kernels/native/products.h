/* The two products that everything is made of. A few rows (the heads of a query) meet a matrix whose columns are the
 * lanes; the rows' numbers are broadcast, so that no sum ever runs across a vector.
 *
 *   multiply   C[r][x] (+)= sum_i A[r][i] B[i][x]      C in registers
 *   outer      D[i][x]  +=  sum_r A[r][i] T[r][x]      T in registers
 */
#ifndef LAMBDANETS_PRODUCTS_H
#define LAMBDANETS_PRODUCTS_H

#include "vector.h"

/* Where the vectors of a block begin; one after the other, if nothing else is said. */
typedef struct {
    int64_t at[VECTORS];
} offsets;

#if REGISTERS == 32
static const offsets consecutive = {{0, LANES, 2 * LANES, 3 * LANES, 4 * LANES, 5 * LANES}};
#else
static const offsets consecutive = {{0, LANES, 2 * LANES}};
#endif

/* The sum over i may run over several groups of n. */
typedef struct {
    real *c;
    int64_t c_row;
    const offsets *c_at;
    const real *a;
    int64_t a_row, a_group;
    const real *b;
    int64_t b_group, b_i;
    const offsets *b_at;
    int64_t groups, n;
    int accumulate;
    int64_t rows, vectors; /* of C, any number */
    int64_t step;          /* vectors at once, see `evenly`; one block of them unless they are consecutive */
} product;

ALWAYS_INLINE void multiply_block(const product *p, const int rows, const int vectors, int64_t r0, int64_t x0) {
    real *const c = p->c + r0 * p->c_row + x0 * LANES;
    /* Few accumulators would wait for each other: then even and odd i have their own. */
    const int ways = rows * vectors < 12 ? 2 : 1;
    vec sum[2][ROWS][VECTORS];
    int64_t at[VECTORS];
    UNROLL for (int x = 0; x < vectors; x++) at[x] = p->b_at->at[x];
    UNROLL for (int w = 0; w < ways; w++)
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int x = 0; x < vectors; x++)
                sum[w][r][x] = (vec){0};
    if (p->accumulate)
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int x = 0; x < vectors; x++) sum[0][r][x] = LOAD(c + r * p->c_row + p->c_at->at[x]);
    for (int64_t g = 0; g < p->groups; g++) {
        const real *a = p->a + r0 * p->a_row + g * p->a_group, *b = p->b + x0 * LANES + g * p->b_group;
        const int64_t n = p->n, b_i = p->b_i, a_row = p->a_row;
        int64_t i = 0;
        for (; i + ways <= n; i += ways)
            UNROLL for (int w = 0; w < ways; w++) {
                vec line[VECTORS];
                UNROLL for (int x = 0; x < vectors; x++) line[x] = LOAD(b + (i + w) * b_i + at[x]);
                UNROLL for (int r = 0; r < rows; r++)
                    UNROLL for (int x = 0; x < vectors; x++) sum[w][r][x] += a[r * a_row + i + w] * line[x];
            }
        for (; i < n; i++)
            UNROLL for (int r = 0; r < rows; r++)
                UNROLL for (int x = 0; x < vectors; x++)
                    sum[0][r][x] += a[r * a_row + i] * LOAD(b + i * b_i + at[x]);
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int x = 0; x < vectors; x++) {
            if (ways == 2) sum[0][r][x] += sum[1][r][x];
            STORE(c + r * p->c_row + p->c_at->at[x]) = sum[0][r][x];
        }
}

typedef struct {
    real *d;
    int64_t d_group, d_i;
    const real *a;
    int64_t a_row, a_group;
    const real *t;
    int64_t t_row;
    int64_t groups, n;
    int64_t rows, vectors, step;
} outer_product;

ALWAYS_INLINE void outer_block(const outer_product *p, const int rows, const int vectors, int64_t r0, int64_t x0) {
    const real *const from = p->t + r0 * p->t_row + x0 * LANES;
    vec t[ROWS][VECTORS];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int x = 0; x < vectors; x++) t[r][x] = LOAD(from + r * p->t_row + x * LANES);
    const int64_t a_row = p->a_row, d_i = p->d_i, n = p->n;
    for (int64_t g = 0; g < p->groups; g++) {
        const real *a = p->a + r0 * p->a_row + g * p->a_group;
        real *d = p->d + x0 * LANES + g * p->d_group;
        _Pragma("GCC unroll 2") for (int64_t i = 0; i < n; i++) {
            vec line[VECTORS];
            UNROLL for (int x = 0; x < vectors; x++) line[x] = LOAD(d + i * d_i + x * LANES);
            UNROLL for (int r = 0; r < rows; r++)
                UNROLL for (int x = 0; x < vectors; x++) line[x] += a[r * a_row + i] * t[r][x];
            UNROLL for (int x = 0; x < vectors; x++) STORE(d + i * d_i + x * LANES) = line[x];
        }
    }
}

/* As few blocks of at most `limit` as cover `all`, as equal as can be: their size. */
static int64_t evenly(int64_t all, int64_t limit) {
    const int64_t blocks = (all + limit - 1) / limit;
    return blocks > 1 ? (all + blocks - 1) / blocks : all;
}

/* Any number of rows and vectors, in blocks that fit the registers: one compiled body for each size of block. */
#define ONE(block, r, x) \
    case (r) * 8 + (x):  \
        block(p, r, x, r0, x0); \
        break;
#if REGISTERS == 32
#define EACH_VECTOR(block, r) \
    ONE(block, r, 1) ONE(block, r, 2) ONE(block, r, 3) ONE(block, r, 4) ONE(block, r, 5) ONE(block, r, 6)
#else
#define EACH_VECTOR(block, r) ONE(block, r, 1) ONE(block, r, 2) ONE(block, r, 3)
#endif
#define OVER_BLOCKS(block)                                                                                    \
    for (int64_t r0 = 0; r0 < p->rows; r0 += ROWS)                                                            \
        for (int64_t x0 = 0; x0 < p->vectors; x0 += p->step) switch (SMALLER(ROWS, p->rows - r0) * 8 +        \
                                                                     SMALLER(p->step, p->vectors - x0)) {     \
                EACH_VECTOR(block, 1) EACH_VECTOR(block, 2) EACH_VECTOR(block, 3) EACH_VECTOR(block, 4)       \
            }

static __attribute__((noinline)) void multiply(const product *p) { OVER_BLOCKS(multiply_block) }

static __attribute__((noinline)) void outer(const outer_product *p) { OVER_BLOCKS(outer_block) }

#endif
