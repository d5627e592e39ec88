/* The gradients of a step: the batch by its number, this rank's micro-batches, their sums over all ranks; computed
   again where --audit finds a difference. */
#include <stdio.h>

#include "base/test_switch.h"
#include "train/loop/audit.h"
#include "train/loop/loop_internal.h"

void loop_fill(Loop *l, int64_t m)
{
    const MicroRange *r = &l->ranges[m];
    const Run *run = l->run;
    micro_fill(&l->micro, l->examples, l->index, l->order + r->first, r->count, run_padded_length(run),
               run->session.model->config.pad_token_id);
}

int64_t loop_shares(const Loop *l)
{
    const PlanInput *in = &l->run->session.plan.input;
    return in->virtual_ranks ? in->virtual_each : 1;
}

int64_t loop_split(const Loop *l, const int64_t *places, int64_t n, int64_t *order, MicroRange *ranges)
{
    const RunPlan *plan = &l->run->session.plan;
    int64_t padded = run_padded_length(l->run);
    return plan->grain.tokens
               ? micro_split_grains(l->examples, l->index, places, n, &plan->micro, &plan->grain, padded, order, ranges)
               : micro_split(l->examples, l->index, places, n, &plan->micro, padded, order, ranges);
}

void loop_take_share(Loop *l, int rank, int64_t k)
{
    const Run *run = l->run;
    int64_t padded = run_padded_length(run), each = loop_shares(l), all = each * ranks_size(l->ranks);
    const int64_t *places = all > 1 ? l->share : NULL;
    l->n_share = l->n_seqs;
    if (places)
        l->n_share = rank_share(l->examples, l->index, l->n_seqs, padded, (int)(rank * each + k), (int)all, l->share);
    l->n_micros = loop_split(l, places, l->n_share, l->order, l->ranges);
}

static Status take_batch(Loop *l)
{
    const Run *run = l->run;
    TRY(run->source.step(run->source.self, l->progress->batch, &l->examples, l->index, &l->n_seqs));
    bool pairs = run->session.model->head.kind == HEAD_PRETRAINING; /* shards may lack labels, or some of them */
    l->n_tokens = l->n_masked = l->n_labelled = 0;
    for (int64_t i = 0; i < l->n_seqs; i++) {
        l->n_tokens += example_length(l->examples, l->index[i]);
        l->n_masked += example_masked(l->examples, l->index[i]);
        l->n_labelled += !pairs || l->examples->label[l->index[i]] >= 0;
    }
    return OK;
}

Status loop_begin(Loop *l)
{
    TRY(session_begin(&l->run->session, (uint32_t)l->progress->batch, l->n_labelled, l->n_masked));
    return session_gather(&l->run->session, l->progress->step + 1, l->n_tokens);
}

/* ---- computed once ---- */

/* Micro-batches first … end of the share. */
static Status run_micros(Loop *l, int64_t end)
{
    for (int64_t m = 0; m < end; m++) {
        double start = clock_monotonic();
        loop_fill(l, m);
        TRY(session_micro(&l->run->session, &l->micro));
        profile_range(l->profile, start, "micro-batch %lld", (long long)m);
    }
    return OK;
}

/* A rank's shares, one after another, but for the last micro-batches of the last one. */
static Status run_shares(Loop *l, int rank, int64_t without)
{
    int64_t n = loop_shares(l);
    TRY(loop_begin(l));
    session_take_shares(&l->run->session, rank);
    for (int64_t k = 0; k < n; k++) {
        if (k > 0) TRY(session_next(&l->run->session));
        loop_take_share(l, rank, k);
        TRY(run_micros(l, l->n_micros - (k + 1 == n ? without : 0)));
    }
    return OK;
}

/* The sums travel while the last micro-batch runs. */
static Status compute_once(Loop *l)
{
    TRY(run_shares(l, ranks_rank(l->ranks), 1));
    double start = clock_monotonic();
    if (l->n_micros > 0) loop_fill(l, l->n_micros - 1);
    loop_vote(l);
    TRY(session_last(&l->run->session, l->n_micros > 0 ? &l->micro : NULL));
    profile_range(l->profile, start, "micro-batch %lld", (long long)(l->n_micros - 1));
    return OK;
}

/* ---- audited ---- */

/* The first difference of a step's computations stays. */
static Status add_recomputed(const Loop *l, AuditFinding *f)
{
    AuditFound found;
    TRY(session_audit_found(&l->run->session, &found));
    if (f->recomputed.rows == 0) f->recomputed = found;
    return OK;
}

static Status compute_share(Loop *l, int rank, AuditFinding *f, uint64_t *digest)
{
    TRY(run_shares(l, rank, 0));
    TRY(session_complete(&l->run->session));
    TRY(add_recomputed(l, f));
    return session_own_digest(&l->run->session, digest);
}

/* A fault for tests, CAIRN_TEST_FLIP="RANK STEP ATTEMPTS INSTR OUT BIT": this rank's own computation of that step has
   it in so many attempts. See also loop_step.c. */
static bool find_fault(const Loop *l, int attempt, ExecFlip *flip)
{
    const char *text = test_switch("FLIP");
    long long v[6];
    if (!text || sscanf(text, "%lld %lld %lld %lld %lld %lld", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5]) != 6)
        return false;
    *flip = (ExecFlip){.instr = (InstrId)v[3], .out = (int)v[4], .bit = (uint64_t)v[5]};
    return v[0] == ranks_rank(l->ranks) && v[1] == l->progress->step + 1 && attempt < v[2];
}

/* The partner's share first, because the own gradients are summed. The own copies are made again in between: were they
   damaged before, the two computations would agree. */
static Status compute_twice(Loop *l, int attempt, const ExecFlip *flip, AuditFinding *f)
{
    Session *s = &l->run->session;
    f->partner = audit_partner(l->audit, attempt);
    TRY(compute_share(l, (int)f->partner, f, &f->other));
    TRY(session_pack(s));
    if (flip) exec_set_flip(s->train[0], flip);
    TRY(compute_share(l, ranks_rank(l->ranks), f, &f->own));
    TRY(exec_turn(s->train[0]));
    loop_vote(l);
    if (l->ranks) TRY(session_last(s, NULL));
    return session_noted_digest(s, &f->weights);
}

static Status compute_attempt(Loop *l, int attempt, const ExecFlip *flip, AuditFinding *f)
{
    Session *s = &l->run->session;
    if (attempt > 0) TRY(session_pack(s));
    if (audit_twice(l->audit, l->progress->step + 1)) {
        TRY(compute_twice(l, attempt, flip, f));
    } else {
        if (flip) exec_set_flip(s->train[0], flip);
        TRY(compute_once(l));
        TRY(add_recomputed(l, f));
        if (attempt == 0 && f->recomputed.rows == 0) return OK;
    }
    return session_changed(s, &f->changed);
}

static Status compute_audited(Loop *l, int attempt, bool *again)
{
    ExecFlip fault;
    AuditFinding f = {.partner = -1};
    bool faulty = find_fault(l, attempt, &fault);
    Status status = compute_attempt(l, attempt, faulty ? &fault : NULL, &f);
    if (faulty) exec_set_flip(l->run->session.train[0], NULL);
    TRY(status);
    status = audit_judge(l->audit, l->progress->step + 1, attempt, &f, again);
    l->excluded = status == E_PEER && *again;
    return status;
}

Status loop_gradients(Loop *l)
{
    TRY(take_batch(l));
    if (l->pipeline) return loop_pipeline_compute(l);
    if (!l->audit) return compute_once(l);
    bool again = true;
    for (int attempt = 0; again; attempt++) TRY(compute_audited(l, attempt, &again));
    return OK;
}
