/* exp(x) of a vector for x <= 0: 2^n exp(r) with r = x - n ln 2, |r| <= ln 2 / 2, by the Taylor series of exp(r). */
#ifndef LAMBDANETS_EXPONENTIAL_H
#define LAMBDANETS_EXPONENTIAL_H

#include "vector.h"

#define IS_FLOAT (sizeof(real) == 4)

/* Integers of the lanes' size. */
typedef __typeof__((vec){0} < (vec){0}) mask;

/* The next term is below the rounding error: 0.35^8 / 8! and 0.35^14 / 14!. */
enum { TAYLOR_TERMS = IS_FLOAT ? 7 : 13, MANTISSA = IS_FLOAT ? 23 : 52, BIAS = IS_FLOAT ? 127 : 1023 };

ALWAYS_INLINE vec exponential(vec x) {
    const real log2e = (real)1.44269504088896340736;
    /* ln 2 in two parts (Cody and Waite): the first has so few digits that its product with n is exact. */
    const real high = IS_FLOAT ? (real)0.693359375 : (real)6.93147180369123816490e-01;
    const real low = IS_FLOAT ? (real)-2.12194440e-4 : (real)1.90821492927058770002e-10;
    /* Below this 2^n is not a normal number, and the result is zero. */
    const real lowest = IS_FLOAT ? (real)-87.0 : (real)-708.0;
    /* Adding 1.5 2^MANTISSA rounds to an integer, which is then in the low bits. */
    const vec magic = (vec){0} + (IS_FLOAT ? (real)12582912.0 : (real)6755399441055744.0);
    const vec shifted = x * log2e + magic, n = shifted - magic;
    const vec r = (x - n * high) - n * low;
    vec sum = (vec){0} + 1;
    UNROLL_ALL for (int i = TAYLOR_TERMS; i > 0; i--) sum = 1 + r * sum * ((real)1 / (real)i);
    const mask power = ((mask)shifted - (mask)magic + BIAS) << MANTISSA;
    /* In this order, so that NaN stays NaN. */
    return (vec)((mask)(sum * (vec)power) & ~(x < lowest));
}

#endif
