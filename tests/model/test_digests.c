/* A DIGEST behind every instr that makes an activation: what recompute makes again has the sums of the first time and
   of a run that recomputes nothing. */
#include "model/harness.h"

#include "plan/rewrite.h"

/* The instr's output k is an activation of forward, or one that stands for such. */
static bool is_digested(const Plan *p, const Instr *instr, int k)
{
    const Tensor *x = instr->out[k] == NONE ? NULL : &p->tensors[instr->out[k]];
    return x && x->region == REGION_ACT && instr->lane == LANE_COMPUTE &&
           (instr->phase == PHASE_FORWARD || x->original != NONE);
}

static void add_digests(Plan *p)
{
    Range *ranges[] = {&p->micro, &p->begin, &p->update, &p->pack};
    Rewrite r;
    rewrite_begin(&r, p);
    for (InstrId i = 0; i < r.n; i++) {
        rewrite_keep(&r, i, rewrite_old(&r, i));
        for (int k = 0; k < OP_MAX_OUT; k++) {
            if (!is_digested(p, &r.old[i], k)) continue;
            TensorId x = r.old[i].out[k], sums;
            const Tensor of = p->tensors[x];
            sums = plan_tensor(p, REGION_OUTPUT, I64, of.rows, 1, "%.42s.sums", of.name);
            plan_emit(p, OP_DIGEST, r.old[i].phase, r.old[i].layer, (OpAttr){0}, IDS(x), IDS(sums));
        }
    }
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
        InstrId end = ranges[k]->first + ranges[k]->count;
        end = end < r.n ? r.moved[end] : p->n_instrs;
        ranges[k]->first = ranges[k]->first < r.n ? r.moved[ranges[k]->first] : p->n_instrs;
        ranges[k]->count = end - ranges[k]->first;
    }
    rewrite_end(&r);
    plan_liveness(p);
    plan_layout(p);
    assert_ok(plan_verify(p));
}

/* The sums of a tensor after a run: (*n), rows of the bucket. The caller frees. */
static int64_t *tensor_sums(const GoldenRun *r, const char *name, const RowCounts *rows, int64_t *n)
{
    char sums_name[64];
    snprintf(sums_name, sizeof sums_name, "%s.sums", name);
    TensorId sums = plan_find(&r->plan, sums_name);
    if (sums == NONE) fail_msg("the plan has no '%s'", sums_name);
    *n = rows_in(r->plan.tensors[sums].rows, rows);
    int64_t *values = mem_array((size_t)*n, sizeof *values);
    assert_ok(exec_download(r->exec, sums, values, (size_t)*n * sizeof *values));
    return values;
}

/* The first row in which the sums of two tensors differ; −1: none. */
static int64_t differs(const GoldenRun *a, const char *name_a, const GoldenRun *b, const char *name_b,
                       const RowCounts *rows)
{
    int64_t n, n_b, row = -1;
    int64_t *x = tensor_sums(a, name_a, rows, &n), *y = tensor_sums(b, name_b, rows, &n_b);
    assert_int_equal(n, n_b);
    for (int64_t i = n - 1; i >= 0; i--)
        if (x[i] != y[i]) row = i;
    free(x);
    free(y);
    return row;
}

/* Opens a run with digests under a policy and runs one micro-batch, whose bucket it returns. */
static RowCounts run_digested(GoldenRun *r, Golden *g, RunOptions o, const char *policy_name)
{
    LayerKeep keeps[64];
    GoldenBatch b;
    Policy policy;
    assert_ok(policy_parse(policy_name, &policy));
    policy_keeps(&policy, g->model.config.layers, keeps);
    o.keeps = keeps;
    o.rewrite = add_digests;
    o.optimizer = (Optimizer){.eps = 1e-6f};
    run_open(r, g, &o);
    golden_batch(g, 0, &b);
    run_begin(r, b.n_seqs, b.n_masked);
    assert_ok(run_micro(r, &b));
    return exec_rows(r->exec, b.n_tokens, b.n_seqs, b.n_masked);
}

static void open_with_dropout(Golden *g, const char *name)
{
    golden_open(g, name);
    g->model.config.hidden_dropout = g->model.config.attention_dropout = 0.1f;
}

/* Tensors that were made again and digested. */
static bool is_again(const Plan *p, TensorId t)
{
    return p->tensors[t].original != NONE && p->tensors[t].region == REGION_ACT &&
           p->instrs[p->tensors[t].first].lane == LANE_COMPUTE;
}

static void test_recomputed_tensors_have_equal_sums(void **state)
{
    static const struct {
        const char *backend;
        Dtype compute;
        int least; /* tensors made again, of 2 layers at least */
    } kinds[] = {{"ref", F32, 12}, {"ref", BF16, 12}, {"cpu", F32, 12}, {"cpu", BF16, 12}};
    static const char *const models[] = {"tiny_cls", "odd_pre"};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t m = 0; m < 2 && run_possible(kinds[k].backend, kinds[k].compute); m++) {
            Golden g;
            GoldenRun none, full;
            RunOptions o = {.backend = kinds[k].backend, .compute = kinds[k].compute};
            int again = 0;
            open_with_dropout(&g, models[m]);
            run_digested(&none, &g, o, "none");
            RowCounts rows = run_digested(&full, &g, o, "full");
            for (TensorId t = 0; t < full.plan.n_tensors; t++) {
                if (!is_again(&full.plan, t)) continue;
                const char *name = full.plan.tensors[t].name;
                const char *first = full.plan.tensors[full.plan.tensors[t].original].name;
                if (differs(&full, name, &full, first, &rows) >= 0)
                    fail_msg("%s, %s: '%s' has other sums than '%s'", models[m], o.backend, name, first);
                if (differs(&full, name, &none, first, &rows) >= 0)
                    fail_msg("%s, %s: '%s' has other sums than without recompute", models[m], o.backend, name);
                again++;
            }
            assert_true(again >= kinds[k].least);
            run_close(&none);
            run_close(&full);
            golden_close(&g);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recomputed_tensors_have_equal_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
