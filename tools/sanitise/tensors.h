/* Tensors as callers of the kernels have them: any strides, and not one element more memory than they span.
 *
 * Values are generated as contiguous arrays of double; a tensor holds them in one precision and layout. The gaps between
 * its elements are NaN, so that a kernel that reads them gives NaN and one that writes them is detected. */
#ifndef SANITISE_TENSORS_H
#define SANITISE_TENSORS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

/* A fault to test the driver itself: tensors are an element too short. */
static int inject_short;

typedef struct {
    int64_t shape[4], stride[4];
    int64_t before; /* elements of the memory in front of the first: vectors then begin at odd addresses */
} layout;

static int64_t elements(const layout *l) { return l->shape[0] * l->shape[1] * l->shape[2] * l->shape[3]; }

/* Elements of memory from its beginning up to the last element of the tensor. */
static int64_t span_of(const layout *l) {
    int64_t last = l->before;
    for (int a = 0; a < 4; a++) last += (l->shape[a] - 1) * l->stride[a];
    return last + 1;
}

static layout make_layout(int64_t b, int64_t c, int64_t d, int64_t e, int may_repeat) {
    layout l = {{b, c, d, e}, {0}, one_in(3)};
    enum { CONTIGUOUS, PADDED, PERMUTED } kind = (int)between(CONTIGUOUS, PERMUTED);
    int order[4] = {3, 2, 1, 0}; /* axes from the fastest to the slowest */
    if (kind == PERMUTED)
        for (int i = 3; i > 0; i--) {
            const int64_t j = between(0, i);
            const int swapped = order[i];
            order[i] = order[j];
            order[j] = swapped;
        }
    int64_t stride = kind == PERMUTED && one_in(3) ? between(2, 3) : 1;
    for (int i = 0; i < 4; i++) {
        l.stride[order[i]] = stride;
        stride *= l.shape[order[i]];
        if (kind != CONTIGUOUS && one_in(2)) stride += between(1, 5);
    }
    if (may_repeat && one_in(6)) l.stride[between(0, 3)] = 0; /* as expand does */
    return l;
}

static layout contiguous(int64_t b, int64_t c, int64_t d) {
    return (layout){{b, c, d, 1}, {c * d, d, 1, 1}, one_in(3)};
}

/* Where element i, counted as if contiguous, lies. */
static int64_t element_offset(const layout *l, int64_t i) {
    int64_t at = l->before;
    for (int a = 3; a >= 0; a--) {
        at += i % l->shape[a] * l->stride[a];
        i /= l->shape[a];
    }
    return at;
}

static double *zeros(int64_t n) {
    double *x = calloc((size_t)n, sizeof *x);
    if (!x) abort();
    return x;
}

/* Random values for a tensor of this layout, equal along an axis whose stride is 0. */
static double *random_values(const layout *l) {
    const int64_t n = elements(l), span = span_of(l);
    double *there = zeros(span), *x = zeros(n);
    for (int64_t i = 0; i < span; i++) there[i] = random_value();
    for (int64_t i = 0; i < n; i++) x[i] = there[element_offset(l, i)];
    free(there);
    return x;
}

typedef struct {
    layout l;
    size_t bytes;
    int f64;     /* double? */
    char *memory; /* from malloc, so that the sanitiser knows both ends */
    void *data;   /* the first element, what a kernel is given */
} tensor;

static tensor make_empty(const layout *l, int f64) {
    const size_t size = f64 ? sizeof(double) : sizeof(float);
    tensor t = {*l, size * (size_t)span_of(l), f64, NULL, NULL};
    t.memory = malloc(t.bytes - (inject_short ? size : 0));
    if (!t.memory) abort();
    t.data = t.memory + size * (size_t)l->before;
    if (!inject_short) memset(t.memory, 0xff, t.bytes);
    return t;
}

static double get(const tensor *t, int64_t i) {
    const int64_t at = element_offset(&t->l, i);
    return t->f64 ? ((double *)t->memory)[at] : ((float *)t->memory)[at];
}

static tensor make_tensor(const layout *l, int f64, const double *x) {
    tensor t = make_empty(l, f64);
    const int64_t n = elements(l);
    for (int64_t i = 0; i < n && !inject_short; i++) {
        const int64_t at = element_offset(l, i);
        if (f64)
            ((double *)t.memory)[at] = x[i];
        else
            ((float *)t.memory)[at] = (float)x[i];
    }
    return t;
}

/* Whether something wrote between the elements. Destroys the tensor. */
static int gaps_written(tensor *t) {
    const size_t size = t->f64 ? sizeof(double) : sizeof(float);
    const int64_t n = elements(&t->l);
    for (int64_t i = 0; i < n; i++) memset(t->memory + size * (size_t)element_offset(&t->l, i), 0xff, size);
    for (size_t i = 0; i < t->bytes; i++)
        if ((unsigned char)t->memory[i] != 0xff) return 1;
    return 0;
}

#endif
