/* Both microkernels of products.h fused: T[r][x] = sum_i A[r][i] B[i][x] is stored, and while it is still in registers
 * D[i][x] += sum_r Q[r][i] T[r][x]. */
#ifndef LAMBDANETS_FUSED_PRODUCT_H
#define LAMBDANETS_FUSED_PRODUCT_H

#include "products.h"

/* Every row of B is a few lines of a map, each of whole segments; T and D have these lines without gaps. */
typedef struct {
    int64_t queries;
    real *t;
    const int64_t *t_offsets;
    int64_t ldt;
    const real *a;
    const int64_t *a_offsets;
    int64_t lda, n;
    const real *b;
    const int64_t *b_offsets;
    int64_t b_line_stride, ldb;
    const real *q;
    const int64_t *q_offsets;
    int64_t ldq, k;
    real *d;
    int64_t ldd;
    int64_t rows, lines, segments; /* of a line */
} fused_args;

/* Vector x of a block of `count` segments, from lines of `segments` segments. Beyond the block it is zero. */
ALWAYS_INLINE vec load_segments(const real *b, int64_t line_stride, const int segments, const int count, const int x) {
    const int first = x * SEGMENTS, last = first + SEGMENTS - 1;
    const real *at = b + first / segments * line_stride + first % segments * SEGMENT;
#if SEGMENTS == 2
    if (first / segments != last / segments)
        return CONCAT(LOAD_HALF(at), last < count ? LOAD_HALF(b + last / segments * line_stride) : (half_vec){0});
#else
    (void)count, (void)last;
#endif
    return LOAD(at);
}

/* A block of `count` segments from the line at b0 on; in T and D it begins at `column`. */
ALWAYS_INLINE void fused_block(const fused_args *p, const int rows, const int segments, const int count, int64_t r0,
                               const real *b0, int64_t column) {
    const int vectors = (count + SEGMENTS - 1) / SEGMENTS, chains = CHAINS(rows, vectors);
    const int64_t lda = p->lda, ldb = p->ldb, line_stride = p->b_line_stride, n = p->n, ldt = p->ldt;
    const int64_t ldq = p->ldq, ldd = p->ldd, k = p->k;
    const real *const a0 = p->a + r0 * lda, *const q0 = p->q + r0 * ldq;
    real *const t0 = p->t + r0 * ldt + column, *const d = p->d + column;
    for (int64_t j = 0; j < p->queries; j++) {
        vec t[2][ROWS][VECTORS];
        UNROLL for (int w = 0; w < chains; w++)
            UNROLL for (int r = 0; r < rows; r++)
                UNROLL for (int x = 0; x < vectors; x++) t[w][r][x] = (vec){0};
        const real *a = a0 + p->a_offsets[j], *b = b0 + p->b_offsets[j];
        int64_t left = n;
        for (; left >= chains; left -= chains)
            UNROLL for (int w = 0; w < chains; w++, a++, b += ldb) {
                vec line[VECTORS];
                UNROLL for (int x = 0; x < vectors; x++) {
                    line[x] = load_segments(b, line_stride, segments, count, x);
                    if (rows > 1) KEEP_IN_REGISTER(line[x]);
                }
                UNROLL for (int r = 0; r < rows; r++)
                    UNROLL for (int x = 0; x < vectors; x++) t[w][r][x] += a[r * lda] * line[x];
            }
        if (chains == 2 && left)
            UNROLL for (int x = 0; x < vectors; x++) {
                const vec line = load_segments(b, line_stride, segments, count, x);
                UNROLL for (int r = 0; r < rows; r++) t[0][r][x] += a[r * lda] * line;
            }
        real *row = t0 + p->t_offsets[j];
        UNROLL for (int r = 0; r < rows; r++, row += ldt)
            UNROLL for (int x = 0; x < vectors; x++) {
                if (chains == 2) t[0][r][x] += t[1][r][x];
                STORE(row + x * LANES) = t[0][r][x];
            }
        add_outer(d, ldd, q0 + p->q_offsets[j], ldq, t[0], k, rows, vectors);
    }
}

/* The same for a block of any size, one vector at a time. */
static void fused_block_generic(const fused_args *p, int64_t rows, int segments, int count, int64_t r0, const real *b0,
                                int64_t column) {
    for (int64_t j = 0; j < p->queries; j++)
        for (int64_t r = r0; r < r0 + rows; r++)
            for (int x = 0; x < (count + SEGMENTS - 1) / SEGMENTS; x++) {
                const real *a = p->a + r * p->lda + p->a_offsets[j], *b = b0 + p->b_offsets[j];
                const real *q = p->q + r * p->ldq + p->q_offsets[j];
                real *d = p->d + column + x * LANES;
                vec t = {0};
                for (int64_t i = 0; i < p->n; i++, b += p->ldb)
                    t += a[i] * load_segments(b, p->b_line_stride, segments, count, x);
                STORE(p->t + r * p->ldt + p->t_offsets[j] + column + x * LANES) = t;
                for (int64_t i = 0; i < p->k; i++, d += p->ldd) STORE(d) = LOAD(d) + q[i] * t;
            }
}

/* Shapes that have a function of their own: r rows times the first lines of s segments each that a register block holds.
 * A line that is longer than half a block is cut into pieces, which are blocks of one line. */
#define LINES_1(DO, r, s) DO(r, s, 1)
#define LINES_2(DO, r, s) LINES_1(DO, r, s) DO(r, s, 2)
#define LINES_3(DO, r, s) LINES_2(DO, r, s) DO(r, s, 3)
#define LINES_4(DO, r, s) LINES_3(DO, r, s) DO(r, s, 4)
#define LINES_6(DO, r, s) LINES_4(DO, r, s) DO(r, s, 5) DO(r, s, 6)
#define LINES_8(DO, r, s) LINES_6(DO, r, s) DO(r, s, 7) DO(r, s, 8)
#if defined(GENERIC_BLOCKS) /* for tests */
#define EACH_SHAPE(DO, r)
#elif SEGMENTS == 2
#define EACH_SHAPE(DO, r)                                                                                      \
    LINES_8(DO, r, 1) LINES_6(DO, r, 2) LINES_4(DO, r, 3) LINES_3(DO, r, 4) LINES_2(DO, r, 5) LINES_2(DO, r, 6) \
    LINES_1(DO, r, 8) LINES_1(DO, r, 10) LINES_1(DO, r, 12)
#elif REGISTERS == 32
#define EACH_SHAPE(DO, r)                                                                                      \
    LINES_6(DO, r, 1) LINES_3(DO, r, 2) LINES_2(DO, r, 3) LINES_1(DO, r, 4) LINES_1(DO, r, 5) LINES_1(DO, r, 6)
#else
#define EACH_SHAPE(DO, r) LINES_3(DO, r, 1) LINES_1(DO, r, 2) LINES_1(DO, r, 3)
#endif
#define EACH_BLOCK(DO) EACH_SHAPE(DO, 1) EACH_SHAPE(DO, 2) EACH_SHAPE(DO, 3) EACH_SHAPE(DO, 4)
enum { MAX_LINES = 8 };

#define DEFINE_FUSED(r, s, l)                                                                                  \
    NOINLINE void fused_block_##r##_##s##_##l(const fused_args *p, int64_t r0, const real *b, int64_t column) { \
        fused_block(p, r, s, (s) * (l), r0, b, column);                                                        \
    }
EACH_BLOCK(DEFINE_FUSED)

#define SHAPE(rows, segments, count) (((rows) * 16 + (segments)) * 16 + (count))
#define CALL_FUSED(r, s, l) \
    case SHAPE(r, s, (s) * (l)): fused_block_##r##_##s##_##l(p, r0, b, column); break;

static void multiply_outer(const fused_args *p) {
    const int64_t limit = VECTORS * SEGMENTS, total = p->lines * p->segments;
    const int pieces = 2 * p->segments > limit; /* of one line, or blocks of whole lines */
    /* Blocks end with whole vectors, or else the next one would begin inside a vector. */
    const int64_t fit = MIN(MAX_LINES, MAX(1, limit / p->segments)), align = p->segments % SEGMENTS ? SEGMENTS : 1;
    const int64_t step = pieces ? ROUND_UP(balanced(p->segments, limit), SEGMENTS)
                                : p->segments * MIN(fit, ROUND_UP(balanced(p->lines, fit), align));
    for (int64_t r0 = 0; r0 < p->rows; r0 += ROWS) {
        const int64_t rows = MIN(ROWS, p->rows - r0);
        const real *line = p->b;
        for (int64_t at = 0, first = 0, n; at < total; at += n) {
            n = MIN(step, pieces ? p->segments - first : total - at);
            /* Long pieces of an odd number of segments have no function; the end of a single line reads its padding too. */
            const int64_t column = at * SEGMENT, count = p->lines == 1 && n > 6 ? ROUND_UP(n, SEGMENTS) : n;
            const int64_t segments = pieces ? count : p->segments;
            const real *b = line + first * SEGMENT;
            switch (SHAPE(rows, segments, count)) {
                EACH_BLOCK(CALL_FUSED)
                default: fused_block_generic(p, rows, (int)segments, (int)count, r0, b, column);
            }
            for (first += n; first >= p->segments; first -= p->segments) line += p->b_line_stride;
        }
    }
}

#endif
