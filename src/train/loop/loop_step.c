/* One step: its gradients, the update, and its record. */

#include "base/test_switch.h"
#include "train/job/task.h"
#include "train/loop/audit.h"
#include "train/loop/loop_internal.h"

static double per_epoch(const Run *r) { return (double)batches_per_epoch(r->source.count, r->c->batch_size); }

/* Finds the first tensor whose gradient is not finite. The update was skipped, so the weights are those before the
   step. */
static Status explain_not_finite(Loop *l, int64_t step)
{
    LossScaling *scaling = &l->run->session.scaling;
    *scaling = l->before; /* of the saved state */
    Status status = loop_find_bad(l);
    if (status == OK)
        status = fail(E_NUMERIC, "the gradient's norm is not finite, although every tensor is: its sum overflows. "
                                 "Lower --learning-rate");
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

static bool digests_due(const Loop *l, int64_t steps)
{
    return l->run->c->digest_steps > 0 && (l->progress->step + 1) % steps == 0;
}

static Status digest_gradients(Loop *l)
{
    l->digests = (StepDigests){.of_grads = digests_due(l, 1)};
    return l->digests.of_grads ? session_gradient_digest(&l->run->session, &l->digests.grads) : OK;
}

static Status digest_weights(Loop *l)
{
    l->digests.of_weights = digests_due(l, l->run->c->digest_steps);
    return l->digests.of_weights ? session_weights_digest(&l->run->session, &l->digests.weights) : OK;
}

/* Every rank has made the same update, so a difference is a fault of a machine. The step is counted by then: a rank
   that saves after another is lost here has its weights. */
static Status compare_digests(const Loop *l)
{
    if (!l->digests.of_weights) return OK;
    test_at_number("digest", l->progress->step, ranks_rank(l->ranks));
    return ranks_same(l->ranks, "the digest of the weights", SHORT_TEXT("%016" PRIx64, l->digests.weights));
}

static Status make_step(Loop *l, Stats *stats)
{
    Run *run = l->run;
    Session *s = &run->session;
    int64_t step = l->progress->step + 1;
    l->before = s->scaling;
    TRY(loop_gradients(l));
    TRY(digest_gradients(l));
    double start = clock_monotonic();
    snapshots_wait_copied(l->snapshots);
    if (audit_notes(l->audit, step + 1) || (session_scale_is_dynamic(s) && audit_notes(l->audit, step)))
        session_note_update(s); /* an update that is skipped makes the same step the next one */
    TRY(session_update(s, &run->setup.optimizer, step, rate_schedule_at(&run->schedule, step), stats));
    profile_range(l->profile, start, "update");
    if (stats->finite) TRY(digest_weights(l));
    bool may_skip = session_scale_is_dynamic(s) && l->before.scale > LOSS_SCALE_LEAST;
    return stats->finite || may_skip ? OK : explain_not_finite(l, step);
}

/* A fault for tests, CAIRN_TEST_FLIP="RANK STEP TENSOR TURN BIT": see ExecFlip. */
static bool find_fault(const Loop *l, ExecFlip *flip, char of[32])
{
    const char *text = test_switch("FLIP");
    long long v[4];
    if (!text || sscanf(text, "%lld %lld %31[a-z] %lld %lld", &v[0], &v[1], of, &v[2], &v[3]) != 5) return false;
    *flip = (ExecFlip){.of = of, .turn = v[2], .bit = (uint64_t)v[3]};
    return v[0] == ranks_rank(l->ranks) && v[1] == l->progress->step + 1;
}

Status loop_step(Loop *l, Stats *stats)
{
    ExecFlip fault;
    char of[32];
    bool faulty = find_fault(l, &fault, of);
    if (faulty) exec_set_flip(l->run->session.train[0], &fault);
    Status status = make_step(l, stats);
    if (faulty)
        log_debug("step %lld had %lld turns", (long long)l->progress->step + 1,
                  (long long)exec_turns(l->run->session.train[0]));
    if (faulty) exec_set_flip(l->run->session.train[0], NULL);
    return status;
}

/* The step's loss from its sums: the function whose gradient the step uses. */
static void take_losses(const Loop *l, const Stats *stats, StepRecord *r)
{
    const Head *head = &l->run->session.model->head;
    double labelled = l->weight, masked = (double)l->n_masked;
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
    const LossScaling *now = &l->run->session.scaling;
    p->batch++;
    if (!stats->finite) {
        log_info("step %lld: the gradient overflows at loss scale %.0f; the update is skipped (%lld so far), the next "
                 "step uses %.0f",
                 (long long)p->step + 1, (double)l->before.scale, (long long)now->skipped, (double)now->scale);
        return OK;
    }
    p->step++;
    p->sequences += n_seqs;
    p->tokens += n_tokens;
    p->seconds += seconds;
    measure_peak(l);
    StepRecord record = {.step = p->step,
                         .epoch = (double)p->batch / per_epoch(l->run),
                         .lr = rate_schedule_at(&l->run->schedule, p->step),
                         .grad_norm = stats->grad_norm,
                         .seq_per_s = (double)n_seqs / seconds,
                         .tokens_per_s = (double)n_tokens / seconds,
                         .peak_bytes = p->peak_bytes,
                         .wall_s = p->earlier_s + clock_monotonic() - l->run->started,
                         .trained_s = loop_trained(l),
                         .loss_scale = (double)l->before.scale,
                         .skipped = l->before.skipped,
                         .kfac = session_kfac(&l->run->session) != NULL,
                         .kfac_norm = stats->kfac_norm,
                         .kfac_set = l->run->session.kfac.set,
                         .kfac_failed = l->run->session.kfac.failed,
                         .digests = l->digests};
    if (session_works(&l->run->session)) {
        PipelineTimes times = l->run->session.times;
        record.pipeline = true;
        record.bubble = times.bubble;
        record.filled = times.filled;
        record.exposed_s = times.exposed;
        record.fill_measured = times.measured;
    }
    take_losses(l, stats, &record);
    l->record = record;
    p->last_loss = record.loss;
    p->loss_sum += record.loss;
    if (l->metrics) {
        TRY(metrics_step(l->metrics, &record));
        if (l->run->task->step_ends) l->run->task->step_ends(l->run, &record);
        progress_step(l->display, &record, n_seqs, n_tokens, seconds);
    }
    return compare_digests(l);
}
