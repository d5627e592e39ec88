#include "train/result.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void result_summary(RunSummary *s, const char *task, const Session *session, const TrainProgress *progress,
                    double **series)
{
    const RunPlan *plan = &session->plan;
    const Backend *b = session->options.backend;
    *s = (RunSummary){.task = task,
                      .recompute = plan->policy,
                      .precision = backend_precision(b, plan->input.compute),
                      .backend = b->describe,
                      .threads = b->threads,
                      .steps = progress->step,
                      .final_loss = progress->last_loss,
                      .planned_peak_bytes = run_plan_peak(plan),
                      .measured_peak_bytes = progress->peak_bytes,
                      .save_stall_s = progress->save_stall_s};
    if (progress->seconds > 0) {
        s->seq_per_s = (double)progress->sequences / progress->seconds;
        s->tokens_per_s = (double)progress->tokens / progress->seconds;
    }
    if (session->train) plan_memory_series(&plan->train, series, &s->n_memory);
    s->memory_series = *series;
    for (int i = 0; i < N_REGIONS; i++)
        if (plan->bytes[i]) summary_add_region(s, region_name((Region)i), plan->bytes[i]);
}

void result_keep_rates(const char *output_dir, RunSummary *s)
{
    RunRecord before;
    char *path = file_join(output_dir, "run.json");
    bool there = file_exists(path) && run_record_read(output_dir, &before) == OK;
    free(path);
    if (!there) return;
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

bool result_there(const char *output_dir, int64_t step, char *const *names, int n_names)
{
    RunRecord record;
    char *model = file_join(output_dir, "model.safetensors"), *summary = file_join(output_dir, "run.json");
    bool there = file_exists(model) && file_exists(summary) && run_record_read(output_dir, &record) == OK;
    if (there) {
        there = record.s.steps == step;
        for (int i = 0; i < n_names && there; i++) {
            there = false;
            for (int k = 0; k < record.s.n_evals && !there; k++) there = strcmp(record.s.evals[k].name, names[i]) == 0;
        }
        run_record_free(&record);
    }
    free(model);
    free(summary);
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

Status result_export(const char *dir, const Model *model, const Session *session, const ExportText *text)
{
    const float *weights;
    TRY(session_read(session, STATE_WEIGHTS, NULL, &weights));
    Status status = export_model(dir, model, weights, text);
    session_read_done(session, weights);
    return status;
}

Status result_keep_best(const char *output_dir, const Model *model, const Session *session, const ExportText *text,
                        int64_t step, double metric)
{
    Status status = OK;
    Buf note = {0};
    char *dir = file_join(output_dir, "best"), *note_path = file_join(dir, "best.json");
    buf_printf(&note, "{\"step\": %lld, \"metric\": ", (long long)step);
    buf_double(&note, metric);
    buf_puts(&note, "}\n");
    TRY_DONE(result_export(dir, model, session, text));
    TRY_DONE(file_write_durable(note_path, note.data, note.len));
done:
    buf_free(&note);
    free(dir);
    free(note_path);
    return status;
}
