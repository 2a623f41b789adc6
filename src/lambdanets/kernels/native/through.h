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

/* Vector x of `lines` lines of `units` units each; what comes after them is zero. */
ALWAYS_INLINE vec load_units(const real *b, int64_t line, const int lines, const int units, const int x) {
    const int first = x * UNITS, last = first + UNITS - 1;
    const real *at = b + first / units * line + first % units * UNIT;
#if UNITS == 2
    if (first / units != last / units)
        return JOIN(LOAD_HALF(at), last / units < lines ? LOAD_HALF(b + last / units * line) : (half){0});
#else
    (void)lines, (void)last;
#endif
    return LOAD(at);
}

ALWAYS_INLINE void through_block(const two_products *p, const int rows, const int lines, const int units, int64_t r0,
                                 int64_t line0, int64_t unit0) {
    const int vectors = (lines * units + UNITS - 1) / UNITS, ways = WAYS(rows, vectors);
    const int64_t column = (line0 * p->units + unit0) * UNIT;
    const int64_t a_row = p->a_row, b_i = p->b_i, b_line = p->b_line, n = p->n, t_row = p->t_row;
    const int64_t q_row = p->q_row, d_i = p->d_i, k = p->k;
    const real *const a0 = p->a + r0 * a_row, *const b0 = p->b + line0 * b_line + unit0 * UNIT;
    const real *const q0 = p->q + r0 * q_row;
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
                UNROLL for (int x = 0; x < vectors; x++) line[x] = load_units(lines_at, b_line, lines, units, x);
                UNROLL for (int r = 0; r < rows; r++)
                    UNROLL for (int x = 0; x < vectors; x++) t[w][r][x] += at[r * a_row] * line[x];
            }
        if (ways == 2 && left)
            UNROLL for (int x = 0; x < vectors; x++) {
                const vec line = load_units(lines_at, b_line, lines, units, x);
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

/* Blocks of lines, one function for each number of rows, lines and units; a line that is longer than a block is taken
 * in pieces. */
#if UNITS == 2
#define EACH_SHAPE(ONE, r)                                                                                     \
    ONE(r, 1, 1) ONE(r, 2, 1) ONE(r, 3, 1) ONE(r, 4, 1) ONE(r, 5, 1) ONE(r, 6, 1) ONE(r, 7, 1) ONE(r, 8, 1)    \
    ONE(r, 1, 2) ONE(r, 2, 2) ONE(r, 3, 2) ONE(r, 4, 2) ONE(r, 5, 2) ONE(r, 6, 2)                              \
    ONE(r, 1, 3) ONE(r, 2, 3) ONE(r, 3, 3) ONE(r, 4, 3) ONE(r, 1, 4) ONE(r, 2, 4) ONE(r, 3, 4)                 \
    ONE(r, 1, 5) ONE(r, 2, 5) ONE(r, 1, 6) ONE(r, 2, 6) ONE(r, 1, 8) ONE(r, 1, 10) ONE(r, 1, 12)
#elif REGISTERS == 32
#define EACH_SHAPE(ONE, r)                                                                                     \
    ONE(r, 1, 1) ONE(r, 2, 1) ONE(r, 3, 1) ONE(r, 4, 1) ONE(r, 5, 1) ONE(r, 6, 1) ONE(r, 1, 2) ONE(r, 2, 2)    \
    ONE(r, 3, 2) ONE(r, 1, 3) ONE(r, 2, 3) ONE(r, 1, 4) ONE(r, 1, 5) ONE(r, 1, 6)
#else
#define EACH_SHAPE(ONE, r) ONE(r, 1, 1) ONE(r, 2, 1) ONE(r, 3, 1) ONE(r, 1, 2) ONE(r, 1, 3)
#endif
#define EACH_ROWS(ONE) EACH_SHAPE(ONE, 1) EACH_SHAPE(ONE, 2) EACH_SHAPE(ONE, 3) EACH_SHAPE(ONE, 4)

#define DEFINE_THROUGH(r, l, u)                                                                                \
    static __attribute__((noinline)) void through_##r##_##l##_##u(const two_products *p, int64_t r0,           \
                                                                  int64_t line0, int64_t unit0) {              \
        through_block(p, r, l, u, r0, line0, unit0);                                                           \
    }
EACH_ROWS(DEFINE_THROUGH)

#define CALL_THROUGH(r, l, u)                      \
    case (r) * 256 + (l) * 16 + (u):               \
        through_##r##_##l##_##u(p, r0, line0, unit0); \
        break;

static void through(const two_products *p) {
    const int64_t most = VECTORS * UNITS;
    const int64_t units = p->units > most ? ROUND_UP(evenly(p->units, most), UNITS) : p->units;
    /* Whole vectors of a block: the next would begin inside the last one. */
    const int64_t fit = SMALLER(8, LARGER(1, most / p->units));
    const int64_t lines = SMALLER(fit, ROUND_UP(evenly(p->lines, fit), p->units % UNITS ? UNITS : 1));
    for (int64_t r0 = 0; r0 < p->rows; r0 += ROWS)
        for (int64_t line0 = 0; line0 < p->lines; line0 += lines)
            for (int64_t unit0 = 0; unit0 < p->units; unit0 += units) {
                const int64_t piece = SMALLER(units, p->units - unit0);
                switch (SMALLER(ROWS, p->rows - r0) * 256 + SMALLER(lines, p->lines - line0) * 16 +
                        (piece > 6 ? ROUND_UP(piece, UNITS) : piece)) {
                    EACH_ROWS(CALL_THROUGH)
                    default: abort(); /* a shape that has no function */
                }
            }
}

#endif
