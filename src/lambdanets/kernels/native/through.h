/* Both products of products.h in a row: T[r][x] = sum_i A[r][i] B[i][x], stored, and while it is still in registers
 * D[i][x] += sum_r Q[r][i] T[r][x]. */
#ifndef LAMBDANETS_THROUGH_H
#define LAMBDANETS_THROUGH_H

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

/* Vector x of the first `count` units of lines of `units`; what comes after them is zero. */
ALWAYS_INLINE vec load_units(const real *b, int64_t line, const int units, const int count, const int x) {
    const int here = x * UNITS, last = here + UNITS - 1;
    const real *at = b + here / units * line + here % units * UNIT;
#if UNITS == 2
    if (here / units != last / units)
        return JOIN(LOAD_HALF(at), last < count ? LOAD_HALF(b + last / units * line) : (half){0});
#else
    (void)count, (void)last;
#endif
    return LOAD(at);
}

/* These units of the lines at b; in T and D they begin at `column`. */
ALWAYS_INLINE void through_block(const two_products *p, const int rows, const int units, const int count, int64_t r0,
                                 const real *b0, int64_t column) {
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
                    line[x] = load_units(lines_at, b_line, units, count, x);
                    if (rows > 1) KEEP(line[x]);
                }
                UNROLL for (int r = 0; r < rows; r++)
                    UNROLL for (int x = 0; x < vectors; x++) t[w][r][x] += at[r * a_row] * line[x];
            }
        if (ways == 2 && left)
            UNROLL for (int x = 0; x < vectors; x++) {
                const vec line = load_units(lines_at, b_line, units, count, x);
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

/* Blocks of whole lines of so many units, one function for each size; a line that is longer than half a block is taken in
 * pieces of its own. */
#define LINES_1(ONE, r, u) ONE(r, u, 1)
#define LINES_2(ONE, r, u) LINES_1(ONE, r, u) ONE(r, u, 2)
#define LINES_3(ONE, r, u) LINES_2(ONE, r, u) ONE(r, u, 3)
#define LINES_4(ONE, r, u) LINES_3(ONE, r, u) ONE(r, u, 4)
#define LINES_6(ONE, r, u) LINES_4(ONE, r, u) ONE(r, u, 5) ONE(r, u, 6)
#define LINES_8(ONE, r, u) LINES_6(ONE, r, u) ONE(r, u, 7) ONE(r, u, 8)
#if UNITS == 2
#define EACH_SHAPE(ONE, r)                                                                                     \
    LINES_8(ONE, r, 1) LINES_6(ONE, r, 2) LINES_4(ONE, r, 3) LINES_3(ONE, r, 4) LINES_2(ONE, r, 5) LINES_2(ONE, r, 6) \
    LINES_1(ONE, r, 8) LINES_1(ONE, r, 10) LINES_1(ONE, r, 12)
#elif REGISTERS == 32
#define EACH_SHAPE(ONE, r)                                                                                     \
    LINES_6(ONE, r, 1) LINES_3(ONE, r, 2) LINES_2(ONE, r, 3) LINES_1(ONE, r, 4) LINES_1(ONE, r, 5) LINES_1(ONE, r, 6)
#else
#define EACH_SHAPE(ONE, r) LINES_3(ONE, r, 1) LINES_1(ONE, r, 2) LINES_1(ONE, r, 3)
#endif
#define EACH_ROWS(ONE) EACH_SHAPE(ONE, 1) EACH_SHAPE(ONE, 2) EACH_SHAPE(ONE, 3) EACH_SHAPE(ONE, 4)

#define DEFINE_THROUGH(r, u, l)                                                                                \
    static __attribute__((noinline)) void through_##r##_##u##_##l(const two_products *p, int64_t r0, const real *b, \
                                                                  int64_t column) {                            \
        through_block(p, r, u, (u) * (l), r0, b, column);                                                      \
    }
EACH_ROWS(DEFINE_THROUGH)

/* A block of any other size, one vector at a time. */
static void through_any(const two_products *p, int64_t rows, int units, int count, int64_t r0, const real *b,
                        int64_t column) {
    for (int64_t j = 0; j < p->queries; j++)
        for (int64_t r = r0; r < r0 + rows; r++)
            for (int x = 0; x < (count + UNITS - 1) / UNITS; x++) {
                const real *a = p->a + r * p->a_row + p->a_at[j], *q = p->q + r * p->q_row + p->q_at[j];
                real *d = p->d + column + x * LANES;
                vec t = {0};
                for (int64_t i = 0; i < p->n; i++)
                    t += a[i] * load_units(b + p->b_at[j] + i * p->b_i, p->b_line, units, count, x);
                STORE(p->t + r * p->t_row + p->t_at[j] + column + x * LANES) = t;
                for (int64_t i = 0; i < p->k; i++, d += p->d_i) STORE(d) = LOAD(d) + q[i] * t;
            }
}

#define SHAPE(r, u, n) (((r) * 16 + (u)) * 16 + (n))
#define CALL_THROUGH(r, u, l) \
    case SHAPE(r, u, (u) * (l)): through_##r##_##u##_##l(p, r0, b, column); break;

static void through(const two_products *p) {
    const int64_t most = VECTORS * UNITS, all = p->lines * p->units;
    const int pieces = 2 * p->units > most; /* of one line */
    /* Whole vectors, or the next block would begin inside the last one. */
    const int64_t fit = SMALLER(8, LARGER(1, most / p->units)), pad = p->units % UNITS ? UNITS : 1;
    const int64_t step = pieces ? ROUND_UP(evenly(p->units, most), UNITS)
                                : p->units * SMALLER(fit, ROUND_UP(evenly(p->lines, fit), pad));
    for (int64_t r0 = 0; r0 < p->rows; r0 += ROWS) {
        const int64_t rows = SMALLER(ROWS, p->rows - r0);
        const real *line = p->b;
        for (int64_t at = 0, first = 0, n; at < all; at += n) {
            n = SMALLER(step, pieces ? p->units - first : all - at);
            const int64_t column = at * UNIT, count = pieces && n > 6 ? ROUND_UP(n, UNITS) : n;
            const int64_t units = pieces ? count : p->units;
            const real *b = line + first * UNIT;
            switch (SHAPE(rows, units, count)) {
                EACH_ROWS(CALL_THROUGH)
                default: through_any(p, rows, (int)units, (int)count, r0, b, column);
            }
            for (first += n; first >= p->units; first -= p->units) line += p->b_line;
        }
    }
}

#endif
