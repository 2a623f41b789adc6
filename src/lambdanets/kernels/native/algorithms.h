/* The two algorithms for the position term: direct.c and fft.c. position.c chooses between them. */
#ifndef LAMBDANETS_ALGORITHMS_H
#define LAMBDANETS_ALGORITHMS_H

#include "lambda.h"

int NAME(direct_forward) LAMBDA_FORWARD(real);
int NAME(direct_backward) LAMBDA_BACKWARD(real);

/* The transforms of examples whose dynamic range is above `limit` (range.h) would not be accurate. They are left to the
 * caller: left[example] is 1 and nothing of that example is written. Where `left` is NULL, nothing is checked. */
#define LAMBDA_FFT_FORWARD(real)                                                                                 \
    (const lambda_problem *p, const real *q, const real *values, const real *table, const real *lc, real *y,      \
     double limit, unsigned char *left)
#define LAMBDA_FFT_BACKWARD(real)                                                                                \
    (const lambda_problem *p, const real *q, const real *values, const real *table, const real *lc, const real *dy, \
     real *dq, real *dvalues, real *dtable, real *dlc, double limit, unsigned char *left)

int NAME(fft_forward) LAMBDA_FFT_FORWARD(real);
int NAME(fft_backward) LAMBDA_FFT_BACKWARD(real);

/* Whether there are transforms for a problem at all, and the vector operations of either algorithm in a thread,
 * for one example. */
int NAME(fft_possible)(const lambda_problem *p);
double NAME(fft_operations)(const lambda_problem *p, int backward);
double NAME(direct_operations)(const lambda_problem *p, int backward);

/* The same transforms in double, for examples that need them in float. */
#ifdef WIDE
int WIDE(fft_forward) LAMBDA_FFT_FORWARD(double);
int WIDE(fft_backward) LAMBDA_FFT_BACKWARD(double);
double WIDE(fft_operations)(const lambda_problem *p, int backward);
#endif

#endif
