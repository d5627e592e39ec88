/* One bit of memory that changes at any moment of a step that is computed twice: in the compute copies, the weights,
   the moments or the gradients. The audit finds it or it is harmless: a step that is made again has the bits of a quiet
   run. What no audit on one rank sees changes behind the last check of a step, and is counted by place. */
#include "equiv/far_backend.h"
#include "equiv/training.h"
#include "train/loop/audit.h"
#include "train/loop/loop_internal.h"

#define FLIPS testing_rounds(40, 1500) /* of each place */

enum { EXAMPLES = 24, BATCH = 6, FROM = 1, TO = 3 }; /* the flip is in the step behind FROM, the last step is TO */

static const char *const places[] = {"copies", "weights", "m", "v", "grads"};
enum { N_PLACES = sizeof places / sizeof *places };

/* Of a step that is computed twice on one rank, in order. */
typedef enum { FIRST, BETWEEN, SECOND, DIGESTED, CHECK, UPDATE, NOTE, COPIES, N_MOMENTS } Moment;
static const char *const moments[] = {
    "first computation", "copies made again", "second computation", "digested", "check", "update", "note",
    "copies made"};

typedef enum { HARMLESS, REPEATED, ENDED, NOT_FINITE, UNSEEN, N_OUTCOMES } Outcome;

typedef struct {
    Training t;
    Config config;
    Run run;
    Loop loop;
    Examples examples;
    LoadedExamples loaded;
    char *dir, *lines;
    float *began[N_STATE_ARRAYS], *quiet[N_STATE_ARRAYS]; /* after steps FROM and TO */
    int64_t end[N_MOMENTS];                               /* turns up to the end of each moment */
    int count[N_PLACES][N_MOMENTS][N_OUTCOMES];
} Damage;

static uint64_t draw(int i, int what)
{
    Philox4 w = philox4(11, (uint32_t)i, (uint32_t)what, 0, 0);
    return (uint64_t)w.v[0] << 32 | w.v[1];
}

static void make_examples(Examples *e)
{
    *e = (Examples){.count = EXAMPLES,
                    .offset = mem_array(EXAMPLES + 1, sizeof *e->offset),
                    .ids = mem_array(EXAMPLES * 40, sizeof *e->ids),
                    .types = mem_array(EXAMPLES * 40, sizeof *e->types),
                    .label = mem_array(EXAMPLES, sizeof *e->label)};
    for (int i = 0; i < EXAMPLES; i++) {
        int64_t n = 3 + (int64_t)(draw(i, 100) % 38);
        e->offset[i + 1] = e->offset[i] + n;
        for (int64_t k = 0; k < n; k++) e->ids[e->offset[i] + k] = (int32_t)(1 + draw(i, 101 + (int)k) % 299);
        e->label[i] = i % TRAINING_LABELS;
    }
}

static bool next_step(Damage *d, Status *status)
{
    Stats stats;
    *status = loop_step(&d->loop, &stats);
    return *status == OK && loop_record(&d->loop, &stats, 1) == OK;
}

static void keep(const Damage *d, float **to)
{
    Training now = {.session = d->run.session, .model = d->t.model};
    for (StateArray a = 0; a < N_STATE_ARRAYS; a++) to[a] = training_state(&now, a);
}

static void free_state(float **state)
{
    for (StateArray a = 0; a < N_STATE_ARRAYS; a++) free(state[a]);
}

static Status read_began(void *began, int64_t begin, int64_t end, float *to)
{
    memcpy(to, (const float *)began + begin, (size_t)(end - begin) * sizeof *to);
    return OK;
}

static void begin_again(Damage *d)
{
    Session *s = &d->run.session;
    Interval whole = {0, d->t.model.params.size};
    for (StateArray a = 0; a < N_STATE_ARRAYS; a++)
        assert_ok(session_take(s, (int)a, &(Intervals){.intervals = &whole, .count = 1}, read_began, d->began[a]));
    assert_ok(session_ready(s));
    assert_ok(session_note(s));
    d->run.progress = (TrainProgress){.step = FROM, .batch = FROM};
    if (file_exists(d->lines)) assert_int_equal(unlink(d->lines), 0);
}

static void count_turns(Damage *d)
{
    const Plan *p = &d->run.session.plan.chunk->train;
    Status status;
    ExecFlip never = {.of = "weights"};
    begin_again(d);
    exec_set_flip(d->run.session.train[0], &never);
    assert_true(next_step(d, &status));
    int64_t computation = p->begin.count + p->micro.count * d->loop.shares.each[0].micros;
    const int64_t turns[] = {[FIRST] = computation,
                             [BETWEEN] = p->pack.count,
                             [SECOND] = computation,
                             [DIGESTED] = 1,
                             [CHECK] = p->check.count - 1, /* its first instr ends the moment before */
                             [UPDATE] = p->pack.first - p->update.first,
                             [NOTE] = p->note.count,
                             [COPIES] = p->pack.count};
    for (int m = 0; m < N_MOMENTS; m++) d->end[m] = (m ? d->end[m - 1] : 0) + turns[m];
    d->end[DIGESTED]++;
    for (int m = CHECK; m < N_MOMENTS; m++) d->end[m]++;
    assert_int_equal(exec_turns(d->run.session.train[0]), d->end[COPIES]);
    exec_set_flip(d->run.session.train[0], NULL);
}

static void open_damage(Damage *d, const char *audit, const TrainingOptions *o)
{
    Status status;
    *d = (Damage){.config = {.batch_size = BATCH, .seed = 3, .audit = mem_strdup(audit)}};
    d->dir = d->config.output_dir = testing_directory();
    d->lines = file_join(d->dir, "audit.jsonl");
    training_open(&d->t, o);
    training_begin(&d->t);
    make_examples(&d->examples);
    d->loaded = (LoadedExamples){&d->examples, 3, BATCH};
    d->run = training_run(&d->t, &d->config, 0);
    d->run.source = loaded_source(&d->loaded);
    d->run.setup.backend = d->t.backend;
    d->run.setup.optimizer = d->t.optimizer;
    d->run.schedule = (RateSchedule){.kind = SCHEDULE_CONSTANT, .learning_rate = 1e-3, .total_steps = 100};
    loop_open(&d->loop, &d->run);
    assert_ok(audit_open(&d->loop.audit, &d->run));
    assert_ok(session_note(&d->run.session));
    log_set_level(LOG_ERROR);
    while (d->run.progress.step < FROM) assert_true(next_step(d, &status));
    keep(d, d->began);
    while (d->run.progress.step < TO) assert_true(next_step(d, &status));
    keep(d, d->quiet);
    assert_false(file_exists(d->lines));
}

static void close_damage(Damage *d)
{
    audit_close(d->loop.audit);
    log_set_level(LOG_INFO);
    loop_free(&d->loop);
    d->t.session = d->run.session;
    training_close(&d->t);
    examples_free(&d->examples);
    free_state(d->began);
    free_state(d->quiet);
    assert_ok(file_remove_tree(d->dir));
    MEM_FREE(d->dir, d->lines, (char *)d->config.audit);
}

static bool same_state(const Damage *d)
{
    float *now[N_STATE_ARRAYS];
    bool same = true;
    keep(d, now);
    for (StateArray a = 0; a < N_STATE_ARRAYS; a++)
        same &= memcmp(now[a], d->quiet[a], (size_t)d->t.model.params.size * sizeof(float)) == 0;
    free_state(now);
    return same;
}

/* Two steps, of which the first has the flip. */
static Outcome try_flip(Damage *d, const ExecFlip *flip)
{
    Status status = OK;
    begin_again(d);
    exec_set_flip(d->run.session.train[0], flip);
    while (d->run.progress.step < TO && next_step(d, &status)) continue;
    exec_set_flip(d->run.session.train[0], NULL);
    bool alarm = file_exists(d->lines);
    if (status == E_NUMERIC) return NOT_FINITE;
    if (status == E_DIFFERS) {
        assert_true(alarm && file_exists_in(d->dir, "damaged.json"));
        assert_message("the same command resumes");
        return ENDED;
    }
    if (status != OK) fail_msg("the run ended with %s: %s", status_name(status), status_message());
    bool same = same_state(d);
    if (alarm && !same)
        fail_msg("a bit of %s at turn %lld: an alarm, and training goes on with wrong bits", flip->of,
                 (long long)flip->turn);
    return alarm ? REPEATED : same ? HARMLESS : UNSEEN;
}

static Moment moment_of(const Damage *d, int64_t turn)
{
    Moment m = FIRST;
    while (d->end[m] < turn) m++;
    return m;
}

/* Behind the digest of the gradients and the check of the state nothing looks at them until the update has used them.
   Copies are made again by each update and compared in the next step. */
static bool may_be_unseen(int place, Moment m)
{
    if (strcmp(places[place], "copies") == 0) return false;
    if (strcmp(places[place], "grads") == 0) return m >= DIGESTED && m <= UPDATE;
    return m >= CHECK && m <= NOTE;
}

/* A moment, then a turn in it: most turns are in the computations. */
static ExecFlip random_flip(const Damage *d, int place, int i)
{
    Moment m = (Moment)(draw(i, 10 * place) % N_MOMENTS);
    int64_t before = m ? d->end[m - 1] : 0;
    uint64_t turn = draw(i, 10 * place + 1) % (uint64_t)(d->end[m] - before);
    return (ExecFlip){.of = places[place], .turn = before + 1 + (int64_t)turn, .bit = draw(i, 10 * place + 2)};
}

static void print_counts(const Damage *d, int place)
{
    for (int m = 0; m < N_MOMENTS; m++) {
        const int *n = d->count[place][m];
        print_message("%-8s %-20s %5d flips: %d harmless, %d repeated, %d ended, %d not finite, %d unseen\n",
                      places[place], moments[m], n[HARMLESS] + n[REPEATED] + n[ENDED] + n[NOT_FINITE] + n[UNSEEN],
                      n[HARMLESS], n[REPEATED], n[ENDED], n[NOT_FINITE], n[UNSEEN]);
    }
}

static void check_flips(const char *backend, Dtype compute, void (*change)(Backend *), int flips)
{
    Damage d;
    const TrainingOptions o = {.backend = backend, .compute = compute, .change = change, .audit = true};
    open_damage(&d, "100%", &o);
    count_turns(&d);
    for (int p = 0; p < N_PLACES; p++) {
        int found = 0;
        for (int i = 0; i < flips; i++) {
            ExecFlip flip = random_flip(&d, p, i);
            Moment m = moment_of(&d, flip.turn);
            Outcome how = try_flip(&d, &flip);
            if (how >= NOT_FINITE && !may_be_unseen(p, m))
                fail_msg("%s, flip %d: bit %llu of %s at turn %lld (%s) is not found, and the state is wrong", backend,
                         i, (unsigned long long)flip.bit, flip.of, (long long)flip.turn, moments[m]);
            d.count[p][m][how]++;
            found += how == REPEATED || how == ENDED;
        }
        if (flips >= 40) assert_true(found > 0);
        print_counts(&d, p);
    }
    close_damage(&d);
}

static void test_every_place_and_moment(void **state)
{
    (void)state;
    print_message("ref, bf16\n");
    check_flips("ref", BF16, NULL, FLIPS / 2);
    print_message("cpu, fp32\n");
    check_flips("cpu", F32, NULL, FLIPS);
    print_message("ref in a device's memory, fp32\n");
    check_flips("ref", F32, far_make, FLIPS / 10);
}

/* A weight or its copy changes between the two computations. Before, the repeated step agreed with itself. */
static void test_between_the_computations(void **state)
{
    Damage d;
    const TrainingOptions o = {.backend = "cpu", .compute = F32, .audit = true};
    int repeated = 0, ended = 0;
    (void)state;
    open_damage(&d, "100%", &o);
    count_turns(&d);
    for (int i = 0; i < FLIPS; i++) {
        ExecFlip copies = {.of = "copies", .turn = d.end[FIRST], .bit = draw(i, 1000)}, weights = copies;
        weights.of = "weights";
        repeated += try_flip(&d, &copies) == REPEATED;
        copies.turn = d.end[BETWEEN];
        repeated += try_flip(&d, &copies) == REPEATED;
        ended += try_flip(&d, &weights) == ENDED;
    }
    print_message("%d flips of copies: %d steps made again; %d of weights: %d runs ended\n", 2 * FLIPS, repeated, FLIPS,
                  ended);
    assert_true(repeated > FLIPS / 4);
    assert_int_equal(ended, FLIPS);
    close_damage(&d);
}

/* A bias, or a copy, changes while forward runs. Where the repeated step agrees, it has the right bits. */
static void test_recompute(void **state)
{
    Damage d;
    const TrainingOptions o = {.backend = "ref", .compute = BF16, .audit = true, .policy = "full"};
    int count[2][N_OUTCOMES] = {{0}};
    (void)state;
    open_damage(&d, "recompute", &o);
    const Plan *p = &d.run.session.plan.chunk->train;
    const ParamTable *params = &d.t.model.params;
    int bias = params_find(params, "bert.encoder.layer.1.attention.self.query.bias");
    assert_true(bias >= 0);
    for (int i = 0; i < FLIPS; i++) {
        ExecFlip flip = {.of = places[i % 2], .bit = draw(i, 2)};
        if (i % 2) flip.bit = (uint64_t)(params->params[bias].offset * 32) + draw(i, 2) % 32 * 32 + 30;
        flip.turn = p->begin.count + 1 + (int64_t)(draw(i, 3) % (uint64_t)p->micro.count);
        count[i % 2][try_flip(&d, &flip)]++;
    }
    for (int k = 0; k < 2; k++)
        print_message("%d flips of %s: %d harmless, %d repeated, %d ended, %d unseen\n", FLIPS / 2, places[k],
                      count[k][HARMLESS], count[k][REPEATED], count[k][ENDED], count[k][UNSEEN]);
    assert_true(count[0][REPEATED] > 0 && count[1][ENDED] > 0);
    close_damage(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_place_and_moment),
        cmocka_unit_test(test_between_the_computations),
        cmocka_unit_test(test_recompute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
