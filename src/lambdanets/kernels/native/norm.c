/* Batch norm of the columns of a matrix, whose rows may be strided: its statistics (kernels that read x apply them), its
 * backward pass, and both with a ReLU after it.
 *
 *   y = (x - mean) w / sqrt(var + eps) + b
 *   dx = w / sqrt(var + eps) (g - mean(g) - xhat mean(g xhat))      dw = sum g xhat      db = sum g
 *
 * Rows are summed in blocks that the L1 cache holds; the sums of the blocks are combined in double precision and always
 * in the same order, so that the result does not depend on the number of threads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lambda.h"
#include "workspace.h"

enum { BLOCK = 64 };

#define BLOCKS(rows) (((rows) + BLOCK - 1) / BLOCK)

/* sums[0] and sums[1] of a block: its mean and its sum of squared deviations from that. */
static void moments(const real *x, int64_t rows, int64_t stride, int64_t columns, real *sums) {
    real *mean = sums, *squares = sums + columns;
    memset(sums, 0, sizeof(real) * 2 * columns);
    /* Relative to the first row: with a large mean, sums of x itself would lose the digits that differ. */
    for (int64_t r = 1; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) mean[c] += x[r * stride + c] - x[c];
    for (int64_t c = 0; c < columns; c++) mean[c] = x[c] + mean[c] / (real)rows;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            const real d = x[r * stride + c] - mean[c];
            squares[c] += d * d;
        }
}

int NAME(norm_statistics) LAMBDA_NORM_STATISTICS(real);
int NAME(norm_statistics)(int64_t rows, int64_t columns, int64_t stride, int64_t threads, const real *x, real *mean,
                          real *var) {
    const int64_t blocks = BLOCKS(rows);
    real *sums = malloc(sizeof(real) * 2 * blocks * columns);
    double *combined = calloc(2 * columns, sizeof(double)), *m = combined, *s = combined + columns;
    if (!sums || !combined) {
        free(combined);
        free(sums);
        return LAMBDA_NO_MEMORY;
    }
#pragma omp parallel num_threads((int)threads)
    {
#pragma omp for schedule(static)
        for (int64_t z = 0; z < blocks; z++)
            moments(x + z * BLOCK * stride, MIN(BLOCK, rows - z * BLOCK), stride, columns, sums + 2 * z * columns);
        /* A share of the columns for each thread, block by block, by the parallel algorithm of Chan et al. */
        const int64_t first = columns * omp_get_thread_num() / omp_get_num_threads();
        const int64_t end = columns * (omp_get_thread_num() + 1) / omp_get_num_threads();
        double n = 0;
        for (int64_t z = 0; z < blocks; z++) {
            const double more = (double)MIN(BLOCK, rows - z * BLOCK), share = more / (n + more), apart = n * share;
            const real *block_mean = sums + 2 * z * columns, *block_squares = block_mean + columns;
            for (int64_t c = first; c < end; c++) {
                const double d = block_mean[c] - m[c];
                s[c] += block_squares[c] + d * d * apart;
                m[c] += d * share;
            }
            n += more;
        }
        for (int64_t c = first; c < end; c++) {
            mean[c] = (real)m[c];
            var[c] = (real)(s[c] / (double)rows);
        }
    }
    free(combined);
    free(sums);
    return LAMBDA_OK;
}

/* max(0, NaN) is NaN. */
static void rectify(int64_t columns, const real *x, const real *mean, const real *scale, const real *shift,
                    const real *residual, const real *residual_mean, const real *residual_scale, real *y) {
    if (residual && residual_mean)
        for (int64_t c = 0; c < columns; c++) {
            const real other = (residual[c] - residual_mean[c]) * residual_scale[c];
            const real sum = (x[c] - mean[c]) * scale[c] + shift[c] + other;
            y[c] = 0 > sum ? 0 : sum;
        }
    else if (residual)
        for (int64_t c = 0; c < columns; c++) {
            const real sum = (x[c] - mean[c]) * scale[c] + shift[c] + residual[c];
            y[c] = 0 > sum ? 0 : sum;
        }
    else
        for (int64_t c = 0; c < columns; c++) {
            const real sum = (x[c] - mean[c]) * scale[c] + shift[c];
            y[c] = 0 > sum ? 0 : sum;
        }
}

int NAME(norm_rectified) LAMBDA_NORM_RECTIFIED(real);
int NAME(norm_rectified)(int64_t rows, int64_t columns, int64_t threads, const real *x, const real *mean,
                         const real *scale, const real *shift, const real *residual, const real *residual_mean,
                         const real *residual_scale, real *y) {
#pragma omp parallel for schedule(static) num_threads((int)threads)
    for (int64_t r = 0; r < rows; r++)
        rectify(columns, x + r * columns, mean, scale, shift, residual ? residual + r * columns : NULL, residual_mean,
                residual_scale, y + r * columns);
    return LAMBDA_OK;
}

int NAME(norm_backward) LAMBDA_NORM_BACKWARD(real);
int NAME(norm_backward)(int64_t rows, int64_t columns, int64_t stride, int64_t g_stride, int64_t threads, double eps,
                        const real *x, const real *weight, const real *mean, const real *var, const real *y,
                        const real *dy, real *g, real *dx, real *dweight, real *dbias) {
    const int64_t blocks = BLOCKS(rows);
    real *sums = malloc(sizeof(real) * (2 * blocks + 3) * columns);
    if (!sums) return LAMBDA_NO_MEMORY;
    real *scale = sums + 2 * blocks * columns, *slope = scale + columns, *shift = slope + columns;
#pragma omp parallel num_threads((int)threads)
    {
#pragma omp for schedule(static)
        for (int64_t z = 0; z < blocks; z++) {
            real *sum = sums + 2 * z * columns, *product = sum + columns;
            memset(sum, 0, sizeof(real) * 2 * columns);
            for (int64_t r = z * BLOCK; r < MIN((z + 1) * BLOCK, rows); r++) {
                if (y)
                    for (int64_t c = 0; c < columns; c++)
                        g[r * g_stride + c] = y[r * columns + c] <= 0 ? 0 : dy[r * columns + c];
                for (int64_t c = 0; c < columns; c++) {
                    sum[c] += g[r * g_stride + c];
                    product[c] += g[r * g_stride + c] * (x[r * stride + c] - mean[c]);
                }
            }
        }
#pragma omp for schedule(static)
        for (int64_t c = 0; c < columns; c++) {
            double sum = 0, product = 0;
            for (int64_t z = 0; z < blocks; z++) {
                sum += sums[2 * z * columns + c];
                product += sums[(2 * z + 1) * columns + c];
            }
            const double inverse = 1 / sqrt((double)var[c] + eps);
            dbias[c] = (real)sum;
            dweight[c] = (real)(product * inverse);
            scale[c] = (real)(weight[c] * inverse);
            slope[c] = (real)(-weight[c] * inverse * inverse * inverse * product / (double)rows);
            shift[c] = (real)(-weight[c] * inverse * sum / (double)rows);
        }
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                dx[r * g_stride + c] =
                    g[r * g_stride + c] * scale[c] + (x[r * stride + c] - mean[c]) * slope[c] + shift[c];
    }
    free(sums);
    return LAMBDA_OK;
}
