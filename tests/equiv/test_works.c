/* Works in slots: every schedule, all its places in one process with boundaries handed over, makes the gradients,
   losses and counts of a plain run to the last bit; with memory that is full of NaN before the first work, and with
   --poison, which finds a tensor that dies too early. */
#include "equiv/stages.h"

/* ---- a pipeline ---- */

typedef struct {
    void *data; /* NULL: not there */
    size_t bytes;
} Letter;

typedef struct {
    Bench *w;
    Schedule schedule;
    Part part[MOST_STAGES][2];                      /* (stages, directions) */
    Letter letters[2][2][MOST_STAGES][MOST_MICROS]; /* (ways, directions, receiving stage, micro-batch) */
    RowCounts rows[2][MOST_STAGES][MOST_MICROS];
    int stage, direction, micro; /* of the work that runs */
} Pipe;

static int directions(const Pipe *p) { return p->schedule.shape.kind == PIPELINE_CHIMERA ? 2 : 1; }

static Status pass(void *self, bool send, bool forward, void *data, size_t bytes)
{
    Pipe *p = self;
    int to = send ? p->stage + (forward ? 1 : -1) : p->stage;
    Letter *l = &p->letters[forward][p->direction][to][p->micro];
    assert_true((l->data != NULL) == !send);
    if (send) {
        *l = (Letter){mem_alloc(bytes), bytes};
        memcpy(l->data, data, bytes);
    } else {
        assert_int_equal(l->bytes, bytes);
        memcpy(data, l->data, bytes);
        free(l->data);
        *l = (Letter){0};
    }
    return OK;
}

static bool can_run(const Pipe *p, int stage, int direction, const Work *w)
{
    bool forward = w->kind == WORK_FORWARD;
    if (w->kind == WORK_WEIGHT || stage == (forward ? 0 : pipeline_stages(&p->schedule.shape) - 1)) return true;
    return p->letters[forward][direction][stage][w->micro].data != NULL;
}

/* The micro-batch's number in the step: chimera's directions have every other one. */
static int number(const Pipe *p, const Work *w)
{
    return w->micro * directions(p) + (directions(p) == 2 ? w->chunk : 0);
}

static void run_work(Pipe *p, int place, const Work *w)
{
    const ExecLinks links = {pass, p};
    p->direction = directions(p) == 2 ? w->chunk : 0;
    p->stage = pipeline_stage(&p->schedule.shape, place, w->chunk);
    p->micro = w->micro;
    Part *part = &p->part[p->stage][p->direction];
    RowCounts *rows = &p->rows[p->direction][p->stage][w->micro];
    if (w->kind == WORK_FORWARD) assert_ok(send_micro(part, p->w, &p->w->micro[number(p, w)], w->slot, rows));
    assert_ok(exec_run_work(part->exec, w->kind, w->slot, rows, &links, false));
}

/* Places take turns, each going as far as its boundaries allow; `turn` decides who begins. */
static void run_works(Pipe *p, int turn)
{
    const Schedule *s = &p->schedule;
    int next[MOST_STAGES], left = s->first[s->shape.places];
    for (int place = 0; place < s->shape.places; place++) next[place] = s->first[place];
    for (int before = left + 1; left > 0;) {
        assert_true(left < before);
        before = left;
        for (int k = 0; k < s->shape.places; k++) {
            int place = (k + turn) % s->shape.places;
            while (next[place] < s->first[place + 1]) {
                const Work *w = &s->works[next[place]];
                int direction = directions(p) == 2 ? w->chunk : 0;
                if (!can_run(p, pipeline_stage(&s->shape, place, w->chunk), direction, w)) break;
                run_work(p, place, w);
                next[place]++;
                left--;
            }
        }
    }
}

static void check_gradients(const Pipe *p, int direction, const Part *plain)
{
    const ParamTable *all = &plain->model.params;
    double *sum = mem_array((size_t)all->size, sizeof *sum);
    int *holders = mem_array((size_t)all->count, sizeof *holders);
    for (int s = 0; s < pipeline_stages(&p->schedule.shape); s++) {
        const Part *part = &p->part[s][direction];
        for (int i = 0; i < part->model.params.count; i++) {
            const Param *own = &part->model.params.params[i];
            int at = params_find(all, own->name);
            const float *x = grads(part) + own->offset, *want = grads(plain) + all->params[at].offset;
            bool tied = strstr(own->name, "word_embeddings") && plain->model.head.kind == HEAD_PRETRAINING;
            holders[at]++;
            for (int64_t k = 0; k < param_held(own); k++) sum[all->params[at].offset + k] += (double)x[k];
            if (!tied && memcmp(x, want, (size_t)param_held(own) * sizeof *x) != 0)
                fail_msg("%s with %d stages and %d micro-batches, recompute %s: the gradient of %s differs",
                         pipeline_name(p->schedule.shape.kind), pipeline_stages(&p->schedule.shape),
                         p->schedule.shape.micros, p->w->s->policy, own->name);
        }
    }
    for (int i = 0; i < all->count; i++) { /* the word embedding's two gradients make one sum, in another order */
        assert_true(holders[i] >= 1);
        for (int64_t k = all->params[i].offset; k < all->params[i].offset + param_held(&all->params[i]); k++)
            assert_true(fabs(sum[k] - (double)grads(plain)[k]) <= 1e-6);
    }
    Stats got, want;
    const Part *last = &p->part[pipeline_stages(&p->schedule.shape) - 1][direction];
    assert_ok(exec_download(last->exec, last->t.stats, &got, sizeof got));
    assert_ok(exec_download(plain->exec, plain->t.stats, &want, sizeof want));
    assert_memory_equal(got.loss, want.loss, sizeof got.loss);
    assert_memory_equal(got.correct, want.correct, sizeof got.correct);
    free(sum);
    free(holders);
}

static void check_schedule(Bench *w, const Pipeline *shape, const int *layers)
{
    Pipe p = {.w = w};
    schedule_make(shape, &p.schedule);
    assert_ok(schedule_verify(&p.schedule));
    int stages = pipeline_stages(shape), first = 0;
    for (int s = 0; s < stages; s++) {
        Stage stage = {first, layers[s]};
        first += layers[s];
        for (int direction = 0; direction < directions(&p); direction++) {
            int place, chunk, slots[N_SLOTS];
            pipeline_home(shape, s, direction, &place, &chunk);
            for (int k = 0; k < N_SLOTS; k++) slots[k] = schedule_slots(&p.schedule, place, chunk, (SlotKind)k);
            part_open(&p.part[s][direction], w, &stage, slots, pipeline_splits_backward(shape->kind));
        }
    }
    run_works(&p, shape->micros);
    for (int direction = 0; direction < directions(&p); direction++) {
        Part plain;
        run_plain(&plain, w, direction, directions(&p), shape->micros);
        check_gradients(&p, direction, &plain);
        part_close(&plain);
        for (int s = 0; s < stages; s++) part_close(&p.part[s][direction]);
    }
    schedule_free(&p.schedule);
}

static void check_all(const Setting *s)
{
    static const struct {
        Pipeline shape;
        int layers[MOST_STAGES];
    } shapes[] = {
        {{PIPELINE_GPIPE, 1, 1, 4}, {4}},          {{PIPELINE_GPIPE, 2, 1, 5}, {3, 1}},
        {{PIPELINE_GPIPE, 1, 4, 3}, {1, 1, 1, 1}}, {{PIPELINE_1F1B, 4, 1, 9}, {1, 1, 1, 1}},
        {{PIPELINE_1F1B, 3, 1, 2}, {1, 2, 1}},     {{PIPELINE_INTERLEAVED, 2, 2, 5}, {1, 1, 1, 1}},
        {{PIPELINE_CHIMERA, 2, 2, 7}, {2, 2}},     {{PIPELINE_CHIMERA, 4, 2, 8}, {1, 1, 1, 1}},
        {{PIPELINE_ZB_H1, 3, 1, 6}, {1, 1, 2}},    {{PIPELINE_ZB_H1, 4, 1, 1}, {1, 1, 1, 1}},
        {{PIPELINE_ZB_V, 2, 2, 7}, {1, 1, 1, 1}},
    };
    Bench w;
    bench_open(&w, s);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_schedule(&w, &shapes[i].shape, shapes[i].layers);
    bench_close(&w);
}

static void test_ref(void **state)
{
    (void)state;
    check_all(&(Setting){"ref", "none", HEAD_CLASSIFIER, NORM_FORM_Y, true});
    check_all(&(Setting){"ref", "selective", HEAD_PRETRAINING, NORM_FORM_XHAT, false});
}

static void test_cpu(void **state)
{
    static const char *const policies[] = {
        "none", "lean",    "ffn",     "selective",
        "full", "every:2", "offload", "x/host+y1*1,x+qkv/host+g*1,x/host+o+pre/host*1,full*1"};
    const bool deep = testing_deep();
    (void)state;
    for (size_t k = 0; k < sizeof policies / sizeof *policies; k++) { /* quickly with one of both heads */
        if (deep || k % 4 < 2)
            check_all(&(Setting){"cpu", policies[k], HEAD_CLASSIFIER, k % 2 ? NORM_FORM_XHAT : NORM_FORM_Y, k % 2});
        if (deep || k % 4 >= 2)
            check_all(&(Setting){"cpu", policies[k], HEAD_PRETRAINING, k % 2 ? NORM_FORM_Y : NORM_FORM_XHAT, k % 2});
    }
}

/* A slot too few, and a micro-batch is written over another's activations. */
static void test_too_few_slots(void **state)
{
    (void)state;
    Bench w;
    Part plain, few;
    RowCounts rows[2];
    int same[2][N_SLOTS] = {{0, -1, -1}, {0, -1, -1}};
    bench_open(&w, &(Setting){"ref", "none", HEAD_CLASSIFIER, NORM_FORM_Y, false});
    run_plain(&plain, &w, 0, 1, 2);
    part_open(&few, &w, &w.whole.stages[0], (const int[]){1, 0, 0}, false);
    for (int m = 0; m < 2; m++) {
        assert_ok(send_micro(&few, &w, &w.micro[m], same[m], &rows[m]));
        assert_ok(exec_run_work(few.exec, WORK_FORWARD, same[m], &rows[m], NULL, false));
    }
    for (int m = 0; m < 2; m++) assert_ok(exec_run_work(few.exec, WORK_BACKWARD, same[m], &rows[m], NULL, false));
    assert_true(memcmp(grads(&plain), grads(&few), (size_t)w.whole.params.size * sizeof(float)) != 0);
    part_close(&plain);
    part_close(&few);
    bench_close(&w);
}

/* The last use of a tensor that waits for B is said to be the end of F: poison must kill it in the slot that it has, so
   that B sees NaN. */
static void test_early_death(void **state)
{
    (void)state;
    Bench w;
    Part part;
    RowCounts rows;
    const int slot[N_SLOTS] = {1, -1, -1};
    double sum[2] = {0};
    for (int early = 0; early < 2; early++) {
        bench_open(&w, &(Setting){"ref", "none", HEAD_CLASSIFIER, NORM_FORM_Y, true});
        part_open(&part, &w, &w.whole.stages[0], (const int[]){2, 0, 0}, false);
        TensorId victim = plan_find(&part.plan, "l1.qkv");
        Range forward = part.plan.work[WORK_FORWARD];
        assert_true(victim != NONE && part.plan.tensors[victim].slot == SLOT_ACTIVATION);
        if (early) part.plan.tensors[victim].last = forward.first + forward.count - 1;
        exec_free(part.exec);
        assert_ok(exec_init(&part.exec, &part.plan, &part.memory, (ExecOptions){.poison = true}));
        assert_ok(send_micro(&part, &w, &w.micro[0], slot, &rows));
        assert_ok(exec_run_work(part.exec, WORK_FORWARD, slot, &rows, NULL, false));
        assert_ok(exec_run_work(part.exec, WORK_BACKWARD, slot, &rows, NULL, false));
        for (int64_t k = 0; k < w.whole.params.size; k++) sum[early] += (double)grads(&part)[k];
        part_close(&part);
        bench_close(&w);
    }
    assert_true(isfinite(sum[0]) && isnan(sum[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ref), cmocka_unit_test(test_cpu),
                                       cmocka_unit_test(test_too_few_slots), cmocka_unit_test(test_early_death)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
