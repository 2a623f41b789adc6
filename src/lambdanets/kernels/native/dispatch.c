/* What the library exports: each function in the form that suits this machine, and which form that is. */
#include <string.h>

#include "lambda.h"

#define DECLARE(isa)                                                                                             \
    int lambda_forward_f32_##isa LAMBDA_FORWARD(float);                                                          \
    int lambda_forward_f64_##isa LAMBDA_FORWARD(double);                                                         \
    int lambda_backward_f32_##isa LAMBDA_BACKWARD(float);                                                        \
    int lambda_backward_f64_##isa LAMBDA_BACKWARD(double);                                                       \
    int lambda_norm_forward_f32_##isa LAMBDA_NORM_FORWARD(float);                                                \
    int lambda_norm_forward_f64_##isa LAMBDA_NORM_FORWARD(double);                                               \
    int lambda_norm_backward_f32_##isa LAMBDA_NORM_BACKWARD(float);                                              \
    int lambda_norm_backward_f64_##isa LAMBDA_NORM_BACKWARD(double);

typedef struct {
    const char *name;
    int (*forward_f32) LAMBDA_FORWARD(float);
    int (*forward_f64) LAMBDA_FORWARD(double);
    int (*backward_f32) LAMBDA_BACKWARD(float);
    int (*backward_f64) LAMBDA_BACKWARD(double);
    int (*norm_forward_f32) LAMBDA_NORM_FORWARD(float);
    int (*norm_forward_f64) LAMBDA_NORM_FORWARD(double);
    int (*norm_backward_f32) LAMBDA_NORM_BACKWARD(float);
    int (*norm_backward_f64) LAMBDA_NORM_BACKWARD(double);
} kernels;

#define FORM(isa)                                                                                                \
    {#isa,                                                                                                       \
     lambda_forward_f32_##isa,       lambda_forward_f64_##isa,       lambda_backward_f32_##isa,                  \
     lambda_backward_f64_##isa,      lambda_norm_forward_f32_##isa,  lambda_norm_forward_f64_##isa,              \
     lambda_norm_backward_f32_##isa, lambda_norm_backward_f64_##isa}

DECLARE(baseline)
#ifdef WITH_X86
DECLARE(avx2)
DECLARE(avx512)
static const kernels forms[] = {FORM(baseline), FORM(avx2), FORM(avx512)};
#else
static const kernels forms[] = {FORM(baseline)};
#endif

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

#define EXPORT(type, real)                                                                                       \
    int lambda_forward_##type(const lambda_problem *p, const real *q, const real *values, const real *table,     \
                              const real *lc, real *y) {                                                         \
        return chosen->forward_##type(p, q, values, table, lc, y);                                               \
    }                                                                                                            \
    int lambda_backward_##type(const lambda_problem *p, const real *q, const real *values, const real *table,    \
                               const real *lc, const real *dy, real *dq, real *dvalues, real *dtable,            \
                               real *dlc) {                                                                      \
        return chosen->backward_##type(p, q, values, table, lc, dy, dq, dvalues, dtable, dlc);                   \
    }                                                                                                            \
    int lambda_norm_forward_##type LAMBDA_NORM_FORWARD(real) {                                                   \
        return chosen->norm_forward_##type(rows, columns, stride, threads, eps, x, weight, bias, y, mean, var);  \
    }                                                                                                            \
    int lambda_norm_backward_##type LAMBDA_NORM_BACKWARD(real) {                                                 \
        return chosen->norm_backward_##type(rows, columns, stride, threads, eps, x, weight, mean, var, g, dx,    \
                                            dweight, dbias);                                                     \
    }

EXPORT(f32, float)
EXPORT(f64, double)
