/* The grid of a pipeline: every combination of schedule, stages, chunks, ranks and layers is taken, or refused with
   settings each of which is taken. */
#include "testing.h"

#include "config/table.h"
#include "train/pipelines/pipeline.h"

typedef struct {
    PipelineKind kind;
    int layers;
    Config c;
    int64_t ranks;
} Case;

static Status take(const Case *t, Grid *grid) { return pipeline_grid(&t->c, t->kind, t->ranks, t->layers, grid); }

/* The number behind `flag` in one advice, as "--stages 4 --ranks 8", else `own`. */
static int64_t given(const char *advice, const char *flag, int64_t own)
{
    const char *at = strstr(advice, flag);
    return at ? strtoll(at + strlen(flag), NULL, 10) : own;
}

static int follow_all(const Case *t)
{
    char *message = mem_strdup(status_message()), *at = strstr(message, ": give "), *next;
    int n = 0;
    assert_non_null(at);
    for (at += strlen(": give "); at; at = next, n++) {
        Grid grid;
        Case of = *t;
        next = strstr(at, ", or ");
        if (next) *next = '\0', next += strlen(", or ");
        if (strstr(at, "--pipeline 1f1b ")) of.kind = PIPELINE_1F1B;
        of.c.stages = given(at, "--stages ", of.c.stages);
        of.ranks = given(at, "--ranks ", of.ranks);
        if (take(&of, &grid) != OK)
            fail_msg("%s of %d stages on %d ranks, %d layers: '%s' is refused: %s", pipeline_name(t->kind),
                     (int)t->c.stages, (int)t->ranks, t->layers, at, status_message());
    }
    free(message);
    return n;
}

static void test_advice_works(void **state)
{
    (void)state;
    static const int layers[] = {1, 2, 3, 5, 12};
    int taken = 0, refused = 0, two = 0;
    for (size_t l = 0; l < sizeof layers / sizeof *layers; l++)
        for (int kind = 0; kind < N_PIPELINES; kind++)
            for (int chunks = 2; chunks <= (kind == PIPELINE_INTERLEAVED ? 4 : 2); chunks++)
                for (int64_t stages = 0; stages <= 14; stages++)
                    for (int64_t ranks = 1; ranks <= 14; ranks++) {
                        Case t = {(PipelineKind)kind, layers[l], {.stages = stages, .stage_chunks = chunks}, ranks};
                        Grid grid;
                        if (take(&t, &grid) == OK) {
                            taken++;
                            assert_int_equal(grid.shape.places * grid.replicas, ranks);
                            assert_true(grid.stages <= layers[l]);
                            continue;
                        }
                        if (stages == 0 && ranks == 1) continue; /* which stages, is asked */
                        refused++;
                        assert_message("--pipeline ");
                        two += follow_all(&t) == 2;
                    }
    assert_true(taken > 500 && refused > 500 && two > 500);
}

static void test_words(void **state)
{
    (void)state;
    Grid grid;
    Case t = {PIPELINE_CHIMERA, 12, {.stages = 3, .stage_chunks = 2}, 3};
    assert_status(take(&t, &grid), E_USAGE);
    assert_message("--pipeline chimera takes a multiple of 2 stages, found 3: give --stages 2 --ranks 4");
    t = (Case){PIPELINE_1F1B, 12, {.stages = 4, .stage_chunks = 2}, 6};
    assert_status(take(&t, &grid), E_USAGE);
    assert_message(
        "--pipeline 1f1b with 4 stages takes 4 ranks, a multiple or a divisor; there are 6: give --stages 3, "
        "or --stages 4 --ranks 8");
    t = (Case){PIPELINE_1F1B, 12, {.stages = 6, .stage_chunks = 2}, 4}; /* 3 ranks of 2 stages each are next */
    assert_status(take(&t, &grid), E_USAGE);
    assert_message("there are 4: give --stages 4, or --stages 6 --ranks 3");
    t = (Case){PIPELINE_INTERLEAVED, 3, {.stages = 4, .stage_chunks = 4}, 1};
    assert_status(take(&t, &grid), E_USAGE);
    assert_message("has 4 stages at least, and the model has 3 layers");
}

/* Fewer ranks than stages: consecutive stages share a place, of these schedules alone. */
static void test_stages_share_a_place(void **state)
{
    (void)state;
    Grid grid;
    for (int kind = 0; kind < N_PIPELINES; kind++)
        for (int64_t ranks = 1; ranks <= 6; ranks++) {
            Case t = {(PipelineKind)kind, 12, {.stages = 6, .stage_chunks = 3}, ranks};
            if (!pipeline_consecutive(t.kind)) continue;
            if (6 % ranks) {
                assert_status(take(&t, &grid), E_USAGE);
                continue;
            }
            assert_ok(take(&t, &grid));
            assert_int_equal(grid.shape.places, ranks);
            assert_int_equal(grid.replicas, 1);
            for (int stage = 0; stage < 6; stage++) {
                int place, chunk;
                pipeline_home(&grid.shape, stage, 0, &place, &chunk);
                assert_int_equal(place, stage / (6 / ranks));
                assert_int_equal(pipeline_stage(&grid.shape, place, chunk), stage);
            }
        }
}

/* Each schedule is a word of --pipeline, and each word but none and all a schedule. */
/* The words of --pipeline are the names of all pipelines; `plan` takes all of them at once, too. */
static void test_words_of_the_option(void **state)
{
    (void)state;
    Buf words = {0}, glue = {0}, plan = {0};
    buf_puts(&words, "none");
    for (int kind = 0; kind < N_PIPELINES; kind++) buf_printf(&words, " %s", pipeline_name((PipelineKind)kind));
    config_wording(config_table[OPTION_pipeline].words, COMMAND_GLUE, &glue);
    assert_string_equal(glue.data, words.data);
    buf_puts(&words, " all");
    config_wording(config_table[OPTION_pipeline].words, COMMAND_PLAN, &plan);
    assert_string_equal(plan.data, words.data);
    BUF_FREE(&words, &glue, &plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words_of_the_option), cmocka_unit_test(test_advice_works),
                                       cmocka_unit_test(test_stages_share_a_place), cmocka_unit_test(test_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
