/* The position term, lambdas first, through Fourier transforms; see spectral.c. */
#ifndef LAMBDANETS_SPECTRAL_H
#define LAMBDANETS_SPECTRAL_H

#include "lambda.h"

int NAME(spectral) LAMBDA_SPECTRAL_WAY;
int NAME(spectral_forward) LAMBDA_FORWARD(real);
int NAME(spectral_backward) LAMBDA_BACKWARD(real);

#endif
