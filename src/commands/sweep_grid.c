/* The grid of a sweep: axes, runs, their names and command lines. */

#include "base/sort.h"
#include "commands/commands.h"
#include "commands/sweep.h"

extern char **environ;

/* ---- axes ---- */

static void add_value(SweepAxis *a, char *value) { MEM_PUSH(a->values, a->n, a->cap, value); }

/* "1-5" */
static bool parse_range(const char *text, long *first, long *last)
{
    char *end;
    if (!isdigit((unsigned char)*text)) return false;
    *first = strtol(text, &end, 10);
    if (*end != '-' || !isdigit((unsigned char)end[1])) return false;
    *last = strtol(end + 1, &end, 10);
    return *end == '\0';
}

static Status add_values(SweepAxis *a, char *list)
{
    for (char *value = strsep(&list, ","); value; value = strsep(&list, ",")) {
        long first, last;
        if (!*value) return fail(E_USAGE, "--vary %s has an empty value; expected FLAG=A,B", a->flag);
        if (!parse_range(value, &first, &last)) {
            add_value(a, mem_strdup(value));
            continue;
        }
        if (first > last || last - first >= SWEEP_MOST)
            return fail(E_USAGE, "--vary %s=%s: expected a range of at most %d whole numbers, the smaller first",
                        a->flag, value, SWEEP_MOST);
        for (long i = first; i <= last; i++) add_value(a, mem_printf("%ld", i));
    }
    const char *twice = sort_find_twice(a->values, (size_t)a->n);
    return twice ? fail(E_USAGE, "--vary %s has %s twice", a->flag, twice) : OK;
}

static Status add_axis(Sweep *s, const char *word)
{
    const char *equals = strchr(word, '=');
    if (strncmp(word, "--", 2) == 0) word += 2;
    if (!equals || equals == word || !equals[1])
        return fail(E_USAGE, "--vary '%s': expected FLAG=A,B,... as batch-size=24,48 or seed=1-5", word);
    MEM_PUSH(s->axes, s->n_axes, s->axes_cap, (SweepAxis){.flag = mem_strndup(word, (size_t)(equals - word))});
    SweepAxis *a = &s->axes[s->n_axes - 1];
    for (char *p = a->flag; *p; p++)
        if (*p == '_') *p = '-';
    for (int i = 0; i + 1 < s->n_axes; i++)
        if (strcmp(s->axes[i].flag, a->flag) == 0) return fail(E_USAGE, "--vary %s is given twice", a->flag);
    int option = config_option(a->flag);
    if (option == OPTION_output_dir || option == OPTION_seeds)
        return fail(E_USAGE, "--vary %s: each run has a folder of its own in --output-dir of the sweep", a->flag);
    if (option == OPTION_seed) s->seeds = s->n_axes - 1;
    a->of_launch = s->task_at > 0 && option >= 0 && config_option_of(option, COMMAND_LAUNCH) &&
                   !config_option_of(option, s->command);
    char *list = mem_strdup(equals + 1);
    Status status = add_values(a, list);
    free(list);
    return status != OK && *s->c->seeds ? status_context(status, "--seeds %s", s->c->seeds) : status;
}

static Status read_axes(Sweep *s)
{
    char *text = mem_strdup(s->c->vary), *rest = text;
    Status status = OK;
    for (char *word = strsep(&rest, "\n"); word && status == OK; word = strsep(&rest, "\n"))
        if (*word) status = add_axis(s, word);
    free(text);
    TRY(status);
    if (s->n_axes == 0) return fail(E_USAGE, "nothing to vary: give --vary FLAG=A,B, as --vary batch-size=24,48");
    return OK;
}

/* ---- runs ---- */

void sweep_add_word(SweepWords *w, char *word) { MEM_PUSH(w->words, w->n, w->cap, word); }

static void add_varied(const Sweep *s, const SweepRun *r, bool of_launch, SweepWords *w)
{
    for (int a = 0; a < s->n_axes; a++)
        if (s->axes[a].of_launch == of_launch)
            sweep_add_word(w, mem_printf("--%s=%s", s->axes[a].flag, s->axes[a].values[r->at[a]]));
}

SweepWords sweep_command(const Sweep *s, const SweepRun *r)
{
    SweepWords w = {0};
    char *kept = mem_strdup(r->kept.len ? r->kept.data : ""), *rest = kept;
    sweep_add_word(&w, mem_strdup("cairn"));
    for (int i = 0; i < s->n_words; i++) {
        if (s->task_at > 0 && i == s->task_at - 1) add_varied(s, r, true, &w); /* before the "--" of launch */
        sweep_add_word(&w, mem_strdup(s->words[i]));
    }
    add_varied(s, r, false, &w);
    sweep_add_word(&w, mem_printf("--output-dir=%s", r->dir));
    if (s->c->stop_after > 0) sweep_add_word(&w, mem_printf("--stop-after=%.3fs", s->c->stop_after));
    if (config_option_of(OPTION_seeds, s->command))
        sweep_add_word(&w, mem_strdup("--seeds=")); /* this sweep makes them */
    for (char *word = strsep(&rest, " "); word; word = strsep(&rest, " "))
        if (*word) sweep_add_word(&w, mem_strdup(word));
    free(kept);
    return w;
}

void sweep_words_free(SweepWords *w) { mem_free_texts(w->words, w->n); }

static void name_run(const Sweep *s, SweepRun *r)
{
    Buf name = {0};
    for (int a = 0; a < s->n_axes; a++)
        buf_printf(&name, "%s%s=%s", a ? "_" : "", s->axes[a].flag, s->axes[a].values[r->at[a]]);
    for (char *p = name.data; *p; p++)
        if (strchr("/ :", *p)) *p = '-';
    char *log = mem_printf("logs/%s.log", name.data);
    r->name = name.data;
    r->dir = file_join(s->c->output_dir, name.data);
    r->log = file_join(s->logs, log);
    free(log);
}

static Status read_ranks(const Sweep *s, const SweepWords *w, SweepRun *r)
{
    Config launch;
    if (s->task_at == 0) return OK;
    TRY(config_parse(&launch, w->n, w->words, environ));
    if (launch.ranks > 1) r->ranks = launch.ranks;
    config_free(&launch);
    return OK;
}

/* The configuration of the run's task, as the run itself will find it, and the ranks of its launcher. */
static Status parse_run(const Sweep *s, SweepRun *r)
{
    SweepWords w = sweep_command(s, r);
    int at = s->task_at;
    for (int a = 0; a < s->n_axes; a++) at += s->axes[a].of_launch; /* they stand before it */
    Status status = read_ranks(s, &w, r);
    char *task = w.words[at];
    w.words[at] = w.words[0];
    if (status == OK) status = config_parse(&r->c, w.n - at, w.words + at, environ);
    status = status_context(status, "the run %s", r->name);
    r->c.words = NULL;
    w.words[at] = task;
    sweep_words_free(&w);
    return status;
}

/* Runs that differ by their seed alone are a group. The last axis varies fastest. */
static void place_run(Sweep *s, int number)
{
    SweepRun *r = &s->runs[number];
    int rest = number, groups = 1;
    *r = (SweepRun){.at = mem_array((size_t)s->n_axes, sizeof *r->at), .ranks = 1, .planned = NAN, .host = NAN};
    for (int a = s->n_axes - 1; a >= 0; a--) {
        r->at[a] = rest % s->axes[a].n;
        rest /= s->axes[a].n;
        if (a == s->seeds) continue;
        r->group += groups * r->at[a];
        groups *= s->axes[a].n;
    }
    s->n_groups = groups;
    name_run(s, r);
}

static Status find_task(Sweep *s)
{
    if (s->n_words < 1) return fail(E_USAGE, "give the command behind \"--\": cairn sweep --vary seed=1-5 -- glue ...");
    bool launched = strcmp(s->words[0], "launch") == 0;
    for (int i = 1; launched && s->task_at == 0 && i + 1 < s->n_words; i++)
        if (strcmp(s->words[i], "--") == 0) s->task_at = i + 1;
    if (launched && s->task_at == 0)
        return fail(E_USAGE,
                    "cairn sweep … -- launch: expected its own \"--\" and a command: launch --ranks 2 -- glue ...");
    const char *task = s->words[s->task_at];
    if (commands_find_task(task, &s->command)) return OK;
    Buf tasks = {0};
    commands_list_tasks(&tasks);
    Status status = fail(E_USAGE, "cairn sweep makes runs of %s, also under launch; found '%s'", tasks.data, task);
    buf_free(&tasks);
    return status;
}

/* A varied flag, or --output-dir, among the command's own has no effect. */
static Status check_words(const Sweep *s, int at)
{
    int n = s->n_words - at;
    bool launch = at < s->task_at;
    Config c;
    char **words = mem_array((size_t)n + 2, sizeof *words);
    words[0] = (char *)"cairn";
    memcpy(words + 1, s->words + at, (size_t)n * sizeof *words);
    Status status = config_parse(&c, n + 1, words, environ);
    free(words);
    TRY(status);
    for (int a = 0; a < s->n_axes; a++) {
        int option = config_option(s->axes[a].flag);
        if (option >= 0 && s->axes[a].of_launch == launch && c.source[option] == FROM_FLAG)
            log_warn("--%s of the command is without effect: the sweep varies it", config_flag(option));
    }
    if (!launch && s->c->command == COMMAND_SWEEP && c.source[OPTION_output_dir] == FROM_FLAG)
        status = fail(E_USAGE,
                      "the command has --output-dir %s, but each run has a folder of its own; give the folder "
                      "of all before \"--\": cairn sweep --output-dir %s",
                      c.output_dir, c.output_dir);
    config_free(&c);
    return status;
}

Status sweep_grid(Sweep *s)
{
    double count = 1;
    s->seeds = -1;
    TRY(find_task(s));
    TRY(read_axes(s));
    TRY(check_words(s, s->task_at));
    if (s->task_at > 0) TRY(check_words(s, 0));
    for (int a = 0; a < s->n_axes; a++) count *= s->axes[a].n;
    if (count > SWEEP_MOST) return fail(E_USAGE, "--vary makes %.0f runs; expected at most %d", count, SWEEP_MOST);
    s->runs = mem_array((size_t)count, sizeof *s->runs);
    for (int i = 0; i < (int)count; i++) {
        place_run(s, s->n_runs++);
        TRY(parse_run(s, &s->runs[i]));
        for (int k = 0; k < i; k++)
            if (strcmp(s->runs[k].name, s->runs[i].name) == 0)
                return fail(E_USAGE, "two runs would have the folder %s", s->runs[i].dir);
    }
    return OK;
}

void sweep_free(Sweep *s)
{
    for (int i = 0; i < s->n_runs; i++) {
        SweepRun *r = &s->runs[i];
        if (r->record) run_record_free(r->record);
        free(r->record);
        config_free(&r->c);
        buf_free(&r->kept);
        MEM_FREE(r->name, r->dir, r->log, r->at, r->message);
    }
    for (int a = 0; a < s->n_axes; a++) {
        mem_free_texts(s->axes[a].values, s->axes[a].n);
        free(s->axes[a].flag);
    }
    MEM_FREE(s->axes, s->runs);
}

/* ---- runs that are there ---- */

void sweep_keep_former(Sweep *s)
{
    for (int i = 0; i < s->n_runs; i++) {
        SweepRun *r = &s->runs[i];
        Json *doc = NULL; /* the run itself reports damage */
        if (file_exists_in(r->dir, "run.json"))
            (void)js_read_in(r->dir, "run.json", &doc);
        else
            doc = commands_newest_state(r->dir);
        const Json *stored = js_get(doc, "config");
        if (config_keep_former(&r->c, stored, &r->kept)) {
            log_info("%s has %s, which was the default when it began; all runs of the sweep keep it", r->dir,
                     r->kept.data);
            for (int k = 0; k < s->n_runs; k++) (void)config_keep_former(&s->runs[k].c, stored, &s->runs[k].kept);
        }
        js_free(doc);
    }
}

/* Options that make a finished run continue, or evaluate again. */
static bool asks_for_more(const Config *c, const Json *stored)
{
    double before = 0;
    const char *text = js_string(js_get(stored, "stop-after"), "off");
    (void)clock_parse_duration(text, &before);
    bool longer = before > 0 && (c->stop_after == 0 || c->stop_after > before);
    return longer || (c->do_eval && !js_bool(js_get(stored, "do-eval"), false)) || c->do_predict || *c->submission;
}

Status sweep_find_done(SweepRun *r)
{
    Effect worst;
    Buf report = {0};
    Status status = OK;
    if (!file_exists_in(r->dir, "run.json")) return OK;
    RunRecord *record = mem_alloc(sizeof *record);
    TRY_DONE(run_record_read(r->dir, record));
    const Json *stored = js_get(record->doc, "config");
    TRY_DONE(config_difference(&r->c, stored, &worst, &report));
    if (worst == EFFECT_RESULT)
        TRY_DONE(fail(E_USAGE, "%s holds a finished run with other flags: %s. Give another --output-dir", r->dir,
                      report.data));
    if (asks_for_more(&r->c, stored)) goto done;
    r->state = SWEEP_DONE;
    r->record = record;
    r->planned = (double)record->s.planned_peak_bytes;
    record = NULL;
done:
    if (record) run_record_free(record);
    free(record);
    buf_free(&report);
    return status;
}
