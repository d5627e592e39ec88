/* sim: runs schedules, drawn or named or given, and shows the first one that breaks an invariant. */
#include "sim.h"

#include <fnmatch.h>

#include "named.h"

static void usage(FILE *to)
{
    fputs("sim [--seed N] [--count N]   schedules drawn from the seeds N, N + 1 … (default: 1, 20 000 of them;\n"
          "                             with CAIRN_TEST_DEEP a million)\n"
          "sim --schedule TEXT          one schedule, such as 'hosts 2 each 2; kill 3 @ step 0 #2; freeze 0 @ lead 0'\n"
          "sim --named [NAME]           those that have a name: hard cases, each with what has to become of it\n"
          "    --trace                  shows each event\n"
          "    --list                   shows the schedules alone\n"
          "    --all                    goes on behind a broken invariant, and makes no schedule smaller\n"
          "Exit codes: 0 no invariant is broken, 1 one is, 2 usage.\n",
          to);
}

/* Shows how to see it again, and one with less in it. */
static int show_failure(Schedule *s)
{
    char *text = schedule_text(s);
    printf("broken: %s\n  sim --trace --schedule '%s'\n", w.failure, text);
    free(text);
    schedule_shrink(s);
    text = schedule_text(s);
    printf("smaller: %s\n  sim --trace --schedule '%s'\n", w.failure, text);
    free(text);
    return 1;
}

static void list(const Schedule *s)
{
    char *text = schedule_text(s);
    puts(text);
    free(text);
}

static int run_drawn(uint64_t seed, uint64_t count, bool trace, bool only_list, bool all)
{
    uint64_t events = 0, starts = 0, broken = 0, faults = 0, struck = 0;
    double begin = clock_monotonic();
    for (uint64_t i = 0; i < count; i++) {
        Schedule s;
        schedule_draw(&s, seed + i);
        if (only_list) list(&s);
        if (only_list) continue;
        if (!sim_run(&s, trace)) {
            printf("seed %" PRIu64 ": ", seed + i);
            if (!all) return show_failure(&s);
            printf("%s\n", w.failure);
            broken++;
        }
        for (int f = 0; f < s.n_faults; f++) struck += w.schedule.faults[f].struck;
        faults += (uint64_t)s.n_faults;
        events += w.events;
        starts += (uint64_t)w.starts;
        if (count == 1) printf("%s\n", w.story.data ? w.story.data : "");
    }
    if (only_list) return 0;
    printf("%" PRIu64 " schedules, %" PRIu64 " starts, %" PRIu64 " of %" PRIu64 " faults struck, %" PRIu64
           " events, %.1f s; %" PRIu64 " broken\n",
           count, starts, struck, faults, events, clock_monotonic() - begin, broken);
    return broken > 0;
}

static int run_text(const char *text, bool trace)
{
    Schedule s;
    if (!schedule_parse(&s, text)) return 2;
    if (!sim_run(&s, trace)) return show_failure(&s);
    printf("%s\n", w.story.data ? w.story.data : "");
    return 0;
}

/* With many seeds, so that it does not depend on delays. */
static bool is_as_named(const NamedSchedule *x, Schedule s, bool traced)
{
    enum { SEEDS = 50 };
    for (uint64_t last = traced ? s.seed : s.seed + SEEDS; s.seed <= last; s.seed++) {
        bool whole = sim_run(&s, traced);
        const char *told = w.story.data ? w.story.data : "";
        if (whole && fnmatch(x->story, told, 0) == 0) continue;
        char *text = schedule_text(&s);
        printf("%s:\n  sim --trace --schedule '%s'\n", x->name, text);
        if (whole)
            printf("  %s\n  has to be: %s\n", told, x->story);
        else
            printf("  broken: %s\n", w.failure);
        free(text);
        return false;
    }
    return true;
}

static int run_named(const char *name, bool trace)
{
    int bad = 0, n = 0;
    for (const NamedSchedule *x = named_schedules; x->name; x++) {
        Schedule s;
        if (name && strcmp(name, x->name) != 0) continue;
        if (!schedule_parse(&s, x->schedule)) return 2;
        n++;
        bad += !is_as_named(x, s, trace);
    }
    printf("%d named schedules, %d of them failed\n", n, bad);
    return bad > 0 || n == 0;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, count = 0;
    const char *text = NULL, *name = NULL;
    bool trace = false, named = false, only_list = false, all = false;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(a, "--trace") == 0) {
            trace = true;
        } else if (strcmp(a, "--list") == 0) {
            only_list = true;
        } else if (strcmp(a, "--all") == 0) {
            all = true;
        } else if (strcmp(a, "--named") == 0) {
            named = true;
            if (value && strncmp(value, "--", 2) != 0) name = argv[++i];
        } else if (strcmp(a, "--schedule") == 0 && value) {
            text = argv[++i];
        } else if (strcmp(a, "--seed") == 0 && value) {
            seed = strtoull(argv[++i], NULL, 10);
            if (count == 0) count = 1;
        } else if (strcmp(a, "--count") == 0 && value) {
            count = strtoull(argv[++i], NULL, 10);
        } else {
            bool help = strcmp(a, "--help") == 0;
            usage(help ? stdout : stderr);
            return help ? 0 : 2;
        }
    }
    if (count == 0) count = getenv("CAIRN_TEST_DEEP") ? 1000000 : 20000;
    if (text) return run_text(text, trace);
    if (named) return run_named(name, trace);
    return run_drawn(seed, count, trace, only_list, all);
}
