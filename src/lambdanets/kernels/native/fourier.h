/* Fourier transforms of vectors: every lane is a signal of its own, so that no lane ever meets another.
 *
 *   out[f] = sum_t x[t] exp(-2 pi i t f / n)
 *
 * In Stockham's order, which needs no permutation, for lengths that are products of 2, 3, 4, 5 and 8. The inverse, but for
 * the factor 1 / n, is the same transform of numbers whose real and imaginary parts have changed places. */
#ifndef LAMBDANETS_FOURIER_H
#define LAMBDANETS_FOURIER_H

#include <math.h>
#include <stdlib.h>

#include "vector.h"
#include "workspace.h"

typedef struct {
    vec re, im;
} number;

enum { STAGES_AT_MOST = 64 };

typedef struct {
    int64_t n, stages;
    int radix[STAGES_AT_MOST];
    real *turns; /* of every stage, [p][radix - 1][2]: exp(-2 pi i p m / rest) */
} transform;

/* Radices in the order in which they are tried, and operations for each number. */
static const struct {
    int radix;
    double operations;
} radices[] = {{8, 11}, {4, 7}, {5, 10}, {3, 7}, {2, 5}};

enum { RADICES = sizeof radices / sizeof *radices };

/* Operations of a transform of length n, which has no other primes, and its stages. A 2 can only be the last. */
static double factor(int64_t n, transform *f) {
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

/* The quickest length of at least n. */
static int64_t quick_length(int64_t n) {
    transform f;
    int64_t best = 0;
    double least = 0;
    const int64_t most = n + n / 4 + 2; /* there is always one of 2, 3 and 5 up to here */
    for (int64_t five = 1; five <= most; five *= 5)
        for (int64_t three = five; three <= most; three *= 3)
            for (int64_t length = three; length <= most; length *= 2) {
                const double operations = length < n ? 0 : factor(length, &f);
                if (length >= n && (!best || operations < least)) {
                    best = length;
                    least = operations;
                }
            }
    return best;
}

static int make_transform(transform *f, int64_t n) {
    factor(n, f);
    f->turns = aligned(4 * n + 2 * STAGES_AT_MOST);
    if (!f->turns) return 0;
    real *to = f->turns;
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

ALWAYS_INLINE number plus(number a, number b) { return (number){a.re + b.re, a.im + b.im}; }
ALWAYS_INLINE number minus(number a, number b) { return (number){a.re - b.re, a.im - b.im}; }
ALWAYS_INLINE number times(number a, const real *w) { return (number){a.re * w[0] - a.im * w[1], a.re * w[1] + a.im * w[0]}; }
/* Times a real, times minus i. */
ALWAYS_INLINE number scaled(number a, real by) { return (number){a.re * by, a.im * by}; }
ALWAYS_INLINE number turned(number a) { return (number){a.im, -a.re}; }

ALWAYS_INLINE void fourier_4(number a0, number a1, number a2, number a3, number *b0, number *b1, number *b2, number *b3) {
    const number s = plus(a0, a2), d = minus(a0, a2), t = plus(a1, a3), e = turned(minus(a1, a3));
    *b0 = plus(s, t);
    *b1 = plus(d, e);
    *b2 = minus(s, t);
    *b3 = minus(d, e);
}

/* The transform of a few numbers, in registers. */
ALWAYS_INLINE void fourier_few(const int radix, number *a) {
    if (radix == 2) {
        const number s = plus(a[0], a[1]);
        a[1] = minus(a[0], a[1]);
        a[0] = s;
    } else if (radix == 3) {
        const number s = plus(a[1], a[2]), middle = minus(a[0], scaled(s, (real)0.5));
        const number d = turned(scaled(minus(a[1], a[2]), (real)0.866025403784438646763723)); /* sin 60 */
        a[0] = plus(a[0], s);
        a[1] = plus(middle, d);
        a[2] = minus(middle, d);
    } else if (radix == 4) {
        fourier_4(a[0], a[1], a[2], a[3], &a[0], &a[1], &a[2], &a[3]);
    } else if (radix == 5) {
        const real c1 = (real)0.309016994374947424102293, c2 = (real)-0.809016994374947424102293; /* cos 72, cos 144 */
        const real s1 = (real)0.951056516295153572116439, s2 = (real)0.587785252292473129168706;
        const number t1 = plus(a[1], a[4]), t2 = plus(a[2], a[3]), d1 = minus(a[1], a[4]), d2 = minus(a[2], a[3]);
        const number m1 = plus(plus(a[0], scaled(t1, c1)), scaled(t2, c2));
        const number m2 = plus(plus(a[0], scaled(t1, c2)), scaled(t2, c1));
        const number n1 = turned(plus(scaled(d1, s1), scaled(d2, s2)));
        const number n2 = turned(minus(scaled(d1, s2), scaled(d2, s1)));
        a[0] = plus(a[0], plus(t1, t2));
        a[1] = plus(m1, n1);
        a[4] = minus(m1, n1);
        a[2] = plus(m2, n2);
        a[3] = minus(m2, n2);
    } else {
        const real half = (real)0.707106781186547524400844; /* the root of 1 / 2 */
        number e[4], o[4];
        fourier_4(a[0], a[2], a[4], a[6], &e[0], &e[1], &e[2], &e[3]);
        fourier_4(a[1], a[3], a[5], a[7], &o[0], &o[1], &o[2], &o[3]);
        o[1] = scaled((number){o[1].re + o[1].im, o[1].im - o[1].re}, half);
        o[2] = turned(o[2]);
        o[3] = scaled((number){o[3].im - o[3].re, -o[3].re - o[3].im}, half);
        UNROLL for (int i = 0; i < 4; i++) {
            a[i] = plus(e[i], o[i]);
            a[i + 4] = minus(e[i], o[i]);
        }
    }
}

/* `count` transforms of `radix` numbers, read `apart` apart in x and turned by w, unless that is NULL; written `step` apart
 * in y, whose numbers lie `each` apart. What would come after its first `end` is not written. */
ALWAYS_INLINE void butterflies(const int radix, int64_t count, const number *x, int64_t apart, number *y, int64_t step,
                               const real *w, int64_t each, int64_t end) {
    for (int64_t q = 0; q < count; q++) {
        number a[8];
        UNROLL for (int m = 0; m < radix; m++) a[m] = x[q + m * apart];
        fourier_few(radix, a);
        if (w)
            UNROLL for (int m = 1; m < radix; m++) a[m] = times(a[m], w + 2 * (m - 1));
        UNROLL for (int m = 0; m < radix; m++)
            if (q + m * step < end) y[(q + m * step) * each] = a[m];
    }
}

#define STAGE(radix)                                                                                            \
    static __attribute__((noinline)) void stage_##radix(int64_t rest, int64_t s, const number *x, number *y, \
                                                        const real *turns) {                                    \
        const int64_t m = rest / radix;                                                                         \
        butterflies(radix, s, x, s * m, y, s, NULL, 1, INT64_MAX);                                              \
        for (int64_t p = 1; p < m; p++)                                                                         \
            butterflies(radix, s, x + s * p, s * m, y + s * radix * p, s, turns + 2 * (radix - 1) * p, 1, INT64_MAX); \
    }
#define LAST_STAGE(radix)                                                                                       \
    static __attribute__((noinline)) void last_stage_##radix(int64_t s, const number *x, number *y, int64_t each, \
                                                             int64_t end) {                                     \
        butterflies(radix, s, x, s, y, s, NULL, each, end);                                                     \
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

/* The first `end` numbers of the transform of x go to `out`, `each` apart. Two rooms for n numbers are needed meanwhile. */
static void fourier(const transform *f, const number *x, number *room, number *other_room, number *out, int64_t each,
                    int64_t end) {
    const real *turns = f->turns;
    int64_t rest = f->n, s = 1;
    if (!f->stages && end) *out = *x;
    for (int64_t z = 0; z < f->stages; z++) {
        const int radix = f->radix[z];
        number *y = z % 2 ? other_room : room;
        if (z + 1 == f->stages) switch (radix) {
                case 2: last_stage_2(s, x, out, each, end); break;
                case 3: last_stage_3(s, x, out, each, end); break;
                case 4: last_stage_4(s, x, out, each, end); break;
                case 5: last_stage_5(s, x, out, each, end); break;
                default: last_stage_8(s, x, out, each, end);
            }
        else switch (radix) {
                case 3: stage_3(rest, s, x, y, turns); break;
                case 4: stage_4(rest, s, x, y, turns); break;
                case 5: stage_5(rest, s, x, y, turns); break;
                default: stage_8(rest, s, x, y, turns);
            }
        turns += 2 * (radix - 1) * (rest / radix);
        rest /= radix;
        s *= radix;
        x = y;
    }
}

/* Of two vectors the sums of neighbouring lanes: a's, then b's. */
ALWAYS_INLINE vec sums_of_neighbours(vec a, vec b) {
#ifdef __clang__
    vec sums;
    UNROLL_ALL for (int i = 0; i < LANES; i++) sums[i] = i < LANES / 2 ? a[2 * i] + a[2 * i + 1] : b[2 * i - LANES] + b[2 * i - LANES + 1];
    return sums;
#else
    typedef __typeof__(_Generic((real)0, float: (int32_t)0, default: (int64_t)0)) whole;
    typedef whole whole_vec __attribute__((vector_size(VECTOR_BYTES)));
    whole_vec even = {0}, odd = {0}; /* constants, once the loop is unrolled */
    UNROLL_ALL for (int i = 0; i < LANES; i++) {
        even[i] = 2 * i;
        odd[i] = 2 * i + 1;
    }
    return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
#endif
}

/* The sum over the lanes of as many vectors, one in each lane of the result. */
ALWAYS_INLINE vec sums_of_lanes(vec *v) {
    UNROLL for (int64_t n = LANES; n > 1; n /= 2)
        UNROLL_ALL for (int64_t i = 0; i < n / 2; i++) v[i] = sums_of_neighbours(v[2 * i], v[2 * i + 1]);
    return v[0];
}

#endif
