/* Runs the kernels on random problems and compares with naive.h: driver FIRST COUNT SEED [short|wrong]
 *
 * Linked with kernels that were compiled with sanitisers. This file itself is not, since its loops would only be slow; it
 * is enough that malloc is the sanitiser's. The last argument injects a fault, which must then be found. */
#include <unistd.h>

#include "cases.h"

const char *lambda_instruction_set(void);
int lambda_use_instruction_set(const char *name);
int lambda_forward_f32 LAMBDA_FORWARD(float);
int lambda_forward_f64 LAMBDA_FORWARD(double);
int lambda_backward_f32 LAMBDA_BACKWARD(float);
int lambda_backward_f64 LAMBDA_BACKWARD(double);
int lambda_content_forward_f32 LAMBDA_CONTENT_FORWARD(float);
int lambda_content_forward_f64 LAMBDA_CONTENT_FORWARD(double);
int lambda_content_backward_f32 LAMBDA_CONTENT_BACKWARD(float);
int lambda_content_backward_f64 LAMBDA_CONTENT_BACKWARD(double);
int lambda_norm_statistics_f32 LAMBDA_NORM_STATISTICS(float);
int lambda_norm_statistics_f64 LAMBDA_NORM_STATISTICS(double);
int lambda_norm_backward_f32 LAMBDA_NORM_BACKWARD(float);
int lambda_norm_backward_f64 LAMBDA_NORM_BACKWARD(double);
int lambda_norm_rectified_f32 LAMBDA_NORM_RECTIFIED(float);
int lambda_norm_rectified_f64 LAMBDA_NORM_RECTIFIED(double);

void __sanitizer_set_death_callback(void (*callback)(void));

/* Those that this machine does not have are skipped. */
static const char *const instruction_sets[] = {"baseline", "avx2", "avx512"};
static const double tolerance[] = {1e-5, 1e-10};

static int inject_wrong;

/* The current case, reported on failure so that it can be repeated. */
static struct {
    long long index, seed;
    const char *kernel;
    int f64, content;
    int64_t threads, rows, columns, stride;
    const lambda_problem *problem;
} current;

static void report_case(void) {
    fprintf(stderr, "\ncase %lld of seed %lld: %s, %s, %s, %lld threads", current.index, current.seed, current.kernel,
            current.f64 ? "double" : "float", lambda_instruction_set(), (long long)current.threads);
    if (current.problem) {
        fprintf(stderr, ", %s content lambdas, %s norm,", current.content ? "with" : "without",
                current.problem->norm ? "with" : "without");
        print_problem(current.problem);
    } else {
        fprintf(stderr, ", %lld rows %lld apart of %lld columns\n", (long long)current.rows, (long long)current.stride,
                (long long)current.columns);
    }
}

static void fail(const char *what, const char *name) {
    fprintf(stderr, "%s %s", name, what);
    report_case();
    exit(1);
}

static void expect_ok(int result) {
    if (result != LAMBDA_OK) fail("returned an error", current.kernel);
}

/* Within tolerance of the largest magnitude, as in the Python tests. Frees the tensor. */
static void check_against(const char *name, tensor *t, const double *expected, const double *magnitude, double growth) {
    const int64_t n = elements(&t->l);
    double largest = 1, worst = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(magnitude[i]));
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs(get(t, i) + (inject_wrong ? 1e-3 : 0) - expected[i]);
        if (!(d <= worst)) worst = d; /* NaN too */
        if (isnan(d)) break;
    }
    if (!(worst <= tolerance[t->f64] * largest * growth)) {
        fprintf(stderr, "off by %g of %g: ", worst, largest);
        fail("is wrong", name);
    }
    if (gaps_written(t)) fail("was written to between its elements", name);
    free(t->memory);
}

static void check(const char *name, tensor *t, const double *expected, double growth) {
    check_against(name, t, expected, expected, growth);
}

static void run_position(position_case *c, int f64) {
    const position_term *t = &c->t, *scale = c->outlier ? &c->magnitudes : t;
    tensor q = make_tensor(&c->q, f64, c->raw_q), values = make_tensor(&c->values, f64, c->raw_values);
    tensor table = make_tensor(&c->table, f64, t->table), lc = {0}, norms = {0};
    if (t->lc) lc = make_tensor(&c->lc, f64, t->lc);
    if (c->norm) norms = make_tensor(&c->norms, f64, c->norm);
    c->p.norm = norms.data;
    current.f64 = f64;
    current.threads = c->p.threads;
    current.problem = &c->p;
    current.content = t->lc != NULL;

    current.kernel = "forward";
    layout written = c->y; /* y and its gradient have one layout, but what is written cannot repeat */
    for (int a = 0; a < 4; a++)
        if (!c->y.stride[a]) written = make_layout(c->y.shape[0], c->y.shape[1], c->y.shape[2], c->y.shape[3], 0);
    tensor y = make_empty(&written, f64);
    memcpy(c->p.y, written.stride, sizeof c->p.y);
    expect_ok(f64 ? lambda_forward_f64(&c->p, q.data, values.data, table.data, lc.data, y.data)
                  : lambda_forward_f32(&c->p, q.data, values.data, table.data, lc.data, y.data));
    check_against("y", &y, t->y, scale->y, 1);

    current.kernel = "backward";
    tensor dy = make_tensor(&c->y, f64, t->dy);
    tensor dq = make_empty(&c->dq, f64), dvalues = make_empty(&c->dvalues, f64);
    tensor dtable = make_empty(&c->table, f64), dlc = {0};
    if (t->lc) dlc = make_empty(&c->lc, f64);
    memcpy(c->p.y, c->y.stride, sizeof c->p.y);
    expect_ok(f64 ? lambda_backward_f64(&c->p, q.data, values.data, table.data, lc.data, dy.data, dq.data,
                                          dvalues.data, dtable.data, dlc.data)
                  : lambda_backward_f32(&c->p, q.data, values.data, table.data, lc.data, dy.data, dq.data,
                                          dvalues.data, dtable.data, dlc.data));
    check_against("dq", &dq, t->dq, scale->dq, 1);
    check("dvalues", &dvalues, t->dvalues, 1);
    check_against("dtable", &dtable, t->dtable, scale->dtable, 1);
    if (t->lc) check("dlc", &dlc, t->dlc, 1);
    /* The inputs are read only and must be unchanged. */
    check("q", &q, c->raw_q, 1e-9);
    check("values", &values, c->raw_values, 1e-9);
    if (c->norm) check("norm", &norms, c->norm, 1e-9);
    check("table", &table, t->table, 1e-9);
    check("dy", &dy, t->dy, 1e-9);
    if (t->lc) check("lc", &lc, t->lc, 1e-9);
}

static void run_content(position_case *c, int f64) {
    const content_lambdas *t = &c->l;
    tensor keys = make_tensor(&c->keys, f64, t->keys), values = make_tensor(&c->values, f64, c->raw_values), norms = {0};
    tensor lc = make_empty(&c->lc, f64), by_u = make_empty(&c->by_u, f64), softmax = make_empty(&c->softmax, f64);
    tensor dlc = make_tensor(&c->lc, f64, t->dlc), dkeys = make_empty(&c->dkeys, f64);
    tensor dvalues = make_tensor(&c->dvalues, f64, t->before);
    if (c->norm) norms = make_tensor(&c->norms, f64, c->norm);
    c->p.norm = norms.data;
    current.f64 = f64;
    current.threads = c->p.threads;
    current.problem = &c->p;

    current.kernel = "content_forward";
    expect_ok(f64 ? lambda_content_forward_f64(&c->p, keys.data, values.data, lc.data, by_u.data, softmax.data)
                  : lambda_content_forward_f32(&c->p, keys.data, values.data, lc.data, by_u.data, softmax.data));
    current.kernel = "content_backward";
    expect_ok(f64 ? lambda_content_backward_f64(&c->p, keys.data, values.data, by_u.data, softmax.data, dlc.data,
                                          dkeys.data, dvalues.data)
                  : lambda_content_backward_f32(&c->p, keys.data, values.data, by_u.data, softmax.data, dlc.data,
                                          dkeys.data, dvalues.data));
    check("lc", &lc, t->lc, 1);
    check("by_u", &by_u, t->by_u, 1);
    check("softmax", &softmax, t->softmax, 1);
    check_against("dkeys", &dkeys, t->dkeys, c->outlier ? t->dkeys_magnitude : t->dkeys, 1);
    check("dvalues", &dvalues, t->dvalues, 1);
    check("keys", &keys, t->keys, 1e-9);
    check("values", &values, c->raw_values, 1e-9);
    check("dlc", &dlc, t->dlc, 1e-9);
    if (c->norm) check("norm", &norms, c->norm, 1e-9);
}

/* The rectifier forward. Backward gets the exact y, so that rounding changes no sign. */
static void run_rectified(norm_case *c, int f64, int64_t threads) {
    tensor x = make_tensor(&c->x, f64, c->t.x), residual = {0}, y = make_empty(&c->dx, f64);
    tensor center = make_tensor(&c->column, f64, c->center), scale = make_tensor(&c->column, f64, c->scale);
    tensor shift = make_tensor(&c->column, f64, c->shift);
    tensor residual_center = {0}, residual_scale = {0};
    if (c->residual) residual = make_tensor(&c->dx, f64, c->residual);
    if (c->residual_center) residual_center = make_tensor(&c->column, f64, c->residual_center);
    if (c->residual_scale) residual_scale = make_tensor(&c->column, f64, c->residual_scale);
    current.kernel = "norm_rectified";
    expect_ok(f64 ? lambda_norm_rectified_f64(c->rows, c->columns, threads, x.data, center.data, scale.data, shift.data,
                                          residual.data, residual_center.data, residual_scale.data, y.data)
                  : lambda_norm_rectified_f32(c->rows, c->columns, threads, x.data, center.data, scale.data, shift.data,
                                          residual.data, residual_center.data, residual_scale.data, y.data));
    check("y", &y, c->y, 1);
    check("x", &x, c->t.x, 1e-9);
    check("mean", &center, c->center, 1e-9);
    check("scale", &scale, c->scale, 1e-9);
    check("shift", &shift, c->shift, 1e-9);
    if (c->residual) check("residual", &residual, c->residual, 1e-9);
    if (c->residual_center) check("residual_mean", &residual_center, c->residual_center, 1e-9);
    if (c->residual_scale) check("residual_scale", &residual_scale, c->residual_scale, 1e-9);
}

static void run_norm(norm_case *c, int f64, int64_t threads) {
    const norm *t = &c->t;
    const double growth = t->steepest;
    tensor x = make_tensor(&c->x, f64, t->x), dx = make_tensor(&c->dx, f64, t->g); /* g, replaced by dx */
    tensor y = {0}, dy = {0}, g = dx;
    if (c->y) {
        y = make_tensor(&c->dx, f64, c->y);
        dy = make_tensor(&c->dx, f64, c->dy);
        if (c->residual) g = make_empty(&c->dx, f64); /* its gradient */
    }
    tensor weight = make_tensor(&c->column, f64, t->weight);
    tensor mean = make_empty(&c->column, f64), var = make_empty(&c->column, f64);
    tensor dweight = make_empty(&c->column, f64), dbias = make_empty(&c->column, f64);
    current.f64 = f64;
    current.threads = threads;
    current.problem = NULL;
    current.rows = c->rows;
    current.columns = c->columns;
    current.stride = c->stride;

    current.kernel = "norm_statistics";
    expect_ok(f64 ? lambda_norm_statistics_f64(c->rows, c->columns, c->stride, threads, x.data, mean.data, var.data)
                  : lambda_norm_statistics_f32(c->rows, c->columns, c->stride, threads, x.data, mean.data, var.data));
    if (c->y) run_rectified(c, f64, threads);
    current.kernel = "norm_backward";
    expect_ok(f64 ? lambda_norm_backward_f64(c->rows, c->columns, c->stride, c->g_stride, threads, c->eps, x.data,
                                          weight.data, mean.data, var.data, y.data, dy.data, g.data, dx.data, dweight.data,
                                          dbias.data)
                  : lambda_norm_backward_f32(c->rows, c->columns, c->stride, c->g_stride, threads, c->eps, x.data,
                                          weight.data, mean.data, var.data, y.data, dy.data, g.data, dx.data, dweight.data,
                                          dbias.data));
    check("mean", &mean, t->mean, 1);
    check("var", &var, t->var, 1);
    check("dx", &dx, t->dx, growth);
    check("dweight", &dweight, t->dweight, growth);
    check("dbias", &dbias, t->dbias, 1);
    check("x", &x, t->x, 1e-9);
    check("weight", &weight, t->weight, 1e-9);
    if (c->y) check("y", &y, c->y, 1e-9);
    if (c->y) check("dy", &dy, c->dy, 1e-9);
    if (c->residual) check("dresidual", &g, t->g, 1);
}

/* One problem of each kind, with every instruction set, with one thread and with several. */
static void run_case(void) {
    position_case position = make_position_case();
    norm_case normed = make_norm_case();
    for (size_t set = 0; set < sizeof instruction_sets / sizeof *instruction_sets; set++) {
        if (!lambda_use_instruction_set(instruction_sets[set])) continue;
        for (int f64 = 0; f64 < 2; f64++)
            for (int several = 0; several < 2; several++) {
                position.p.threads = several ? between(2, 4) : 1;
                run_position(&position, f64);
                run_content(&position, f64);
                run_norm(&normed, f64, position.p.threads);
            }
    }
    free_cases(&position, &normed);
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    const long long first = atoll(arguments[1]), cases = atoll(arguments[2]);
    current.seed = atoll(arguments[3]);
    inject_short = count > 4 && !strcmp(arguments[4], "short");
    inject_wrong = count > 4 && !strcmp(arguments[4], "wrong");
    __sanitizer_set_death_callback(report_case);
    const int live = isatty(STDOUT_FILENO);
    for (long long i = 0; i < cases; i++) {
        current.index = first + i;
        state = (uint64_t)current.seed * 0x2545f4914f6cdd1du + (uint64_t)current.index * 0xd1342543de82ef95u;
        bits();
        run_case();
        if ((i + 1) % (live ? 50 : 1000) == 0) {
            printf(live ? "\r%lld of %lld cases" : "%lld of %lld cases\n", i + 1, cases);
            fflush(stdout);
        }
    }
    printf("%s%lld cases, nothing found\n", live ? "\r" : "", cases);
    return 0;
}
