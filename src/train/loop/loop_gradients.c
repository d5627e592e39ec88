/* The gradients of a step: the batch by its number, this rank's shares, their sums over all ranks; computed again
   where --audit finds a difference. */

#include "base/test_switch.h"
#include "train/loop/audit.h"
#include "train/loop/loop_internal.h"

static Status take_batch(Loop *l)
{
    const Run *run = l->run;
    TRY(run->source.step(run->source.self, l->progress->batch, &l->examples, l->index, &l->n_seqs));
    bool pairs = run->session.model->head.kind == HEAD_PRETRAINING; /* shards may lack labels, or some of them */
    l->n_tokens = l->n_masked = 0;
    l->weight = 0;
    for (int64_t i = 0; i < l->n_seqs; i++) {
        l->n_tokens += example_length(l->examples, l->index[i]);
        l->n_masked += example_masked(l->examples, l->index[i]);
        l->weight += pairs ? l->examples->label[l->index[i]] >= 0 : example_weight(l->examples, l->index[i]);
    }
    const Coupling *coupling = run->session.plan.input.coupling;
    if (coupling) l->weight = coupling_terms(coupling, l->n_seqs);
    return OK;
}

static Status begin(Loop *l)
{
    TRY(session_begin(&l->run->session, (uint32_t)l->progress->batch, l->weight, l->n_masked));
    return session_gather(&l->run->session, l->progress->step + 1, l->n_tokens);
}

static void vote(void *self) { loop_vote(self); }

static void note_range(void *self, int64_t m, double from)
{
    profile_range(((Loop *)self)->profile, from, "micro-batch %lld", (long long)m);
}

/* A group's shares; `sums`: with the sums over ranks. */
static Status compute(Loop *l, int group, bool sums)
{
    TRY(begin(l));
    SessionStep step = loop_take_shares(l, group);
    step.sums = sums;
    step.vote = sums ? vote : NULL;
    step.ran = note_range;
    return session_run(&l->run->session, &step);
}

Status loop_find_bad(Loop *l)
{
    TRY(begin(l));
    SessionStep step = loop_take_shares(l, l->shares.group);
    return session_find_bad(&l->run->session, &step);
}

/* ---- audited ---- */

/* The first difference of a step's computations stays. */
static Status add_recomputed(const Loop *l, AuditFinding *f)
{
    AuditFound found;
    int chunk;
    if (f->recomputed.rows > 0) return OK;
    TRY(session_audit_found(&l->run->session, &found, &chunk));
    f->recomputed = found;
    f->chunk = chunk;
    return OK;
}

/* The partner's (`other`): that of its group, which all ranks of this group compute. */
static Status compute_share(Loop *l, bool other, AuditFinding *f)
{
    int group, groups;
    session_group(&l->run->session, &group, &groups);
    TRY(compute(l, other ? (int)f->partner % groups : group, false));
    TRY(add_recomputed(l, f));
    audit_take_sent(l->audit, other);
    *(other ? &f->other_vectors : &f->own_vectors) = l->run->session.vectors;
    return session_own_digest(&l->run->session, other ? &f->other : &f->own);
}

/* A fault for tests, CAIRN_TEST_FLIP="RANK STEP ATTEMPTS INSTR OUT BIT": this rank's own computation of that step has
   it in so many attempts. Instrs of a place's further chunks have the next numbers. See also loop_step.c. */
static bool find_fault(const Loop *l, int attempt, ExecFlip *flip)
{
    const char *text = test_switch("FLIP");
    long long v[6];
    if (!text || sscanf(text, "%lld %lld %lld %lld %lld %lld", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5]) != 6)
        return false;
    *flip = (ExecFlip){.instr = (InstrId)v[3], .out = (int)v[4], .bit = (uint64_t)v[5]};
    return v[0] == ranks_rank(l->ranks) && v[1] == l->progress->step + 1 && attempt < v[2];
}

static void set_fault(const Loop *l, ExecFlip *flip)
{
    const Session *s = &l->run->session;
    for (int k = 0; flip && k < session_chunks(s); flip->instr -= s->plan.chunk[k++].train.n_instrs)
        if (flip->instr < s->plan.chunk[k].train.n_instrs) {
            exec_set_flip(s->train[k], flip);
            return;
        }
}

/* The partner's share first, because the own gradients are summed. The own copies are made again in between: were they
   damaged before, the two computations would agree. */
static Status compute_twice(Loop *l, int attempt, ExecFlip *flip, AuditFinding *f)
{
    Session *s = &l->run->session;
    f->partner = audit_partner(l->audit, attempt);
    loop_vote(l);
    TRY(compute_share(l, true, f));
    TRY(session_pack(s));
    set_fault(l, flip);
    TRY(compute_share(l, false, f));
    TRY(exec_turn(s->train[0]));
    TRY(session_sum(s));
    return session_noted_digest(s, &f->weights);
}

static Status compute_attempt(Loop *l, int attempt, ExecFlip *flip, AuditFinding *f)
{
    Session *s = &l->run->session;
    if (attempt > 0) TRY(session_pack(s));
    if (audit_twice(l->audit, l->progress->step + 1)) {
        TRY(compute_twice(l, attempt, flip, f));
    } else {
        set_fault(l, flip);
        TRY(compute(l, l->shares.group, true));
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
    for (int k = 0; faulty && k < session_chunks(&l->run->session); k++) exec_set_flip(l->run->session.train[k], NULL);
    TRY(status);
    status = audit_judge(l->audit, l->progress->step + 1, attempt, &f, again);
    l->excluded = status == E_PEER && *again;
    return status;
}

Status loop_gradients(Loop *l)
{
    TRY(take_batch(l));
    if (!l->audit) return compute(l, l->shares.group, true);
    bool again = true;
    for (int attempt = 0; again; attempt++) TRY(compute_audited(l, attempt, &again));
    return OK;
}
