#include "train/job/evaluation.h"

#include <stdio.h>

#include "train/ranks/signals.h"

void evaluation_init(Evaluation *v, const Run *r, int64_t count)
{
    size_t n = (size_t)r->c->eval_batch_size;
    *v = (Evaluation){.run = r, .count = count};
    if (run_first(r)) stage_progress_open(&v->progress);
    v->order = mem_array(n, sizeof *v->order);
    v->ranges = mem_array(n, sizeof *v->ranges);
    micro_batch_init(&v->batch, r->session.plan.eval_micro);
}

void evaluation_free(Evaluation *v)
{
    stage_progress_close(&v->progress);
    micro_batch_free(&v->batch);
    MEM_FREE(v->order, v->ranges);
}

static void show(Evaluation *v)
{
    char what[96];
    if (!run_first(v->run) || !stage_progress_due(&v->progress)) return;
    snprintf(what, sizeof what, "evaluating: %lld of %lld examples", (long long)v->done, (long long)v->count);
    stage_progress_show(&v->progress, (double)v->done / (double)v->count, what);
}

static Status stopped(void) { return fail(E_STOPPED, "stopped in evaluation"); }

Status evaluation_batch(Evaluation *v, const Examples *e, const int64_t *index, int64_t n, EvaluationMicro micro,
                        void *context)
{
    const Run *r = v->run;
    int64_t padded = run_padded_length(r);
    bool stop = *signals_stop() || ranks_hurry(r->ranks);
    TRY(session_evaluation_stop(&r->session, &stop)); /* the places of a pipeline end together */
    if (stop) return stopped();
    int64_t micros = micro_split(e, index, NULL, n, &r->session.plan.eval_micro, padded, v->order, v->ranges);
    for (int64_t m = 0; m < micros; m++) {
        if (!r->session.link && (*signals_stop() || ranks_hurry(r->ranks))) return stopped();
        micro_fill(&v->batch, e, index, v->order + v->ranges[m].first, v->ranges[m].count, padded,
                   r->model.config.pad_token_id);
        TRY(micro(context, &v->batch, m));
        v->done += v->ranges[m].count;
        show(v);
    }
    return OK;
}
