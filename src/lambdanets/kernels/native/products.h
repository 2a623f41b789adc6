/* The two microkernels that the direct algorithm consists of. A few rows (the heads of a query) meet a matrix whose columns
 * are the lanes; elements of the rows are broadcast, so that no sum runs across a vector.
 *
 *   multiply   C[r][x] (+)= sum_i A[r][i] B[i][x]      C in registers
 *   outer      D[i][x]  +=  sum_r A[r][i] T[r][x]      T in registers
 *
 * Leading dimensions are called as in BLAS: lda is the distance between rows of A. A batch of queries goes through one
 * register block before the next, since for small windows the calls would take a fifth of the time; the operands of query
 * j begin at their offsets[j]. */
#ifndef LAMBDANETS_PRODUCTS_H
#define LAMBDANETS_PRODUCTS_H

#include "vector.h"

enum { QUERY_BATCH = 8 };
static const int64_t no_offsets[QUERY_BATCH];

typedef struct {
    int64_t queries;
    real *c;
    const int64_t *c_offsets;
    int64_t ldc;
    const real *a;
    const int64_t *a_offsets;
    int64_t lda, a_group_stride;
    const real *b;
    const int64_t *b_offsets;
    int64_t b_group_stride, ldb;
    int64_t groups, n;     /* the sum has `groups` groups of n terms */
    int accumulate;        /* add to C, or overwrite it */
    int64_t rows, vectors; /* of C, any number */
} multiply_args;

ALWAYS_INLINE void multiply_block(const multiply_args *p, const int rows, const int vectors, int64_t r0, int64_t x0) {
    const int chains = CHAINS(rows, vectors), accumulate = p->accumulate;
    const int64_t n = p->n, ldb = p->ldb, lda = p->lda, ldc = p->ldc, groups = p->groups;
    const int64_t a_group_stride = p->a_group_stride, b_group_stride = p->b_group_stride;
    const real *const a0 = p->a + r0 * lda, *const b0 = p->b + x0 * LANES;
    real *const c0 = p->c + r0 * ldc + x0 * LANES;
    for (int64_t j = 0; j < p->queries; j++) {
        const real *a_group = a0 + p->a_offsets[j], *b_group = b0 + p->b_offsets[j];
        vec sum[2][ROWS][VECTORS];
        UNROLL for (int w = 0; w < chains; w++)
            UNROLL for (int r = 0; r < rows; r++)
                UNROLL for (int x = 0; x < vectors; x++) sum[w][r][x] = (vec){0};
        for (int64_t g = 0; g < groups; g++, a_group += a_group_stride, b_group += b_group_stride) {
            const real *a = a_group, *b = b_group;
            int64_t left = n;
            for (; left >= chains; left -= chains)
                UNROLL for (int w = 0; w < chains; w++, a++, b += ldb) {
                    vec line[VECTORS];
                    UNROLL for (int x = 0; x < vectors; x++) {
                        line[x] = LOAD(b + x * LANES);
                        if (rows > 1) KEEP_IN_REGISTER(line[x]);
                    }
                    UNROLL for (int r = 0; r < rows; r++)
                        UNROLL for (int x = 0; x < vectors; x++) sum[w][r][x] += a[r * lda] * line[x];
                }
            if (chains == 2 && left)
                UNROLL for (int r = 0; r < rows; r++)
                    UNROLL for (int x = 0; x < vectors; x++) sum[0][r][x] += a[r * lda] * LOAD(b + x * LANES);
        }
        real *c = c0 + p->c_offsets[j];
        UNROLL for (int r = 0; r < rows; r++, c += ldc) {
            if (chains == 2)
                UNROLL for (int x = 0; x < vectors; x++) sum[0][r][x] += sum[1][r][x];
            if (accumulate)
                UNROLL for (int x = 0; x < vectors; x++) sum[0][r][x] += LOAD(c + x * LANES);
            UNROLL for (int x = 0; x < vectors; x++) STORE(c + x * LANES) = sum[0][r][x];
        }
    }
}

/* D[i][x] += sum_r A[r][i] T[r][x] for i < n. */
ALWAYS_INLINE void add_outer(real *d, int64_t ldd, const real *a, int64_t lda, vec t[ROWS][VECTORS], int64_t n,
                             const int rows, const int vectors) {
    for (int64_t left = n; left > 0; left--, a++, d += ldd) {
        vec line[VECTORS];
        UNROLL for (int x = 0; x < vectors; x++) line[x] = LOAD(d + x * LANES);
        UNROLL for (int r = 0; r < rows; r++)
            UNROLL for (int x = 0; x < vectors; x++) line[x] += a[r * lda] * t[r][x];
        UNROLL for (int x = 0; x < vectors; x++) STORE(d + x * LANES) = line[x];
    }
}

typedef struct {
    int64_t queries;
    real *d;
    const int64_t *d_offsets;
    int64_t d_group_stride, ldd;
    const real *a;
    const int64_t *a_offsets;
    int64_t lda, a_group_stride;
    const real *t;
    const int64_t *t_offsets;
    int64_t ldt;
    int64_t groups, n;     /* D has `groups` groups of n rows */
    int64_t rows, vectors; /* of T, any number */
} outer_args;

ALWAYS_INLINE void outer_block(const outer_args *p, const int rows, const int vectors, int64_t r0, int64_t x0) {
    const int64_t lda = p->lda, ldt = p->ldt, ldd = p->ldd, n = p->n, groups = p->groups;
    const int64_t a_group_stride = p->a_group_stride, d_group_stride = p->d_group_stride;
    const real *const a0 = p->a + r0 * lda, *const t0 = p->t + r0 * ldt + x0 * LANES;
    real *const d0 = p->d + x0 * LANES;
    for (int64_t j = 0; j < p->queries; j++) {
        const real *a = a0 + p->a_offsets[j], *row = t0 + p->t_offsets[j];
        real *d = d0 + p->d_offsets[j];
        vec t[ROWS][VECTORS];
        UNROLL for (int r = 0; r < rows; r++, row += ldt)
            UNROLL for (int x = 0; x < vectors; x++) t[r][x] = LOAD(row + x * LANES);
        for (int64_t g = 0; g < groups; g++, a += a_group_stride, d += d_group_stride)
            add_outer(d, ldd, a, lda, t, n, rows, vectors);
    }
}

/* The block size with which as few blocks of at most `limit` as possible cover `total`, as equal as possible. */
static int64_t balanced(int64_t total, int64_t limit) {
    if (total <= limit) return total;
    const int64_t blocks = (total + limit - 1) / limit;
    return (total + blocks - 1) / blocks;
}

/* One function for each size of register block. In one large function GCC keeps so many addresses that it spills them in
 * every inner loop. */
#define DEFINE_BLOCK(block, args, r, x) \
    NOINLINE void block##_##r##_##x(const args *p, int64_t r0, int64_t x0) { block(p, r, x, r0, x0); }
#if REGISTERS == 32
#define DEFINE_ROW(block, args, r)                                                                             \
    DEFINE_BLOCK(block, args, r, 1) DEFINE_BLOCK(block, args, r, 2) DEFINE_BLOCK(block, args, r, 3)            \
    DEFINE_BLOCK(block, args, r, 4) DEFINE_BLOCK(block, args, r, 5) DEFINE_BLOCK(block, args, r, 6)
#define LIST_ROW(block, r)                                                                                     \
    {block##_##r##_1, block##_##r##_2, block##_##r##_3, block##_##r##_4, block##_##r##_5, block##_##r##_6}
#else
#define DEFINE_ROW(block, args, r) \
    DEFINE_BLOCK(block, args, r, 1) DEFINE_BLOCK(block, args, r, 2) DEFINE_BLOCK(block, args, r, 3)
#define LIST_ROW(block, r) {block##_##r##_1, block##_##r##_2, block##_##r##_3}
#endif

/* The product of any size, in register blocks. */
#define DEFINE_PRODUCT(name, args, block)                                                                      \
    DEFINE_ROW(block, args, 1) DEFINE_ROW(block, args, 2) DEFINE_ROW(block, args, 3) DEFINE_ROW(block, args, 4) \
    static void name(const args *p) {                                                                          \
        static void (*const blocks[ROWS][VECTORS])(const args *, int64_t, int64_t) = {                         \
            LIST_ROW(block, 1), LIST_ROW(block, 2), LIST_ROW(block, 3), LIST_ROW(block, 4)};                   \
        const int64_t step = balanced(p->vectors, VECTORS);                                                    \
        for (int64_t r0 = 0; r0 < p->rows; r0 += ROWS)                                                         \
            for (int64_t x0 = 0; x0 < p->vectors; x0 += step)                                                  \
                blocks[MIN(ROWS, p->rows - r0) - 1][MIN(step, p->vectors - x0) - 1](p, r0, x0);                \
    }

DEFINE_PRODUCT(multiply, multiply_args, multiply_block)
DEFINE_PRODUCT(outer, outer_args, outer_block)

#endif
