/* One-dimensional FFTs of vectors: every lane is a signal of its own, so that no lane ever meets another.
 *
 *   out[f] = sum_t x[t] exp(-2 pi i t f / n)
 *
 * Stockham's autosort algorithm, which needs no bit reversal, for lengths 2^a 3^b 5^c. The inverse, but for the factor
 * 1 / n, is the same transform with real and imaginary parts swapped before and after. */
#ifndef LAMBDANETS_FFT1D_H
#define LAMBDANETS_FFT1D_H

#include <math.h>
#include <stdlib.h>

#include "vector.h"
#include "workspace.h"

typedef struct {
    vec re, im;
} complex_vec;

enum { MAX_STAGES = 64 };

typedef struct {
    int64_t n, stages;
    int radix[MAX_STAGES];
    real *twiddles; /* of every stage, [p][radix - 1][2]: exp(-2 pi i p m / rest) */
} fft_plan;

/* In the order in which they are tried, and vector operations for each element. */
static const struct {
    int radix;
    double operations;
} radices[] = {{8, 11}, {4, 7}, {5, 10}, {3, 7}, {2, 5}};

enum { RADICES = sizeof radices / sizeof *radices };

/* Factors n = 2^a 3^b 5^c into stages; returns the operations of the transform. A radix of 2 can only be the last. */
static double factor(int64_t n, fft_plan *f) {
    double operations = 0;
    int64_t left = n;
    f->n = n;
    f->stages = 0;
    for (int i = 0; i < RADICES; i++)
        for (; left % radices[i].radix == 0; left /= radices[i].radix) {
            f->radix[f->stages++] = radices[i].radix;
            operations += radices[i].operations * (double)n;
        }
    return operations;
}

/* The fastest length of at least n. */
static int64_t next_fast_length(int64_t n) {
    fft_plan f;
    int64_t best = 0;
    double fewest = 0;
    const int64_t limit = n + n / 4 + 2; /* there is always a 2^a 3^b 5^c up to here */
    for (int64_t five = 1; five <= limit; five *= 5)
        for (int64_t three = five; three <= limit; three *= 3)
            for (int64_t length = three; length <= limit; length *= 2) {
                const double operations = length < n ? 0 : factor(length, &f);
                if (length >= n && (!best || operations < fewest)) {
                    best = length;
                    fewest = operations;
                }
            }
    return best;
}

/* Returns 0 without memory. The caller frees the twiddles. */
static int make_fft_plan(fft_plan *f, int64_t n) {
    factor(n, f);
    f->twiddles = allocate(4 * n + 2 * MAX_STAGES);
    if (!f->twiddles) return 0;
    real *to = f->twiddles;
    int64_t rest = n;
    for (int64_t s = 0; s < f->stages; rest /= f->radix[s++])
        for (int64_t p = 0; p < rest / f->radix[s]; p++)
            for (int64_t m = 1; m < f->radix[s]; m++) {
                const double angle = -6.283185307179586476925 * (double)(p * m) / (double)rest;
                *to++ = (real)cos(angle);
                *to++ = (real)sin(angle);
            }
    return 1;
}

ALWAYS_INLINE complex_vec c_add(complex_vec a, complex_vec b) { return (complex_vec){a.re + b.re, a.im + b.im}; }
ALWAYS_INLINE complex_vec c_sub(complex_vec a, complex_vec b) { return (complex_vec){a.re - b.re, a.im - b.im}; }
ALWAYS_INLINE complex_vec c_scale(complex_vec a, real by) { return (complex_vec){a.re * by, a.im * by}; }
ALWAYS_INLINE complex_vec c_swap(complex_vec a) { return (complex_vec){a.im, a.re}; }
/* By the same complex number in all lanes, w[0] + i w[1]. */
ALWAYS_INLINE complex_vec c_mul(complex_vec a, const real *w) {
    return (complex_vec){a.re * w[0] - a.im * w[1], a.re * w[1] + a.im * w[0]};
}
ALWAYS_INLINE complex_vec times_minus_i(complex_vec a) { return (complex_vec){a.im, -a.re}; }

ALWAYS_INLINE void butterfly_4(complex_vec a0, complex_vec a1, complex_vec a2, complex_vec a3, complex_vec *b) {
    const complex_vec s = c_add(a0, a2), d = c_sub(a0, a2), t = c_add(a1, a3), e = times_minus_i(c_sub(a1, a3));
    b[0] = c_add(s, t);
    b[1] = c_add(d, e);
    b[2] = c_sub(s, t);
    b[3] = c_sub(d, e);
}

/* The transform of length `radix`, in registers. */
ALWAYS_INLINE void butterfly(const int radix, complex_vec *a) {
    if (radix == 2) {
        const complex_vec s = c_add(a[0], a[1]);
        a[1] = c_sub(a[0], a[1]);
        a[0] = s;
    } else if (radix == 3) {
        const complex_vec s = c_add(a[1], a[2]), middle = c_sub(a[0], c_scale(s, (real)0.5));
        const complex_vec d = times_minus_i(c_scale(c_sub(a[1], a[2]), (real)0.866025403784438646763723)); /* sin 60 */
        a[0] = c_add(a[0], s);
        a[1] = c_add(middle, d);
        a[2] = c_sub(middle, d);
    } else if (radix == 4) {
        butterfly_4(a[0], a[1], a[2], a[3], a);
    } else if (radix == 5) {
        const real c1 = (real)0.309016994374947424102293, c2 = (real)-0.809016994374947424102293; /* cos 72, cos 144 */
        const real s1 = (real)0.951056516295153572116439, s2 = (real)0.587785252292473129168706;
        const complex_vec t1 = c_add(a[1], a[4]), t2 = c_add(a[2], a[3]), d1 = c_sub(a[1], a[4]), d2 = c_sub(a[2], a[3]);
        const complex_vec m1 = c_add(c_add(a[0], c_scale(t1, c1)), c_scale(t2, c2));
        const complex_vec m2 = c_add(c_add(a[0], c_scale(t1, c2)), c_scale(t2, c1));
        const complex_vec n1 = times_minus_i(c_add(c_scale(d1, s1), c_scale(d2, s2)));
        const complex_vec n2 = times_minus_i(c_sub(c_scale(d1, s2), c_scale(d2, s1)));
        a[0] = c_add(a[0], c_add(t1, t2));
        a[1] = c_add(m1, n1);
        a[4] = c_sub(m1, n1);
        a[2] = c_add(m2, n2);
        a[3] = c_sub(m2, n2);
    } else {
        const real root = (real)0.707106781186547524400844; /* sqrt(1 / 2) */
        complex_vec e[4], o[4];
        butterfly_4(a[0], a[2], a[4], a[6], e);
        butterfly_4(a[1], a[3], a[5], a[7], o);
        o[1] = c_scale((complex_vec){o[1].re + o[1].im, o[1].im - o[1].re}, root);
        o[2] = times_minus_i(o[2]);
        o[3] = c_scale((complex_vec){o[3].im - o[3].re, -o[3].re - o[3].im}, root);
        UNROLL for (int i = 0; i < 4; i++) {
            a[i] = c_add(e[i], o[i]);
            a[i + 4] = c_sub(e[i], o[i]);
        }
    }
}

/* `n` butterflies. Inputs lie x_stride apart in x. Outputs are multiplied by the twiddles w, unless NULL, and become the
 * elements q + m step of y, which lie y_stride apart; elements from `count` on are not written. */
ALWAYS_INLINE void butterflies(const int radix, int64_t n, const complex_vec *x, int64_t x_stride, complex_vec *y,
                               int64_t step, const real *w, int64_t y_stride, int64_t count) {
    for (int64_t q = 0; q < n; q++) {
        complex_vec a[8];
        UNROLL for (int m = 0; m < radix; m++) a[m] = x[q + m * x_stride];
        butterfly(radix, a);
        if (w)
            UNROLL for (int m = 1; m < radix; m++) a[m] = c_mul(a[m], w + 2 * (m - 1));
        UNROLL for (int m = 0; m < radix; m++)
            if (q + m * step < count) y[(q + m * step) * y_stride] = a[m];
    }
}

#define STAGE(radix)                                                                                           \
    NOINLINE void stage_##radix(int64_t rest, int64_t s, const complex_vec *x, complex_vec *y, const real *w) { \
        const int64_t m = rest / radix;                                                                        \
        butterflies(radix, s, x, s * m, y, s, NULL, 1, INT64_MAX);                                             \
        for (int64_t p = 1; p < m; p++)                                                                        \
            butterflies(radix, s, x + s * p, s * m, y + s * radix * p, s, w + 2 * (radix - 1) * p, 1, INT64_MAX); \
    }
#define LAST_STAGE(radix)                                                                                      \
    NOINLINE void last_stage_##radix(int64_t s, const complex_vec *x, complex_vec *y, int64_t stride, int64_t count) { \
        butterflies(radix, s, x, s, y, s, NULL, stride, count);                                                \
    }
STAGE(3)
STAGE(4)
STAGE(5)
STAGE(8)
LAST_STAGE(2)
LAST_STAGE(3)
LAST_STAGE(4)
LAST_STAGE(5)
LAST_STAGE(8)

/* Writes the first `count` elements of the transform of x to `out`, `stride` apart. Needs two scratch buffers of n. */
static void fft1d(const fft_plan *f, const complex_vec *x, complex_vec *const scratch[2], complex_vec *out,
                  int64_t stride, int64_t count) {
    const real *twiddles = f->twiddles;
    int64_t rest = f->n, s = 1;
    if (!f->stages && count) *out = *x;
    for (int64_t z = 0; z < f->stages; z++) {
        const int radix = f->radix[z];
        complex_vec *y = scratch[z % 2];
        if (z + 1 == f->stages) switch (radix) {
                case 2: last_stage_2(s, x, out, stride, count); break;
                case 3: last_stage_3(s, x, out, stride, count); break;
                case 4: last_stage_4(s, x, out, stride, count); break;
                case 5: last_stage_5(s, x, out, stride, count); break;
                default: last_stage_8(s, x, out, stride, count);
            }
        else switch (radix) {
                case 3: stage_3(rest, s, x, y, twiddles); break;
                case 4: stage_4(rest, s, x, y, twiddles); break;
                case 5: stage_5(rest, s, x, y, twiddles); break;
                default: stage_8(rest, s, x, y, twiddles);
            }
        twiddles += 2 * (radix - 1) * (rest / radix);
        rest /= radix;
        s *= radix;
        x = y;
    }
}

#endif
