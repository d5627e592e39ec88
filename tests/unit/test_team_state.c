/* The decisions of survivors of a lost rank (train/keep/team_state.h): hard cases, and random schedules of 1 to 16
   ranks. CAIRN_TEST_SEED: one schedule alone; CAIRN_TEST_TRACE: show it. */
#include "team_world.h"

/* ---- schedules ---- */

static void draw_faults(World *w)
{
    static const TeamActionKind kinds[] = {TEAM_SEND, TEAM_FOLLOW, TEAM_LOST, TEAM_WRITE,    TEAM_TRY,
                                           TEAM_TAKE, TEAM_DROP,   TEAM_SEND, TEAM_GATHERED, TEAM_OVER};
    w->n_faults = draw_int(w, 5);
    for (int i = 0; i < w->n_faults; i++) {
        Fault *f = &w->faults[i];
        f->kind = chance(w, 0.5) || w->calm ? DIE : FREEZE;
        f->rank = draw_int(w, chance(w, 0.5) ? w->n : w->n < 3 ? w->n : 3);
        f->at = kinds[draw_int(w, 10)];
        f->nth = f->at == TEAM_SEND ? draw_int(w, 5 * w->n) : draw_int(w, 2);
        if (chance(w, 0.3)) f->nth = -1;
        f->when = draw(w, 40);
        f->seconds = draw(w, chance(w, 0.5) ? 2 * TIMEOUT_S : chance(w, 0.5) ? MEET_S : 200);
    }
}

static void draw_world(World *w, uint64_t seed)
{
    uint64_t random = seed * 88172645463325252u + 1;
    int n = 1 + (int)(testing_random(&random) % RANKS_MOST);
    if (testing_random(&random) % 2) n = 1 + n % 5;
    int slices = testing_random(&random) % 2 ? 1 + (int)(testing_random(&random) % (uint64_t)n) : 0;
    world_init(w, seed, n, slices);
    w->calm = chance(w, 0.5);
    w->bad_disk = !w->calm && chance(w, 0.2) ? 0.1 : 0;
    if (chance(w, 0.8)) w->lost = draw_int(w, n);
    for (int r = 0; r < n; r++) {
        Node *node = &w->node[r];
        node->begins = draw(w, chance(w, 0.7) ? 0.1 : MEET_S - 2 * DELAY_S - 0.1);
        if (!w->calm && chance(w, 0.1)) node->begins = draw(w, 100);
        if (slices && chance(w, 0.5)) node->has |= 1u << draw_int(w, slices); /* a copy, or of its host's memory */
        if (chance(w, 0.1)) node->able = false;
        if (!node->able) node->has = 0;
        if (!slices && chance(w, 0.2)) node->has_step++; /* it was not in the step that others had begun */
        if (r != w->lost || (!w->calm && chance(w, 0.3))) continue;
        node->dead = true; /* the lost rank, which at times is only silent to others */
        node->next = INFINITY;
    }
    for (int i = draw_int(w, 3); !w->calm && i > 0; i--) {
        int a = draw_int(w, n), b = draw_int(w, n);
        w->cut[a][b] = w->cut[b][a] = draw(w, 30);
        w->heals[a][b] = w->heals[b][a] = chance(w, 0.5) ? INFINITY : w->cut[a][b] + draw(w, 40);
        w->troubled[a][b] = w->troubled[b][a] = true;
    }
    draw_faults(w);
}

/* Where nothing but deaths disturbed them: the state is saved if those that live have it. */
static void check_saved(const World *w)
{
    uint32_t has = 0;
    int able = 0;
    for (int r = 0; r < w->n; r++) {
        const Node *its = &w->node[r];
        must(w, its->dead || its->exited, "rank %d has not ended", r);
        if (its->dead) continue;
        able += its->able;
        has |= its->has;
        must(w, !w->calm || its->ends < fmax(w->fault_at, MEET_S) + END_S + w->n * (MEET_S + LIFE_S + 4 * ANSWER_S),
             "rank %d ended only then", r);
    }
    bool whole = able && (!w->slices || has == (1u << w->slices) - 1);
    must(w, !w->calm || !whole || w->saves, "nothing was saved");
}

static void test_schedules(void **state)
{
    (void)state;
    const char *one = getenv("CAIRN_TEST_SEED");
    uint64_t first = one ? strtoull(one, NULL, 10) : 1, n = one ? 1 : getenv("CAIRN_TEST_DEEP") ? 200000 : 10000;
    int64_t saves = 0, deaths = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        World w;
        draw_world(&w, seed);
        run(&w);
        check_saved(&w);
        saves += w.saves;
        for (int r = 0; r < w.n; r++) deaths += w.node[r].dead;
        world_free(&w);
    }
    print_message("%" PRIu64 " schedules: %" PRId64 " saves, %" PRId64 " ranks died\n", n, saves, deaths);
}

/* ---- cases ---- */

/* Runs it. `ends`: of each rank: L it saved, s it says that the state is saved, f that this failed, 0 that there is
   nothing to save, n that nobody can write, u that the end is unclear, - it died. All end within `seconds` after they
   met or after the last fault. */
static void expect(World *w, const char *ends, double seconds)
{
    static const char of_end[] = {[TEAM_NOBODY] = 'n', [TEAM_SAVED] = 's',   [TEAM_FOUND] = 's',
                                  [TEAM_FAILED] = 'f', [TEAM_NOTHING] = '0', [TEAM_UNCLEAR] = 'u'};
    char got[RANKS_MOST + 1] = "";
    run(w);
    for (int r = 0; r < w->n; r++) {
        const Node *its = &w->node[r];
        got[r] = its->dead ? '-' : its->end == TEAM_SAVED && its->who == r ? 'L' : of_end[its->end];
        double late = its->dead ? 0 : its->ends - w->fault_at;
        must(w, late < seconds, "rank %d ended %g s after the last fault", r, late);
    }
    assert_string_equal(got, ends);
    must(w, !w->has_to_follow || !w->node[0].x.leads, "rank 0 leads");
    must(w, !w->first || w->node[0].ends < w->first, "rank 0 has waited for rank 1, until %g s", w->node[0].ends);
    world_free(w);
}

static void case_init(World *w, int n, int lost, int slices)
{
    world_init(w, 7, n, slices);
    w->lost = lost;
    for (int r = 0; r < n; r++) w->node[r].writes = 1;
    if (lost >= 0) w->node[lost].dead = true;
}

static void add_fault(World *w, Fault f) { w->faults[w->n_faults++] = f; }

static void test_leader_dies(void **state)
{
    World w;
    (void)state;
    for (int slices = 0; slices <= 2; slices += 2)
        for (int nth = 0; nth < 9; nth++) { /* announces itself, leads, plans: three letters each */
            case_init(&w, 4, 3, slices);
            w.node[1].has = 3;
            add_fault(&w, (Fault){DIE, .rank = 0, .at = TEAM_SEND, .nth = nth});
            expect(&w, "-Ls-", 9);
        }
    for (int nth = 0; nth < 3; nth++) { /* the state is saved, and it says so to some */
        case_init(&w, 4, 3, 0);
        add_fault(&w, (Fault){DIE, .rank = 0, .at = TEAM_SEND, .nth = 9 + nth});
        expect(&w, "-ss-", 9);
    }
    case_init(&w, 4, 3, 0); /* and the next one, too */
    add_fault(&w, (Fault){DIE, .rank = 0, .at = TEAM_GATHERED});
    add_fault(&w, (Fault){DIE, .rank = 1, .at = TEAM_GATHERED});
    expect(&w, "--L-", 9);
}

static void test_freezes(void **state)
{
    World w;
    (void)state;
    case_init(&w, 3, 2, 0); /* the leader, until the other one has saved beside: both have the step */
    add_fault(&w, (Fault){FREEZE, .rank = 0, .at = TEAM_GATHERED, .seconds = 60});
    expect(&w, "LL-", 5);
    assert_int_equal(w.saves, 2);
    case_init(&w, 3, 2, 0); /* it goes on before the time-out */
    add_fault(&w, (Fault){FREEZE, .rank = 0, .at = TEAM_GATHERED, .seconds = TIMEOUT_S - 1});
    expect(&w, "Ls-", 5);
    case_init(&w, 3, 2, 0); /* a rank that comes late finds the state saved */
    w.node[0].begins = 60;
    w.has_to_follow = 1;
    expect(&w, "sL-", 65);
    case_init(&w, 3, 2, 0); /* while another one leads: it follows, and asks for no save of its own */
    w.node[0].begins = 7;
    w.node[1].writes = 20;
    w.has_to_follow = 1;
    expect(&w, "sL-", 40);
    case_init(&w, 4, 3, 0); /* the leader, before it has made a plan: the next one, which leads then, is not counted */
    w.node[1].writes = 60;
    add_fault(&w, (Fault){FREEZE, .rank = 0, .at = TEAM_TRY, .seconds = 20});
    w.first = 40;
    expect(&w, "LLs-", 65);
    case_init(&w, 4, 3, 0); /* or before it has sent it: it waits for no part of rank 1 */
    w.node[1].writes = 60;
    add_fault(&w, (Fault){FREEZE, .rank = 0, .at = TEAM_SEND, .nth = 6, .seconds = 20});
    w.first = 40;
    expect(&w, "LLs-", 65);
    case_init(&w, 4, 3, 0); /* a rank that has only announced itself; rank 2 follows the leader, which then dies */
    add_fault(&w, (Fault){FREEZE, .rank = 1, .at = TEAM_FOLLOW, .nth = 0, .seconds = TIMEOUT_S - 1});
    add_fault(&w, (Fault){DIE, .rank = 0, .nth = -1, .when = MEET_S + 2});
    expect(&w, "-Ls-", 9);
    case_init(&w, 4, 3, 2); /* a writer: another rank has its slice */
    w.node[1].has = w.node[2].has = 2;
    add_fault(&w, (Fault){FREEZE, .rank = 1, .at = TEAM_WRITE, .seconds = 60});
    expect(&w, "Lss-", 5);
}

static void test_writers(void **state)
{
    World w;
    (void)state;
    case_init(&w, 4, 3, 2); /* fails, and another rank has its slice */
    w.node[1].has = w.node[2].has = 2;
    add_fault(&w, (Fault){FAIL, .rank = 1, .at = TEAM_WRITE});
    expect(&w, "Lss-", 20);
    case_init(&w, 4, 3, 2); /* writes other bytes */
    w.node[1].has = w.node[2].has = 2;
    add_fault(&w, (Fault){FAIL, .rank = 1, .at = TEAM_TAKE});
    expect(&w, "Lss-", 20);
    case_init(&w, 4, 3, 3); /* dies, and nobody has its slice */
    add_fault(&w, (Fault){DIE, .rank = 1, .at = TEAM_WRITE});
    expect(&w, "0-0-", 20);
    case_init(&w, 3, 2, 0); /* takes 100 s: the leader writes its part, too */
    w.node[1].writes = 100;
    expect(&w, "Ls-", 105);
    case_init(&w, 4, 3, 0); /* is a step ahead: it writes none */
    w.node[1].has_step++;
    expect(&w, "Lss-", 20);
    case_init(&w, 3, 2, 0); /* the leader takes 5 minutes: the others end before */
    w.node[0].writes = 300;
    expect(&w, "Lu-", 310);
    case_init(&w, 3, 2, 0); /* the leader cannot write */
    add_fault(&w, (Fault){FAIL, .rank = 0, .at = TEAM_TRY});
    expect(&w, "ff-", 20);
    case_init(&w, 3, 2, 2); /* again and again: in the end alone */
    w.node[0].has = w.node[1].has = 3;
    for (int i = 0; i < 4; i++) add_fault(&w, (Fault){FAIL, .rank = 0, .at = TEAM_TRY});
    expect(&w, "ff-", 20);
    case_init(&w, 3, 2, 2); /* nor can others, though each has all */
    w.node[0].has = w.node[1].has = 3;
    w.bad_disk = 1;
    expect(&w, "ff-", 20);
    case_init(&w, 3, 2, 0); /* nobody can */
    w.node[0].able = w.node[1].able = false;
    expect(&w, "nn-", 5);
    case_init(&w, 3, 2, 0); /* only the last one can */
    w.node[0].able = false;
    expect(&w, "sL-", 10);
}

/* Rank 2 does not reach rank 0, which leads rank 1: it hears from rank 1 that the state is saved. */
static void test_cut(void **state)
{
    World w;
    (void)state;
    case_init(&w, 4, 3, 0);
    w.cut[0][2] = w.cut[2][0] = -TIMEOUT_S;
    w.troubled[0][2] = w.troubled[2][0] = true;
    expect(&w, "Lss-", 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leader_dies), cmocka_unit_test(test_freezes),   cmocka_unit_test(test_writers),
        cmocka_unit_test(test_cut),         cmocka_unit_test(test_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
