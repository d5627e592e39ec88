#include <math.h>

#include "ops/harness_internal.h"

/* ---- comparing ---- */

int64_t case_count(const OpCase *c, const char *name) { return slot_count(c, slot_find(c, name)); }

const void *case_bytes(const OpCase *c, const char *name) { return slot_find(c, name)->operand.data; }

static float *slot_values(const OpCase *c, const Slot *s)
{
    int64_t n = slot_count(c, s);
    float *values = mem_array((size_t)n, sizeof *values);
    for (int64_t i = 0; i < n; i++) values[i] = slot_element(s->operand.dtype, s->operand.data, i);
    return values;
}

float *case_values(const OpCase *c, const char *name) { return slot_values(c, slot_find(c, name)); }

void case_expect_rows_equal(const OpCase *a, int64_t a_row, const OpCase *b, int64_t b_row, int64_t n, const char *name)
{
    const Slot *x = slot_find(a, name), *y = slot_find(b, name);
    const unsigned char *p = (const unsigned char *)x->operand.data + (size_t)a_row * slot_row_bytes(x);
    const unsigned char *q = (const unsigned char *)y->operand.data + (size_t)b_row * slot_row_bytes(y);
    assert_int_equal(slot_row_bytes(x), slot_row_bytes(y));
    for (int64_t r = 0; r < n; r++)
        if (memcmp(p + (size_t)r * slot_row_bytes(x), q + (size_t)r * slot_row_bytes(y), slot_row_bytes(x)) != 0)
            fail_msg("%s: row %lld of %s is not the same bits as row %lld of the other run", op_info(a->op)->name,
                     (long long)(a_row + r), name, (long long)(b_row + r));
}

void case_expect_independent(OpCase *a, int64_t row, OpCase *b, int64_t n, const char *x, const char *y)
{
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        if (!case_runs_on(a, backend)) continue;
        case_run(a, backend, (RunOptions){0});
        case_run(b, backend, (RunOptions){0});
        case_expect_rows_equal(a, row, b, 0, n, x);
        if (y) case_expect_rows_equal(a, row, b, 0, n, y);
    }
}

void case_expect_zero_rows(const OpCase *c, const char *name, int64_t first, int64_t end)
{
    const Slot *s = slot_find(c, name);
    for (int64_t i = first * s->operand.cols; i < end * s->operand.cols; i++)
        if (slot_element(s->operand.dtype, s->operand.data, i) != 0)
            fail_msg("%s: %s is %g, not 0, in row %lld", op_info(c->op)->name, name,
                     (double)slot_element(s->operand.dtype, s->operand.data, i), (long long)(i / s->operand.cols));
}

void expect_close(const char *what, const float *a, const float *b, int64_t n, double tolerance)
{
    double error = 0, size = 0, peak = 0;
    int64_t worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        error += d * d;
        size += (double)b[i] * (double)b[i];
        if (!(d <= peak)) {
            peak = d;
            worst = i;
        }
    }
    double normalised = size > 0 ? sqrt(error / size) : sqrt(error), rms = size > 0 ? sqrt(size / (double)n) : 1;
    if (!(normalised <= tolerance) || !(peak <= TOLERANCE_PEAK * tolerance * rms))
        fail_msg("%s: normalised error %.3g (at most %.3g), worst at %lld: %.9g, expected %.9g", what, normalised,
                 tolerance, (long long)worst, (double)a[worst], (double)b[worst]);
}

static void expect_close_stats(const char *what, const Stats *a, const Stats *b, double tolerance)
{
    for (int i = 0; i < 2; i++) {
        assert_int_equal(a->correct[i], b->correct[i]);
        if (!(fabs(a->loss[i] - b->loss[i]) <= tolerance * fabs(b->loss[i])))
            fail_msg("%s: loss %.17g, expected %.17g", what, a->loss[i], b->loss[i]);
    }
    assert_int_equal(a->finite, b->finite);
    if (!(fabs(a->grad_norm - b->grad_norm) <= 1e-9 * b->grad_norm) ||
        !(fabsf(a->grad_scale - b->grad_scale) <= 1e-6f * b->grad_scale))
        fail_msg("%s: norm %.17g scale %g, expected %.17g %g", what, a->grad_norm, (double)a->grad_scale, b->grad_norm,
                 (double)b->grad_scale);
    if (!(fabs(a->kfac_norm - b->kfac_norm) <= 1e-9 * b->kfac_norm) ||
        !(fabsf(a->kfac_scale - b->kfac_scale) <= 1e-6f * b->kfac_scale))
        fail_msg("%s: K-FAC's norm %.17g scale %g, expected %.17g %g", what, a->kfac_norm, (double)a->kfac_scale,
                 b->kfac_norm, (double)b->kfac_scale);
}

void case_expect_column_sums(const OpCase *c, const char *db, const char *dy)
{
    int64_t cols = case_count(c, db), rows = case_count(c, dy) / cols;
    const float *before = (const float *)(const void *)slot_find(c, db)->initial;
    float *found = case_values(c, db), *values = case_values(c, dy), *expected = mem_array((size_t)cols, sizeof(float));
    for (int64_t j = 0; j < cols; j++) {
        double sum = (double)before[j];
        for (int64_t r = 0; r < rows; r++) sum += (double)values[r * cols + j];
        expected[j] = (float)sum;
    }
    expect_close(db, found, expected, cols, 1e-6);
    free(found);
    free(values);
    free(expected);
}

void case_expect_accumulated(OpCase *c, const char *name)
{
    Slot *s = slot_find(c, name);
    int64_t count = slot_count(c, s);
    assert_int_equal(s->operand.dtype, F32);
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        if (!case_runs_on(c, backend)) continue;
        float *before = mem_alloc(s->bytes), *expected = before;
        memcpy(before, s->initial, s->bytes);
        case_run(c, backend, (RunOptions){0});
        float *after = case_values(c, name);
        memset(s->initial, 0, s->bytes);
        case_run(c, backend, (RunOptions){0});
        float *alone = case_values(c, name);
        memcpy(s->initial, before, s->bytes);
        for (int64_t i = 0; i < count; i++) expected[i] = before[i] + alone[i];
        expect_close(name, after, expected, count, 1e-6);
        free(before);
        free(after);
        free(alone);
    }
}

/* ---- the rules of every op ---- */

typedef struct {
    void *bytes[OP_MAX_OUT];
    float *values[OP_MAX_OUT];
} Outputs;

static Outputs outputs_copy(const OpCase *c)
{
    Outputs o = {{0}, {0}};
    for (int i = 0; i < OP_MAX_OUT; i++) {
        const Slot *s = &c->out[i];
        if (!s->block) continue;
        o.bytes[i] = mem_alloc(s->bytes);
        memcpy(o.bytes[i], s->operand.data, s->bytes);
        if (is_float_type(s->operand.dtype)) o.values[i] = slot_values(c, s);
    }
    return o;
}

static void outputs_free(Outputs *o)
{
    for (int i = 0; i < OP_MAX_OUT; i++) {
        free(o->bytes[i]);
        free(o->values[i]);
    }
}

static void expect_same_bits(const OpCase *c, const Backend *b, const Outputs *o, const char *when)
{
    for (int i = 0; i < OP_MAX_OUT; i++)
        if (o->bytes[i] && memcmp(o->bytes[i], c->out[i].operand.data, c->out[i].bytes) != 0)
            fail_msg("%s %s: %s has other bits %s", b->name, op_info(c->op)->name, op_info(c->op)->out[i].name, when);
}

static void expect_like_ref(const OpCase *c, const Backend *b, const Outputs *mine, const Outputs *ref, Tolerance t)
{
    const OpInfo *info = op_info(c->op);
    double f32 = t.f32 > 0 ? t.f32 : TOLERANCE_F32, bf16 = t.bf16 > 0 ? t.bf16 : TOLERANCE_BF16;
    for (int i = 0; i < info->n_out; i++) {
        char *what = mem_printf("%s %s: %s against ref", b->name, info->name, info->out[i].name);
        const Slot *s = &c->out[i];
        if (s->operand.dtype == U8 && s->operand.cols == sizeof(Stats))
            expect_close_stats(what, mine->bytes[i], ref->bytes[i], f32);
        else if (s->operand.dtype == I64)
            assert_memory_equal(mine->bytes[i], ref->bytes[i], s->bytes);
        else if (mine->values[i]) {
            assert_non_null(ref->values[i]);
            expect_close(what, mine->values[i], ref->values[i], slot_count(c, s),
                         s->operand.dtype == F32    ? f32
                         : s->operand.dtype == BF16 ? bf16
                                                    : bf16 / 4);
        }
        free(what);
    }
}

void case_expect_begun(OpCase *c)
{
    const OpInfo *info = op_info(c->op);
    uint8_t all = 0;
    for (int i = 0; i < info->n_out; i++)
        if (info->out[i].begun && c->out[i].operand.cols) all |= (uint8_t)(1u << i);
    assert_true(all);
    for (Backend *b = ops_next(NULL); b; b = ops_next(b)) {
        if (!case_runs_on(c, b)) continue;
        unsigned char *old[OP_MAX_OUT];
        for (int i = 0; i < info->n_out; i++) {
            old[i] = c->out[i].initial;
            if (all >> i & 1) c->out[i].initial = mem_alloc(c->out[i].bytes);
        }
        case_run(c, b, (RunOptions){0});
        Outputs zeroed = outputs_copy(c);
        c->begun = all;
        case_run(c, b, (RunOptions){0});
        expect_same_bits(c, b, &zeroed, "where it begins its outputs");
        c->begun = 0;
        outputs_free(&zeroed);
        for (int i = 0; i < info->n_out; i++) {
            if (all >> i & 1) free(c->out[i].initial);
            c->out[i].initial = old[i];
        }
    }
}

void case_check(OpCase *c, Tolerance tolerance)
{
    Outputs ref = {{0}, {0}};
    unsigned may_share = 0;
    for (int i = 0; i < op_info(c->op)->n_out; i++) {
        const OperandInfo *info = &op_info(c->op)->out[i];
        const Operand *in = info->shares < 0 ? NULL : &c->in[info->shares].operand;
        if (in && in->cols && c->out[i].operand.cols && in->dtype == c->out[i].operand.dtype) may_share |= 1u << i;
    }
    for (Backend *b = ops_next(NULL); b; b = ops_next(b)) {
        if (!case_runs_on(c, b)) continue;
        case_run(c, b, (RunOptions){.scratch = 0xff});
        Outputs mine = outputs_copy(c);
        case_run(c, b, (RunOptions){.scratch = 0x3c});
        expect_same_bits(c, b, &mine, "with other bytes in scratch");
        for (unsigned share_mask = may_share; share_mask; share_mask = (share_mask - 1) & may_share) {
            case_run(c, b, (RunOptions){.scratch = 0xff, .share = share_mask});
            expect_same_bits(c, b, &mine, "in place");
        }
        if (b == ops_ref()) {
            ref = mine;
            continue;
        }
        expect_like_ref(c, b, &mine, &ref, tolerance);
        outputs_free(&mine);
    }
    outputs_free(&ref);
    case_run(c, ops_ref(), (RunOptions){.scratch = 0xff}); /* leaves ref's outputs for the caller */
}

/* ---- finite differences ---- */

static double weighted_sum(OpCase *c, const char *out, const float *weight)
{
    case_run(c, ops_ref(), (RunOptions){.scratch = 0xff});
    const Slot *s = slot_find(c, out);
    double sum = 0;
    for (int64_t i = 0; i < slot_count(c, s); i++)
        sum += (double)weight[i] * (double)slot_element(s->operand.dtype, s->operand.data, i);
    return sum;
}

void case_differences(OpCase *c, const char *input, const char *out, const float *weight, double step, float *gradient)
{
    Slot *s = slot_find(c, input);
    float *x = (float *)(void *)s->initial;
    assert_int_equal(slot_initial_dtype(s), F32);
    for (int64_t i = 0; i < slot_count(c, s); i++) {
        float old = x[i], above = (float)(old + step), below = (float)(old - step);
        x[i] = above;
        double high = weighted_sum(c, out, weight);
        x[i] = below;
        double low = weighted_sum(c, out, weight);
        x[i] = old;
        gradient[i] = (float)((high - low) / ((double)above - (double)below));
    }
}

void expect_gradient(OpCase *forward, const char *input, const char *out, const OpCase *weights,
                     const char *weights_name, const OpCase *backward, const char *gradient, double step,
                     double tolerance)
{
    int64_t n = case_count(forward, input);
    float *weight = case_values(weights, weights_name), *found = case_values(backward, gradient);
    float *expected = mem_array((size_t)n, sizeof *expected);
    char *what = mem_printf("%s: gradient of %s against differences", op_info(backward->op)->name, input);
    assert_int_equal(case_count(backward, gradient), n);
    case_differences(forward, input, out, weight, step, expected);
    expect_close(what, found, expected, n, tolerance);
    free(what);
    free(weight);
    free(found);
    free(expected);
}
