/* --proof: the page that a judge reads, as HTML and as text. Each section is made once and goes into both. */
#include "commands/report.h"

typedef struct {
    Buf html, text;
} Proof;

static void put_section(Proof *p, const char *title)
{
    page_title(&p->html, title);
    buf_printf(&p->text, "\n%s\n\n", title);
}

/* Takes the lines. */
static void put_lines(Proof *p, Buf *lines)
{
    if (lines->len) {
        page_lines(&p->html, lines->data);
        buf_puts(&p->text, lines->data);
    }
    buf_free(lines);
}

static void put_table(Proof *p, const Table *t)
{
    table_html(t, &p->html);
    table_print(t, TABLE_COLUMNS, &p->text);
}

/* ---- what was changed ---- */

static void put_changes(const ComparedRun *runs, int n, const Table *setup, Proof *p)
{
    Buf lines = {0};
    for (int i = 1; i < n; i++) {
        const char *between = ": ";
        buf_printf(&lines, "%s against %s", runs[i].name, runs[0].name);
        for (const TableCell *cells = setup->cells + n + 1; cells < setup->cells + setup->count; cells += n + 1) {
            if (strcmp(cells[1].text, cells[1 + i].text) == 0) continue;
            buf_printf(&lines, "%s%s %s → %s", between, cells[0].text, cells[1].text, cells[1 + i].text);
            between = "; ";
        }
        buf_puts(&lines, *between == ':' ? ": nothing of this table\n" : "\n");
    }
    buf_puts(&lines, "\n");
    put_lines(p, &lines);
    put_table(p, setup);
}

/* ---- why it is the same mathematics ---- */

/* Compares the digests of a group's runs at the steps at which all have one. */
static void put_digests(const ComparedRun *runs, int n, const LossGroups *g, int group, StepText digest, Buf *out)
{
    int members = g->size[group], found = 0, equal = 0;
    double last = 0, differs = 0;
    const RunRecord *a = &runs[g->first[group]].r;
    for (int k = 0; k < a->n_steps && members > 1; k++) {
        int have = 0, same = 0;
        for (int i = 0; i < n; i++) {
            const RunRecord *b = &runs[i].r;
            int at = b->n_steps - a->n_steps + k; /* equal losses end with the same step */
            if (g->group[i] != group || at < 0) continue;
            const char *x = a->text[digest][k], *y = b->text[digest][at];
            have += x && y;
            same += x && y && strcmp(x, y) == 0;
        }
        if (have < members) continue;
        found++;
        equal += same == members;
        last = a->column[STEP_NUMBER][k];
        if (same < members && differs == 0) differs = last;
    }
    if (found == 0) return;
    buf_printf(out, "digests of the %s: equal at %d of %d steps",
               digest == STEP_WEIGHTS ? "weights" : "summed gradients", equal, found);
    if (differs > 0) buf_printf(out, ", they differ from step %.0f on", differs);
    buf_printf(out, ", up to step %.0f: ", last);
    losses_put_group(runs, n, g, group, out);
    buf_puts(out, "\n");
}

static void put_mathematics(const ComparedRun *runs, int n, const LossGroups *g, const char *losses, Proof *p)
{
    Buf lines = {0};
    buf_puts(&lines, losses);
    size_t before = lines.len;
    for (int group = 0; group < g->n; group++)
        for (int t = STEP_GRADS; t <= STEP_WEIGHTS; t++) put_digests(runs, n, g, group, (StepText)t, &lines);
    if (g->n == n && n > 1)
        buf_puts(&lines, "No two runs have equal losses.\n");
    else if (lines.len == before && n > 1)
        buf_puts(&lines, "Runs with equal losses have no digests in common: --digest-steps N of a run records digests "
                         "of its gradients and weights.\n");
    buf_puts(&lines, "Losses are compared step by step, as written with 17 digits, which is every bit of them.\n");
    put_lines(p, &lines);
}

/* ---- evidence ---- */

/* Whether two runs differ in nothing but their seeds, by the rows of the setup. */
static bool same_but_seed(const Table *setup, int n, int i, int k)
{
    for (const TableCell *cells = setup->cells + n + 1; cells < setup->cells + setup->count; cells += n + 1)
        if (strcmp(cells[0].text, "--seed") != 0 && strcmp(cells[1 + i].text, cells[1 + k].text) != 0) return false;
    return true;
}

/* Mean and deviation of an evaluation over (count) runs that differ in their seeds alone. */
static void put_mean(const RunSummary *const *runs, int count, const char *name, Buf *out)
{
    double values[COMPARE_MOST], sum = 0, squares = 0;
    for (int i = 0; i < count; i++) sum += values[i] = summary_value(runs[i]->evals, runs[i]->n_evals, name);
    if (!isfinite(sum)) return;
    for (int i = 0; i < count; i++) squares += (values[i] - sum / count) * (values[i] - sum / count);
    buf_printf(out, "%s: %.4f ± %.4f over %d seeds (mean ± standard deviation of a sample)\n", name, sum / count,
               sqrt(squares / (count - 1)), count);
}

static void put_seeds(const ComparedRun *runs, int n, const Table *setup, Buf *out)
{
    bool done[COMPARE_MOST] = {false};
    for (int i = 0; i < n; i++) {
        const RunSummary *chosen[COMPARE_MOST];
        Buf names = {0};
        int count = 0;
        if (done[i]) continue;
        for (int k = i; k < n; k++) {
            bool other = k == i || compare_option_differs(&runs[i], &runs[k], "seed", "");
            if (!other || !runs[k].r.finished || !same_but_seed(setup, n, i, k)) continue;
            buf_printf(&names, "%s%s", count ? ", " : "", runs[k].name);
            chosen[count++] = &runs[k].r.s;
            done[k] = true;
        }
        if (count > 1) buf_printf(out, "%s:\n", names.data);
        for (int e = 0; e < runs[i].r.s.n_evals && count > 1; e++)
            put_mean(chosen, count, runs[i].r.s.evals[e].name, out);
        buf_free(&names);
    }
}

static Status draw_loss(void *context, const char *file, const Chart *chart)
{
    Proof *p = context;
    if (strcmp(file, "loss.svg") == 0) page_chart(&p->html, chart);
    return OK;
}

/* ---- where, with what, by which command ---- */

static void put_machines(const ComparedRun *runs, int n, Proof *p)
{
    static const char *const facts[][2] = {
        {"", "device"}, {"; ", "hosts"}, {"; ", "backend"}, {"; Cairn ", "version"}, {"; started ", "started"}};
    Buf machines = {0}, commands = {0};
    for (int i = 0; i < n; i++) {
        const Json *doc = runs[i].r.doc;
        buf_printf(&machines, "%s: ", runs[i].name);
        if (!doc) buf_puts(&machines, "has not finished, so that run.json is missing");
        for (size_t k = 0; k < sizeof facts / sizeof *facts && doc; k++)
            buf_printf(&machines, "%s%s", facts[k][0], js_string(js_get(doc, facts[k][1]), "unknown"));
        buf_puts(&machines, "\n");
        int64_t ranks = js_int(js_get(doc, "ranks"), 1);
        if (doc)
            buf_printf(&commands, "%s: %s%s\n", runs[i].name,
                       ranks > 1
                           ? SHORT_TEXT("each of %lld ranks, by cairn launch or another launcher: ", (long long)ranks)
                           : "",
                       js_string(js_get(doc, "command"), "unknown"));
    }
    put_section(p, "Hardware and software");
    put_lines(p, &machines);
    put_section(p, "Command lines");
    put_lines(p, &commands);
}

Status proof_write(const Config *c, const ComparedRun *runs, int n, const LossGroups *groups, const char *losses)
{
    Proof p = {0};
    Table setup = {0}, figures = {0};
    Buf seeds = {0};
    char *title = mem_printf("Proof of %d run%s, %s is the baseline", n, n == 1 ? "" : "s", runs[0].name),
         *about = compare_about(runs, n);
    compare_setup(runs, n, &setup);
    compare_figures(runs, n, &figures);
    page_begin(&p.html, title, about);
    buf_printf(&p.text, "%s\n%s\n", title, about);
    put_section(&p, "What was changed");
    put_changes(runs, n, &setup, &p);
    put_section(&p, "Whether it is the same mathematics");
    put_mathematics(runs, n, groups, losses, &p);
    Status status = compare_charts(runs, n, groups->n == 1 && n > 1, draw_loss, &p);
    put_section(&p, "Evidence: accuracy, speed-up, memory");
    put_table(&p, &figures);
    put_seeds(runs, n, &setup, &seeds);
    put_lines(&p, &seeds);
    put_machines(runs, n, &p);
    page_end(&p.html);
    if (status == OK) status = file_write_text(c->output_dir, "proof.html", &p.html);
    if (status == OK) status = file_write_text(c->output_dir, "proof.txt", &p.text);
    if (status == OK) printf("written to %s: proof.html, proof.txt\n", c->output_dir);
    table_free(&setup);
    table_free(&figures);
    BUF_FREE(&p.html, &p.text);
    MEM_FREE(title, about);
    return status;
}
