/* Equal losses of runs: which runs have them, and what lets the others differ. */
#include "commands/report.h"
#include "config/table.h"

/* Files change bits too, beside the options to which options.h gives an effect. Their digests are compared where both
   runs have them. */
static bool may_change_bits(int option, bool by_digests)
{
    const char *flag = config_flag(option);
    bool file = str_list_has("data-dir model model-config vocab input", ' ', flag, strlen(flag));
    return file ? !by_digests : config_effect(option) != EFFECT_NONE;
}

/* A digest of the run's record; "": it has none. */
static const char *digest_in(const ComparedRun *run, const char *key)
{
    return js_string(js_get(js_get(run->state ? run->state : run->r.doc, "fingerprint"), key), "");
}

static void add_reason(Buf *out, const char *dashes, const char *name)
{
    buf_printf(out, "%s%s%s", out->len ? ", " : "", dashes, name);
}

/* What lets the losses of two runs differ (contracts.md 9); nothing: they must be equal. */
static void differences(const ComparedRun *a, const ComparedRun *b, Buf *out)
{
    const RunSummary *s = &a->r.s, *o = &b->r.s;
    static const char *const digests[][2] = {{"data", "the data"}, {"origin", "the model or its first weights"}};
    int known = 0;
    if (!a->config || !b->config) add_reason(out, "", "an unknown configuration");
    if (js_bool(js_get(a->config, "override"), false) || js_bool(js_get(b->config, "override"), false))
        add_reason(out, "", "other flags of earlier steps (--override)");
    for (int i = 0; i < 2; i++) {
        const char *x = digest_in(a, digests[i][0]), *y = digest_in(b, digests[i][0]);
        known += *x && *y;
        if (*x && *y && strcmp(x, y) != 0) add_reason(out, "", digests[i][1]);
    }
    for (int i = 0; i < N_OPTIONS; i++)
        if (may_change_bits(i, known == 2) &&
            compare_option_differs(a, b, config_flag(i), config_fallback(i, N_COMMANDS)))
            add_reason(out, "--", config_flag(i));
    if (!a->r.finished || !b->r.finished) return;
    if (strcmp(s->precision, o->precision) != 0) add_reason(out, "", "the precision");
    if (strcmp(s->backend, o->backend) != 0) add_reason(out, "", "the backend or its libraries");
    if (js_int(js_get(a->r.doc, "ranks"), 1) != js_int(js_get(b->r.doc, "ranks"), 1))
        add_reason(out, "", "the number of ranks");
}

/* ---- two runs ---- */

typedef struct {
    int common;     /* steps that both have, from the first such on */
    int rest[2];    /* steps of each from there on */
    int at[2];      /* the first difference, an index of each run's steps; −1: none */
    double largest; /* of the differences, as a share of the larger loss; NaN: none is a number */
    double step;    /* where it is */
} LossPair;

/* Losses are compared as they were written, with 17 digits. A run that began with a checkpoint of another folder lacks
   the steps before it. */
static LossPair compare_pair(const ComparedRun *a, const ComparedRun *b)
{
    const double *steps = a->r.column[STEP_NUMBER], *others = b->r.column[STEP_NUMBER];
    LossPair p = {.at = {-1, -1}, .largest = NAN};
    int i = 0, j = 0;
    while (i < a->r.n_steps && j < b->r.n_steps && steps[i] != others[j]) *(steps[i] < others[j] ? &i : &j) += 1;
    p.rest[0] = a->r.n_steps - i;
    p.rest[1] = b->r.n_steps - j;
    p.common = p.rest[0] < p.rest[1] ? p.rest[0] : p.rest[1];
    for (int k = 0; k < p.common; k++, i++, j++) {
        bool same = steps[i] == others[j];
        double x = a->r.column[STEP_LOSS][i], y = b->r.column[STEP_LOSS][j];
        double share = fabs(x - y) / fmax(fabs(x), fabs(y));
        if (same && strcmp(a->r.text[STEP_LOSS_TEXT][i], b->r.text[STEP_LOSS_TEXT][j]) == 0) continue;
        if (p.at[0] < 0) p.at[0] = i, p.at[1] = j;
        if (!same) break;
        if (isfinite(share) && !(share <= p.largest)) p.largest = share, p.step = steps[i];
    }
    return p;
}

static bool is_equal(const LossPair *p) { return p->common > 0 && p->at[0] < 0 && p->rest[0] == p->rest[1]; }

/* Whether a run has all steps that its configuration asks for: it finished, and nothing ends it before. */
static bool has_all_steps(const ComparedRun *run)
{
    const Json *c = run->config;
    bool ends_early = strcmp(js_string(js_get(c, "stop-after"), "off"), "off") != 0 ||
                      js_int(js_get(c, "patience"), 0) > 0 || js_real(js_get(c, "target-mlm-accuracy"), 0) > 0;
    return run->r.finished && !ends_early;
}

/* A run with fewer steps promises nothing about the others. */
static bool is_promised(const ComparedRun *a, const ComparedRun *b, const LossPair *p)
{
    return p->common > 0 && (p->at[0] >= 0 || (has_all_steps(a) && has_all_steps(b)));
}

static bool are_comparable(const ComparedRun *a, const ComparedRun *b)
{
    return !a->r.finished || !b->r.finished || strcmp(a->r.s.task, b->r.s.task) == 0;
}

static void put_pair(const ComparedRun *a, const ComparedRun *b, const LossPair *p, Buf *out)
{
    if (p->common == 0) {
        buf_printf(out, "%s and %s have no step in common", a->name, b->name);
    } else if (p->at[0] < 0) {
        buf_printf(out, "are equal over %d steps; %s has %d steps, %s has %d", p->common, a->name, a->r.n_steps,
                   b->name, b->r.n_steps);
    } else {
        buf_printf(out, "differ from step %.0f on: %s in %s, %s in %s", a->r.column[STEP_NUMBER][p->at[0]],
                   a->r.text[STEP_LOSS_TEXT][p->at[0]], a->name, b->r.text[STEP_LOSS_TEXT][p->at[1]], b->name);
        if (isfinite(p->largest))
            buf_printf(out, "; the largest difference is %.2g of the loss, at step %.0f", p->largest, p->step);
    }
}

/* ---- groups ---- */

/* Whether run i is equal to all members of the group. */
static bool belongs(const ComparedRun *runs, const LossGroups *g, int i, int group)
{
    for (int k = 0; k < i; k++) {
        if (g->group[k] != group) continue;
        LossPair p = compare_pair(&runs[k], &runs[i]);
        if (!are_comparable(&runs[k], &runs[i]) || !is_equal(&p)) return false;
    }
    return true;
}

static void find_groups(const ComparedRun *runs, int n, LossGroups *g)
{
    *g = (LossGroups){.n = 0};
    for (int i = 0, group; i < n; i++) {
        for (group = 0; group < g->n && !belongs(runs, g, i, group);) group++;
        g->group[i] = group;
        if (g->size[group]++ > 0) continue;
        g->first[group] = i;
        g->n++;
    }
}

void losses_put_group(const ComparedRun *runs, int n, const LossGroups *g, int group, Buf *out)
{
    for (int i = 0; i < n; i++)
        if (g->group[i] == group) buf_printf(out, "%s%s", i > g->first[group] ? " = " : "", runs[i].name);
}

static void put_group(const ComparedRun *runs, int n, const LossGroups *g, int group, Buf *out)
{
    const ComparedRun *first = &runs[g->first[group]];
    int least = first->r.n_steps;
    if (g->size[group] < 2) return;
    for (int i = 0; i < n; i++) {
        if (g->group[i] != group) continue;
        int common = compare_pair(first, &runs[i]).common;
        if (common < least) least = common;
    }
    buf_printf(out, "losses: equal, bit for bit, over %d steps: ", least);
    losses_put_group(runs, n, g, group, out);
    buf_puts(out, "\n");
}

/* A group against the first one of its task. A broken promise has a message instead of a line. */
static void put_difference(const ComparedRun *runs, const LossGroups *g, int group, Buf *out)
{
    const ComparedRun *b = &runs[g->first[group]], *a = runs;
    for (int other = group - 1; other >= 0; other--)
        if (are_comparable(&runs[g->first[other]], b)) a = &runs[g->first[other]];
    if (!are_comparable(a, b)) {
        buf_printf(out, "losses: %s is %s, %s is %s: not compared\n", a->name, a->r.s.task, b->name, b->r.s.task);
        return;
    }
    Buf why = {0};
    LossPair p = compare_pair(a, b);
    differences(a, b, &why);
    if (why.len || !is_promised(a, b, &p)) {
        buf_puts(out, "losses: ");
        put_pair(a, b, &p, out);
        buf_printf(out, "%s%s\n", why.len ? "; the runs differ in " : "", why.len ? why.data : "");
    }
    buf_free(&why);
}

/* The first broken promise between each two groups. */
static void find_broken(const ComparedRun *runs, int n, const LossGroups *g, Buf *broken)
{
    bool said[COMPARE_MOST][COMPARE_MOST] = {{false}};
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++) {
            const ComparedRun *a = &runs[i], *b = &runs[k];
            bool *before = &said[g->group[i]][g->group[k]];
            if (*before || g->group[i] == g->group[k] || !are_comparable(a, b)) continue;
            Buf why = {0};
            LossPair p = compare_pair(a, b);
            differences(a, b, &why);
            if (!why.len && is_promised(a, b, &p)) {
                buf_puts(broken, broken->len ? "; the losses " : "the losses ");
                put_pair(a, b, &p, broken);
                *before = said[g->group[k]][g->group[i]] = true;
            }
            buf_free(&why);
        }
    if (broken->len) buf_puts(broken, ". Their configurations promise equal losses (docs/contracts.md, section 9)");
}

void losses_compare(const ComparedRun *runs, int n, LossGroups *g, Buf *out, Buf *broken)
{
    find_groups(runs, n, g);
    for (int group = 0; group < g->n; group++) put_group(runs, n, g, group, out);
    for (int group = 1; group < g->n; group++) put_difference(runs, g, group, out);
    find_broken(runs, n, g, broken);
}
