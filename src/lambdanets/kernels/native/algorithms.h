/* The two algorithms for the position term: direct.c and fft.c. position.c chooses between them. */
#ifndef LAMBDANETS_ALGORITHMS_H
#define LAMBDANETS_ALGORITHMS_H

#include "lambda.h"

int NAME(direct_forward) LAMBDA_FORWARD(real);
int NAME(direct_backward) LAMBDA_BACKWARD(real);

/* Examples whose dynamic range is above `limit` (range.h) would not be accurate. They are rejected: rejected[example] is
 * set to 1, else 0, and nothing of that example is written. Where `rejected` is NULL, nothing is checked. */
#define LAMBDA_FFT_FORWARD(real)                                                                                 \
    (const lambda_problem *p, const real *q, const real *values, const real *table, const real *lc, real *y,      \
     double limit, unsigned char *rejected)
#define LAMBDA_FFT_BACKWARD(real)                                                                                \
    (const lambda_problem *p, const real *q, const real *values, const real *table, const real *lc, const real *dy, \
     real *dq, real *dvalues, real *dtable, real *dlc, double limit, unsigned char *rejected)

int NAME(fft_forward) LAMBDA_FFT_FORWARD(real);
int NAME(fft_backward) LAMBDA_FFT_BACKWARD(real);

/* Whether the transforms support a problem. */
int NAME(fft_possible)(const lambda_problem *p);

/* Estimated vector operations for one example, per thread. */
double NAME(fft_operations)(const lambda_problem *p, int backward);
double NAME(direct_operations)(const lambda_problem *p, int backward);

/* The transforms in double, for examples that float rejects. */
#ifdef NAME_F64
int NAME_F64(fft_forward) LAMBDA_FFT_FORWARD(double);
int NAME_F64(fft_backward) LAMBDA_FFT_BACKWARD(double);
double NAME_F64(fft_operations)(const lambda_problem *p, int backward);
#endif

#endif
