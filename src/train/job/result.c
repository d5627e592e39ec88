#include "train/job/result.h"

#include <unistd.h>

#include "base/host.h"
#include "base/test_switch.h"
#include "config/table.h"

#include "report/label_scores.h"
#include "report/record.h"
#include "state/models/import.h"
#include "state/models/manifest.h"
#include "train/job/task.h"

void eval_figure(EvalFigures *f, const char *split, const char *name, const char *suffix, double value, int places)
{
    MEM_PUSH(f->items, f->n, f->cap, (EvalFigure){split, name, suffix, value, places});
}

void eval_count(EvalFigures *f, const char *name, const char *suffix, int64_t count)
{
    MEM_PUSH(f->items, f->n, f->cap, (EvalFigure){"", name, suffix, (double)count, FIGURE_IN_RESULTS});
}

/* The caller frees the items. */
static EvalFigures figures_of(const Run *r)
{
    EvalFigures f = {0};
    if (r->evaluate && r->task->figures) r->task->figures(r, &f);
    return f;
}

static void keep_rates(const char *output_dir, RunSummary *s)
{
    RunRecord before;
    if (run_record_read(output_dir, &before) != OK) return;
    if (before.s.steps == s->steps) {
        s->seq_per_s = before.s.seq_per_s;
        s->tokens_per_s = before.s.tokens_per_s;
        s->wall_s = before.s.wall_s;
        s->save_stall_s = before.s.save_stall_s;
        if (before.s.measured_peak_bytes > s->measured_peak_bytes)
            s->measured_peak_bytes = before.s.measured_peak_bytes;
    }
    run_record_free(&before);
}

/* The GPU's name, which the backend's description begins with, or the processor's. */
static void name_device(const Backend *b, char *name, size_t size)
{
    if (b->device)
        snprintf(name, size, "%.*s", (int)strcspn(b->describe, "("), b->describe);
    else
        host_value("/proc/cpuinfo", "model name", name, size);
    for (size_t n = strlen(name); n > 0 && name[n - 1] == ' ';) name[--n] = '\0';
}

static void add_regions(const RunPlan *plan, RunSummary *s)
{
    for (int i = 0; i < N_REGIONS; i++) {
        const char *place = account_has(&plan->accounts.row[0], (Region)i) ? "" : SUMMARY_HOST;
        if (plan->bytes[i]) summary_add_region(s, SHORT_TEXT("%s%s", place, region_name((Region)i)), plan->bytes[i]);
    }
}

Status result_write(const Run *r)
{
    char folder[4096] = "", device[128];
    const ModelConfig *m = &r->model.config;
    Buf again = {0}, saves = {0};
    char *config = file_join(r->c->output_dir, "run.json");
    buf_printf(&again, "cairn %s --config ", config_commands[r->given->command].name);
    buf_word(&again, config);
    buf_puts(&again, " --output-dir OTHER");
    double *series = NULL;
    const RunPlan *plan = &r->session.plan;
    if (plan->input.training) run_plan_put_saves(plan, &saves);
    const Backend *b = r->setup.backend;
    const TrainProgress *progress = &r->progress;
    name_device(b, device, sizeof device);
    long long best = (long long)progress->best_step;
    RunSummary s = {.task = r->name,
                    .recompute = plan->layers.policy,
                    .precision = backend_precision(b, plan->input.compute),
                    .backend = b->describe,
                    .threads = b->threads,
                    .steps = progress->step,
                    .final_loss = progress->last_loss,
                    .wall_s = progress->earlier_s + clock_monotonic() - r->started,
                    .micro_batches = plan->micros,
                    .planned_step_s = plan->step_s,
                    .bound_step_s = plan->bound.step_s,
                    .bound_peak_bytes = plan->bound.peak,
                    .planned_peak_bytes = run_plan_peak(plan),
                    .measured_peak_bytes = progress->peak_bytes,
                    .save_stall_s = progress->save_stall_s,
                    .config_json = r->config_json.data,
                    .version = CAIRN_VERSION,
                    .started = r->started_at,
                    .hosts = r->hosts.data,
                    .waited_for = r->waited_for.data,
                    .while_saving = saves.data,
                    .best = best ? SHORT_TEXT("%.6g at step %lld", progress->best_metric, best) : "",
                    .folder = getcwd(folder, sizeof folder) ? folder : "",
                    .command = r->given->line.data,
                    .again = again.data,
                    .model = SHORT_TEXT("%s of %d layers, hidden %d, %.1f M parameters", model_kinds[m->kind].name,
                                        m->layers, m->hidden, (double)r->model.params.size / 1e6),
                    .device = device,
                    .ranks = ranks_size(r->ranks),
                    .fingerprint = r->fingerprint.data};
    if (plan->input.training) plan_memory_series(&plan->chunk->train, &series, &s.n_memory);
    s.memory_series = series;
    add_regions(plan, &s);
    if (progress->seconds > 0) {
        s.seq_per_s = (double)progress->sequences / progress->seconds;
        s.tokens_per_s = (double)progress->tokens / progress->seconds;
    } else {
        keep_rates(r->c->output_dir, &s);
    }
    EvalFigures f = figures_of(r);
    for (int i = 0; i < f.n; i++)
        if (f.items[i].places & FIGURE_IN_RUN)
            summary_add_eval(&s, f.items[i].split, f.items[i].name, f.items[i].value);
    Status status = summary_write(r->c->output_dir, &s);
    if (status == OK) status = report_write(r->c->output_dir);
    BUF_FREE(&again, &saves);
    MEM_FREE(f.items, series, config);
    return status;
}

Status result_write_lines(const Run *r, Metrics *m)
{
    EvalFigures f = figures_of(r);
    Status status = OK;
    for (int i = 0; m && i < f.n && status == OK; i++)
        if (f.items[i].places & FIGURE_IN_LINES)
            status = metrics_eval(m, r->progress.step, f.items[i].split, f.items[i].name, f.items[i].value);
    free(f.items);
    return status;
}

Status result_write_evaluation(Run *r)
{
    EvalFigures f = figures_of(r);
    Buf json = {0}, text = {0};
    Status status = OK;
    for (int i = 0; i < f.n; i++) {
        const EvalFigure *x = &f.items[i];
        if (!(x->places & FIGURE_IN_RESULTS)) continue;
        buf_printf(&json, "%s\n  \"eval_%s%s\": ", json.len ? "," : "{", x->name, x->suffix);
        buf_double(&json, x->value);
        buf_printf(&text, "eval_%s%s = %.17g\n", x->name, x->suffix, x->value);
    }
    free(f.items);
    if (!json.len) return OK;
    if (r->task->members) r->task->members(r, &json);
    buf_printf(&json, ",\n  \"eval_data\": \"%s\"\n}\n", DIGEST_TEXT(r->task->eval_digest(r)));
    status = file_write_text(r->c->output_dir, "eval_results.json", &json);
    if (status == OK) status = label_scores_write(r->c->output_dir, &text);
    if (status == OK) status = file_write_text(r->c->output_dir, "eval_results.txt", &text);
    buf_free(&text);
    return status;
}

static bool same_eval_data(const Run *r)
{
    Json *doc = NULL;
    bool same = js_read_in(r->c->output_dir, "eval_results.json", &doc) &&
                strcmp(js_string(js_get(doc, "eval_data"), ""), DIGEST_TEXT(r->task->eval_digest(r))) == 0;
    js_free(doc);
    return same;
}

static bool has_figure(const RunSummary *s, const EvalFigure *f)
{
    const char *name = SHORT_TEXT("%s %s", f->split, f->name);
    for (int k = 0; k < s->n_evals; k++)
        if (strcmp(s->evals[k].name, name) == 0) return true;
    return false;
}

int64_t result_step(const Run *r, const TrainProgress *p)
{
    return strcmp(r->c->final, "best") == 0 && p->best_step ? p->best_step : p->step;
}

/* The model that the run would publish is in its folder, undamaged. Versions without manifests published the last. */
static bool model_there(const Run *r)
{
    const char *dir = r->c->output_dir;
    int64_t step = result_step(r, &r->resume.progress);
    Manifest m = {0};
    if (!file_exists_in(dir, MODEL_WEIGHTS)) return false;
    if (!file_exists_in(dir, MANIFEST_NAME)) return step == r->resume.progress.step;
    bool read = manifest_read(dir, &m) == OK && m.step == step;
    const ManifestFile *weights = read ? manifest_find(&m, MODEL_WEIGHTS) : NULL;
    bool there = weights && manifest_verify_file(dir, weights, NULL, NULL) == OK;
    manifest_free(&m);
    return there;
}

/* A split whose first figure is there has all of them. */
bool result_there(const Run *r)
{
    RunRecord record;
    EvalFigures f = figures_of(r);
    const char *split = "";
    bool there = model_there(r) && (f.n == 0 || same_eval_data(r)) && run_record_read(r->c->output_dir, &record) == OK;
    if (there) {
        there = record.s.steps == r->resume.progress.step;
        for (int i = 0; i < f.n && there; i++) {
            if (!(f.items[i].places & FIGURE_IN_RUN) || strcmp(f.items[i].split, split) == 0) continue;
            there = has_figure(&record.s, &f.items[i]);
            split = f.items[i].split;
        }
        run_record_free(&record);
    }
    free(f.items);
    return there;
}

void result_show(const char *output_dir, int64_t step)
{
    char *path = file_join(output_dir, "eval_results.txt");
    Buf text = {0};
    log_info("this run was finished before, at step %lld; its results are in %s", (long long)step, output_dir);
    if (file_exists(path) && file_read(path, 1 << 20, &text) == OK) printf("%s", text.data ? text.data : "");
    buf_free(&text);
    free(path);
}

typedef struct {
    const Run *run;
    const char *dir;
    const ModelFile *note;
    int64_t step;
} Exported;

static Status export_asking(void *exported, SessionAsk *ask)
{
    const Exported *e = exported;
    ExportText text = run_export_text(e->run);
    text.note = e->note;
    text.step = e->step;
    return export_model(e->dir, &e->run->model, session_ask, ask, &text);
}

/* ---- the best model ---- */

#define BEST_NOTE "best.json"

Status result_keep_best(const Run *r, double metric)
{
    Buf note = {0};
    char *dir = file_join(r->c->output_dir, "best");
    buf_printf(&note, "{\"step\": %lld", (long long)r->progress.step);
    buf_member(&note, "metric", metric);
    buf_puts(&note, "}\n");
    Status status = session_asking(&r->session, export_asking,
                                   &(Exported){r, dir, &(ModelFile){BEST_NOTE, note.data, note.len}, r->progress.step});
    free(dir);
    buf_free(&note);
    return status;
}

/* Rank 0. A kill, or a course that the run left again, may have left another model in best/ than the state says. */
static Status read_best(Run *r)
{
    const TrainProgress *p = &r->progress;
    char *dir = file_join(r->c->output_dir, "best");
    Json *note = NULL;
    bool there = js_read_in(dir, BEST_NOTE, &note);
    int64_t step = there ? js_int(js_get(note, "step"), -1) : -1;
    bool same = step == p->best_step && js_real(js_get(note, "metric"), NAN) == p->best_metric;
    js_free(note);
    Status status = there ? manifest_check_model(dir) : OK;
    if (status == OK && !same)
        status = fail(E_CORRUPT, "%s: expected the model of step %lld, whose evaluation was the best, found %s", dir,
                      (long long)p->best_step, there ? SHORT_TEXT("that of step %lld", (long long)step) : "none");
    if (status == OK) status = import_weights(dir, &r->model, 0, session_fill(&r->session), NULL);
    if (status != OK)
        status =
            fail(status, "%s. The state of the last step is saved: --final last publishes its model", status_message());
    free(dir);
    return status;
}

void result_expect_best(const Run *r)
{
    char *dir = file_join(r->c->output_dir, "best");
    if (result_step(r, &r->progress) != r->progress.step && !file_exists_in(dir, BEST_NOTE))
        log_warn(
            "%s has no %s, though the evaluation of step %lld was the best: unless a later one is as good, the run "
            "cannot publish it. Put the folder back, or give --final last",
            dir, BEST_NOTE, (long long)r->progress.best_step);
    free(dir);
}

Status result_publish(Run *r)
{
    int64_t step = result_step(r, &r->progress);
    bool changed;
    if (step != r->progress.step) {
        TRY(ranks_all(r->ranks, run_first(r) ? read_best(r) : OK));
        TRY(session_share(&r->session));
        TRY(session_check_forms(&r->session, &changed)); /* those that the folder's reader chooses */
    }
    test_at("final", ranks_rank(r->ranks));
    TRY(session_asking(&r->session, export_asking, &(Exported){r, r->c->output_dir, NULL, step}));
    test_at("published", ranks_rank(r->ranks));
    return OK;
}
