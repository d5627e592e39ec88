/* The tiny classifier of the golden files with dropout, its first batch, and a run of it on ref. */
#pragma once

#include "model/harness.h"

typedef struct {
    Golden g;
    GoldenBatch batch;
    GoldenRun run;
} TinyRun;

/* `change` (may be NULL) changes the backend after it is opened. */
static inline void tiny_run_open(TinyRun *t, void (*change)(Backend *), ExecOptions exec)
{
    RunOptions o = {.backend = "ref",
                    .compute = F32,
                    .optimizer = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f},
                    .exec = exec,
                    .change = change};
    golden_open(&t->g, "tiny_cls");
    t->g.model.config.hidden_dropout = t->g.model.config.attention_dropout = 0.1f;
    golden_batch(&t->g, 0, &t->batch);
    run_open(&t->run, &t->g, &o);
}

static inline void tiny_run_step(TinyRun *t)
{
    GoldenRun *r = &t->run;
    r->ctl.learning_rate = 1e-3f;
    run_begin(r, t->batch.n_seqs, 0);
    assert_ok(run_micro(r, &t->batch));
    assert_ok(exec_run(r->exec, r->plan.update, &r->plan.capacity));
}

static inline void tiny_run_close(TinyRun *t)
{
    run_close(&t->run);
    golden_close(&t->g);
}
