#include "train/run_plan.h"

#include <stdlib.h>
#include <string.h>

static size_t n_layers(const RunPlan *p) { return (size_t)p->input.model->config.layers; }

static size_t n_forms(const RunPlan *p) { return 2 * n_layers(p) + 1; }

void run_plan_init(RunPlan *p, const PlanInput *input)
{
    *p = (RunPlan){.input = *input, .policy = "none"};
    p->levels = mem_alloc(n_layers(p));    /* LEVEL_NONE is 0 */
    p->norm_forms = mem_alloc(n_forms(p)); /* NORM_FORM_Y is 0 */
    if (input->norm_forms) memcpy(p->norm_forms, input->norm_forms, n_forms(p));
}

void run_plan_free(RunPlan *p)
{
    plan_free(&p->train);
    plan_free(&p->eval);
    free(p->segments);
    free(p->levels);
    free(p->norm_forms);
    *p = (RunPlan){0};
}

PlanRequest plan_input_request(const PlanInput *in, bool training)
{
    return (PlanRequest){.model = in->model,
                         .backend = in->backend,
                         .one_copy = in->imagined,
                         .compute = in->compute,
                         .training = training,
                         .beside_training = !training && in->training,
                         .norm_forms = in->norm_forms,
                         .kfac = training ? in->kfac : NULL,
                         .optimizer = in->optimizer};
}

PlanRequest run_plan_request(const RunPlan *p, bool training)
{
    PlanRequest r = plan_input_request(&p->input, training);
    r.capacity = plan_capacity(training ? p->micro : p->eval_micro);
    r.levels = p->levels;
    r.norm_forms = p->norm_forms;
    r.save_buffer = p->save_buffer;
    r.audit = training && p->input.audit;
    r.exchange = training ? p->input.exchange : NULL;
    r.virtual_each = training ? p->input.virtual_each : 0;
    return r;
}

Status run_plan_make_one(RunPlan *p, bool training)
{
    PlanRequest r = run_plan_request(p, training);
    if (!training) {
        TRY(plan_make(&r, &p->eval, &p->eval_tensors, NULL));
    } else {
        p->segments = mem_array((size_t)p->input.model->params.count, sizeof *p->segments);
        TRY(plan_make(&r, &p->train, &p->train_tensors, p->segments));
    }
    plan_bytes(&p->train, &p->eval, p->bytes);
    return OK;
}

Status run_plan_make(RunPlan *p)
{
    if (p->input.evaluation) TRY(run_plan_make_one(p, false));
    return p->input.training ? run_plan_make_one(p, true) : OK;
}

Status run_plan_with_forms(const RunPlan *p, const uint8_t *norm_forms, RunPlan *other)
{
    RunPlan empty;
    run_plan_init(&empty, &p->input);
    *other = *p;
    other->levels = empty.levels;
    other->norm_forms = empty.norm_forms;
    other->segments = NULL;
    other->train = other->eval = (Plan){0};
    memcpy(other->levels, p->levels, n_layers(p));
    memcpy(other->norm_forms, norm_forms, n_forms(p));
    TRY(run_plan_make(other));
    for (int r = 0; r < N_REGIONS; r++)
        if (p->bytes[r] > other->bytes[r]) other->bytes[r] = p->bytes[r];
    (void)accounts_set_peaks(&other->accounts, other->bytes);
    return OK;
}

void run_plan_describe(const RunPlan *p, Buf *out)
{
    const Accounts *a = &p->accounts;
    const Account *first = &a->row[0], *machine = &a->row[a->n - 1];
    static const Region shown[] = {REGION_WEIGHT,  REGION_COPY,  REGION_GRAD,   REGION_MOMENT, REGION_ACT,
                                   REGION_SCRATCH, REGION_INPUT, REGION_OUTPUT, REGION_CONST,  REGION_SAVE,
                                   REGION_HOST,    REGION_COMM,  REGION_KFAC};
    bool own = a->n > 1;
    buf_printf(out, "plan: recompute %s, %s on %s", p->policy, backend_precision(p->input.backend, p->input.compute),
               p->input.backend->name);
    if (p->micro.tokens) buf_printf(out, ", micro-batches of up to %lld tokens", (long long)p->micro.tokens);
    if (p->step_s > 0) buf_printf(out, ", %.3g s per step predicted", p->step_s);
    buf_puts(out, "\n");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (p->bytes[shown[i]] && (account_has(first, shown[i]) || !own))
            buf_printf(out, "  %-12s %10.1f MiB\n", region_name(shown[i]), (double)p->bytes[shown[i]] / (1 << 20));
    if (machine->snapshots)
        buf_printf(out, "  %-12s %10.1f MiB%s\n", "snapshots", (double)machine->snapshots / (1 << 20),
                   own ? "   of the machine" : "");
    buf_printf(out, "  %-12s %10.1f MiB   (%s)\n", "process", (double)first->held / (1 << 20),
               own ? "driver and libraries" : "program, libraries, data");
    buf_printf(out, "  %-12s %10.1f MiB%s\n", "peak", (double)first->peak / (1 << 20), own ? "   of the device" : "");
    if (own)
        buf_printf(out, "  %-12s %10.1f MiB   of the machine (program, data, the state that is being saved%s)\n", "",
                   (double)machine->peak / (1 << 20), p->bytes[REGION_HOST] ? ", offloaded tensors" : "");
}
