/* --proof: the page that a judge reads, as HTML and as text. Each section is made once and goes into both. */
#include "commands/report.h"

#define TEXT_COLUMNS 100

typedef struct {
    Buf html, text;
} Proof;

static void put_section(Proof *p, const char *title)
{
    buf_puts(&p->html, "<h2>");
    markup_text(&p->html, title);
    buf_puts(&p->html, "</h2>\n");
    buf_printf(&p->text, "\n%s\n\n", title);
}

/* Takes the lines. */
static void put_lines(Proof *p, Buf *lines)
{
    if (lines->len) {
        buf_puts(&p->html, "<p class=\"lines\">");
        markup_text(&p->html, lines->data);
        buf_puts(&p->html, "</p>\n");
        buf_puts(&p->text, lines->data);
        if (lines->data[lines->len - 1] != '\n') buf_puts(&p->text, "\n");
    }
    buf_free(lines);
}

/* Takes the table. */
static void put_table(Proof *p, Table *t)
{
    table_html(t, &p->html);
    table_print(t, TEXT_COLUMNS, &p->text);
    table_free(t);
}

/* ---- what was changed ---- */

static void put_changes(const ComparedRun *runs, int n, Proof *p)
{
    Table t = {0};
    Buf lines = {0};
    compare_begin(runs, n, &t);
    compare_setup(runs, n, &t);
    for (int i = 1; i < n; i++) {
        const char *between = ": ";
        buf_printf(&lines, "%s against %s", runs[i].name, runs[0].name);
        for (int row = 1; row < t.count / (n + 1); row++) {
            const TableCell *cells = &t.cells[row * (n + 1)];
            if (strcmp(cells[1].text, cells[1 + i].text) == 0) continue;
            buf_printf(&lines, "%s%s %s → %s", between, cells[0].text, cells[1].text, cells[1 + i].text);
            between = "; ";
        }
        buf_puts(&lines, *between == ':' ? ": nothing of this table\n" : "\n");
    }
    buf_puts(&lines, "\n");
    put_lines(p, &lines);
    put_table(p, &t);
}

/* ---- why it is the same mathematics ---- */

/* Compares the digests of a group's runs at the steps at which all have one. */
static void put_digests(const ComparedRun *runs, int n, const LossGroups *g, int group, bool weights, Buf *out)
{
    int first = -1, members = 0, found = 0, equal = 0;
    double last = 0, differs = 0;
    for (int i = n - 1; i >= 0; i--)
        if (g->group[i] == group) first = i, members++;
    const RunRecord *a = &runs[first].r;
    for (int k = 0; k < a->n_steps && members > 1; k++) {
        int have = 0, same = 0;
        for (int i = first; i < n; i++) {
            const RunRecord *b = &runs[i].r;
            int at = b->n_steps - a->n_steps + k; /* equal losses end with the same step */
            if (g->group[i] != group || at < 0) continue;
            const char *x = (weights ? a->weights : a->grads)[k], *y = (weights ? b->weights : b->grads)[at];
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
    buf_printf(out, "digests of the %s: equal at %d of %d steps", weights ? "weights" : "summed gradients", equal,
               found);
    if (differs > 0) buf_printf(out, ", they differ from step %.0f on", differs);
    buf_printf(out, ", up to step %.0f: ", last);
    losses_put_group(runs, n, g, group, out);
    buf_puts(out, "\n");
}

static void put_mathematics(const ComparedRun *runs, int n, const LossGroups *g, const char *losses, Proof *p)
{
    Buf lines = {0};
    buf_puts(&lines, losses);
    if (lines.len && lines.data[lines.len - 1] != '\n') buf_puts(&lines, "\n");
    size_t before = lines.len;
    for (int group = 0; group < g->n; group++)
        for (int weights = 0; weights < 2; weights++) put_digests(runs, n, g, group, weights, &lines);
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
static bool same_but_seed(const Table *t, int n, int i, int k)
{
    for (int row = 1; row < t->count / (n + 1); row++) {
        const TableCell *cells = &t->cells[row * (n + 1)];
        bool seed = strcmp(cells[0].text, "--seed") == 0;
        if (!seed && strcmp(cells[1 + i].text, cells[1 + k].text) != 0) return false;
    }
    return true;
}

/* Mean and deviation of an evaluation over runs that differ in their seeds alone. */
static void put_mean(const ComparedRun *runs, int n, const bool *chosen, const char *name, Buf *out)
{
    double values[COMPARE_MOST], sum = 0, squares = 0;
    int count = 0;
    for (int i = 0; i < n; i++)
        if (chosen[i]) sum += values[count++] = summary_value(runs[i].r.s.evals, runs[i].r.s.n_evals, name);
    if (!isfinite(sum)) return;
    for (int i = 0; i < count; i++) squares += (values[i] - sum / count) * (values[i] - sum / count);
    buf_printf(out, "%s: %.4f ± %.4f over %d seeds (mean ± standard deviation of a sample)\n", name, sum / count,
               sqrt(squares / (count - 1)), count);
}

static void put_seeds(const ComparedRun *runs, int n, Buf *out)
{
    Table t = {0};
    bool done[COMPARE_MOST] = {false};
    compare_begin(runs, n, &t);
    compare_setup(runs, n, &t);
    for (int i = 0; i < n; i++) {
        bool chosen[COMPARE_MOST] = {false};
        int count = 0;
        if (done[i]) continue;
        for (int k = i; k < n; k++) {
            bool other = k == i || compare_option_differs(&runs[i], &runs[k], "seed");
            chosen[k] = other && runs[k].r.finished && same_but_seed(&t, n, i, k);
            done[k] = done[k] || chosen[k];
            count += chosen[k];
        }
        if (count < 2) continue;
        for (int k = i; k < n; k++)
            if (chosen[k]) buf_printf(out, "%s%s", k > i ? ", " : "", runs[k].name);
        buf_puts(out, ":\n");
        for (int e = 0; e < runs[i].r.s.n_evals; e++) put_mean(runs, n, chosen, runs[i].r.s.evals[e].name, out);
    }
    table_free(&t);
}

static Status draw_loss(void *context, const char *file, const Chart *chart)
{
    Proof *p = context;
    if (strcmp(file, "loss") == 0) page_chart(&p->html, chart);
    return OK;
}

/* ---- where, with what, by which command ---- */

static void put_machines(const ComparedRun *runs, int n, Proof *p)
{
    static const char *const keys[] = {"device", "hosts", "backend", "version", "started"};
    Buf machines = {0}, commands = {0};
    for (int i = 0; i < n; i++) {
        const Json *doc = runs[i].r.doc;
        buf_printf(&machines, "%s: ", runs[i].name);
        if (!doc) buf_puts(&machines, "has not finished, so that run.json is missing");
        for (size_t k = 0; k < sizeof keys / sizeof *keys && doc; k++)
            buf_printf(&machines, "%s%s%s", k ? "; " : "",
                       k == 3   ? "Cairn "
                       : k == 4 ? "started "
                                : "",
                       js_string(js_get(doc, keys[k]), "unknown"));
        buf_puts(&machines, "\n");
        if (doc) buf_printf(&commands, "%s: %s\n", runs[i].name, js_string(js_get(doc, "command"), "unknown"));
    }
    put_section(p, "Hardware and software");
    put_lines(p, &machines);
    put_section(p, "Command lines");
    put_lines(p, &commands);
}

Status proof_write(const Config *c, const ComparedRun *runs, int n, const LossGroups *groups, const char *losses)
{
    Proof p = {0};
    Table figures = {0};
    Buf seeds = {0};
    char *title = mem_printf("Proof of %d runs, %s is the baseline", n, runs[0].name), *about = compare_about(runs, n);
    page_begin(&p.html, title, about);
    buf_printf(&p.text, "%s\n%s\n", title, about);
    put_section(&p, "What was changed");
    put_changes(runs, n, &p);
    put_section(&p, "Why it is the same mathematics");
    put_mathematics(runs, n, groups, losses, &p);
    Status status = compare_charts(runs, n, groups->n == 1 && n > 1, draw_loss, &p);
    put_section(&p, "Evidence: accuracy, speed-up, memory");
    compare_begin(runs, n, &figures);
    compare_figures(runs, n, &figures);
    put_table(&p, &figures);
    put_seeds(runs, n, &seeds);
    put_lines(&p, &seeds);
    put_machines(runs, n, &p);
    page_end(&p.html);
    if (status == OK) status = file_write_text(c->output_dir, "proof.html", &p.html);
    if (status == OK) status = file_write_text(c->output_dir, "proof.txt", &p.text);
    if (status == OK) printf("written to %s: proof.html, proof.txt\n", c->output_dir);
    BUF_FREE(&p.html, &p.text);
    MEM_FREE(title, about);
    return status;
}
