/* Places of a pipeline as ranks, whose boundaries travel as messages: every schedule makes the gradients of a plain run
   to the last bit, step after step; a lost place ends the others with the boundary that they waited for. */
#include "dist/ranks.h"

#include <semaphore.h>

#include "equiv/stages.h"
#include "exec/pipeline.h"

typedef struct {
    Pipeline shape;
    int layers[MOST_STAGES];
} Shape;

typedef struct {
    Setting setting;
    const Shape *shapes; /* (n) of the same number of places */
    int n;
    int killed, at; /* this place ends at this micro-batch's F; −1: none */
} Job;

typedef struct {
    Bench *bench;
    Part part[2]; /* (chunks) */
    const Schedule *schedule;
    const Job *job;
    int place;
} Place;

static int directions(const Pipeline *p) { return p->kind == PIPELINE_CHIMERA ? 2 : 1; }

static Status fill_inputs(void *self, int chunk, int micro, const int slots[N_SLOTS])
{
    Place *p = self;
    int n = directions(&p->schedule->shape), number = micro * n + (n == 2 ? chunk : 0);
    RowCounts rows;
    if (p->job->killed == p->place && micro == p->job->at) _exit(9);
    return send_micro(&p->part[chunk], p->bench, &p->bench->micro[number], slots, &rows);
}

static void same_gradients(const Part *part, const Part *plain, const char *schedule)
{
    for (int i = 0; i < part->model.params.count; i++) {
        const Param *own = &part->model.params.params[i];
        const float *all = grads(plain);
        int at = params_find(&plain->model.params, own->name);
        bool tied = strstr(own->name, "word_embeddings") && part->model.head.kind == HEAD_PRETRAINING;
        if (tied || memcmp(grads(part) + own->offset, all + plain->model.params.params[at].offset,
                           (size_t)param_held(own) * sizeof(float)) == 0)
            continue;
        fprintf(stderr, "%s: the gradient of %s differs\n", schedule, own->name);
        require(false);
    }
}

static void run_shape(Comm *c, Bench *w, const Job *job, const Shape *s)
{
    Schedule schedule;
    Place place = {.bench = w, .schedule = &schedule, .job = job, .place = c->rank};
    Exec *chunks[2] = {NULL};
    RowCounts rows[2][MOST_MICROS];
    Part plain[2];
    ExecPipeline *p;
    schedule_make(&s->shape, &schedule);
    require(schedule_verify(&schedule) == OK);
    for (int chunk = 0; chunk < s->shape.chunks; chunk++) {
        int number = pipeline_stage(&s->shape, c->rank, chunk), slots[N_SLOTS];
        Stage stage = {0, s->layers[number]};
        for (int k = 0; k < number; k++) stage.first += s->layers[k];
        for (int k = 0; k < N_SLOTS; k++) slots[k] = schedule_slots(&schedule, c->rank, chunk, (SlotKind)k);
        part_open(&place.part[chunk], w, &stage, slots, pipeline_splits_backward(s->shape.kind));
        chunks[chunk] = place.part[chunk].exec;
    }
    for (int d = 0; d < directions(&s->shape); d++) {
        run_plain(&plain[d], w, d, directions(&s->shape), s->shape.micros);
        for (int m = d, n = 0; m < s->shape.micros; m += directions(&s->shape), n++)
            rows[d][n] = exec_rows(chunks[0], w->micro[m].n_tokens, w->micro[m].n_seqs, w->micro[m].n_masked);
    }
    require(exec_pipeline_open(&(ExecPipelineOptions){.comm = c,
                                                      .shape = s->shape,
                                                      .chunks = chunks,
                                                      .place = c->rank,
                                                      .boundary = TOKENS * 32 * sizeof(float),
                                                      .fill = fill_inputs,
                                                      .self = &place},
                               &p) == OK);
    require(exec_pipeline_buffers(&s->shape, c->rank, false) > 0);
    const int half = s->shape.micros / 2;
    const ExecPass pass = {.schedule = &schedule,
                           .micros = {directions(&s->shape) == 2 ? s->shape.micros - half : s->shape.micros, half},
                           .rows = {rows[0], rows[1]}};
    for (int step = 0; step < 3; step++) {
        for (int chunk = 0; chunk < s->shape.chunks; chunk++) {
            const Plan *plan = &place.part[chunk].plan;
            require(exec_run(chunks[chunk], plan->begin, &plan->capacity) == OK);
        }
        Status status = exec_pipeline_run(p, &pass, NULL);
        if (job->killed >= 0) {
            require(status == E_PEER);
            require(strstr(status_message(), " of micro-batch ") && strstr(status_message(), "lost rank 1 on "));
            break;
        }
        require(status == OK);
        for (int chunk = 0; chunk < s->shape.chunks; chunk++)
            same_gradients(&place.part[chunk], &plain[directions(&s->shape) == 2 ? chunk : 0],
                           pipeline_name(s->shape.kind));
    }
    exec_pipeline_close(p);
    for (int chunk = 0; chunk < s->shape.chunks; chunk++) part_close(&place.part[chunk]);
    for (int d = 0; d < directions(&s->shape); d++) part_close(&plain[d]);
    schedule_free(&schedule);
}

static int run_place(Comm *c, void *arg)
{
    const Job *job = arg;
    Bench w;
    bench_open(&w, &job->setting);
    for (int i = 0; i < job->n; i++) run_shape(c, &w, job, &job->shapes[i]);
    bench_close(&w);
    return 0;
}

static const Shape two[] = {{{PIPELINE_GPIPE, 2, 1, 5}, {3, 1}},     {{PIPELINE_1F1B, 2, 1, 9}, {2, 2}},
                            {{PIPELINE_1F1B, 2, 1, 1}, {1, 3}},      {{PIPELINE_INTERLEAVED, 2, 2, 5}, {1, 1, 1, 1}},
                            {{PIPELINE_CHIMERA, 2, 2, 7}, {2, 2}},   {{PIPELINE_ZB_H1, 2, 1, 6}, {1, 3}},
                            {{PIPELINE_ZB_V, 2, 2, 8}, {1, 1, 1, 1}}};
static const Shape four[] = {{{PIPELINE_1F1B, 4, 1, 7}, {1, 1, 1, 1}},
                             {{PIPELINE_GPIPE, 4, 1, 3}, {1, 1, 1, 1}},
                             {{PIPELINE_CHIMERA, 4, 2, 8}, {1, 1, 1, 1}},
                             {{PIPELINE_ZB_H1, 4, 1, 9}, {1, 1, 1, 1}}};

static void run_job(int places, Job *job)
{
    Ranks ranks = ranks_of(places);
    ranks.arg = job;
    ranks_run(&ranks, run_place);
}

static void test_two(void **state)
{
    (void)state;
    Job plain = {{"cpu", "none", HEAD_CLASSIFIER, NORM_FORM_Y, false}, two, sizeof two / sizeof *two, -1, 0};
    Job tied = {{"cpu", "selective", HEAD_PRETRAINING, NORM_FORM_XHAT, true}, two, sizeof two / sizeof *two, -1, 0};
    run_job(2, &plain);
    run_job(2, &tied);
}

static void test_four(void **state)
{
    (void)state;
    Job job = {{"ref", "full", HEAD_PRETRAINING, NORM_FORM_Y, true}, four, sizeof four / sizeof *four, -1, 0};
    run_job(4, &job);
}

static void test_lost(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        Job job = {{"ref", "none", HEAD_CLASSIFIER, NORM_FORM_Y, false}, &four[kind], 1, 1, 2 - kind};
        Ranks ranks = ranks_of(4);
        ranks.arg = &job;
        pid_t children[4];
        int status;
        for (int r = 0; r < 4; r++) children[r] = ranks_start(&ranks, r, run_place);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(waitpid(children[r], &status, 0), children[r]);
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), r == 1 ? 9 : 0);
        }
    }
}

/* ---- sums beside works: two holders of a last stage ---- */

enum { HOLDERS = 2 };

typedef struct {
    sem_t begun;
    bool waits;
    int ends; /* this holder dies where its first sum begins, when it has read a byte from here; −1: it goes on */
} FirstSum;

typedef struct {
    bool split, lost;
    int gathered[2]; /* a pipe: holder 0 has the gradients of all */
} Sums;

static Status meet(void *self)
{
    const FirstSum *first = self;
    char byte;
    if (first->ends >= 0 && read(first->ends, &byte, 1) == 1) _exit(9);
    sem_post(&((FirstSum *)self)->begun);
    return OK;
}

/* B sends at its end. A sum that has not begun by then never will in this test. */
static Status pass_boundary(void *self, bool send, bool forward, void *data, size_t bytes)
{
    FirstSum *first = self;
    (void)forward;
    if (!send) memset(data, 0, bytes);
    while (send && first->waits && sem_wait(&first->begun) != 0) {}
    return OK;
}

static void run_step(Part *part, Bench *w, int rank, bool split, bool last, FirstSum *first)
{
    static const int slot[N_SLOTS] = {0};
    const ExecLinks links = {pass_boundary, first};
    RowCounts rows;
    require(exec_run(part->exec, part->plan.begin, &part->plan.capacity) == OK);
    for (int m = 0; m < 2; m++) {
        bool now = last && m == 1;
        require(send_micro(part, w, &w->micro[2 * rank + m], slot, &rows) == OK);
        require(exec_run_work(part->exec, WORK_FORWARD, slot, &rows, &links, now) == OK);
        first->waits = now && !split; /* weight gradients come behind what is sent */
        require(exec_run_work(part->exec, split ? WORK_INPUT : WORK_BACKWARD, slot, &rows, &links, now) == OK);
        if (split) require(exec_run_work(part->exec, WORK_WEIGHT, slot, &rows, NULL, now) == OK);
    }
    while (last && split && sem_wait(&first->begun) != 0) {} /* W has posted its pieces */
}

/* The sum begins within the last work, or behind all works, and is that of the holders' own gradients. */
static int run_holder(Comm *c, void *arg)
{
    Setting setting = {"cpu", "none", HEAD_CLASSIFIER, NORM_FORM_Y, false};
    static char none[] = "none", fp32[] = "fp32";
    const Config config = {.shard = none, .wire = fp32, .bucket_size = 16 << 10};
    const Grid grid = {{PIPELINE_GPIPE, 2, 1, 2}, 2, HOLDERS, 1};
    const Stage stages[] = {{0, 2}, {2, 2}};
    const int slots[N_SLOTS] = {1, 1, 1};
    const Sums *sums = arg;
    bool split = sums->split, lost = sums->lost;
    FirstSum first = {.ends = lost && c->rank == 1 ? sums->gathered[0] : -1};
    Bench w;
    Holding h;
    Part part;
    alarm(HANG_S / 4);
    bench_open(&w, &setting);
    holding_init(&h, &config, &w.whole, &grid, stages, HOLDERS + c->rank);
    require(h.mine.n > 4 && sem_init(&first.begun, 0, 0) == 0);
    const ExecRanks ranks = {.comm = c,
                             .holders = {c},
                             .holding = &h,
                             .scratch = pieces_room(&h.mine).scratch,
                             .meet = meet,
                             .self = &first};
    w.ranks = &ranks;
    w.stage = 1;
    part_open(&part, &w, &stages[1], slots, split);
    size_t n = (size_t)part.model.params.size, bytes = n * sizeof(float);
    require(h.has[HELD_WEIGHTS][HOLDERS + c->rank].size == part.model.params.size);
    float *own = mem_alloc(HOLDERS * bytes);
    run_step(&part, &w, c->rank, split, false, &first);
    require(comm_allgather(c, grads(&part), bytes, own) == OK);
    if (c->rank == 0) require(write(sums->gathered[1], "", 1) == 1);
    for (size_t i = 0; i < n; i++) own[i] += own[n + i];
    if (lost) {
        run_step(&part, &w, c->rank, split, true, &first);
        require(exec_end_sums(part.exec, exec_sum(part.exec, false)) == E_PEER);
        require(strstr(status_message(), "lost rank 1 on "));
    }
    for (int last = lost ? 2 : 0; last < 2; last++) {
        run_step(&part, &w, c->rank, split, last, &first);
        require(exec_end_sums(part.exec, exec_sum(part.exec, false)) == OK);
        require(memcmp(grads(&part), own, bytes) == 0);
        if (!last) require(sem_wait(&first.begun) == 0);
    }
    free(own);
    part_close(&part);
    holding_free(&h);
    bench_close(&w);
    return 0;
}

static void test_sums(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) { /* B; I and W; a holder is lost */
        Ranks ranks = ranks_of(HOLDERS);
        Sums sums = {.split = kind == 1, .lost = kind == 2};
        pid_t children[HOLDERS];
        int status;
        ranks.arg = &sums;
        assert_int_equal(pipe(sums.gathered), 0);
        for (int r = 0; r < HOLDERS; r++) children[r] = ranks_start(&ranks, r, run_holder);
        for (int r = 0; r < HOLDERS; r++) {
            assert_int_equal(waitpid(children[r], &status, 0), children[r]);
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), kind == 2 && r == 1 ? 9 : 0);
        }
        for (int end = 0; end < 2; end++) close(sums.gathered[end]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_two, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_four, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_lost, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_sums, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
