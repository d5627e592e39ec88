/* `cairn plan --largest`: exact plans of sizes between one that fits and one that does not. */

#include "commands/plan.h"
#include "train/planner/planner.h"

typedef enum { LARGEST_BATCH, LARGEST_LENGTH, LARGEST_LAYERS, N_LARGEST } Largest;
static const char *const names[N_LARGEST] = {"batch", "length", "layers"};

static Status parse(const Config *c, Largest *what)
{
    for (int k = 0; k < N_LARGEST; k++) {
        if (strcmp(c->largest, names[k]) != 0) continue;
        *what = (Largest)k;
        return OK;
    }
    return fail(E_USAGE, "--largest '%s': expected batch, length or layers", c->largest);
}

/* The run of this size. `c` gets its options, and must live as long. */
static PlanRun run_of(const PlanRun *of, Largest what, int64_t size, Config *c)
{
    *c = *of->given;
    if (what == LARGEST_BATCH) {
        c->batch_size = size;
        c->micro_batch_tokens = (char *)(uintptr_t) "step";
    }
    if (what == LARGEST_LENGTH) c->max_seq_length = size;
    return (PlanRun){.c = c, .layers = what == LARGEST_LAYERS ? (int)size : 0};
}

/* Plans for this size; `show` (NULL: nothing) prints what was found. Without room: E_MEMORY where it is shown. */
static Status try_size(const PlanRun *of, Largest what, int64_t size, bool *fits,
                       void (*show)(const PlanRun *r, Largest what, int64_t size, const RunPlan *plan))
{
    Config c;
    PlanRun r = run_of(of, what, size, &c);
    RunPlan plan = {0};
    Status status = OK;
    TRY_DONE(plan_open(&r));
    r.accounts = of->accounts;
    TRY_DONE(planner_choose(r.c, &r.input, &r.accounts, NULL, &plan));
    *fits = plan.fits;
    if (show) TRY_DONE(planner_check(r.c, &plan, NULL));
    if (show) show(&r, what, size, &plan);
done:
    run_plan_free(&plan);
    plan_close(&r);
    return status;
}

/* The most that is tried, or that a model can have. */
static int64_t most_of(Largest what, const PlanRun *r)
{
    return what == LARGEST_BATCH    ? INT64_C(1) << 20
           : what == LARGEST_LENGTH ? r->model.config.positions
                                    : MODEL_MOST_LAYERS;
}

static int64_t least_of(Largest what, const PlanInput *in)
{
    if (what == LARGEST_LENGTH) return 8;
    return what == LARGEST_BATCH && in->coupling ? coupling_least_rows(in->coupling) : 1;
}

static void show_text(const PlanRun *r, Largest what, int64_t size, const RunPlan *plan)
{
    Buf out = {0};
    buf_printf(&out, "largest %s: %lld%s\n", names[what], (long long)size,
               size < most_of(what, r) ? "" : " (no more is possible, whatever the memory)");
    plan_put_model(r, &out);
    buf_puts(&out, "\n");
    buf_printf(&out, "recompute %s, a peak of %.1f of %.1f MiB", plan->layers.policy, mib(run_plan_peak(plan)),
               mib(plan->accounts.row[0].budget));
    run_plan_put_step(plan, &out);
    buf_printf(&out, " (%.4g sequences/s)\n", (double)r->c->batch_size / plan->step_s);
    buf_print(&out);
}

static void show_json(const PlanRun *r, Largest what, int64_t size, const RunPlan *plan)
{
    Buf out = {0};
    buf_printf(&out, "{\"largest\": \"%s\", \"size\": %lld, \"budget\": %zu, \"plan\": {", names[what], (long long)size,
               plan->accounts.row[0].budget);
    plan_row_json(plan, &out);
    buf_member(&out, "seq_per_s", (double)r->c->batch_size / plan->step_s);
    buf_puts(&out, "}}\n");
    buf_print(&out);
}

static bool is_one_of(const char *text, const char *a, const char *b) { return !strcmp(text, a) || !strcmp(text, b); }

Status plan_largest(PlanRun *r)
{
    const Config *c = r->c;
    Policy policy;
    Largest what;
    bool fits;
    TRY(parse(c, &what));
    if (*c->lengths || place_wanted(c) || c->ranks > 1 || plan_job_kind(c) || *c->svg || *c->costs || c->explain ||
        c->explain_cost)
        return fail(E_USAGE, "--largest prints one size, for full sequences on one rank: leave out --lengths, --ranks, "
                             "--pipeline, and flags that print or draw something else");
    if (what == LARGEST_BATCH && (c->virtual_ranks || !is_one_of(c->micro_batch_tokens, "default", "step")))
        return fail(E_USAGE,
                    "--largest batch plans one micro-batch: leave out --virtual-ranks and --micro-batch-tokens");
    if (what == LARGEST_LENGTH && !is_one_of(c->micro_batch_tokens, "default", "step"))
        return fail(E_USAGE, "--largest length: --micro-batch-tokens is default or step, since lengths differ");
    TRY(policy_parse(c->recompute, &policy));
    if (what == LARGEST_LAYERS && policy.kind == POLICY_MIXED && policy.runs[0].layers != POLICY_ALL_LAYERS)
        return fail(E_USAGE,
                    "--largest layers: --recompute '%s' is for one number of layers; expected a policy for any, "
                    "as auto or full",
                    c->recompute);
    TRY(plan_count_process(r));
    const int64_t most = most_of(what, r), least = least_of(what, &r->input);
    int64_t low = least - 1, high = most + 1; /* fits, or is below all; does not fit, or is above all */
    while (high - low > 1) {
        /* doubled as long as all fit: no plan is far too large */
        bool doubles = high > most && 2 * low < most;
        int64_t size = low < least ? least : doubles ? 2 * low : low + (high - low) / 2;
        TRY(try_size(r, what, size, &fits, NULL));
        *(fits ? &low : &high) = size;
    }
    return try_size(r, what, low < least ? least : low, &fits, c->json ? show_json : show_text);
}
