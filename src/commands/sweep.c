/* `cairn sweep`: a command with every combination of values. All plans come first, then the runs, then one table. The
   folders of the runs are its only state, so the same command continues. */
#include <unistd.h>

#include "base/host.h"
#include "base/lock.h"
#include "commands/commands.h"
#include "commands/plan.h"
#include "commands/sweep.h"
#include "train/ranks/signals.h"

/* ---- arrays of schedulers ---- */

static void put_word(Buf *out, const char *word)
{
    buf_puts(out, " ");
    buf_word(out, word);
}

/* The words of this sweep with --index VARIABLE, without what prints them. */
static void put_sweep(const Sweep *s, const char *variable, Buf *out)
{
    char *vary = mem_strdup(s->c->vary), *rest = vary;
    buf_printf(out, " --index '%s' --output-dir", variable);
    put_word(out, s->c->output_dir);
    if (s->c->stop_after > 0) buf_printf(out, " --stop-after %.3fs", s->c->stop_after);
    for (char *word = strsep(&rest, "\n"); word; word = strsep(&rest, "\n")) {
        if (!*word) continue;
        buf_puts(out, " --vary");
        put_word(out, word);
    }
    buf_puts(out, " --");
    for (int i = 0; i < s->n_words; i++) put_word(out, s->words[i]);
    free(vary);
}

/* The folder with hpcai_scripts/: the program is in its build folder, or the sweep was started there. The caller
   frees. */
static Status find_scripts(char **folder)
{
    char *program = host_program(), *built = file_directory(program), *source = file_join(built, "..");
    const char *const places[] = {source, "."};
    *folder = NULL;
    for (int i = 0; i < 2 && !*folder; i++) {
        char *script = file_join(places[i], "hpcai_scripts/job.sh");
        if (file_exists(script)) *folder = realpath(places[i], NULL);
        free(script);
    }
    MEM_FREE(source, built, program);
    if (*folder) return OK;
    return fail(E_USAGE, "the job files in hpcai_scripts/ are neither in this folder nor beside the program's: start "
                         "the sweep from Cairn's source folder");
}

/* A host that has room for each of the runs. */
static JobNeeds array_needs(const Sweep *s)
{
    JobNeeds most = {.kind = plan_job_kind(s->c)};
    bool all_cores = false;
    for (int i = 0; i < s->n_runs; i++) {
        const SweepRun *r = &s->runs[i];
        bool device = isfinite(r->host);
        double bytes = device ? r->host : isfinite(r->planned) ? r->planned : 0; /* with its snapshots */
        if (r->ranks > most.ranks) most.ranks = r->ranks;
        if (r->ranks * r->c.threads > most.cores) most.cores = r->ranks * r->c.threads;
        if ((size_t)bytes > most.run) most.run = (size_t)bytes;
        most.gpus = most.gpus || device;
        all_cores = all_cores || r->c.threads == 0;
    }
    if (all_cores) most.cores = 0;
    most.per_host = most.ranks;
    return most;
}

/* Prints the command that submits all runs as one array of hpcai_scripts/job.*, with room for the largest. It runs
   in any folder; the runs begin in this one, by this program. */
static Status print_array(const Sweep *s)
{
    static const struct {
        const char *name, *variable, *submit, *file;
    } kinds[] = {[JOB_PBS] = {"pbs", "$PBS_ARRAY_INDEX", "qsub -J ", "job.pbs"},
                 [JOB_SLURM] = {"slurm", "$SLURM_ARRAY_TASK_ID", "sbatch --array=", "job.slurm"},
                 [JOB_GRID_ENGINE] = {"sge", "$SGE_TASK_ID", "qsub -t ", "job.sge"}};
    Buf flags = {0}, out = {0};
    JobNeeds needs = array_needs(s);
    char *scripts, *here, *program;
    TRY(find_scripts(&scripts));
    here = getcwd(NULL, 0);
    program = host_program();
    buf_puts(&out, "(cd");
    put_word(&out, scripts);
    buf_puts(&out, " && CAIRN_BINARY=");
    buf_word(&out, program);
    buf_puts(&out, " RUN_FOLDER=");
    buf_word(&out, here ? here : ".");
    buf_puts(&out, " RUN_SCRIPT=sweep.sh ");
    put_sweep(s, kinds[needs.kind].variable, &flags);
    if (needs.kind == JOB_PBS) { /* qsub hands on no words */
        buf_puts(&out, "RUN_FLAGS=\"");
        for (const char *p = flags.data + 1; *p; p++) buf_printf(&out, strchr("\"$\\`", *p) ? "\\%c" : "%c", *p);
        buf_puts(&out, "\" ");
    }
    buf_printf(&out, "%s1-%d", kinds[needs.kind].submit, s->n_runs);
    plan_job_flags(&needs, &out);
    buf_printf(&out, " hpcai_scripts/%s%s)\n", kinds[needs.kind].file, needs.kind == JOB_PBS ? "" : flags.data);
    buf_free(&flags);
    buf_print(&out);
    MEM_FREE(scripts, program, here);
    log_info(
        "it asks for the ranks, cores and memory of the runs as planned on this host; add the time that one needs. "
        "Afterwards the sweep without --%s prints the table",
        kinds[needs.kind].name);
    return OK;
}

/* ---- the command ---- */

static int count(const Sweep *s, SweepState state)
{
    int n = 0;
    for (int i = 0; i < s->n_runs; i++) n += s->runs[i].state == state;
    return n;
}

static Status check(const Config *c)
{
    if (c->pbs + c->slurm + c->sge > 1) return fail(E_USAGE, "give one of --pbs, --slurm and --sge");
    if (c->index > 0 && c->jobs > 1) return fail(E_USAGE, "--index makes one run; leave --jobs out");
    if (plan_job_kind(c) && c->jobs > 1)
        return fail(E_USAGE, "the scheduler makes the runs of an array side by side; leave --jobs out");
    if (getenv("CAIRN_RENDEZVOUS"))
        return fail(E_USAGE, "a sweep cannot run on ranks of a launcher; give the launcher to the sweep: cairn sweep "
                             "--vary seed=1-5 -- launch --ranks 2 -- glue ...");
    return OK;
}

/* Run --index alone: its end is the sweep's. */
static Status run_alone(Sweep *s, int n)
{
    SweepRun *r = &s->runs[n];
    for (int i = 0; i < s->n_runs; i++)
        if (i != n && s->runs[i].state == SWEEP_NEW) s->runs[i].state = SWEEP_STOPPED; /* not planned */
    if (r->state == SWEEP_DONE) {
        log_info("%s was finished before", r->dir);
        return OK;
    }
    TRY(sweep_plan(s));
    if (s->c->dry_run) return OK;
    TRY(sweep_run_all(s, n));
    if (r->state == SWEEP_DONE) return OK;
    Status end = r->state == SWEEP_TOO_BIG ? E_MEMORY : E_FAIL;
    if (r->code == status_exit_code(E_PEER)) end = E_PEER;
    if (r->code == status_exit_code(E_DIFFERS)) end = E_DIFFERS;
    return fail(end, "%s: %s", r->name, r->message);
}

static Status run_all(Sweep *s)
{
    const Config *c = s->c;
    TRY(sweep_plan(s));
    int too_big = count(s, SWEEP_TOO_BIG), done = count(s, SWEEP_DONE);
    log_info("%d runs: %d to make%s, %d finished before, %d do not fit", s->n_runs, count(s, SWEEP_NEW),
             c->jobs > 1 ? " (some at the same time)" : "", done, too_big);
    if (plan_job_kind(c)) return print_array(s);
    if (!c->dry_run) TRY(file_make_directories(c->output_dir));
    Status status = c->dry_run ? OK : sweep_run_all(s, -1);
    char *message = mem_strdup(status_message());
    Status written = sweep_results(s);
    if (status != OK) status = fail(status, "%s", message);
    free(message);
    TRY(status);
    TRY(written);
    if (count(s, SWEEP_FAILED))
        return fail(E_FAIL, "%d of %d runs failed: see sweep.csv and logs/ in %s; the same command tries them again",
                    count(s, SWEEP_FAILED), s->n_runs, c->output_dir);
    if (count(s, SWEEP_TOO_BIG) == s->n_runs)
        return fail(E_MEMORY, "no run fits: %s", s->runs[0].message ? s->runs[0].message : "");
    return OK;
}

/* A dry run leaves nothing in --output-dir. */
static Status choose_logs(Sweep *s)
{
    const char *folder = getenv("TMPDIR");
    s->logs = s->c->dry_run ? mem_printf("%s/cairn-sweep-XXXXXX", folder && *folder ? folder : "/tmp")
                            : mem_strdup(s->c->output_dir);
    if (!s->c->dry_run || mkdtemp(s->logs)) return OK;
    return fail(E_IO, "%s: cannot make a folder for the plans' logs: %m; set TMPDIR", s->logs);
}

/* Its runs are compared, so they make equally many steps. */
static Status check_fit(const Sweep *s)
{
    for (int i = 0; i < s->n_words; i++)
        if (str_starts_with(s->words[i], "--fit-schedule") || str_starts_with(s->words[i], "--fit_schedule"))
            return fail(E_USAGE, "--fit-schedule: each run would choose its own number of steps. Fit one run, and give "
                                 "the --max-steps that it prints to all");
    return OK;
}

static Status sweep(Sweep *s)
{
    const Config *c = s->c;
    FolderLock lock = {0};
    Status status = OK;
    TRY(check(c));
    TRY(check_fit(s));
    signals_install();
    TRY_DONE(choose_logs(s));
    TRY_DONE(sweep_grid(s));
    if (c->index > s->n_runs)
        TRY_DONE(fail(E_USAGE, "--index %lld: the sweep has %d runs", (long long)c->index, s->n_runs));
    sweep_keep_former(s);
    for (int i = 0; i < s->n_runs; i++) TRY_DONE(sweep_find_done(&s->runs[i]));
    bool array = c->index > 0 || plan_job_kind(c); /* its runs are made side by side */
    if (!array && !c->dry_run) TRY_DONE(lock_take(&lock, c->output_dir));
    status = c->index > 0 ? run_alone(s, (int)c->index - 1) : run_all(s);
done:
    lock_release(&lock);
    if (c->dry_run) (void)file_remove_tree(s->logs);
    free(s->logs);
    sweep_free(s);
    return status;
}

Status command_sweep(const Config *c)
{
    Sweep s = {.c = c, .words = c->positional, .n_words = c->n_positional};
    return sweep(&s);
}

Status command_seeds(const Config *c)
{
    Config own = *c;
    own.vary = mem_printf("seed=%s", c->seeds);
    own.stop_after = 0; /* it is among the words */
    own.max_time = c->max_time;
    own.jobs = 1;
    own.index = 0;
    own.pbs = own.slurm = own.sge = false;
    Sweep s = {.c = &own, .words = c->words, .n_words = c->n_words};
    Status status = sweep(&s);
    free(own.vary);
    return status;
}
