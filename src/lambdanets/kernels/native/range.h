/* The dynamic range of an example: whether Fourier transforms compute it accurately.
 *
 * A transform spreads its rounding errors over the whole map. An output whose window has only small values then has an
 * error that belongs to large values outside of its window. With |V|, |R| and |W[n]| for the norms of the values of a map,
 * of the table, and of the values in the window of query n, N for the number of points of the padded map, and G for the
 * largest |spectrum of R|^2 in units of |R|^2, the error of an output is about
 *
 *   rounding |q[n]| |R| |V| sqrt((G + FLOOR) / N)        and should be within BOUND |q[n]| |R| |W[n]|,
 *
 * so that the ratio of the two, without the rounding unit, is a measure that needs no transform. Its limit is calibrated
 * on random and adversarial maps (tools/calibrate_range.py), not proven. The gradient of the values is the same with the
 * norms of dlambda[n] = q[n] dy[n] instead of the values; that of the table has both. */
#ifndef LAMBDANETS_RANGE_H
#define LAMBDANETS_RANGE_H

#include <float.h>
#include <math.h>

#include "vector.h"

/* The limit with transforms in the precision of the operands; a wider type multiplies it by how much finer it rounds. */
#define RANGE_LIMIT 2.0
#define RANGE_FLOOR 16.0

/* Energies are squared norms. Of a map: its energy, the sum of the norms of its positions, the least energy of a window
 * that is not empty, and whether some are. A window is empty if it has nothing but zeros. */
typedef struct {
    double energy, absolute, least;
    int has_empty;
} map_range;

/* Of the table: its energy, and G. */
typedef struct {
    double energy, gain;
} table_range;

ALWAYS_INLINE real lane_sum(vec x) {
    UNROLL_ALL for (int half = LANES / 2; half; half /= 2)
        UNROLL_ALL for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}

/* The energy of a row. Where squares leave the range of the type they are summed in double; and the energy of a row that
 * is not all zeros is never 0, even if it underflows. */
static double row_energy(const real *row, int64_t n) {
    const real small = sizeof(real) == 4 ? (real)1e-30 : (real)1e-290;
    const real large = sizeof(real) == 4 ? (real)1e36 : (real)1e300;
    vec squares = {0}, rest = {0};
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES) squares += LOAD(row + c) * LOAD(row + c);
    for (; c < n; c++) rest[c % LANES] = row[c];
    const real fast = lane_sum(squares + rest * rest);
    if (fast > small && fast < large) return fast;
    double sum = 0;
    for (c = 0; c < n; c++) sum += (double)row[c] * (double)row[c];
    for (c = 0; sum == 0 && c < n; c++)
        if (row[c] != 0) sum = DBL_MIN;
    return sum;
}

/* A lower bound from the energies of positions alone, which mostly is enough: no window has less than its least position,
 * as many times as the window with the fewest positions has. */
static map_range measure_positions(const double *map, int64_t n, double fewest) {
    double energy = 0, least = INFINITY;
    for (int64_t i = 0; i < n; i++) {
        energy += map[i];
        least = map[i] < least ? map[i] : least;
    }
    return (map_range){energy, 0, least * fewest, 0};
}

/* From the energies of positions and of windows. Sets a flag for each empty window. */
static map_range measure_windows(const double *map, int64_t n, const double *windows, int64_t windows_n,
                                 unsigned char *empty) {
    map_range m = {0, 0, INFINITY, 0};
    for (int64_t i = 0; i < n; i++) {
        m.energy += map[i];
        m.absolute += sqrt(map[i]);
    }
    for (int64_t i = 0; i < windows_n; i++) {
        empty[i] = windows[i] == 0;
        m.has_empty |= empty[i];
        if (!empty[i] && !(windows[i] >= m.least)) m.least = windows[i]; /* a NaN stays */
    }
    return m;
}

/* Whether transforms can sum such numbers without overflow, and without underflow of what matters. False for NaN. */
static int representable(double x, double points) {
    const double large = sizeof(real) == 4 ? 1e37 : 1e300, small = sizeof(real) == 4 ? 2e-31 : 1e-290;
    return x * points < large && x / points > small;
}

/* Whether all windows of a map are within the limit. False for NaN and Inf. */
static int in_range(map_range m, table_range r, double points, double limit) {
    if (m.energy == 0) return 1; /* all windows are empty */
    const double norm = sqrt(m.energy), window = sqrt(m.least), table = r.energy == 0 ? 1 : sqrt(r.energy);
    if (!representable(norm, points) || !representable(window, points) || !representable(table, points)) return 0;
    if (!representable(norm * table, points) || !representable(window * table, points)) return 0;
    return norm * sqrt((r.gain + RANGE_FLOOR) / points) <= limit * window;
}

/* The gradient of the table should be within BOUND sum_n |dlambda[n]| |W[n]|, where the sum is `seen`. Its error is that of
 * a correlation, which Young's inequality bounds. Without empty windows this follows from the range of the values. */
static int table_in_range(map_range v, map_range d, double seen, double points, double limit) {
    if (v.energy == 0 || d.energy == 0) return 1;
    if (!representable(sqrt(v.energy * d.energy), points) || !representable(seen, points)) return 0;
    return 2 * fmin(v.absolute * sqrt(d.energy), d.absolute * sqrt(v.energy)) / sqrt(points) <= limit * seen;
}

#endif
