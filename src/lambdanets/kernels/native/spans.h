/* The part of a window that lies on the map. */
#ifndef LAMBDANETS_SPANS_H
#define LAMBDANETS_SPANS_H

#include <stdint.h>

/* Offsets [first, last) of a window along one axis. */
typedef struct {
    int64_t first, last;
} span;

/* Of the query at position `at` of a map of `extent` positions. */
static span visible(int64_t at, int64_t extent, int64_t scope, int64_t dilation) {
    const int64_t lowest = dilation * (scope / 2) - at, highest = extent - 1 + lowest;
    span s = {lowest > 0 ? (lowest + dilation - 1) / dilation : 0, highest < 0 ? 0 : highest / dilation + 1};
    if (s.last > scope) s.last = scope;
    if (s.last < s.first) s.last = s.first;
    return s;
}

#endif
