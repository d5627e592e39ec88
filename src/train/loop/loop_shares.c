/* The shares of a step's sequences that this rank computes, in micro-batches; all ranks of a group have the same. */
#include "train/loop/loop_internal.h"

void loop_open_shares(Loop *l)
{
    const Run *run = l->run;
    const PlanInput *in = &run->session.plan.input;
    LoopShares *s = &l->shares;
    int groups;
    session_group(&run->session, &s->group, &groups);
    s->n = in->place->grid.directions * (in->virtual.each > 0 ? (int)in->virtual.each : 1);
    s->all = s->n * groups;
    s->most = (run->c->batch_size + s->all - 1) / s->all;
    size_t sequences = (size_t)(s->n * s->most);
    if (in->coupling && in->coupling->loss == COUPLE_COSINE)
        s->scores = mem_array((size_t)run->c->batch_size, sizeof *s->scores);
    s->each = mem_array((size_t)s->n, sizeof *s->each);
    s->places = mem_array((size_t)run->c->batch_size, sizeof *s->places);
    s->order = mem_array(sequences, sizeof *s->order);
    s->ranges = mem_array(sequences, sizeof *s->ranges);
    s->rows = mem_array(sequences, sizeof *s->rows);
}

void loop_close_shares(LoopShares *s) { MEM_FREE(s->each, s->places, s->order, s->ranges, s->rows, s->scores); }

static int64_t split(const Loop *l, const int64_t *places, int64_t n, int64_t *order, MicroRange *ranges)
{
    const RunPlan *plan = &l->run->session.plan;
    int64_t padded = run_padded_length(l->run);
    return plan->grain.tokens
               ? micro_split_grains(l->examples, l->index, places, n, &plan->micro, &plan->grain, padded, order, ranges)
               : micro_split(l->examples, l->index, places, n, &plan->micro, padded, order, ranges);
}

/* The rows of a micro-batch that micro_fill makes. */
static RowCounts micro_rows(const Loop *l, const int64_t *places, int64_t n)
{
    const Run *run = l->run;
    int64_t tokens = 0, masked = 0, padded = run_padded_length(run);
    for (int64_t i = 0; i < n; i++) {
        int64_t example = l->index[places[i]];
        tokens += padded ? padded : example_length(l->examples, example);
        masked += run->session.plan.micro.masked ? example_masked(l->examples, example) : 0;
    }
    return exec_rows(run->session.train[0], tokens, n, masked);
}

static const MicroBatch *fill(void *self, int share, int64_t m)
{
    Loop *l = self;
    const LoopShares *s = &l->shares;
    const MicroRange *r = &s->ranges[share * s->most + m];
    micro_fill(&l->micro, l->examples, l->index, s->order + share * s->most + r->first, r->count,
               run_padded_length(l->run), l->run->session.model->config.pad_token_id);
    return &l->micro;
}

/* Scores of a coupled step's rows of data, which are its first sequences. */
static void take_rows(const Loop *l, SessionStep *step)
{
    const Coupling *c = l->run->session.plan.input.coupling;
    if (!c) return;
    step->data_rows = l->n_seqs / c->texts;
    if (!l->shares.scores) return;
    for (int64_t i = 0; i < step->data_rows; i++) l->shares.scores[i] = l->examples->score[l->index[i]];
    step->scores = l->shares.scores;
}

SessionStep loop_take_shares(Loop *l, int group)
{
    LoopShares *s = &l->shares;
    SessionStep step = {.shares = s->each, .n_shares = s->n, .first = group * s->n, .fill = fill, .self = l};
    take_rows(l, &step);
    for (int k = 0; k < s->n; k++) {
        int64_t n = l->n_seqs, *order = s->order + k * s->most;
        MicroRange *ranges = s->ranges + k * s->most;
        RowCounts *rows = s->rows + k * s->most;
        if (s->all > 1)
            n = rank_share(l->examples, l->index, n, run_padded_length(l->run), step.first + k, s->all, s->places);
        s->each[k] = (SessionShare){split(l, s->all > 1 ? s->places : NULL, n, order, ranges), rows};
        for (int64_t m = 0; m < s->each[k].micros; m++)
            rows[m] = micro_rows(l, order + ranges[m].first, ranges[m].count);
    }
    return step;
}
