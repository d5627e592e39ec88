/* Who is blamed, from what ranks found. */
#include "testing.h"

#include "train/loop/audit.h"
#include "train/parts/audit_choice.h"

enum { MOST_RANKS = 4 };

typedef struct {
    AuditFinding all[AUDIT_ATTEMPTS * MOST_RANKS];
    int ranks, attempts;
    AuditBlame blame[MOST_RANKS];
} Findings;

/* A computation in which everything agrees; a rank's digest is 100 + rank. */
static AuditFinding *attempt(Findings *f, bool twice)
{
    AuditFinding *now = &f->all[f->attempts * f->ranks];
    int shift = f->ranks > 1 ? 1 + f->attempts % (f->ranks - 1) : 0;
    for (int r = 0; r < f->ranks; r++) {
        int partner = (r + shift) % f->ranks;
        now[r] = twice ? (AuditFinding){.partner = partner, .own = 100 + (uint64_t)r, .other = 100 + (uint64_t)partner}
                       : (AuditFinding){.partner = -1};
    }
    f->attempts++;
    return now;
}

/* What is known of each rank: '.' nothing, c changed, a apart, r recomputed, w wrong, s suspect; upper case: excluded.
 */
static void expect(Findings *f, const char *expected)
{
    char text[MOST_RANKS + 1] = "";
    audit_blame(f->all, f->attempts, f->ranks, f->blame);
    for (int r = 0; r < f->ranks; r++) {
        const AuditBlame *b = &f->blame[r];
        char known = b->recomputed ? 'r' : b->wrong ? 'w' : b->suspect ? 's' : '.';
        text[r] = b->changed ? 'c' : b->apart ? 'a' : known;
        if (b->excluded) text[r] = (char)(text[r] - 'a' + 'A');
    }
    assert_string_equal(text, expected);
}

static void recomputed(AuditFinding *f, int64_t tensor) { f->recomputed = (AuditFound){1, tensor, 5}; }

static void test_recomputed_tensors(void **state)
{
    (void)state;
    Findings f = {.ranks = 3};
    recomputed(&attempt(&f, false)[1], 7);
    expect(&f, ".r.");
    attempt(&f, false);
    expect(&f, "...");
    f.attempts--;
    recomputed(&attempt(&f, false)[1], 7);
    expect(&f, ".R.");
    f.attempts--;
    recomputed(&attempt(&f, false)[1], 8); /* another tensor: a third attempt */
    expect(&f, ".r.");
    recomputed(&attempt(&f, false)[2], 9);
    expect(&f, "..R");
}

static void test_one_rank(void **state)
{
    (void)state;
    Findings f = {.ranks = 1};
    attempt(&f, true)->own = 1;
    expect(&f, "w");
    attempt(&f, true);
    expect(&f, ".");
    f.attempts--;
    attempt(&f, true)->own = 2;
    expect(&f, "W");
}

/* Two ranks: whose fault it is shows when one of them contradicts itself. */
static void test_two_ranks(void **state)
{
    (void)state;
    Findings f = {.ranks = 2};
    attempt(&f, true)[1].own = 1;
    expect(&f, "ss");
    attempt(&f, true);
    expect(&f, "..");
    f.attempts--;
    attempt(&f, true)[1].own = 2;
    expect(&f, ".W");
    f.attempts--;
    attempt(&f, true)[1].own = 1; /* the same wrong bits each time */
    expect(&f, "ss");
    attempt(&f, true)[1].own = 1;
    expect(&f, "SS");
}

/* Three ranks and more: the next attempt has another partner, and the majority is right. */
static void test_more_ranks(void **state)
{
    (void)state;
    for (int ranks = 3; ranks <= MOST_RANKS; ranks++) {
        Findings f = {.ranks = ranks};
        AuditFinding *now = attempt(&f, true);
        now[1].own = 1;
        now[1].other = 2; /* rank 1 computes the share of rank 2, too */
        expect(&f, &"sss.\0sss"[ranks == 3 ? 5 : 0]);
        now = attempt(&f, true);
        now[1].own = 1;
        now[1].other = 3;
        audit_blame(f.all, f.attempts, f.ranks, f.blame);
        assert_true(f.blame[1].wrong && f.blame[1].excluded);
        for (int r = 0; r < ranks; r++) assert_true(r == 1 || !f.blame[r].excluded);
    }
}

/* What lasts from step to step: a rank's own memory, and the weights that all ranks have alike. */
static void test_memory(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        Findings f = {.ranks = ranks};
        AuditFinding *now = attempt(&f, true);
        now[ranks - 1].changed = (AuditFound){2, 7, 5};
        expect(&f, &"...c"[MOST_RANKS - ranks]);
        now[ranks - 1].changed = (AuditFound){0};
        now[ranks - 1].weights = 1; /* alone no other rank has others */
        expect(&f, ranks == 1 ? "." : ranks == 2 ? "aa" : &"...a"[MOST_RANKS - ranks]);
    }
    Findings four = {.ranks = 4};
    AuditFinding *now = attempt(&four, true);
    now[0].weights = now[2].weights = 1; /* two and two */
    expect(&four, "aaaa");
    for (int r = 0; r < 4; r++) now[r].partner = -1; /* computed once: there are no digests */
    expect(&four, "....");
}

/* Two pipelines of two places: ranks 0 and 1 have the first. What follows from another place accuses nobody, and
   weights are compared with those of the other pipeline's place. */
static void test_places(void **state)
{
    (void)state;
    for (int follows = 0; follows < 2; follows++) {
        Findings f = {.ranks = 4};
        AuditFinding *now = attempt(&f, true);
        for (int r = 0; r < 4; r++) {
            now[r].part = r / 2;
            now[r].weights = (uint64_t)now[r].part;
            now[r].partner = r ^ 1;
            now[r].other = now[r ^ 1].own;
        }
        now[1].own = now[3].own = 1; /* of the same share */
        now[3].follows = follows;
        expect(&f, follows ? "ss.." : "ssss");
        now[1].own = now[0].other, now[3].own = now[2].other;
        now[3].weights = 7;
        expect(&f, "..aa");
    }
}

/* Two pipelines of three places: the second's middle place is wrong on the way back, so that the first place differs,
   too. */
static void test_follow(void **state)
{
    (void)state;
    enum { RANKS = 6 };
    const Grid g = {.shape = {.kind = PIPELINE_1F1B, .places = 3, .chunks = 1, .micros = 4},
                    .stages = 3,
                    .replicas = 2,
                    .directions = 1};
    uint64_t sent[RANKS][2][1][2]; /* by the share */
    AuditFinding now[RANKS] = {{.partner = 0}};
    for (int r = 0; r < RANKS; r++) {
        now[r] = (AuditFinding){.partner = r ^ 1};
        for (int of = 0; of < 2; of++)
            for (int way = 0; way < 2; way++) sent[r][of][0][way] = (uint64_t)(10 * (r / 2) + 2 * (r % 2 ^ of) + way);
    }
    audit_follow(&g, &sent[0][0][0][0], now);
    for (int r = 0; r < RANKS; r++) assert_false(now[r].follows);
    sent[3][0][0][0] = 77; /* rank 3, its own share, back */
    sent[1][0][0][0] = 78; /* what the first place sends back, if it did */
    audit_follow(&g, &sent[0][0][0][0], now);
    for (int r = 0; r < RANKS; r++) assert_int_equal(now[r].follows, r == 1 || r == 5);
    sent[5][0][0][0] = 79; /* the last place was wrong before it */
    audit_follow(&g, &sent[0][0][0][0], now);
    for (int r = 0; r < RANKS; r++) assert_int_equal(now[r].follows, r == 1 || r == 3);
}

static void test_options(void **state)
{
    AuditChoice c;
    static const char *const bad[] = {"", "on", "5", "0%", "101%", "-1%", "nan%", "recompute,", "off,5%", "5%x"};
    (void)state;
    assert_ok(audit_parse("off", &c));
    assert_true(!c.recompute && c.share == 0);
    assert_ok(audit_parse("recompute", &c));
    assert_true(c.recompute && c.share == 0);
    assert_ok(audit_parse("2.5%", &c));
    assert_true(!c.recompute && c.share == 0.025);
    assert_ok(audit_parse("recompute,100%", &c));
    assert_true(c.recompute && c.share == 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_status(audit_parse(bad[i], &c), E_USAGE);
        assert_message("expected off, recompute");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recomputed_tensors),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_more_ranks),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_follow),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
