#include "commands/plan.h"

#include "report/report.h"
#include "train/pipelines/pipeline.h"

typedef struct {
    const PlanRun *r;
    PipelinePlan plan[N_PIPELINES];
    bool made[N_PIPELINES];
    char reason[N_PIPELINES][200]; /* of a schedule that this shape does not have */
} PipelineRows;

static const char *const work_names[N_WORKS] = {"forward", "backward", "input", "weight"};

static double per_second(const PipelineRows *r, const PipelinePlan *p) { return (double)r->r->c->batch_size / p->step; }

static int micros(const PipelinePlan *p) { return p->schedule.shape.micros / p->grid.directions; }

static bool all_wanted(const Config *c) { return strcmp(c->pipeline, "all") == 0; }

/* ---- the table ---- */

static void print_head(const PipelineRows *r, const PipelinePlan *p, Buf *out)
{
    const Config *c = r->r->c;
    plan_put_model(r->r, out);
    buf_printf(out, "\n%d ranks; network %s; budget %.0f MiB a rank; recompute %s\n\n", grid_ranks(&p->grid),
               *c->network ? c->network
               : *c->costs ? "none"
                           : "10GbE",
               mib(p->budget), c->recompute);
}

static void print_lines(const PipelineRows *r, Buf *out)
{
    bool kfac = r->r->c->kfac_interval > 0;
    buf_printf(out, "%-12s %6s %8s %12s %10s %10s %8s %9s %11s", "schedule", "stages", "replicas", "micro-batch",
               "step (s)", "seq/s", "bubble", "sums (s)", "peak (MiB)");
    if (kfac) buf_printf(out, " %8s %7s %11s %12s", "filled", "steps", "exposed (s)", "precond. (s)");
    buf_puts(out, "\n");
    for (int k = 0; k < N_PIPELINES; k++) {
        const PipelinePlan *p = &r->plan[k];
        if (!r->made[k]) {
            if (*r->reason[k]) buf_printf(out, "%-12s %s\n", pipeline_name((PipelineKind)k), r->reason[k]);
            continue;
        }
        buf_printf(out, "%-12s %6d %8d %13s %10.4g %10.4g %7.1f%% %9.3g %10.1f%s", pipeline_name((PipelineKind)k),
                   p->grid.stages, grid_holders(&p->grid), SHORT_TEXT("%d × %lld", micros(p), (long long)p->tokens),
                   p->step, per_second(r, p), 100 * p->timeline.bubble, p->sums, mib(p->peak), p->exact ? " " : "~");
        if (kfac)
            buf_printf(out, " %7.1f%% %7d %11.3g %12.3g", 100 * p->fill.filled, p->fill.steps, p->fill.exposed,
                       p->precondition);
        buf_puts(out, p->fits ? "\n" : "  does not fit\n");
    }
}

static void print_stages(const PipelinePlan *p, Buf *out)
{
    bool split = pipeline_splits_backward(p->grid.shape.kind);
    buf_printf(out, "\n%5s %5s %7s %9s %-15s %10s %10s", "stage", "place", "layers", "M params", "recompute", "F (ms)",
               split ? "I (ms)" : "B (ms)");
    if (split) buf_printf(out, " %10s", "W (ms)");
    buf_puts(out, "\n");
    for (int s = 0; s < p->grid.stages; s++) {
        const StagePlan *of = &p->stage[s];
        char policy[POLICY_TEXT];
        int at, chunk, up;
        policy_format(&of->policy, policy);
        pipeline_home(&p->grid.shape, s, 0, &at, &chunk);
        pipeline_home(&p->grid.shape, s, p->grid.directions - 1, &up, &chunk);
        const char *place = p->grid.directions == 2 ? SHORT_TEXT("%d,%d", at, up) : SHORT_TEXT("%d", at);
        buf_printf(out, "%5d %5s %7d %9.1f %-15s %10.4g %10.4g", s, place, p->stages[s].layers,
                   (double)of->parameters / 1e6, policy, of->seconds[WORK_FORWARD] * 1e3,
                   of->seconds[split ? WORK_INPUT : WORK_BACKWARD] * 1e3);
        if (split) buf_printf(out, " %10.4g", of->seconds[WORK_WEIGHT] * 1e3);
        buf_puts(out, "\n");
    }
    buf_printf(out, "\n%5s %9s %12s %17s %11s\n", "place", "M params", "slots", "activations (MiB)", "peak (MiB)");
    for (int place = 0; place < p->grid.shape.places; place++) {
        const PlacePlan *of = &p->place[place];
        const char *more = split ? SHORT_TEXT("+%d+%d", of->slots[SLOT_OPERAND], of->slots[SLOT_GRADIENT]) : "";
        buf_printf(out, "%5d %9.1f %12s %17.1f %11.1f%s\n", place, (double)of->parameters / 1e6,
                   SHORT_TEXT("%d%s", of->slots[SLOT_ACTIVATION], more), mib(of->activations), mib(of->peak),
                   of->peak > p->budget ? "  does not fit" : "");
    }
}

static void print_kfac(const PipelinePlan *p, Buf *out)
{
    if (!p->kfac) return;
    buf_printf(out,
               "\nK-FAC every %d steps: a refresh has %.4g s of work on all places; it fills %.1f %% of the bubbles of "
               "%d step%s\n(utilization %.1f %%, without it %.1f %%), %s. Preconditioning adds %.3g s, %.1f %% of a "
               "step.\n",
               p->interval, p->fill.seconds, 100 * p->fill.filled, p->fill.steps, p->fill.steps == 1 ? "" : "s",
               100 * p->fill.utilization, 100 * (1 - p->timeline.bubble),
               p->fill.exposed > 0 ? "and some of it is exposed" : "and nothing is exposed", p->precondition,
               100 * p->precondition / (p->step - p->precondition));
}

/* ---- JSON ---- */

static void stage_json(const PipelinePlan *p, int s, Buf *out)
{
    const StagePlan *of = &p->stage[s];
    char policy[POLICY_TEXT];
    policy_format(&of->policy, policy);
    buf_printf(out, "%s\n   {\"stage\": %d, \"layers\": %d, \"parameters\": %lld, \"recompute\": \"%s\"", s ? "," : "",
               s, p->stages[s].layers, (long long)of->parameters, policy);
    for (int kind = 0; kind < N_WORKS; kind++) buf_member(out, SHORT_TEXT("%s_s", work_names[kind]), of->seconds[kind]);
    buf_puts(out, "}");
}

static void plan_json(const PipelineRows *r, const PipelinePlan *p, Buf *out)
{
    buf_printf(out,
               "{\"schedule\": \"%s\", \"places\": %d, \"stages\": %d, \"replicas\": %d, \"micro_batches\": %d, "
               "\"micro_batch_tokens\": %lld",
               pipeline_name(p->grid.shape.kind), p->grid.shape.places, p->grid.stages, grid_holders(&p->grid),
               micros(p), (long long)p->tokens);
    buf_member(out, "step_s", p->step);
    buf_member(out, "works_s", p->timeline.works_s);
    buf_member(out, "seq_per_s", per_second(r, p));
    buf_member(out, "bubble", p->timeline.bubble);
    buf_member(out, "sums_s", p->sums);
    buf_member(out, "update_s", p->update);
    buf_printf(out, ", \"boundary\": %lld, \"peak\": %zu, \"budget\": %zu, \"fits\": %s, \"exact\": %s",
               (long long)p->boundary, p->peak, p->budget, p->fits ? "true" : "false", p->exact ? "true" : "false");
    if (p->kfac) {
        buf_printf(out, ", \"kfac\": {\"interval\": %d, \"lag\": %d, \"steps\": %d", p->interval, p->lag,
                   p->fill.steps);
        buf_member(out, "work_s", p->fill.seconds);
        buf_member(out, "filled", p->fill.filled);
        buf_member(out, "utilization", p->fill.utilization);
        buf_member(out, "exposed_s", p->fill.exposed);
        buf_member(out, "precondition_s", p->precondition);
        buf_puts(out, "}");
    }
    buf_puts(out, ",\n  \"of_stages\": [");
    for (int s = 0; s < p->grid.stages; s++) stage_json(p, s, out);
    buf_puts(out, "],\n  \"of_places\": [");
    for (int place = 0; place < p->grid.shape.places; place++) {
        const PlacePlan *of = &p->place[place];
        buf_printf(out,
                   "%s\n   {\"place\": %d, \"parameters\": %lld, \"slots\": [%d, %d, %d], \"activations\": %zu, "
                   "\"peak\": %zu}",
                   place ? "," : "", place, (long long)of->parameters, of->slots[0], of->slots[1], of->slots[2],
                   of->activations, of->peak);
    }
    buf_puts(out, "]}");
}

static void print_json(const PipelineRows *r, Buf *out)
{
    bool first = true;
    buf_puts(out, "{\"pipelines\": [");
    for (int k = 0; k < N_PIPELINES; k++) {
        if (!r->made[k]) continue;
        buf_puts(out, first ? "\n " : ",\n ");
        plan_json(r, &r->plan[k], out);
        first = false;
    }
    buf_puts(out, "\n]}\n");
}

/* ---- the drawing ---- */

/* One step; with K-FAC the steps that a refresh takes. */
static void make_panel(const PipelinePlan *p, TimelinePanel *panel)
{
    *panel = (TimelinePanel){.rows = p->grid.shape.places};
    snprintf(panel->title, sizeof panel->title, "%s: bubble %.1f %%, utilization %.1f %%, %.4g ms a step",
             pipeline_name(p->grid.shape.kind), 100 * p->timeline.bubble,
             100 * (p->kfac ? p->fill.utilization : 1 - p->timeline.bubble), p->step * 1e3);
    for (int step = 0; step < (p->kfac ? p->fill.steps : 1); step++) {
        double at = p->kfac ? p->fill.begins[step] : step * (p->timeline.sums_s + p->update);
        pipeline_draw(&p->schedule, &p->timeline, 0, at, 1, panel);
        pipeline_draw_end(at, &p->timeline, p->update, panel);
    }
    for (int i = 0; i < p->fill.n; i++) {
        const FillItem *x = &p->fill.items[i];
        timeline_add(panel, (TimelineBar){x->place, x->kind == FILL_INVERSE ? BAR_INVERSE : BAR_CURVATURE, x->start,
                                          x->end, -1});
    }
}

static Status draw(const PipelineRows *r, const char *path)
{
    TimelinePanel panels[N_PIPELINES];
    Buf out = {0};
    int n = 0;
    for (int k = 0; k < N_PIPELINES; k++)
        if (r->made[k]) make_panel(&r->plan[k], &panels[n++]);
    schedule_svg(panels, n, "places of the pipeline", &out);
    timeline_panels_free(panels, n);
    return svg_write(NULL, path, &out);
}

/* ---- the whole ---- */

static Status make_rows(PipelineRows *rows, const PipelineRequest *r, int *best)
{
    const char *name = r->c->pipeline;
    Status status = OK;
    int made = 0, fits = 0;
    *best = -1;
    for (int k = 0; k < N_PIPELINES; k++) {
        if (!all_wanted(r->c) && strcmp(name, pipeline_name((PipelineKind)k)) != 0) continue;
        status = pipeline_plan(r, (PipelineKind)k, &rows->plan[k]);
        if (status != OK && (status != E_USAGE || !all_wanted(r->c))) return status;
        if (status != OK) {
            snprintf(rows->reason[k], sizeof rows->reason[k], "%s", status_message());
            continue;
        }
        rows->made[k] = true;
        made++;
        fits += rows->plan[k].fits;
        if (*best < 0 || rows->plan[k].peak < rows->plan[*best].peak) *best = k;
    }
    if (!made) return status; /* the last refusal */
    if (fits) *best = -1;     /* nothing to refuse */
    return OK;
}

Status plan_pipeline(const PlanRun *run)
{
    const Config *c = run->c;
    PipelineRows rows = {.r = run};
    LayerCosts given;
    PipelineRequest r = {.c = c, .ranks = c->ranks > 0 ? c->ranks : 1, .in = &run->input, .accounts = &run->accounts};
    Buf out = {0};
    Status status = OK;
    int least, shown = -1;
    if (*c->costs) {
        TRY(layer_costs_read(c->costs, &given));
        r.given = &given;
    }
    TRY_DONE(make_rows(&rows, &r, &least));
    for (int k = 0; k < N_PIPELINES; k++)
        if (rows.made[k]) shown = k;
    if (c->json) {
        print_json(&rows, &out);
    } else {
        print_head(&rows, &rows.plan[shown], &out);
        print_lines(&rows, &out);
        if (!all_wanted(c)) {
            print_stages(&rows.plan[shown], &out);
            print_kfac(&rows.plan[shown], &out);
        }
    }
    buf_print(&out);
    for (int k = 0; k < N_PIPELINES; k++)
        if (rows.made[k]) pipeline_warn(&rows.plan[k]);
    if (*c->svg) TRY_DONE(draw(&rows, c->svg));
    if (least >= 0) status = pipeline_refuse(&r, &rows.plan[least]);
done:
    buf_free(&out);
    for (int k = 0; k < N_PIPELINES; k++) pipeline_plan_free(&rows.plan[k]);
    return status;
}
