/* Puts random problems through the kernels and compares with naive.h: driver FIRST COUNT SEED [short|wrong]
 *
 * Linked with kernels that were compiled with sanitisers. This file itself is not, the loops here would only be slow:
 * what counts is that malloc is the sanitiser's. The last argument plants a fault, which must then be found. */
#include <unistd.h>

#include "naive.h"
#include "problems.h"
#include "tensors.h"

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

static const char *const known[] = {"baseline", "avx2", "avx512"}; /* names that a library does not have are skipped */
static const double tolerance[] = {1e-5, 1e-10};

static int plant_wrong;

/* The case in hand, for whoever has to repeat it. */
static struct {
    long long index, seed;
    const char *kernel;
    int wide, content;
    int64_t threads, rows, columns, stride;
    const lambda_problem *problem;
} now;

static void tell(void) {
    fprintf(stderr, "\ncase %lld of seed %lld: %s, %s, %s, %lld threads", now.index, now.seed, now.kernel,
            now.wide ? "double" : "float", lambda_instruction_set(), (long long)now.threads);
    if (now.problem) {
        fprintf(stderr, ", %s content lambdas, %s norm,", now.content ? "with" : "without",
                now.problem->norm ? "with" : "without");
        print_problem(now.problem);
    } else {
        fprintf(stderr, ", %lld rows %lld apart of %lld columns\n", (long long)now.rows, (long long)now.stride,
                (long long)now.columns);
    }
}

static void fail(const char *what, const char *name) {
    fprintf(stderr, "%s %s", name, what);
    tell();
    exit(1);
}

static void must_be_ok(int result) {
    if (result != LAMBDA_OK) fail("returned an error", now.kernel);
}

/* Within tolerance of the largest magnitude, as the Python tests have it. The tensor is given back to malloc. */
static void check_against(const char *name, tensor *t, const double *expected, const double *magnitude, double growth) {
    const int64_t n = elements(&t->l);
    double largest = 1, worst = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(magnitude[i]));
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs(get(t, i) + (plant_wrong ? 1e-3 : 0) - expected[i]);
        if (!(d <= worst)) worst = d; /* NaN too */
        if (isnan(d)) break;
    }
    if (!(worst <= tolerance[t->wide] * largest * growth)) {
        fprintf(stderr, "off by %g of %g: ", worst, largest);
        fail("is wrong", name);
    }
    if (gaps_touched(t)) fail("was written to between its elements", name);
    free(t->memory);
}

static void check(const char *name, tensor *t, const double *expected, double growth) {
    check_against(name, t, expected, expected, growth);
}

/* Queries and values as the kernels are given them: not yet normalised, if there is a norm. */
typedef struct {
    lambda_problem p;
    layout q, dq, values, dvalues, y, table, lc, norms, keys, dkeys, by_u, softmax;
    double *raw_q, *raw_values, *norm; /* or NULL */
    int outlier;                       /* are some values much larger than the others? */
    term t, magnitudes;                /* the same of absolute values: what rounding errors are relative to */
    lambdas l;
} position_case;

static void run_position(position_case *c, int wide) {
    const term *t = &c->t, *scale = c->outlier ? &c->magnitudes : t;
    tensor q = filled(&c->q, wide, c->raw_q), values = filled(&c->values, wide, c->raw_values);
    tensor table = filled(&c->table, wide, t->table), lc = {0}, norms = {0};
    if (t->lc) lc = filled(&c->lc, wide, t->lc);
    if (c->norm) norms = filled(&c->norms, wide, c->norm);
    c->p.norm = norms.data;
    now.wide = wide;
    now.threads = c->p.threads;
    now.problem = &c->p;
    now.content = t->lc != NULL;

    now.kernel = "forward";
    layout written = c->y; /* y and its gradient have one layout, but what is written cannot repeat */
    for (int a = 0; a < 4; a++)
        if (!c->y.stride[a]) written = make_layout(c->y.shape[0], c->y.shape[1], c->y.shape[2], c->y.shape[3], 0);
    tensor y = empty(&written, wide);
    memcpy(c->p.y, written.stride, sizeof c->p.y);
    must_be_ok(wide ? lambda_forward_f64(&c->p, q.data, values.data, table.data, lc.data, y.data)
                    : lambda_forward_f32(&c->p, q.data, values.data, table.data, lc.data, y.data));
    check_against("y", &y, t->y, scale->y, 1);

    now.kernel = "backward";
    tensor dy = filled(&c->y, wide, t->dy);
    tensor dq = empty(&c->dq, wide), dvalues = empty(&c->dvalues, wide), dtable = empty(&c->table, wide), dlc = {0};
    if (t->lc) dlc = empty(&c->lc, wide);
    memcpy(c->p.y, c->y.stride, sizeof c->p.y);
    must_be_ok(wide ? lambda_backward_f64(&c->p, q.data, values.data, table.data, lc.data, dy.data, dq.data,
                                          dvalues.data, dtable.data, dlc.data)
                    : lambda_backward_f32(&c->p, q.data, values.data, table.data, lc.data, dy.data, dq.data,
                                          dvalues.data, dtable.data, dlc.data));
    check_against("dq", &dq, t->dq, scale->dq, 1);
    check("dvalues", &dvalues, t->dvalues, 1);
    check_against("dtable", &dtable, t->dtable, scale->dtable, 1);
    if (t->lc) check("dlc", &dlc, t->dlc, 1);
    /* The inputs are read only: what they hold is still what they held. */
    check("q", &q, c->raw_q, 1e-9);
    check("values", &values, c->raw_values, 1e-9);
    if (c->norm) check("norm", &norms, c->norm, 1e-9);
    check("table", &table, t->table, 1e-9);
    check("dy", &dy, t->dy, 1e-9);
    if (t->lc) check("lc", &lc, t->lc, 1e-9);
}

static void run_content(position_case *c, int wide) {
    const lambdas *t = &c->l;
    tensor keys = filled(&c->keys, wide, t->keys), values = filled(&c->values, wide, c->raw_values), norms = {0};
    tensor lc = empty(&c->lc, wide), by_u = empty(&c->by_u, wide), softmax = empty(&c->softmax, wide);
    tensor dlc = filled(&c->lc, wide, t->dlc), dkeys = empty(&c->dkeys, wide);
    tensor dvalues = filled(&c->dvalues, wide, t->before);
    if (c->norm) norms = filled(&c->norms, wide, c->norm);
    c->p.norm = norms.data;
    now.wide = wide;
    now.threads = c->p.threads;
    now.problem = &c->p;

    now.kernel = "content_forward";
    must_be_ok(wide ? lambda_content_forward_f64(&c->p, keys.data, values.data, lc.data, by_u.data, softmax.data)
                    : lambda_content_forward_f32(&c->p, keys.data, values.data, lc.data, by_u.data, softmax.data));
    now.kernel = "content_backward";
    must_be_ok(wide ? lambda_content_backward_f64(&c->p, keys.data, values.data, by_u.data, softmax.data, dlc.data,
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

typedef struct {
    int64_t rows, columns, stride, g_stride;
    double eps;
    layout x, dx, column;
    norm t;
    double *center, *scale, *shift, *residual, *residual_center, *residual_scale, *y, *dy; /* of a rectifier, or NULL */
} norm_case;

/* The rectifier forward; what it needs backward is the y that it should have made, so that rounding changes no sign. */
static void run_rectified(norm_case *c, int wide, int64_t threads) {
    tensor x = filled(&c->x, wide, c->t.x), residual = {0}, y = empty(&c->dx, wide);
    tensor center = filled(&c->column, wide, c->center), scale = filled(&c->column, wide, c->scale);
    tensor shift = filled(&c->column, wide, c->shift);
    tensor residual_center = {0}, residual_scale = {0};
    if (c->residual) residual = filled(&c->dx, wide, c->residual);
    if (c->residual_center) residual_center = filled(&c->column, wide, c->residual_center);
    if (c->residual_scale) residual_scale = filled(&c->column, wide, c->residual_scale);
    now.kernel = "norm_rectified";
    must_be_ok(wide ? lambda_norm_rectified_f64(c->rows, c->columns, threads, x.data, center.data, scale.data, shift.data,
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

static void run_norm(norm_case *c, int wide, int64_t threads) {
    const norm *t = &c->t;
    const double growth = t->steepest;
    tensor x = filled(&c->x, wide, t->x), dx = filled(&c->dx, wide, t->g); /* turned from one into the other */
    tensor y = {0}, dy = {0}, g = dx;
    if (c->y) {
        y = filled(&c->dx, wide, c->y);
        dy = filled(&c->dx, wide, c->dy);
        if (c->residual) g = empty(&c->dx, wide); /* its gradient */
    }
    tensor weight = filled(&c->column, wide, t->weight);
    tensor mean = empty(&c->column, wide), var = empty(&c->column, wide);
    tensor dweight = empty(&c->column, wide), dbias = empty(&c->column, wide);
    now.wide = wide;
    now.threads = threads;
    now.problem = NULL;
    now.rows = c->rows;
    now.columns = c->columns;
    now.stride = c->stride;

    now.kernel = "norm_statistics";
    must_be_ok(wide ? lambda_norm_statistics_f64(c->rows, c->columns, c->stride, threads, x.data, mean.data, var.data)
                    : lambda_norm_statistics_f32(c->rows, c->columns, c->stride, threads, x.data, mean.data, var.data));
    if (c->y) run_rectified(c, wide, threads);
    now.kernel = "norm_backward";
    must_be_ok(wide ? lambda_norm_backward_f64(c->rows, c->columns, c->stride, c->g_stride, threads, c->eps, x.data,
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

/* The first n numbers, and whatever shares their memory, are larger: too much for transforms in float, or in double. */
static void make_outlier(const layout *l, int64_t n, double factor, double *x) {
    double *factors = zeros(span_of(l));
    for (int64_t i = 0; i < n; i++) factors[place(l, i)] = factor;
    for (int64_t i = 0; i < elements(l); i++) x[i] *= fmax(1, factors[place(l, i)]);
    free(factors);
}

static double *absolute(const double *x, int64_t n) {
    if (!x) return NULL;
    double *y = zeros(n);
    for (int64_t i = 0; i < n; i++) y[i] = fabs(x[i]);
    return y;
}

static position_case make_position_case(void) {
    position_case c = {.p = make_problem()};
    lambda_problem *p = &c.p;
    const int64_t n = p->queries[0] * p->queries[1], m = p->context[0] * p->context[1];
    c.q = make_layout(p->b, n, p->h, p->k, 1);
    c.dq = make_layout(p->b, n, p->h, p->k, 0);
    c.values = make_layout(p->b, m, p->v, p->u, 1);
    c.dvalues = make_layout(p->b, m, p->v, p->u, 0);
    c.y = make_layout(p->b, n, p->h, p->v, 1);
    c.table = contiguous(p->scope[0] * p->scope[1], p->k, p->u);
    c.lc = contiguous(p->b, p->k, p->v);
    memcpy(p->q, c.q.stride, sizeof p->q);
    memcpy(p->dq, c.dq.stride, sizeof p->dq);
    memcpy(p->values, c.values.stride, sizeof p->values);
    memcpy(p->dvalues, c.dvalues.stride, sizeof p->dvalues);
    c.norms = contiguous(1, 3, p->h * p->k + p->v * p->u);
    c.keys = make_layout(p->b, m, p->k, p->u, 1);
    c.dkeys = make_layout(p->b, m, p->k, p->u, 0);
    c.by_u = contiguous(p->b * p->u, p->k, p->v);
    c.softmax = contiguous(p->b * 2, p->u, p->k);
    memcpy(p->keys, c.keys.stride, sizeof p->keys);
    memcpy(p->dkeys, c.dkeys.stride, sizeof p->dkeys);
    const int content = one_in(2);
    c.norm = one_in(2) ? numbers(&c.norms) : NULL;
    c.raw_q = numbers(&c.q);
    c.raw_values = numbers(&c.values);
    c.outlier = p->algorithm != LAMBDA_FFT && one_in(2); /* forced transforms round relative to the whole map */
    if (c.outlier) make_outlier(&c.values, p->v * p->u, one_in(2) ? 0x1p14 : 0x1p40, c.raw_values);
    double *q = naive_normalised(p, c.norm, 0, c.raw_q, p->b * n, p->h * p->k);
    double *values = naive_normalised(p, c.norm, p->h * p->k, c.raw_values, p->b * m, p->v * p->u);
    c.l = (lambdas){numbers(&c.keys), values, numbers(&c.lc), numbers(&c.dvalues), zeros(elements(&c.lc)),
                    zeros(elements(&c.by_u)), zeros(elements(&c.softmax)), zeros(elements(&c.keys)),
                    zeros(elements(&c.values)), zeros(elements(&c.keys))};
    naive_lambdas(p, &c.l);
    c.t = (term){q, values, numbers(&c.table), content ? numbers(&c.lc) : NULL, numbers(&c.y),
                 zeros(elements(&c.y)), zeros(elements(&c.q)), zeros(elements(&c.values)), zeros(elements(&c.table)),
                 zeros(elements(&c.lc))};
    naive_term(p, &c.t);
    c.magnitudes = (term){absolute(q, elements(&c.q)), absolute(values, elements(&c.values)),
                          absolute(c.t.table, elements(&c.table)), absolute(c.t.lc, elements(&c.lc)),
                          absolute(c.t.dy, elements(&c.y)), zeros(elements(&c.y)), zeros(elements(&c.q)),
                          zeros(elements(&c.values)), zeros(elements(&c.table)), zeros(elements(&c.lc))};
    naive_term(p, &c.magnitudes);
    return c;
}

static norm_case make_norm_case(void) {
    norm_case c = {.rows = one_in(4) ? between(60, 70) : between(1, 200), .columns = between(1, one_in(8) ? 100 : 20)};
    const double choices[] = {1e-5, 1e-3, 1};
    c.eps = choices[between(0, 2)];
    const int rectified = one_in(2);
    c.stride = c.columns + (rectified || one_in(2) ? 0 : between(1, 20));
    c.g_stride = c.columns + (rectified || one_in(2) ? 0 : between(1, 20));
    c.x = (layout){{1, 1, c.rows, c.columns}, {0, 0, c.stride, 1}, one_in(3)};
    c.dx = (layout){{1, 1, c.rows, c.columns}, {0, 0, c.g_stride, 1}, one_in(3)};
    c.column = contiguous(1, 1, c.columns);
    c.t = (norm){numbers(&c.x), numbers(&c.column), numbers(&c.dx), zeros(c.columns), zeros(c.columns),
                 zeros(c.rows * c.columns), zeros(c.columns), zeros(c.columns), 1};
    if (rectified) {
        c.center = numbers(&c.column);
        c.scale = numbers(&c.column);
        c.shift = numbers(&c.column);
        c.residual = one_in(2) ? numbers(&c.dx) : NULL;
        c.residual_center = c.residual && one_in(2) ? numbers(&c.column) : NULL;
        c.residual_scale = c.residual_center ? numbers(&c.column) : NULL;
        c.y = zeros(c.rows * c.columns);
        c.dy = c.t.g;
        c.t.g = zeros(c.rows * c.columns);
        naive_rectifier(c.rows, c.columns, c.t.x, c.center, c.scale, c.shift, c.residual, c.residual_center,
                        c.residual_scale, c.dy, c.y, c.t.g);
    }
    naive_norm(c.rows, c.columns, c.eps, &c.t);
    return c;
}

/* One problem of each kind, in every form, with one thread and with several. */
static void run_case(void) {
    position_case position = make_position_case();
    norm_case normed = make_norm_case();
    for (size_t form = 0; form < sizeof known / sizeof *known; form++) {
        if (!lambda_use_instruction_set(known[form])) continue;
        for (int wide = 0; wide < 2; wide++)
            for (int several = 0; several < 2; several++) {
                position.p.threads = several ? between(2, 4) : 1;
                run_position(&position, wide);
                run_content(&position, wide);
                run_norm(&normed, wide, position.p.threads);
            }
    }
    const position_case *c = &position;
    const term *t = &c->t, *magnitudes = &c->magnitudes;
    const lambdas *l = &c->l;
    const norm *s = &normed.t;
    const void *all[] = {magnitudes->q, magnitudes->values, magnitudes->table, magnitudes->lc, magnitudes->dy,
                         magnitudes->y, magnitudes->dq, magnitudes->dvalues, magnitudes->dtable, magnitudes->dlc,
                         l->dkeys_magnitude,
                         t->q,    t->values, t->table,   t->lc,      t->dy,    t->y,       t->dq,       t->dvalues,
                         t->dtable, t->dlc,  c->raw_q,   c->raw_values, c->norm, l->keys,  l->dlc,      l->before,
                         l->lc,   l->by_u,   l->softmax, l->dkeys,   l->dvalues, s->x,     s->weight,   s->g,
                         s->mean, s->var,    s->dx,      s->dweight, s->dbias, normed.center, normed.scale,
                         normed.shift, normed.residual, normed.residual_center, normed.residual_scale, normed.y, normed.dy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free((void *)all[i]);
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    const long long first = atoll(arguments[1]), cases = atoll(arguments[2]);
    now.seed = atoll(arguments[3]);
    plant_short = count > 4 && !strcmp(arguments[4], "short");
    plant_wrong = count > 4 && !strcmp(arguments[4], "wrong");
    __sanitizer_set_death_callback(tell);
    const int live = isatty(STDOUT_FILENO);
    for (long long i = 0; i < cases; i++) {
        now.index = first + i;
        state = (uint64_t)now.seed * 0x2545f4914f6cdd1du + (uint64_t)now.index * 0xd1342543de82ef95u;
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
