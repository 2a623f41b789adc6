/* Both products of products.h in a row: T[r][x] = sum_i A[r][i] B[i][x], stored, and while it is still in registers
 * D[i][x] += sum_r Q[r][i] T[r][x]. */
#ifndef LAMBDANETS_THROUGH_H
#define LAMBDANETS_THROUGH_H

#include <stdlib.h>

#include "products.h"

/* B is a few lines of a map, each of whole units; T and D have these lines one behind the other. */
typedef struct {
    int64_t queries;
    real *t;
    const int64_t *t_at;
    int64_t t_row;
    const real *a;
    const int64_t *a_at;
    int64_t a_row, n;
    const real *b;
    const int64_t *b_at;
    int64_t b_line, b_i;
    const real *q;
    const int64_t *q_at;
    int64_t q_row, k;
    real *d;
    int64_t d_i;
    int64_t rows, lines, units; /* of a line */
} two_products;

/* Vector x of `count` units from `first` of a line of `units` on; what comes after them is zero. */
ALWAYS_INLINE vec load_units(const real *b, int64_t line, const int units, const int first, const int count,
                             const int x) {
    const int here = first + x * UNITS, last = here + UNITS - 1;
    const real *at = b + here / units * line + here % units * UNIT;
#if UNITS == 2
    if (here / units != last / units)
        return JOIN(LOAD_HALF(at), last < first + count ? LOAD_HALF(b + last / units * line) : (half){0});
#else
    (void)count, (void)last;
#endif
    return LOAD(at);
}

/* These units of the line at b; in T and D they begin at `column`. */
ALWAYS_INLINE void through_block(const two_products *p, const int rows, const int units, const int first,
                                 const int count, int64_t r0, const real *b0, int64_t column) {
    const int vectors = (count + UNITS - 1) / UNITS, ways = WAYS(rows, vectors);
    const int64_t a_row = p->a_row, b_i = p->b_i, b_line = p->b_line, n = p->n, t_row = p->t_row;
    const int64_t q_row = p->q_row, d_i = p->d_i, k = p->k;
    const real *const a0 = p->a + r0 * a_row, *const q0 = p->q + r0 * q_row;
    real *const t0 = p->t + r0 * t_row + column, *const d = p->d + column;
    for (int64_t j = 0; j < p->queries; j++) {
        vec t[2][ROWS][VECTORS];
        UNROLL for (int w = 0; w < ways; w++)
            UNROLL for (int r = 0; r < rows; r++)
                UNROLL for (int x = 0; x < vectors; x++) t[w][r][x] = (vec){0};
        const real *at = a0 + p->a_at[j], *lines_at = b0 + p->b_at[j];
        int64_t left = n;
        for (; left >= ways; left -= ways)
            UNROLL for (int w = 0; w < ways; w++, at++, lines_at += b_i) {
                vec line[VECTORS];
                UNROLL for (int x = 0; x < vectors; x++) {
                    line[x] = load_units(lines_at, b_line, units, first, count, x);
                    if (rows > 1) KEEP(line[x]);
                }
                UNROLL for (int r = 0; r < rows; r++)
                    UNROLL for (int x = 0; x < vectors; x++) t[w][r][x] += at[r * a_row] * line[x];
            }
        if (ways == 2 && left)
            UNROLL for (int x = 0; x < vectors; x++) {
                const vec line = load_units(lines_at, b_line, units, first, count, x);
                UNROLL for (int r = 0; r < rows; r++) t[0][r][x] += at[r * a_row] * line;
            }
        real *row = t0 + p->t_at[j];
        UNROLL for (int r = 0; r < rows; r++, row += t_row)
            UNROLL for (int x = 0; x < vectors; x++) {
                if (ways == 2) t[0][r][x] += t[1][r][x];
                STORE(row + x * LANES) = t[0][r][x];
            }
        add_outer(d, d_i, q0 + p->q_at[j], q_row, t[0], k, rows, vectors);
    }
}

/* Blocks of whole lines, one function for each size; a line that is longer than a block is taken in pieces. Few registers
 * hold one line of two vectors and half of the next. */
#if UNITS == 2
#define EACH_SHAPE(ONE, r)                                                                                     \
    ONE(r, 1, 0, 1) ONE(r, 1, 0, 2) ONE(r, 1, 0, 3) ONE(r, 1, 0, 4) ONE(r, 1, 0, 5) ONE(r, 1, 0, 6)            \
    ONE(r, 1, 0, 7) ONE(r, 1, 0, 8) ONE(r, 2, 0, 2) ONE(r, 2, 0, 4) ONE(r, 2, 0, 6) ONE(r, 2, 0, 8)            \
    ONE(r, 2, 0, 10) ONE(r, 2, 0, 12) ONE(r, 3, 0, 3) ONE(r, 3, 0, 6) ONE(r, 3, 0, 9) ONE(r, 3, 0, 12)         \
    ONE(r, 4, 0, 4) ONE(r, 4, 0, 8) ONE(r, 4, 0, 12) ONE(r, 5, 0, 5) ONE(r, 5, 0, 10) ONE(r, 6, 0, 6)          \
    ONE(r, 6, 0, 12) ONE(r, 8, 0, 8) ONE(r, 10, 0, 10) ONE(r, 12, 0, 12)
#elif REGISTERS == 32
#define EACH_SHAPE(ONE, r)                                                                                     \
    ONE(r, 1, 0, 1) ONE(r, 1, 0, 2) ONE(r, 1, 0, 3) ONE(r, 1, 0, 4) ONE(r, 1, 0, 5) ONE(r, 1, 0, 6)            \
    ONE(r, 2, 0, 2) ONE(r, 2, 0, 4) ONE(r, 2, 0, 6) ONE(r, 3, 0, 3) ONE(r, 3, 0, 6) ONE(r, 4, 0, 4)            \
    ONE(r, 5, 0, 5) ONE(r, 6, 0, 6)
#else
#define EACH_SHAPE(ONE, r)                                                                                     \
    ONE(r, 1, 0, 1) ONE(r, 1, 0, 2) ONE(r, 1, 0, 3) ONE(r, 2, 0, 2) ONE(r, 2, 0, 3) ONE(r, 2, 1, 3)            \
    ONE(r, 3, 0, 3)
#endif
#define EACH_ROWS(ONE) EACH_SHAPE(ONE, 1) EACH_SHAPE(ONE, 2) EACH_SHAPE(ONE, 3) EACH_SHAPE(ONE, 4)

#define DEFINE_THROUGH(r, u, f, n)                                                                             \
    static __attribute__((noinline)) void through_##r##_##u##_##f##_##n(const two_products *p, int64_t r0,     \
                                                                        const real *b, int64_t column) {       \
        through_block(p, r, u, f, n, r0, b, column);                                                           \
    }
EACH_ROWS(DEFINE_THROUGH)

#define SHAPE(r, u, f, n) ((((r) * 16 + (u)) * 16 + (f)) * 16 + (n))
#define CALL_THROUGH(r, u, f, n)                           \
    case SHAPE(r, u, f, n):                                \
        through_##r##_##u##_##f##_##n(p, r0, b, column);   \
        break;

static void through(const two_products *p) {
    const int64_t most = VECTORS * UNITS, all = p->lines * p->units;
    const int halves = REGISTERS == 16 && p->units == 2, pieces = !halves && 2 * p->units > most; /* of one line */
    /* Whole vectors, or the next block would begin inside the last one. */
    const int64_t fit = SMALLER(8, LARGER(1, most / p->units)), pad = p->units % UNITS ? UNITS : 1;
    const int64_t step = pieces ? ROUND_UP(evenly(p->units, most), UNITS)
                                : p->units * SMALLER(fit, ROUND_UP(evenly(p->lines, fit), pad));
    for (int64_t r0 = 0; r0 < p->rows; r0 += ROWS) {
        const int64_t rows = SMALLER(ROWS, p->rows - r0);
        const real *line = p->b;
        for (int64_t at = 0, first = 0, n; at < all; at += n) {
            n = halves ? evenly(all - at, most) : SMALLER(step, pieces ? p->units - first : all - at);
            const int64_t column = at * UNIT, whole = n > 6 ? ROUND_UP(n, UNITS) : n;
            const real *b = pieces ? line + first * UNIT : line;
            switch (pieces ? SHAPE(rows, whole, 0, whole) : SHAPE(rows, p->units, first, n)) {
                EACH_ROWS(CALL_THROUGH)
                default: abort(); /* a shape that has no function */
            }
            for (first += n; first >= p->units; first -= p->units) line += p->b_line;
        }
    }
}

#endif
