/* One step: the batch by its number, its micro-batches, the update, and its record. */
#include <math.h>

#include "train/loop_internal.h"

static double per_epoch(const Run *r) { return (double)batches_per_epoch(r->source.count, r->c->batch_size); }

static void fill(Loop *l, int64_t m)
{
    const MicroRange *r = &l->ranges[m];
    const Run *run = l->run;
    micro_fill(&l->micro, l->examples, l->index, l->order + r->first, r->count, run_padded_length(run),
               run->session.model->config.pad_token_id);
}

/* Finds the first tensor whose gradient is not finite. The update was skipped, so the weights are those before the
   step. Each micro-batch starts from a zero gradient, which keeps its findings separate. With several ranks each
   searches its own micro-batches; the message is that of the lowest rank. */
static Status find_own_bad(Loop *l)
{
    for (int64_t m = 0; m < l->n_micros; m++) {
        TRY(session_begin(&l->run->session, (uint32_t)l->progress->batch, l->n_labelled, l->n_masked));
        fill(l, m);
        Status status = session_find_bad(&l->run->session, &l->micro);
        if (status != OK) return status;
    }
    return OK;
}

static Status find_bad(Loop *l)
{
    TRY(ranks_all(l->ranks, find_own_bad(l)));
    return fail(E_NUMERIC, "the gradient's norm is not finite, although every tensor is: its sum overflows. "
                           "Lower --learning-rate");
}

static Status explain_not_finite(Loop *l, int64_t step)
{
    LossScaling *scaling = &l->run->session.scaling;
    *scaling = l->before; /* of the saved state */
    Status status = find_bad(l);
    if (session_scale_is_dynamic(&l->run->session))
        return status_context(status,
                              "step %lld: the gradient is not finite even at loss scale %.0f, the minimum (%lld "
                              "updates were skipped since training began)",
                              (long long)step, (double)scaling->scale, (long long)scaling->skipped);
    if (scaling->scale > 0)
        return status_context(status, "step %lld, at the fixed loss scale %.0f (--loss-scale dynamic would lower it)",
                              (long long)step, (double)scaling->scale);
    return status_context(status, "step %lld", (long long)step);
}

/* The batch of this number and its micro-batches. */
static Status take_batch(Loop *l)
{
    const Run *run = l->run;
    const MicroCapacity *cap = &run->session.plan.micro;
    TRY(run->source.step(run->source.self, l->progress->batch, &l->examples, l->index, &l->n_seqs));
    bool pairs = run->session.model->head.kind == HEAD_PRETRAINING; /* shards may lack labels, or some of them */
    l->n_tokens = l->n_masked = l->n_labelled = 0;
    for (int64_t i = 0; i < l->n_seqs; i++) {
        l->n_tokens += example_length(l->examples, l->index[i]);
        l->n_masked += example_masked(l->examples, l->index[i]);
        l->n_labelled += !pairs || l->examples->label[l->index[i]] >= 0;
    }
    l->n_share = l->n_seqs;
    if (l->ranks)
        l->n_share = rank_share(l->examples, l->index, l->n_seqs, run_padded_length(run), ranks_rank(l->ranks),
                                ranks_size(l->ranks), l->share);
    l->n_micros = micro_split_some(l->examples, l->index, l->ranks ? l->share : NULL, l->n_share, cap,
                                   run_padded_length(run), l->order, l->ranges);
    return OK;
}

Status loop_step(Loop *l, Stats *stats)
{
    Run *run = l->run;
    Session *s = &run->session;
    int64_t step = l->progress->step + 1;
    l->before = s->scaling;
    TRY(take_batch(l));
    TRY(session_begin(s, (uint32_t)l->progress->batch, l->n_labelled, l->n_masked));
    double start = clock_monotonic();
    for (int64_t m = 0; m < l->n_micros - 1; m++, start = clock_monotonic()) {
        fill(l, m);
        TRY(session_micro(s, &l->micro));
        profile_range(l->profile, start, "micro-batch %lld", (long long)m);
    }
    if (l->n_micros > 0) fill(l, l->n_micros - 1);
    loop_vote(l);
    TRY(session_last(s, l->n_micros > 0 ? &l->micro : NULL));
    profile_range(l->profile, start, "micro-batch %lld", (long long)(l->n_micros - 1));
    start = clock_monotonic();
    snapshots_settle(l->snapshots);
    TRY(session_update(s, &run->setup.optimizer, step, schedule_rate(&run->schedule, step), stats));
    profile_range(l->profile, start, "update");
    bool goes_on = session_scale_is_dynamic(s) && l->before.scale > LOSS_SCALE_LEAST;
    return stats->finite || goes_on ? OK : explain_not_finite(l, step);
}

/* The step's loss from its sums: the function whose gradient the step uses. */
static void take_losses(const Loop *l, const Stats *stats, StepRecord *r)
{
    const Head *head = &l->run->session.model->head;
    double labelled = (double)l->n_labelled, masked = (double)l->n_masked;
    r->pretraining = head->kind == HEAD_PRETRAINING;
    if (!r->pretraining) {
        r->loss = stats->loss[0] / labelled;
        return;
    }
    r->mlm_loss = masked > 0 ? stats->loss[0] / masked : 0;
    r->mlm_accuracy = masked > 0 ? (double)stats->correct[0] / masked : NAN;
    r->nsp_loss = head->labels && labelled > 0 ? stats->loss[1] / labelled : NAN;
    r->loss = r->mlm_loss + (isnan(r->nsp_loss) ? 0 : r->nsp_loss);
}

/* Querying a device is a driver call. So query every step at first, while libraries still allocate lazily, and every
   100 steps later. */
static void measure_peak(const Loop *l)
{
    TrainProgress *p = l->progress;
    const Session *s = &l->run->session;
    if (s->options.backend->device && p->step - l->first_step > 4 && p->step % 100 != 0) return;
    size_t used = session_memory_used(s);
    if (used > p->peak_bytes) p->peak_bytes = used;
}

Status loop_record(Loop *l, const Stats *stats, double seconds)
{
    int64_t n_seqs = l->n_seqs, n_tokens = l->n_tokens;
    TrainProgress *p = l->progress;
    p->step++;
    p->batch++;
    p->sequences += n_seqs;
    p->tokens += n_tokens;
    p->seconds += seconds;
    measure_peak(l);
    StepRecord record = {.step = p->step,
                         .epoch = (double)p->batch / per_epoch(l->run),
                         .lr = schedule_rate(&l->run->schedule, p->step),
                         .grad_norm = stats->grad_norm,
                         .seq_per_s = (double)n_seqs / seconds,
                         .tokens_per_s = (double)n_tokens / seconds,
                         .peak_bytes = p->peak_bytes,
                         .wall_s = clock_monotonic() - l->run->started,
                         .loss_scale = (double)l->before.scale,
                         .skipped = l->before.skipped};
    take_losses(l, stats, &record);
    l->record = record;
    p->last_loss = record.loss;
    p->loss_sum += record.loss;
    if (!ranks_first(l->ranks)) return OK;
    TRY(metrics_step(l->metrics, &record));
    progress_step(l->display, &record, n_seqs, n_tokens, seconds);
    return OK;
}

void loop_record_skip(Loop *l)
{
    const LossScaling *now = &l->run->session.scaling;
    l->progress->batch++;
    log_info("step %lld: the gradient overflows at loss scale %.0f; the update is skipped (%lld so far), the next step "
             "uses %.0f",
             (long long)l->progress->step + 1, (double)l->before.scale, (long long)now->skipped, (double)now->scale);
}
