/* The dynamic range of an example: whether Fourier transforms compute it accurately.
 *
 * A transform spreads its rounding errors over the whole map. An output next to nothing but small values then has an error
 * that belongs to large values far away, which its window does not contain. Written out, with |V|, |R| and |W[n]| for the
 * norms of the values of a map, of the table, and of the values in the window of query n, N for the number of points of
 * the padded map, and G for the largest |spectrum of R|^2 in units of |R|^2, an output is wrong by about
 *
 *   rounding |q[n]| |R| |V| sqrt((G + FLOOR) / N)        and is meant to be within BOUND |q[n]| |R| |W[n]|,
 *
 * so that the ratio of the two, without the rounding unit, is a measure that needs no transform. Its limit is calibrated
 * on random and adversarial maps (tools/calibrate_range.py), not proven. The gradient of the values is the same with
 * the norms of dlambda[n] = q[n] dy[n] instead of the values, that of the table has both. */
#ifndef LAMBDANETS_RANGE_H
#define LAMBDANETS_RANGE_H

#include <float.h>
#include <math.h>

#include "rows.h"

/* The limit with transforms in the precision of the operands; a wider type multiplies it by how much finer it rounds. */
#define RANGE_LIMIT 2.0
#define RANGE_FLOOR 16.0

/* Of a map: the sum of squares, the sum of norms of its positions, the smallest window that is not all zeros, and whether
 * some are. */
typedef struct {
    double energy, absolute, least;
    int blank;
} loudness;

/* A map of `from` positions per axis and windows of `to` positions that see `before` positions before their own. */
typedef struct {
    int64_t from[2], to[2], scope[2], before[2];
} viewing;

static viewing queries_of_context(const lambda_problem *p) {
    viewing v;
    for (int a = 0; a < 2; a++) {
        v.from[a] = p->context[a];
        v.to[a] = p->queries[a];
        v.scope[a] = p->scope[a];
        v.before[a] = p->scope[a] / 2;
    }
    return v;
}

/* Who sees a context position: the other way round. */
static viewing context_of_queries(const lambda_problem *p) {
    viewing v;
    for (int a = 0; a < 2; a++) {
        v.from[a] = p->queries[a];
        v.to[a] = p->context[a];
        v.scope[a] = p->scope[a];
        v.before[a] = p->scope[a] - 1 - p->scope[a] / 2;
    }
    return v;
}

/* The sum over the lanes, in the first of them. */
ALWAYS_INLINE real lane_sum(vec x) {
    UNROLL_ALL for (int half = LANES / 2; half; half /= 2)
        UNROLL_ALL for (int i = 0; i < half; i++) x[i] += x[i + half];
    return x[0];
}

/* The squares of a row. Where the type itself would lose them, they are added up in double; and never 0 for a row that is
 * not, even if they are too small for that. */
static double row_energy(const real *row, int64_t n) {
    const real small = sizeof(real) == 4 ? (real)1e-30 : (real)1e-290, large = sizeof(real) == 4 ? (real)1e36 : (real)1e300;
    vec squares = {0}, rest = {0};
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES) squares += LOAD(row + c) * LOAD(row + c);
    for (; c < n; c++) rest[c % LANES] = row[c];
    const real quick = lane_sum(squares + rest * rest);
    if (quick > small && quick < large) return quick;
    double sum = 0;
    for (c = 0; c < n; c++) sum += (double)row[c] * (double)row[c];
    for (c = 0; sum == 0 && c < n; c++)
        if (row[c] != 0) sum = DBL_MIN;
    return sum;
}

/* The sums of windows along a line, without a difference in which a small sum could drown: a window is the end of one
 * block and the beginning of the next, blocks being as long as windows. `room` is for twice as many as `line_room` says. */
static int64_t line_room(int64_t to, int64_t scope) { return to + scope - 1; }

static void window_sums(const double *x, int64_t from, int64_t to, int64_t scope, int64_t before, double *out,
                        int64_t step, double *room) {
    const int64_t n = line_room(to, scope);
    double *first = room, *last = room + n; /* sums from the beginning and from the end of a block */
    double sum = 0;
    for (int64_t t = 0, block = 0; t < n; t++) {
        const double value = t >= before && t - before < from ? x[t - before] : 0;
        first[t] = sum = block ? sum + value : value;
        last[t] = value;
        if (++block == scope) block = 0;
    }
    for (int64_t t = n - 2, left = n - 1; t >= 0; t--) {
        if (left >= scope) left %= scope; /* once: how far t + 1 is in its block */
        if (left) last[t] += last[t + 1];
        left = left ? left - 1 : scope - 1;
    }
    for (int64_t t = 0, block = 0; t < to; t++) {
        out[t * step] = block ? last[t] + first[t + scope - 1] : first[t + scope - 1];
        if (++block == scope) block = 0;
    }
}

/* Doubles that `windows_of` needs beside the map and its result. */
static int64_t windows_room(const viewing *v) {
    int64_t longest = 0;
    for (int a = 0; a < 2; a++) longest = LARGER(longest, line_room(v->to[a], v->scope[a]));
    return v->from[0] * v->to[1] + 2 * longest;
}

/* The sums [to] of the windows of a map [from]. */
static void windows_of(const viewing *v, const double *map, double *out, double *room) {
    double *half = room, *lines = room + v->from[0] * v->to[1]; /* half is [to 1][from 0] */
    for (int64_t i = 0; i < v->from[0]; i++)
        window_sums(map + i * v->from[1], v->from[1], v->to[1], v->scope[1], v->before[1], half + i, v->from[0], lines);
    for (int64_t j = 0; j < v->to[1]; j++)
        window_sums(half + j * v->from[0], v->from[0], v->to[0], v->scope[0], v->before[0], out + j, v->to[1], lines);
}

/* A map by the energies of its positions alone: no window has less than its smallest position as often as the window
 * that sees the fewest. Mostly that is enough. */
static loudness measure_positions(const double *map, int64_t n, double fewest) {
    double energy = 0, least = INFINITY;
    for (int64_t i = 0; i < n; i++) {
        energy += map[i];
        least = map[i] < least ? map[i] : least;
    }
    return (loudness){energy, 0, least * fewest, 0};
}

/* By its windows too; `blank`, a flag for each that is all zeros. */
static loudness measure_windows(const double *map, int64_t n, const double *windows, int64_t windows_n,
                                unsigned char *blank) {
    loudness l = {0, 0, INFINITY, 0};
    for (int64_t i = 0; i < n; i++) {
        l.energy += map[i];
        l.absolute += sqrt(map[i]);
    }
    for (int64_t i = 0; i < windows_n; i++) {
        blank[i] = windows[i] == 0;
        l.blank |= blank[i];
        if (!blank[i] && !(windows[i] >= l.least)) l.least = windows[i]; /* a NaN stays */
    }
    return l;
}

/* How many positions the window with the fewest sees. */
static double fewest_seen(const viewing *v) {
    double fewest = 1;
    for (int a = 0; a < 2; a++) {
        int64_t least = v->scope[a];
        for (int64_t at = 0; at < v->to[a]; at++) {
            const int64_t first = LARGER(0, at - v->before[a]), last = SMALLER(v->from[a], at - v->before[a] + v->scope[a]);
            least = SMALLER(least, LARGER(0, last - first));
        }
        fewest *= (double)least;
    }
    return fewest;
}

/* Of the table: its energy, and G. */
typedef struct {
    double energy, gain;
} table_range;

/* Numbers that transforms add up without overflow, and that are far above where precision ends. NaN is not. */
static int representable(double x, double points) {
    const double large = sizeof(real) == 4 ? 1e37 : 1e300, small = sizeof(real) == 4 ? 2e-31 : 1e-290;
    return x * points < large && x / points > small;
}

/* Are the windows of a map with that table within the limit? NaN and infinity are not. */
static int in_range(loudness l, table_range r, double points, double limit) {
    if (l.energy == 0) return 1; /* all windows are blank */
    const double norm = sqrt(l.energy), window = sqrt(l.least), table = r.energy == 0 ? 1 : sqrt(r.energy);
    if (!representable(norm, points) || !representable(window, points) || !representable(table, points)) return 0;
    if (!representable(norm * table, points) || !representable(window * table, points)) return 0;
    return norm * sqrt((r.gain + RANGE_FLOOR) / points) <= limit * window;
}

/* The gradient of the table: within BOUND sum_n |dlambda[n]| |W[n]|, the last of which is `seen`. Its error is that of a
 * correlation, which Young's inequality bounds. Without blank windows this follows from the range of the values. */
static int table_in_range(loudness v, loudness d, double seen, double points, double limit) {
    if (v.energy == 0 || d.energy == 0) return 1;
    if (!representable(sqrt(v.energy * d.energy), points) || !representable(seen, points)) return 0;
    return 2 * fmin(v.absolute * sqrt(d.energy), d.absolute * sqrt(v.energy)) / sqrt(points) <= limit * seen;
}

#endif
