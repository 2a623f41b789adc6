/* What the library exports: each function in the form that suits this machine, and which form that is. */
#include <string.h>

#include "lambda.h"

/* Every kernel: its name, its parameters, and how they are handed on. */
#define EACH_KERNEL(DO, type, real)                                                                              \
    DO(forward, LAMBDA_FORWARD(real), (p, q, values, table, lc, y), type)                                        \
    DO(backward, LAMBDA_BACKWARD(real), (p, q, values, table, lc, dy, dq, dvalues, dtable, dlc), type)           \
    DO(uses_fft, LAMBDA_USES_FFT, (p, backward), type)                                                           \
    DO(position_cost, LAMBDA_POSITION_COST, (p, backward, cost), type)                                           \
    DO(content_forward, LAMBDA_CONTENT_FORWARD(real), (p, keys, values, lc, by_u, softmax), type)                \
    DO(content_backward, LAMBDA_CONTENT_BACKWARD(real), (p, keys, values, by_u, softmax, dlc, dkeys, dvalues), type) \
    DO(norm_statistics, LAMBDA_NORM_STATISTICS(real), (rows, columns, stride, threads, x, mean, var), type)      \
    DO(norm_backward, LAMBDA_NORM_BACKWARD(real),                                                                \
       (rows, columns, stride, g_stride, threads, eps, x, weight, mean, var, y, dy, g, dx, dweight, dbias), type)    \
    DO(norm_rectified, LAMBDA_NORM_RECTIFIED(real),                                                              \
       (rows, columns, threads, x, mean, scale, shift, residual, residual_mean, residual_scale, y), type)
#define BOTH_TYPES(DO) EACH_KERNEL(DO, f32, float) EACH_KERNEL(DO, f64, double)

typedef struct {
    const char *name;
#define FIELD(kernel, parameters, arguments, type) int(*kernel##_##type) parameters;
    BOTH_TYPES(FIELD)
} kernels;

#define DECLARE_BASELINE(kernel, parameters, arguments, type) int lambda_##kernel##_##type##_baseline parameters;
#define FILL_BASELINE(kernel, parameters, arguments, type) lambda_##kernel##_##type##_baseline,
BOTH_TYPES(DECLARE_BASELINE)
#ifdef WITH_X86
#define DECLARE_AVX2(kernel, parameters, arguments, type) int lambda_##kernel##_##type##_avx2 parameters;
#define FILL_AVX2(kernel, parameters, arguments, type) lambda_##kernel##_##type##_avx2,
#define DECLARE_AVX512(kernel, parameters, arguments, type) int lambda_##kernel##_##type##_avx512 parameters;
#define FILL_AVX512(kernel, parameters, arguments, type) lambda_##kernel##_##type##_avx512,
BOTH_TYPES(DECLARE_AVX2)
BOTH_TYPES(DECLARE_AVX512)
#endif

static const kernels forms[] = {
    {"baseline", BOTH_TYPES(FILL_BASELINE)},
#ifdef WITH_X86
    {"avx2", BOTH_TYPES(FILL_AVX2)},
    {"avx512", BOTH_TYPES(FILL_AVX512)},
#endif
};

enum { FORMS = sizeof forms / sizeof *forms };
static const kernels *chosen;

static int runs_here(const kernels *form) {
#ifdef WITH_X86
    if (form == &forms[1]) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (form == &forms[2])
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
    return form == forms;
}

/* The best form that the machine runs; set before the first call, so that no thread sees it change. */
__attribute__((constructor)) static void choose(void) {
    for (int i = 0; i < FORMS; i++)
        if (runs_here(&forms[i])) chosen = &forms[i];
}

const char *lambda_instruction_set(void) { return chosen->name; }

/* Use another form; 0 if this machine does not run it. For tests, not while other threads compute. */
int lambda_use_instruction_set(const char *name) {
    for (int i = 0; i < FORMS; i++)
        if (!strcmp(forms[i].name, name) && runs_here(&forms[i])) {
            chosen = &forms[i];
            return 1;
        }
    return 0;
}

int lambda_has_threads(void) {
#ifdef _OPENMP
    return 1;
#else
    return 0;
#endif
}

/* What callers compiled against; a library of another number has other parameters. */
int lambda_interface(void) { return LAMBDA_INTERFACE; }

#define EXPORT(kernel, parameters, arguments, type) \
    int lambda_##kernel##_##type parameters { return chosen->kernel##_##type arguments; }
BOTH_TYPES(EXPORT)
