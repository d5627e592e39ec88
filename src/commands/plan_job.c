#include "commands/plan.h"

#include <unistd.h>

#define CUDA_BYTES  ((size_t)4 << 30) /* a rank's CUDA context and libraries on the host: estimated, not measured */
#define OTHER_BYTES ((size_t)1 << 30) /* a host's data, launcher, agents and shells */
#define MARGIN      1.1
#define GPU_CORES   5
#define USUAL_TIME  (4 * 3600.0)
#define LATE        1.5 /* walltime in terms of the predicted time */
#define START_S     600.0

static int64_t host_gib(const JobNeeds *n)
{
    double rank = (double)(n->run + n->snapshots + (n->gpus ? CUDA_BYTES : 0));
    return (int64_t)ceil((MARGIN * rank * (double)n->per_host + (double)OTHER_BYTES) / (double)(1 << 30));
}

static int64_t host_cores(const JobNeeds *n)
{
    if (n->cores) return n->cores;
    return n->gpus ? GPU_CORES * n->per_host : (int64_t)sysconf(_SC_NPROCESSORS_ONLN);
}

/* In steps of ten minutes. */
static int64_t walltime(const JobNeeds *n)
{
    double seconds = n->seconds > 0 ? LATE * n->seconds + START_S : USUAL_TIME;
    return (int64_t)ceil(seconds / 600) * 600;
}

static int64_t hosts_of(const JobNeeds *n) { return (n->ranks + n->per_host - 1) / n->per_host; }

static void put_pbs(const JobNeeds *n, const char *before, const char *after, Buf *out)
{
    buf_printf(out, "%s-l select=%lld:", before, (long long)hosts_of(n));
    if (n->gpus) buf_printf(out, "ngpus=%lld:", (long long)n->per_host);
    buf_printf(out, "ncpus=%lld:mpiprocs=%lld:mem=%lldgb%s", (long long)host_cores(n), (long long)n->per_host,
               (long long)host_gib(n), after);
    buf_printf(out, "%s-l place=scatter%s", before, after);
}

static void put_slurm(const JobNeeds *n, const char *before, const char *after, Buf *out)
{
    int64_t cores = host_cores(n) / n->per_host;
    buf_printf(out, "%s--nodes=%lld%s", before, (long long)hosts_of(n), after);
    buf_printf(out, "%s--ntasks-per-node=%lld%s", before, (long long)n->per_host, after);
    buf_printf(out, "%s--cpus-per-task=%lld%s", before, (long long)(cores > 0 ? cores : 1), after);
    if (n->gpus) buf_printf(out, "%s--gpus-per-node=%lld%s", before, (long long)n->per_host, after);
    buf_printf(out, "%s--mem=%lldG%s", before, (long long)host_gib(n), after);
}

static void put_grid_engine(const JobNeeds *n, const char *before, const char *after, Buf *out)
{
    int64_t each = (host_gib(n) + n->per_host - 1) / n->per_host;
    buf_printf(out, "%s-pe mpi %lld%s", before, (long long)n->ranks, after);
    buf_printf(out, "%s-l mem_free=%lldG%s", before, (long long)each, after);
}

static const struct {
    void (*put)(const JobNeeds *n, const char *before, const char *after, Buf *out);
    const char *line, *time; /* what begins a line of the job file; the option of its time */
} schedulers[] = {[JOB_PBS] = {put_pbs, "#PBS ", "-l walltime="},
                  [JOB_SLURM] = {put_slurm, "#SBATCH ", "--time="},
                  [JOB_GRID_ENGINE] = {put_grid_engine, "#$ ", "-l h_rt="}};

JobKind plan_job_kind(const Config *c)
{
    return c->pbs ? JOB_PBS : c->slurm ? JOB_SLURM : c->sge ? JOB_GRID_ENGINE : JOB_NONE;
}

void plan_job_flags(const JobNeeds *n, Buf *out) { schedulers[n->kind].put(n, " ", "", out); }

static void put_remarks(const JobNeeds *n, Buf *out)
{
    if (n->kind == JOB_PBS) {
        int64_t hosts = hosts_of(n);
        buf_puts(out, "# where a site takes resources of the whole job instead of select and place:\n#   #PBS -l ");
        if (n->gpus) buf_printf(out, "ngpus=%lld,", (long long)(n->per_host * hosts));
        buf_printf(out, "ncpus=%lld,mem=%lldgb\n", (long long)(host_cores(n) * hosts),
                   (long long)(host_gib(n) * hosts));
    }
    if (n->kind == JOB_GRID_ENGINE) {
        buf_puts(out, "# mem_free is of a slot; sites that limit memory have another name for it (`qconf -sc`).");
        buf_puts(out,
                 n->gpus ? " Not h_vmem:\n# it limits addresses, of which CUDA takes far more than memory.\n" : "\n");
    }
}

static double gib(size_t bytes) { return mib(bytes) / 1024; }

void plan_job(const JobNeeds *n, Buf *out)
{
    int64_t hosts = hosts_of(n), seconds = walltime(n);
    schedulers[n->kind].put(n, schedulers[n->kind].line, "\n", out);
    buf_printf(out, "%s%s%02lld:%02lld:00\n", schedulers[n->kind].line, schedulers[n->kind].time,
               (long long)(seconds / 3600), (long long)(seconds / 60 % 60));
    put_remarks(n, out);
    if (n->kind != JOB_GRID_ENGINE && hosts * n->per_host != n->ranks)
        buf_printf(out, "# these hosts have slots for %lld ranks: give --ranks %lld to the run\n",
                   (long long)(hosts * n->per_host), (long long)n->ranks);
    buf_printf(out, "# memory of a host, %lld rank%s: each %.2f GiB for the run and %.2f GiB for snapshots",
               (long long)n->per_host, n->per_host == 1 ? "" : "s", gib(n->run), gib(n->snapshots));
    if (n->gpus) buf_printf(out, " and %.0f GiB for CUDA (an estimate)", gib(CUDA_BYTES));
    buf_printf(out, "; 10 %% more; %.0f GiB for data and scripts\n", gib(OTHER_BYTES));
    if (n->seconds > 0)
        buf_printf(out, "# predicted: %.0f s of training, without the exchange between ranks\n", n->seconds);
    else
        buf_puts(out, "# give --max-steps for a time that follows from the prediction\n");
}
