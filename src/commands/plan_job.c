#include "commands/plan_job.h"

#include <math.h>
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

static void put_time(Buf *out, const char *before, int64_t seconds)
{
    buf_printf(out, "%s%02lld:%02lld:00\n", before, (long long)(seconds / 3600), (long long)(seconds / 60 % 60));
}

static void put_pbs(const JobNeeds *n, int64_t hosts, Buf *out)
{
    long long cores = host_cores(n), gib = host_gib(n);
    buf_printf(out, "#PBS -l select=%lld:", (long long)hosts);
    if (n->gpus) buf_printf(out, "ngpus=%lld:", (long long)n->per_host);
    buf_printf(out, "ncpus=%lld:mpiprocs=%lld:mem=%lldgb\n#PBS -l place=scatter\n", cores, (long long)n->per_host, gib);
    put_time(out, "#PBS -l walltime=", walltime(n));
    buf_printf(out, "# where a site takes resources of the whole job instead of select and place:\n#   #PBS -l ");
    if (n->gpus) buf_printf(out, "ngpus=%lld,", (long long)(n->per_host * hosts));
    buf_printf(out, "ncpus=%lld,mem=%lldgb\n", cores * hosts, gib * hosts);
}

static void put_slurm(const JobNeeds *n, int64_t hosts, Buf *out)
{
    int64_t cores = host_cores(n) / n->per_host;
    buf_printf(out, "#SBATCH --nodes=%lld\n#SBATCH --ntasks-per-node=%lld\n", (long long)hosts, (long long)n->per_host);
    buf_printf(out, "#SBATCH --cpus-per-task=%lld\n", (long long)(cores > 0 ? cores : 1));
    if (n->gpus) buf_printf(out, "#SBATCH --gpus-per-node=%lld\n", (long long)n->per_host);
    buf_printf(out, "#SBATCH --mem=%lldG\n", (long long)host_gib(n));
    put_time(out, "#SBATCH --time=", walltime(n));
}

static void put_grid_engine(const JobNeeds *n, Buf *out)
{
    int64_t each = (host_gib(n) + n->per_host - 1) / n->per_host;
    buf_printf(out, "#$ -pe mpi %lld\n#$ -l mem_free=%lldG\n", (long long)n->ranks, (long long)each);
    put_time(out, "#$ -l h_rt=", walltime(n));
    buf_puts(out, "# mem_free is of a slot; sites that limit memory have another name for it (`qconf -sc`).");
    buf_puts(out, n->gpus ? " Not h_vmem:\n# it limits addresses, of which CUDA takes far more than memory.\n" : "\n");
}

static double gib(size_t bytes) { return (double)bytes / (double)(1 << 30); }

void plan_job(const JobNeeds *n, Buf *out)
{
    int64_t hosts = (n->ranks + n->per_host - 1) / n->per_host;
    if (n->kind == JOB_PBS) put_pbs(n, hosts, out);
    if (n->kind == JOB_SLURM) put_slurm(n, hosts, out);
    if (n->kind == JOB_GRID_ENGINE) put_grid_engine(n, out);
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
