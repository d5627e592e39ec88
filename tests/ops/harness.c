#include <math.h>

#include "asan.h"
#include "ops/harness_internal.h"

const Dtype compute_types[] = {BF16, F16, F32};

int compute_types_count(void)
{
    const char *bf16 = getenv("CAIRN_CPU_BF16");
    return bf16 && strcmp(bf16, "emulate") == 0 ? 1 : (int)(sizeof compute_types / sizeof *compute_types);
}

#define ZONE       ((size_t)256)
#define ZONE_BYTE  0xa5
#define UNSET_BYTE 0xff /* NaN in every type */

/* ---- slots ---- */

Slot *slot_find(const OpCase *c, const char *name)
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

int64_t slot_count(const OpCase *c, const Slot *s)
{
    return s->copy ? s->n * s->k : rows_in(s->operand.rows, &c->rows) * s->operand.cols;
}

size_t slot_row_bytes(const Slot *s) { return (size_t)s->operand.cols * dtype_size(s->operand.dtype); }

float type_rounded(Dtype dtype, float x)
{
    if (dtype == BF16) return bf16_to_f32(bf16_from_f32(x));
    return dtype == F16 ? f16_to_f32(f16_from_f32(x)) : x;
}

bool is_float_type(Dtype d) { return d == F32 || d == BF16 || d == F16; }

float slot_element(Dtype dtype, const void *data, int64_t i)
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

Dtype slot_initial_dtype(const Slot *s) { return s->copy ? F32 : s->operand.dtype; }

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
        set_element(slot_initial_dtype(s), s->initial, i, (float)x);
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
    for (int64_t i = 0; i < n; i++) set_element(slot_initial_dtype(s), s->initial, first + i, values[i]);
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
    memcpy(a->initial + (size_t)to_row * slot_row_bytes(a), b->initial + (size_t)from_row * slot_row_bytes(b),
           (size_t)n * slot_row_bytes(a));
}

void case_clear_rows(OpCase *c, const char *name, int64_t first)
{
    Slot *s = slot_find(c, name);
    size_t start = (size_t)first * slot_row_bytes(s);
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
                         .n_read = (int32_t)rows.count[ROWS_READ],
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

static RowCounts larger_bucket(RowCounts rows)
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
    RowCounts buckets[2] = {*rows, larger_bucket(*rows)};
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

static void pack_copy(Backend *b, Slot *s)
{
    OpCall call = {.op = OP_PACK, .attr.pack = {.n = s->n, .k = s->k, .transposed = s->transposed}};
    *IN(&call, PACK, weight) = (Operand){s->initial, F32, fixed(s->n), s->k};
    *OUT(&call, PACK, copy) = s->operand;
    run_call(b, &call, &(RowCounts){0}, UNSET_BYTE);
}

static void place_operand(Backend *b, Slot *s)
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
        pack_copy(b, s);
        s->transposed = transposed;
    } else if (s->initial) {
        memcpy(s->operand.data, s->initial, s->bytes);
    }
}

/* Lets out[i] lie in the memory of the input that it must or, if asked for, may share. */
static void share_memory(OpCase *c, int i, bool asked)
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
    for (int64_t i = 0; !input && is_float_type(s->operand.dtype) && i < slot_count(c, s); i++)
        if (!isfinite(slot_element(s->operand.dtype, s->operand.data, i)))
            fail_msg("%s %s: %s is not finite or was not written in row %lld, column %lld", b->name, op, info->name,
                     (long long)(i / s->operand.cols), (long long)(i % s->operand.cols));
}

void case_run(OpCase *c, Backend *b, RunOptions options)
{
    const OpInfo *info = op_info(c->op);
    OpCall call = {.op = c->op, .attr = c->attr, .begun = c->begun};
    for (int i = 0; i < info->n_in; i++) place_operand(b, &c->in[i]);
    for (int i = 0; i < info->n_out; i++) {
        place_operand(b, &c->out[i]);
        if (c->begun >> i & 1 && c->out[i].block) memset(c->out[i].operand.data, UNSET_BYTE, c->out[i].bytes);
        share_memory(c, i, options.share >> i & 1);
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
        if (o->cols && is_float_type(o->dtype) && o->dtype != F32) compute = o->dtype;
    }
    if (!b->op[c->op].run || !b->supports(b, compute, why, sizeof why)) return false;
    bool fused = (c->op == OP_LINEAR || c->op == OP_LINEAR_DGRAD) && c->attr.linear.fused;
    OpCall call = {.op = c->op, .attr = c->attr};
    for (int i = 0; i < OP_MAX_IN; i++) call.in[i] = c->in[i].operand;
    for (int i = 0; i < OP_MAX_OUT; i++) call.out[i] = c->out[i].operand;
    return !fused || b == ops_ref() || (b->fuses && b->fuses(&call)); /* ref does it as two ops */
}

/* ---- sequences ---- */

static void set_if_present(OpCase *c, const char *name, int64_t at, int32_t value)
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
        set_if_present(c, "spans", 2 * s, row);
        set_if_present(c, "spans", 2 * s + 1, row + lengths[s]);
        set_if_present(c, "seq_index", s, sequence);
        for (int32_t position = 0; position < lengths[s]; position++, row++) {
            set_if_present(c, "pos", row, position);
            set_if_present(c, "seq", row, sequence);
        }
    }
    case_ctl(c)->n_tokens = row;
    case_ctl(c)->n_seqs = n;
    return row;
}
