/* Schedules: drawn from a seed, read and written as text, made smaller while they fail. */
#include "sim.h"

#include <ctype.h>
#include <stddef.h>

/* ---- as text ---- */

typedef enum { FLAG, NUMBER, REAL, SEED } FieldKind;

static const struct {
    const char *name;
    FieldKind kind;
    size_t offset;
} fields[] = {
    {"seed", SEED, offsetof(Schedule, seed)},           {"hosts", NUMBER, offsetof(Schedule, hosts)},
    {"each", NUMBER, offsetof(Schedule, each)},         {"here", FLAG, offsetof(Schedule, here)},
    {"shared", FLAG, offsetof(Schedule, shared)},       {"all", FLAG, offsetof(Schedule, all)},
    {"scattered", FLAG, offsetof(Schedule, scattered)}, {"copies", FLAG, offsetof(Schedule, copies)},
    {"steps", NUMBER, offsetof(Schedule, steps)},       {"save-every", NUMBER, offsetof(Schedule, save_every)},
    {"keep", NUMBER, offsetof(Schedule, keep)},         {"restarts", NUMBER, offsetof(Schedule, restarts)},
    {"step-s", REAL, offsetof(Schedule, step_s)},       {"write-s", REAL, offsetof(Schedule, write_s)},
    {"standby", NUMBER, offsetof(Schedule, standby)},   {"timeout", REAL, offsetof(Schedule, timeout)},
    {"delay", REAL, offsetof(Schedule, delay)},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static const char *const points[] = {
#define X(name, word) [name] = (word),
    POINT_LIST(X)
#undef X
};
static const struct {
    const char *word;
    char target;
} kinds[] = {
#define X(name, word, target) [name] = {word, target},
    FAULT_LIST(X)
#undef X
};

static const Schedule quiet = {.seed = 1,
                               .hosts = 1,
                               .each = 2,
                               .here = true,
                               .shared = true,
                               .steps = 6,
                               .save_every = 2,
                               .keep = 2,
                               .restarts = 3,
                               .step_s = 1,
                               .write_s = 0.5,
                               .timeout = 6,
                               .delay = 0.02};

static char *field_of(const Schedule *s, int i) { return (char *)(uintptr_t)s + fields[i].offset; }

static void put_field(Buf *text, const Schedule *s, int i)
{
    const void *value = field_of(s, i);
    const char *space = text->len ? " " : "";
    switch (fields[i].kind) {
    case FLAG:
        buf_printf(text, "%s%s%s", space, *(const bool *)value ? "" : "no-", fields[i].name);
        break;
    case NUMBER:
        buf_printf(text, "%s%s %d", space, fields[i].name, *(const int *)value);
        break;
    case REAL:
        buf_printf(text, "%s%s %.17g", space, fields[i].name, *(const double *)value);
        break;
    case SEED:
        buf_printf(text, "%s%s %" PRIu64, space, fields[i].name, *(const uint64_t *)value);
        break;
    }
}

static bool is_as_quiet(const Schedule *s, int i)
{
    static const size_t sizes[] = {
        [FLAG] = sizeof(bool), [NUMBER] = sizeof(int), [REAL] = sizeof(double), [SEED] = sizeof(uint64_t)};
    return memcmp(field_of(s, i), field_of(&quiet, i), sizes[fields[i].kind]) == 0;
}

static void put_fault(Buf *text, const Fault *f)
{
    buf_printf(text, "; %s", kinds[f->kind].word);
    if (strchr("rah", kinds[f->kind].target)) buf_printf(text, " %d", f->target);
    if (f->other >= 0) buf_printf(text, " with %d", f->other);
    if (f->number) buf_printf(text, " number %d", f->number);
    if (f->seconds < INFINITY) buf_printf(text, " for %.17g", f->seconds);
    buf_puts(text, " @");
    if (f->at == POINT_TIME) {
        buf_printf(text, " %.17g", f->when);
        return;
    }
    buf_printf(text, " %s", points[f->at]);
    if (f->by >= 0) buf_printf(text, " %d", f->by);
    if (f->nth) buf_printf(text, " #%d", f->nth);
}

char *schedule_text(const Schedule *s)
{
    Buf text = {0};
    for (int i = 0; i < N_FIELDS; i++)
        if (!is_as_quiet(s, i)) put_field(&text, s, i);
    for (int i = 0; i < s->n_faults; i++) put_fault(&text, &s->faults[i]);
    return text.data ? text.data : mem_strdup("");
}

static const char *skip(const char *at) { return at + strspn(at, " \n"); }

/* Takes `word`, if it is next. */
static bool take(const char **at, const char *word)
{
    size_t n = strlen(word);
    const char *here = skip(*at);
    if (strncmp(here, word, n) != 0 || (here[n] && !strchr(" ;\n", here[n]) && here[n - 1] != '#')) return false;
    *at = here + n;
    return true;
}

static bool take_real(const char **at, double *value)
{
    char *end;
    const char *here = skip(*at);
    *value = strtod(here, &end);
    if (end == here) return false;
    *at = end;
    return true;
}

static bool take_number(const char **at, int *value)
{
    double real;
    if (!take_real(at, &real)) return false;
    *value = (int)real;
    return true;
}

static bool take_field(const char **at, Schedule *s)
{
    for (int i = 0; i < N_FIELDS; i++) {
        char *value = field_of(s, i), no[32];
        snprintf(no, sizeof no, "no-%s", fields[i].name);
        bool off = fields[i].kind == FLAG && take(at, no);
        if (!off && !take(at, fields[i].name)) continue;
        if (fields[i].kind == FLAG) *(bool *)value = !off;
        if (fields[i].kind == NUMBER) return take_number(at, (int *)(void *)value);
        if (fields[i].kind == REAL) return take_real(at, (double *)(void *)value);
        if (fields[i].kind == SEED) {
            char *end;
            *(uint64_t *)(void *)value = strtoull(skip(*at), &end, 10);
            *at = end;
        }
        return true;
    }
    return false;
}

static bool take_fault(const char **at, Fault *f)
{
    int kind = 0, p = 1;
    *f = (Fault){.other = -1, .by = -1, .seconds = INFINITY};
    while (kind < N_FAULT_KINDS && !take(at, kinds[kind].word)) kind++;
    if (kind == N_FAULT_KINDS) return false;
    f->kind = (FaultKind)kind;
    if (strchr("rah", kinds[kind].target) && !take_number(at, &f->target)) return false;
    if (take(at, "with") && !take_number(at, &f->other)) return false;
    if (take(at, "number") && !take_number(at, &f->number)) return false;
    if (take(at, "for") && !take_real(at, &f->seconds)) return false;
    if (!take(at, "@")) return false;
    if (take_real(at, &f->when)) return true;
    while (p < N_POINTS && !take(at, points[p])) p++;
    if (p == N_POINTS) return false;
    f->at = (Point)p;
    (void)take_number(at, &f->by);
    return !take(at, "#") || take_number(at, &f->nth);
}

bool schedule_parse(Schedule *s, const char *text)
{
    const char *at = text;
    *s = quiet;
    while (take_field(&at, s)) {}
    while (take(&at, ";")) {
        if (s->n_faults < SIM_FAULTS && take_fault(&at, &s->faults[s->n_faults++])) continue;
        fprintf(stderr, "not understood as a fault, or one too many: '%s'\n", at);
        return false;
    }
    bool fits = s->hosts >= 1 && s->hosts < SIM_HOSTS && s->each >= 1 && s->standby >= 0 && s->standby <= SIM_STANDBYS;
    fits = fits && s->hosts * s->each + s->standby <= SIM_RANKS;
    if (*skip(at)) fprintf(stderr, "not understood: '%s'\n", at);
    if (!fits) fprintf(stderr, "%d hosts with %d ranks each are not simulated\n", s->hosts, s->each);
    return fits && !*skip(at);
}

/* ---- drawn ---- */

static void draw_sizes(Schedule *s)
{
    double kind = uniform(0, 1);
    if (kind < 0.75)
        *s = (Schedule){.hosts = 1 + pick(2), .each = chance(0.3) ? 1 : 2};
    else if (kind < 0.97)
        *s = (Schedule){.hosts = 1 + pick(4), .each = 1 + pick(3)};
    else if (kind < 0.9985)
        *s = (Schedule){.hosts = 1 + pick(8), .each = 1 + pick(3)};
    else
        *s = (Schedule){.hosts = 4 + pick(5), .each = 1 + pick(8)};
}

static double draw_seconds(double timeout)
{
    double kind = uniform(0, 1);
    return kind < 0.3 ? uniform(0, timeout) : kind < 0.6 ? uniform(timeout, 3 * timeout) : INFINITY;
}

static int draw_signal(void) { return (int[]){SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP}[pick(5)]; }

/* Where a first fault strikes, and what others strike in its wake. */
static void draw_moment(const Schedule *s, Fault *f, bool first)
{
    f->at = (Point)(first ? 1 + pick(POINT_PRUNE) : POINT_MEET + pick(N_POINTS - POINT_MEET));
    if (chance(first ? 0.6 : 0.4)) f->at = POINT_TIME;
    f->when = uniform(0, 2 + s->steps * (s->step_s + 0.5));
    f->by = chance(0.5) ? -1 : pick(s->hosts * s->each);
    f->nth = f->at == POINT_STEP ? 1 + pick(s->steps) : chance(0.8) ? 0 : pick(3);
}

static void draw_fault(const Schedule *s, Fault *f, bool first)
{
    static const FaultKind often[] = {FAULT_KILL, FAULT_KILL, FAULT_FREEZE, FAULT_FREEZE, FAULT_CUT, FAULT_HOST};
    int ranks = s->hosts * s->each;
    *f = (Fault){.other = -1, .by = -1, .seconds = INFINITY};
    f->kind = chance(0.6) ? often[pick(6)] : (FaultKind)pick(N_FAULT_KINDS);
    char target = kinds[f->kind].target;
    f->target = target == 'r' ? (chance(0.4) ? 0 : pick(ranks)) : target == 'l' || target == '-' ? 0 : pick(s->hosts);
    if (target != '-' && target != 'l' && f->kind != FAULT_KILL) f->seconds = draw_seconds(s->timeout);
    if (f->kind == FAULT_FREEZE_LAUNCHER) f->seconds = draw_seconds(s->timeout);
    if (f->kind == FAULT_CUT && chance(0.3)) f->other = pick(s->hosts + !s->here);
    if (f->kind == FAULT_SIGNAL || f->kind == FAULT_SIGNAL_LAUNCHER) f->number = draw_signal();
    if (f->kind == FAULT_SIGNAL_LAUNCHER && chance(0.2)) f->number = SIGTSTP, f->seconds = uniform(0, 60);
    if (f->kind == FAULT_SLOW) f->number = 2 + pick(200);
    if (f->kind == FAULT_SCHEDULER) f->seconds = chance(0.5) ? 10 : 60, f->number = pick(2);
    if (f->kind == FAULT_FAIL || f->kind == FAULT_DESERT || f->kind == FAULT_SIGNAL) f->seconds = INFINITY;
    draw_moment(s, f, first);
}

/* A rank is lost at a step, and more befalls those that save: what the other schedules seldom come to. */
static void draw_survivors(Schedule *s)
{
    static const FaultKind kinds_of[] = {FAULT_KILL, FAULT_KILL, FAULT_KILL, FAULT_FREEZE, FAULT_FREEZE,
                                         FAULT_HANG, FAULT_FULL, FAULT_SLOW, FAULT_CUT};
    bool calm = chance(0.5);
    int ranks;
    s->hosts = 1 + pick(4);
    s->each = s->hosts == 1 ? 2 + pick(4) : s->hosts == 2 ? 1 + pick(3) : 1 + chance(0.3);
    ranks = s->hosts * s->each;
    s->steps = 2 + pick(2);
    s->save_every = s->restarts = 0;
    s->step_s = 0.3;
    s->delay = chance(0.5) ? 0.02 : 0.4;
    s->faults[s->n_faults++] = (Fault){.kind = calm || chance(0.8) ? FAULT_KILL : FAULT_FREEZE,
                                       .target = pick(ranks),
                                       .other = -1,
                                       .seconds = INFINITY,
                                       .at = POINT_STEP,
                                       .nth = 1 + pick(s->steps)};
    s->faults[0].by = s->faults[0].target;
    for (int i = 1 + pick(4); i > 0; i--) {
        Fault *f = &s->faults[s->n_faults++];
        int rank = pick(chance(0.5) ? ranks : 3);
        *f = (Fault){.kind = calm ? FAULT_KILL : kinds_of[pick(9)], .target = rank % ranks, .other = -1};
        f->at = (Point)(POINT_MEET + pick(POINT_EXIT - POINT_MEET));
        f->by = f->target;
        f->nth = chance(0.8) ? 0 : 1;
        f->seconds = chance(0.4) ? uniform(0, 2 * s->timeout) : chance(0.5) ? uniform(0, s->timeout / 2) : INFINITY;
        if (f->kind == FAULT_FREEZE && chance(0.3)) f->seconds = s->timeout + uniform(-1, 1);
        if (f->kind == FAULT_FULL) f->number = pick(2);
        if (f->kind == FAULT_SLOW) f->number = 2 + pick(200);
        if (f->kind == FAULT_CUT) f->target = pick(s->hosts);
    }
}

/* Several, to ranks that wait for each other. */
static void draw_signals(Schedule *s)
{
    double when = uniform(1.5, 5);
    for (int i = 2 + pick(4); i > 0; i--)
        s->faults[s->n_faults++] = (Fault){.kind = FAULT_SIGNAL,
                                           .target = pick(s->hosts * s->each),
                                           .other = -1,
                                           .by = -1,
                                           .number = draw_signal(),
                                           .seconds = INFINITY,
                                           .when = when + uniform(0, 0.6)};
}

/* Drawn last, so that schedules without standby do not depend on it. */
static void draw_standby(Schedule *s)
{
    s->standby = 1 + pick(chance(0.7) ? 2 : SIM_STANDBYS);
    if (s->n_faults < SIM_FAULTS) draw_fault(s, &s->faults[s->n_faults++], false);
    for (Fault *f = s->faults + 1; f < s->faults + s->n_faults; f++)
        if (f->kind <= FAULT_FREEZE && chance(0.3)) f->target = s->hosts * s->each + pick(s->standby);
}

void schedule_draw(Schedule *s, uint64_t seed)
{
    uint64_t before = w.random;
    w.random = seed * UINT64_C(0xd1342543de82ef95) + 1;
    draw_sizes(s);
    s->seed = seed;
    s->here = chance(0.7);
    s->shared = chance(0.8);
    s->all = chance(0.5);
    s->scattered = chance(0.4);
    s->copies = s->scattered && chance(0.5);
    s->steps = 1 + pick(6);
    s->save_every = pick(4);
    s->keep = 1 + pick(3);
    s->restarts = chance(0.2) ? 0 : 1 + pick(3);
    s->timeout = chance(0.8) ? 6 : chance(0.5) && s->hosts * s->each <= 6 ? 2 : 30; /* many beats with 2 */
    s->step_s = chance(0.9) ? uniform(0.05, 2) : uniform(0, 2 * s->timeout);
    s->write_s = chance(0.9) ? uniform(0.01, 2) : uniform(2, 20);
    s->delay = chance(0.7) ? 0.02 : 0.4;
    double special = uniform(0, 1);
    if (special < 0.25) draw_survivors(s);
    if (special > 0.95) draw_signals(s);
    int n = s->n_faults || chance(0.1) ? 0 : chance(0.6) ? 1 : chance(0.6) ? 2 : 3 + pick(3);
    for (int i = 0; i < n; i++) draw_fault(s, &s->faults[s->n_faults++], i == 0 || chance(0.2));
    if (chance(0.13) && s->hosts * s->each + SIM_STANDBYS <= SIM_RANKS) draw_standby(s);
    w.random = before;
}

/* ---- made smaller ---- */

/* Whether it fails with one of a few seeds, the first of which is taken. */
static bool fails(Schedule *s)
{
    const uint64_t seed = s->seed;
    if (s->hosts < 1 || s->each < 1 || s->steps < 1 || s->keep < 1 || s->save_every < 0 || s->restarts < 0 ||
        s->standby < 0)
        return false;
    for (int i = 0; i < 30; i++) {
        s->seed = seed + (uint64_t)i;
        if (!sim_run(s, false)) return true;
    }
    s->seed = seed;
    return false;
}

static bool try(Schedule *s, Schedule smaller)
{
    if (memcmp(s, &smaller, sizeof smaller) == 0 || !fails(&smaller)) return false;
    *s = smaller;
    return true;
}

static bool drop_faults(Schedule *s)
{
    bool any = false;
    for (int i = 0; i < s->n_faults; i++) {
        Schedule t = *s;
        memmove(&t.faults[i], &t.faults[i + 1], (size_t)(--t.n_faults - i) * sizeof *t.faults);
        any = try(s, t) || any;
    }
    return any;
}

/* A field as in a small quiet job, or one less. */
static bool ease_fields(Schedule *s)
{
    bool any = false;
    for (int i = 0; i < N_FIELDS; i++) {
        Schedule t = *s;
        const void *calm = field_of(&quiet, i);
        char *value = field_of(&t, i);
        if (fields[i].kind == FLAG) *(bool *)value = *(const bool *)calm;
        if (fields[i].kind == NUMBER && *(int *)(void *)value > 0) *(int *)(void *)value -= 1;
        if (fields[i].kind == REAL) *(double *)(void *)value = *(const double *)calm;
        any = try(s, t) || any;
    }
    return any;
}

static bool ease_times(Schedule *s)
{
    bool any = false;
    for (int i = 0; i < s->n_faults; i++) {
        Schedule t = *s;
        Fault *f = &t.faults[i];
        f->when = round(f->when * 10) / 10;
        any = try(s, t) || any;
        t = *s;
        if (f->seconds < INFINITY) f->seconds = round(f->seconds);
        any = try(s, t) || any;
        t = *s;
        if (f->seconds < INFINITY && f->kind != FAULT_SCHEDULER) f->seconds = INFINITY;
        any = try(s, t) || any;
        t = *s;
        if (f->at != POINT_TIME) f->nth = f->at == POINT_STEP ? 1 : 0;
        any = try(s, t) || any;
    }
    return any;
}

void schedule_shrink(Schedule *s)
{
    bool any = true;
    for (int i = 0; i < 20 && any; i++) {
        any = drop_faults(s);
        any = ease_fields(s) || any;
        any = ease_times(s) || any;
    }
    (void)sim_run(s, false); /* so that its failure is the last one */
}
