/* Compares the fused product with plain loops on every shape that its register blocks can meet. The numbers are small
 * integers, so that both are exact. Exits with 0 if all agree, 1 if not, 77 if this machine cannot run it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fused_product.h"

enum { MAX_ROWS = 9, MAX_TEST_LINES = 9, MAX_SEGMENTS = 14, N = 7, K = 5, BATCH = 3 };

static int machine_supports(void) {
#if defined(__AVX512F__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
#elif defined(__AVX2__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 1;
#endif
}

static real *integers(int64_t n, int random) {
    real *x = malloc(sizeof(real) * (size_t)n);
    if (!x) abort();
    for (int64_t i = 0; i < n; i++) x[i] = random ? (real)(rand() % 7 - 3) : 0;
    return x;
}

/* Returns whether T and D are right. */
static int check(int64_t rows, int64_t lines, int64_t segments) {
    const int64_t width = segments * SEGMENT, columns = lines * width, slack = 2 * LANES, batch = 1 + rows % BATCH;
    const int64_t lda = N + 1, ldq = K + 2, ldt = columns + slack, ldd = columns + slack;
    const int64_t line_stride = width + slack, ldb = lines * line_stride + 3;
    real *a = integers(batch * rows * lda, 1), *q = integers(batch * rows * ldq, 1), *b = integers(batch * N * ldb + slack, 1);
    real *t = integers(batch * rows * ldt, 0), *d = integers(K * ldd, 1), *expected = integers(K * ldd, 0);
    int64_t a_offsets[BATCH], q_offsets[BATCH], b_offsets[BATCH], t_offsets[BATCH];
    memcpy(expected, d, sizeof(real) * (size_t)(K * ldd));
    for (int64_t j = 0; j < batch; j++) {
        a_offsets[j] = j * rows * lda;
        q_offsets[j] = j * rows * ldq;
        b_offsets[j] = j * N * ldb;
        t_offsets[j] = j * rows * ldt;
    }
    multiply_outer(&(fused_args){.queries = batch,
                                 .t = t, .t_offsets = t_offsets, .ldt = ldt,
                                 .a = a, .a_offsets = a_offsets, .lda = lda, .n = N,
                                 .b = b, .b_offsets = b_offsets, .b_line_stride = line_stride, .ldb = ldb,
                                 .q = q, .q_offsets = q_offsets, .ldq = ldq, .k = K,
                                 .d = d, .ldd = ldd,
                                 .rows = rows, .lines = lines, .segments = segments});
    int right = 1;
    for (int64_t j = 0; j < batch; j++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t x = 0; x < columns; x++) {
                real sum = 0;
                for (int64_t i = 0; i < N; i++)
                    sum += a[a_offsets[j] + r * lda + i] * b[b_offsets[j] + i * ldb + x / width * line_stride + x % width];
                right &= t[t_offsets[j] + r * ldt + x] == sum;
                for (int64_t k = 0; k < K; k++) expected[k * ldd + x] += q[q_offsets[j] + r * ldq + k] * sum;
            }
    for (int64_t k = 0; k < K; k++)
        for (int64_t x = 0; x < columns; x++) right &= d[k * ldd + x] == expected[k * ldd + x];
    free(a), free(q), free(b), free(t), free(d), free(expected);
    return right;
}

int main(void) {
    if (!machine_supports()) return 77;
    int wrong = 0;
    for (int64_t rows = 1; rows <= MAX_ROWS; rows++)
        for (int64_t lines = 1; lines <= MAX_TEST_LINES; lines++)
            for (int64_t segments = 1; segments <= MAX_SEGMENTS; segments++)
                if (!check(rows, lines, segments)) {
                    fprintf(stderr, "wrong: %d rows, %d lines of %d segments\n", (int)rows, (int)lines, (int)segments);
                    wrong = 1;
                }
    return wrong;
}
