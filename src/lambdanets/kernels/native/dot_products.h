/* Dot products over the lanes: a vector of them at a time, so that lanes are summed by shuffles that all of them share. */
#ifndef LAMBDANETS_DOT_PRODUCTS_H
#define LAMBDANETS_DOT_PRODUCTS_H

#include "vector.h"

/* The sums of neighbouring lanes: a's, then b's. */
ALWAYS_INLINE vec pairwise_sums(vec a, vec b) {
#ifdef __clang__
    vec sums;
    UNROLL_ALL for (int i = 0; i < LANES / 2; i++) {
        sums[i] = a[2 * i] + a[2 * i + 1];
        sums[i + LANES / 2] = b[2 * i] + b[2 * i + 1];
    }
    return sums;
#else
    typedef __typeof__(_Generic((real)0, float: (int32_t)0, default: (int64_t)0)) index;
    typedef index index_vec __attribute__((vector_size(VECTOR_BYTES)));
    index_vec even = {0}, odd = {0}; /* constants, once the loop is unrolled */
    UNROLL_ALL for (int i = 0; i < LANES; i++) {
        even[i] = 2 * i;
        odd[i] = 2 * i + 1;
    }
    return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
#endif
}

/* Lane i of the result is the sum over the lanes of v[i]. */
ALWAYS_INLINE vec lane_sums(vec *v) {
    UNROLL for (int64_t n = LANES; n > 1; n /= 2)
        UNROLL_ALL for (int64_t i = 0; i < n / 2; i++) v[i] = pairwise_sums(v[2 * i], v[2 * i + 1]);
    return v[0];
}

/* Products whose lanes are still to be summed. When there is a vector of them, their sums are added to `to`. */
typedef struct {
    vec pending[MAX_LANES];
    int64_t n;
    real *to;
} dot_products;

ALWAYS_INLINE void add_dot(dot_products *d, vec product) {
    d->pending[d->n++] = product;
    if (d->n < LANES) return;
    STORE(d->to) = LOAD(d->to) + lane_sums(d->pending);
    d->to += LANES;
    d->n = 0;
}

/* Adds the rest, as a whole vector: the memory behind `to` must be padded. */
static void flush_dots(dot_products *d) {
    while (d->n) add_dot(d, (vec){0});
}

#endif
