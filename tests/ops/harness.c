#include "ops/harness.h"

#include <math.h>

#include "asan.h"

const Dtype compute_types[N_COMPUTE] = {F32, BF16, F16};

#define ZONE       ((size_t)256)
#define ZONE_BYTE  0xa5
#define UNSET_BYTE 0xff /* NaN in every type */

/* ---- slots ---- */

static Slot *slot_find(const OpCase *c, const char *name)
{
    const OpInfo *info = op_info(c->op);
    OpCase *owner = (OpCase *)(uintptr_t)c;
    for (int i = 0; i < info->n_in; i++)
        if (strcmp(info->in[i].name, name) == 0) return &owner->in[i];
    for (int i = 0; i < info->n_out; i++)
        if (strcmp(info->out[i].name, name) == 0) return &owner->out[i];
    fail_msg("%s has no operand '%s'", info->name, name);
    return NULL;
}

static bool starts_with_values(const OpCase *c, const Slot *s)
{
    return s < c->out || op_info(c->op)->out[s - c->out].accumulated;
}

static int64_t slot_count(const OpCase *c, const Slot *s)
{
    return s->copy ? s->n * s->k : rows_in(s->operand.rows, &c->rows) * s->operand.cols;
}

static size_t row_bytes(const Slot *s) { return (size_t)s->operand.cols * dtype_size(s->operand.dtype); }

float type_rounded(Dtype dtype, float x)
{
    if (dtype == BF16) return bf16_to_f32(bf16_from_f32(x));
    return dtype == F16 ? f16_to_f32(f16_from_f32(x)) : x;
}

static bool is_float(Dtype d) { return d == F32 || d == BF16 || d == F16; }

static float element(Dtype dtype, const void *data, int64_t i)
{
    if (dtype == BF16) return bf16_to_f32(((const uint16_t *)data)[i]);
    if (dtype == F16) return f16_to_f32(((const uint16_t *)data)[i]);
    if (dtype == I32) return (float)((const int32_t *)data)[i];
    return ((const float *)data)[i];
}

static void set_element(Dtype dtype, void *data, int64_t i, float x)
{
    if (dtype == BF16)
        ((uint16_t *)data)[i] = bf16_from_f32(x);
    else if (dtype == F16)
        ((uint16_t *)data)[i] = f16_from_f32(x);
    else
        ((float *)data)[i] = x;
}

/* A copy's initial values are its F32 weight. */
static Dtype initial_dtype(const Slot *s) { return s->copy ? F32 : s->operand.dtype; }

/* ---- building ---- */

void case_add(OpCase *c, const char *name, Dtype dtype, Rows rows, int64_t cols)
{
    Slot *s = slot_find(c, name);
    free(s->initial);
    s->initial = NULL;
    s->operand = (Operand){.dtype = dtype, .rows = rows, .cols = cols};
    s->bytes = (size_t)slot_count(c, s) * dtype_size(dtype);
    if (starts_with_values(c, s)) s->initial = mem_alloc(s->bytes);
}

void case_copy(OpCase *c, const char *name, Dtype dtype, int64_t n, int64_t k, bool transposed, double scale)
{
    Slot *s = slot_find(c, name);
    case_add(c, name, dtype, fixed(n), k);
    free(s->initial);
    s->copy = true;
    s->transposed = transposed;
    s->n = n;
    s->k = k;
    s->initial = mem_array((size_t)(n * k), sizeof(float));
    case_random(c, name, 0, scale);
}

void case_random(OpCase *c, const char *name, double centre, double scale)
{
    Slot *s = slot_find(c, name);
    Philox4 words = {{0}};
    c->seed++;
    for (int64_t i = 0; i < slot_count(c, s); i++) {
        if (i % 4 == 0) words = philox4(c->seed, (uint32_t)(i / 4), 0, 0, 0);
        double x = centre + scale * (2 * philox_unit(words.v[i % 4]) - 1);
        set_element(initial_dtype(s), s->initial, i, (float)x);
    }
}

void case_add_random(OpCase *c, const char *name, Dtype dtype, Rows rows, int64_t cols, double scale)
{
    case_add(c, name, dtype, rows, cols);
    case_random(c, name, 0, scale);
}

void case_set(OpCase *c, const char *name, int64_t first, int64_t n, const float *values)
{
    Slot *s = slot_find(c, name);
    assert_true(first + n <= slot_count(c, s));
    for (int64_t i = 0; i < n; i++) set_element(initial_dtype(s), s->initial, first + i, values[i]);
}

void case_set_ints(OpCase *c, const char *name, int64_t first, int64_t n, const int32_t *values)
{
    Slot *s = slot_find(c, name);
    assert_true(first + n <= slot_count(c, s) && s->operand.dtype == I32);
    memcpy((int32_t *)(void *)s->initial + first, values, (size_t)n * sizeof *values);
}

void *case_initial(OpCase *c, const char *name) { return slot_find(c, name)->initial; }

Ctl *case_ctl(OpCase *c) { return case_initial(c, "ctl"); }

void case_scaling(OpCase *c, float scale)
{
    case_add(c, "scaling", U8, fixed(1), sizeof(LossScaling));
    *(LossScaling *)case_initial(c, "scaling") = (LossScaling){.scale = scale};
}

void case_take(OpCase *to, const char *name, const OpCase *from, const char *from_name)
{
    const Slot *source = slot_find(from, from_name);
    case_add(to, name, source->operand.dtype, source->operand.rows, source->operand.cols);
    Slot *s = slot_find(to, name);
    assert_int_equal(s->bytes, source->bytes);
    memcpy(s->initial, case_bytes(from, from_name), s->bytes);
}

void case_copy_rows(OpCase *to, int64_t to_row, const OpCase *from, int64_t from_row, int64_t n, const char *name)
{
    Slot *a = slot_find(to, name), *b = slot_find(from, name);
    assert_true(to_row + n <= rows_in(a->operand.rows, &to->rows));
    assert_true(from_row + n <= rows_in(b->operand.rows, &from->rows));
    memcpy(a->initial + (size_t)to_row * row_bytes(a), b->initial + (size_t)from_row * row_bytes(b),
           (size_t)n * row_bytes(a));
}

void case_clear_rows(OpCase *c, const char *name, int64_t first)
{
    Slot *s = slot_find(c, name);
    size_t start = (size_t)first * row_bytes(s);
    memset(s->initial + start, 0, s->bytes - start);
}

static bool has_operand(const OpInfo *info, const char *name)
{
    for (int i = 0; i < info->n_in; i++)
        if (strcmp(info->in[i].name, name) == 0) return true;
    for (int i = 0; i < info->n_out; i++)
        if (strcmp(info->out[i].name, name) == 0) return true;
    return false;
}

void case_init(OpCase *c, Op op, OpAttr attr, RowCounts rows)
{
    *c = (OpCase){.op = op, .attr = attr, .rows = rows, .seed = (uint64_t)op << 32};
    if (has_operand(op_info(op), "stats")) case_add(c, "stats", U8, fixed(1), sizeof(Stats));
    if (!has_operand(op_info(op), "ctl")) return;
    case_add(c, "ctl", U8, fixed(1), sizeof(Ctl));
    *case_ctl(c) = (Ctl){.n_tokens = (int32_t)rows.count[ROWS_TOKENS],
                         .n_seqs = (int32_t)rows.count[ROWS_SEQS],
                         .n_masked = (int32_t)rows.count[ROWS_MASKED],
                         .scale_seqs = 1,
                         .scale_masked = 1,
                         .bias1 = 1,
                         .bias2 = 1};
}

void case_free(OpCase *c)
{
    Slot *slots[2] = {c->in, c->out};
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < (side ? OP_MAX_OUT : OP_MAX_IN); i++) {
            free(slots[side][i].initial);
            free(slots[side][i].block);
        }
    *c = (OpCase){0};
}

/* ---- memory between zones ---- */

/* Zone, `bytes` bytes, zone; the data starts on 64 bytes and the zone right behind its end. Writing to a zone changes
   it, which check_zones sees; under AddressSanitizer reading one ends the test. */
static unsigned char *zoned_alloc(size_t bytes, unsigned char fill)
{
    size_t all = (ZONE + bytes + ZONE + 63) / 64 * 64;
    unsigned char *block = aligned_alloc(64, all);
    assert_non_null(block);
    memset(block, ZONE_BYTE, all);
    memset(block + ZONE, fill, bytes);
    ASAN_POISON_MEMORY_REGION(block, ZONE);
    ASAN_POISON_MEMORY_REGION(block + ZONE + bytes, all - ZONE - bytes);
    return block;
}

static void check_zones(const unsigned char *block, size_t bytes, const char *backend, const char *op, const char *what)
{
    ASAN_UNPOISON_MEMORY_REGION(block, ZONE);
    ASAN_UNPOISON_MEMORY_REGION(block + ZONE + bytes, ZONE);
    for (size_t i = 0; i < ZONE; i++) {
        if (block[ZONE - 1 - i] != ZONE_BYTE)
            fail_msg("%s %s: wrote before %s, %zu bytes from its start", backend, op, what, i + 1);
        if (block[ZONE + bytes + i] != ZONE_BYTE)
            fail_msg("%s %s: wrote behind %s, %zu bytes from its end", backend, op, what, i);
    }
}

/* ---- running ---- */

static RowCounts larger(RowCounts rows)
{
    for (int kind = ROWS_TOKENS; kind < N_ROW_KINDS; kind++)
        if (kind != ROWS_SEQS && rows.count[kind]) rows.count[kind] += 64;
    rows.bucket = 1;
    return rows;
}

/* Runs a call as exec does: scratch for the capacity, everything prepared for two buckets, run in the first. */
static void run_call(Backend *b, OpCall *call, const RowCounts *rows, unsigned char scratch_byte)
{
    const OpImpl *impl = &b->op[call->op];
    const char *op = op_info(call->op)->name;
    if (!impl->run) fail_msg("%s has no %s", b->name, op);
    RowCounts buckets[2] = {*rows, larger(*rows)};
    OpCall shape = *call;
    for (int i = 0; i < OP_MAX_IN; i++) shape.in[i].data = NULL;
    for (int i = 0; i < OP_MAX_OUT; i++) shape.out[i].data = NULL;
    call->scratch_bytes = impl->scratch(&shape, &buckets[1]);
    if (impl->scratch(&shape, rows) > call->scratch_bytes)
        fail_msg("%s %s: scratch shrinks when rows grow", b->name, op);
    unsigned char *scratch = zoned_alloc(call->scratch_bytes, scratch_byte);
    call->scratch = scratch + ZONE;
    if (b->device) {
        ops_run_on_device(b, call, buckets);
    } else {
        assert_ok(impl->prepare(call, buckets, 2));
        assert_ok(impl->run(call, &buckets[0]));
    }
    check_zones(scratch, call->scratch_bytes, b->name, op, "scratch");
    free(scratch);
}

static void pack(Backend *b, Slot *s)
{
    OpCall call = {.op = OP_PACK, .attr.pack = {.n = s->n, .k = s->k, .transposed = s->transposed}};
    *IN(&call, PACK, weight) = (Operand){s->initial, F32, fixed(s->n), s->k};
    *OUT(&call, PACK, copy) = s->operand;
    run_call(b, &call, &(RowCounts){0}, UNSET_BYTE);
}

static void place(Backend *b, Slot *s)
{
    free(s->block);
    s->block = NULL;
    s->shared = false;
    if (s->operand.cols == 0) return;
    bool forward = !s->transposed; /* a backend without transposed copies reads the forward one */
    if (s->copy) {
        s->bytes = b->copy_bytes(s->operand.dtype, s->n, s->k, s->transposed);
        if (s->bytes == 0) {
            s->bytes = b->copy_bytes(s->operand.dtype, s->n, s->k, false);
            forward = true;
        }
    }
    s->block = zoned_alloc(s->bytes, UNSET_BYTE);
    s->operand.data = s->block + ZONE;
    if (s->copy) {
        bool transposed = s->transposed;
        s->transposed = !forward;
        pack(b, s);
        s->transposed = transposed;
    } else if (s->initial) {
        memcpy(s->operand.data, s->initial, s->bytes);
    }
}

/* Lets out[i] lie in the memory of the input that it must or, if asked for, may share. */
static void share(OpCase *c, int i, bool asked)
{
    const OperandInfo *info = &op_info(c->op)->out[i];
    Slot *out = &c->out[i];
    if (info->shares < 0 || !(info->shares_always || asked) || out->operand.cols == 0) return;
    Slot *in = &c->in[info->shares];
    if (in->operand.cols == 0) return;
    assert_int_equal(in->bytes, out->bytes);
    in->shared = true;
    out->operand.data = in->operand.data;
}

static void check_slot(const OpCase *c, const Backend *b, const Slot *s, const OperandInfo *info, bool input)
{
    const char *op = op_info(c->op)->name;
    if (!s->block) return;
    check_zones(s->block, s->bytes, b->name, op, info->name);
    if (input && !s->copy && !s->shared && memcmp(s->operand.data, s->initial, s->bytes) != 0)
        fail_msg("%s %s: wrote its input %s", b->name, op, info->name);
    for (int64_t i = 0; !input && is_float(s->operand.dtype) && i < slot_count(c, s); i++)
        if (!isfinite(element(s->operand.dtype, s->operand.data, i)))
            fail_msg("%s %s: %s is not finite or was not written in row %lld, column %lld", b->name, op, info->name,
                     (long long)(i / s->operand.cols), (long long)(i % s->operand.cols));
}

void case_run(OpCase *c, Backend *b, RunOptions options)
{
    const OpInfo *info = op_info(c->op);
    OpCall call = {.op = c->op, .attr = c->attr};
    for (int i = 0; i < info->n_in; i++) place(b, &c->in[i]);
    for (int i = 0; i < info->n_out; i++) {
        place(b, &c->out[i]);
        share(c, i, options.share >> i & 1);
        call.out[i] = c->out[i].operand;
    }
    for (int i = 0; i < info->n_in; i++) call.in[i] = c->in[i].operand;
    run_call(b, &call, &c->rows, options.scratch);
    for (int i = 0; i < info->n_in; i++) check_slot(c, b, &c->in[i], &info->in[i], true);
    for (int i = 0; i < info->n_out; i++) check_slot(c, b, &c->out[i], &info->out[i], false);
}

bool case_runs_on(const OpCase *c, const Backend *b)
{
    char why[256] = "";
    Dtype compute = F32; /* as statistics always are */
    for (int i = 0; i < OP_MAX_IN + OP_MAX_OUT; i++) {
        const Operand *o = i < OP_MAX_IN ? &c->in[i].operand : &c->out[i - OP_MAX_IN].operand;
        if (o->cols && is_float(o->dtype) && o->dtype != F32) compute = o->dtype;
    }
    return b->op[c->op].run && b->supports(b, compute, why, sizeof why);
}

/* ---- comparing ---- */

int64_t case_count(const OpCase *c, const char *name) { return slot_count(c, slot_find(c, name)); }

const void *case_bytes(const OpCase *c, const char *name) { return slot_find(c, name)->operand.data; }

static float *slot_values(const OpCase *c, const Slot *s)
{
    int64_t n = slot_count(c, s);
    float *values = mem_array((size_t)n, sizeof *values);
    for (int64_t i = 0; i < n; i++) values[i] = element(s->operand.dtype, s->operand.data, i);
    return values;
}

float *case_values(const OpCase *c, const char *name) { return slot_values(c, slot_find(c, name)); }

void case_expect_rows_equal(const OpCase *a, int64_t a_row, const OpCase *b, int64_t b_row, int64_t n, const char *name)
{
    const Slot *x = slot_find(a, name), *y = slot_find(b, name);
    const unsigned char *p = (const unsigned char *)x->operand.data + (size_t)a_row * row_bytes(x);
    const unsigned char *q = (const unsigned char *)y->operand.data + (size_t)b_row * row_bytes(y);
    assert_int_equal(row_bytes(x), row_bytes(y));
    for (int64_t r = 0; r < n; r++)
        if (memcmp(p + (size_t)r * row_bytes(x), q + (size_t)r * row_bytes(y), row_bytes(x)) != 0)
            fail_msg("%s: row %lld of %s is not the same bits as row %lld of the other run", op_info(a->op)->name,
                     (long long)(a_row + r), name, (long long)(b_row + r));
}

void case_expect_zero_rows(const OpCase *c, const char *name, int64_t first, int64_t end)
{
    const Slot *s = slot_find(c, name);
    for (int64_t i = first * s->operand.cols; i < end * s->operand.cols; i++)
        if (element(s->operand.dtype, s->operand.data, i) != 0)
            fail_msg("%s: %s is %g, not 0, in row %lld", op_info(c->op)->name, name,
                     (double)element(s->operand.dtype, s->operand.data, i), (long long)(i / s->operand.cols));
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
}

void case_expect_accumulated(OpCase *c, const char *name)
{
    Backend *backends[4];
    int n = ops_backends(backends);
    Slot *s = slot_find(c, name);
    int64_t count = slot_count(c, s);
    assert_int_equal(s->operand.dtype, F32);
    for (int k = 0; k < n; k++) {
        if (!case_runs_on(c, backends[k])) continue;
        float *before = mem_alloc(s->bytes), *expected = before;
        memcpy(before, s->initial, s->bytes);
        case_run(c, backends[k], (RunOptions){0});
        float *after = case_values(c, name);
        memset(s->initial, 0, s->bytes);
        case_run(c, backends[k], (RunOptions){0});
        float *alone = case_values(c, name);
        memcpy(s->initial, before, s->bytes);
        for (int64_t i = 0; i < count; i++) expected[i] = before[i] + alone[i];
        expect_close(name, after, expected, count, 1e-6);
        free(before);
        free(after);
        free(alone);
    }
}

/* ---- what must hold for every op ---- */

typedef struct {
    void *bytes[OP_MAX_OUT];
    float *values[OP_MAX_OUT];
} Outputs;

static Outputs outputs_take(const OpCase *c)
{
    Outputs o = {{0}, {0}};
    for (int i = 0; i < OP_MAX_OUT; i++) {
        const Slot *s = &c->out[i];
        if (!s->block) continue;
        o.bytes[i] = mem_alloc(s->bytes);
        memcpy(o.bytes[i], s->operand.data, s->bytes);
        if (is_float(s->operand.dtype)) o.values[i] = slot_values(c, s);
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
        else if (ref->values[i])
            expect_close(what, mine->values[i], ref->values[i], slot_count(c, s),
                         s->operand.dtype == F32    ? f32
                         : s->operand.dtype == BF16 ? bf16
                                                    : bf16 / 4);
        free(what);
    }
}

void case_check(OpCase *c, Tolerance tolerance)
{
    Backend *backends[4];
    int n = ops_backends(backends);
    Outputs ref = {{0}, {0}};
    unsigned may_share = 0;
    for (int i = 0; i < op_info(c->op)->n_out; i++) {
        const OperandInfo *info = &op_info(c->op)->out[i];
        const Operand *in = info->shares < 0 ? NULL : &c->in[info->shares].operand;
        if (in && in->cols && c->out[i].operand.cols && in->dtype == c->out[i].operand.dtype) may_share |= 1u << i;
    }
    for (int i = 0; i < n; i++) {
        Backend *b = backends[i];
        if (!case_runs_on(c, b)) continue;
        case_run(c, b, (RunOptions){.scratch = 0xff});
        Outputs mine = outputs_take(c);
        case_run(c, b, (RunOptions){.scratch = 0x3c});
        expect_same_bits(c, b, &mine, "with other bytes in scratch");
        for (unsigned share_mask = may_share; share_mask; share_mask = (share_mask - 1) & may_share) {
            case_run(c, b, (RunOptions){.scratch = 0xff, .share = share_mask});
            expect_same_bits(c, b, &mine, "in place");
        }
        if (i == 0) {
            ref = mine;
            continue;
        }
        expect_like_ref(c, b, &mine, &ref, tolerance);
        outputs_free(&mine);
    }
    outputs_free(&ref);
    case_run(c, backends[0], (RunOptions){.scratch = 0xff}); /* leaves ref's outputs to be looked at */
}

/* ---- finite differences ---- */

static double weighted_sum(OpCase *c, const char *out, const float *weight)
{
    case_run(c, ops_ref(), (RunOptions){.scratch = 0xff});
    const Slot *s = slot_find(c, out);
    double sum = 0;
    for (int64_t i = 0; i < slot_count(c, s); i++)
        sum += (double)weight[i] * (double)element(s->operand.dtype, s->operand.data, i);
    return sum;
}

void case_differences(OpCase *c, const char *input, const char *out, const float *weight, double step, float *gradient)
{
    Slot *s = slot_find(c, input);
    float *x = (float *)(void *)s->initial;
    assert_int_equal(initial_dtype(s), F32);
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

/* ---- sequences ---- */

static void set_if_there(OpCase *c, const char *name, int64_t at, int32_t value)
{
    const OpInfo *info = op_info(c->op);
    for (int i = 0; i < info->n_in; i++)
        if (strcmp(info->in[i].name, name) == 0 && c->in[i].initial) ((int32_t *)(void *)c->in[i].initial)[at] = value;
}

int64_t case_sequences(OpCase *c, const int *lengths, const int *index, int n)
{
    int32_t row = 0;
    for (int s = 0; s < n; s++) {
        int32_t sequence = index ? index[s] : s;
        set_if_there(c, "spans", 2 * s, row);
        set_if_there(c, "spans", 2 * s + 1, row + lengths[s]);
        set_if_there(c, "seq_index", s, sequence);
        for (int32_t position = 0; position < lengths[s]; position++, row++) {
            set_if_there(c, "pos", row, position);
            set_if_there(c, "seq", row, sequence);
        }
    }
    case_ctl(c)->n_tokens = row;
    case_ctl(c)->n_seqs = n;
    return row;
}
