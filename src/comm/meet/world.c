/* Finds a process's rank in the environment of its launcher (docs/network.md has the same table). */

#include "comm/meet/world.h"
#include "comm/meet/hosts.h"

/* Variables of a launcher, in the order of precedence. NULL: it has no such variable. */
typedef struct {
    const char *source, *rank, *size, *local_rank, *local_size, *node, *nodes;
    bool scheduler; /* its ranks may be the helpers of another launcher */
} Launcher;

static const Launcher launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", NULL, false},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, NULL, false},
    {"MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL, false},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE",
     NULL, NULL, false},
    {"PALS", "PALS_RANKID", NULL, "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", NULL, NULL, false},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, "SLURM_NODEID", "SLURM_STEP_NUM_NODES",
     true},
};
enum { N_LAUNCHERS = sizeof launchers / sizeof launchers[0], MOST_RANKS = 1000000 };

const char *world_variable(char **environment, const char *name)
{
    size_t n = name ? strlen(name) : 0;
    for (char **e = environment; n && e && *e; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=') return (*e)[n + 1] ? *e + n + 1 : NULL;
    return NULL;
}

static Status read_number(char **environment, const char *name, int low, int high, int none, int *value)
{
    const char *text = world_variable(environment, name);
    char *stop;
    *value = none;
    if (!text) return OK;
    long n = strtol(text, &stop, 10);
    if (!isdigit((unsigned char)*text) || *stop || n < low || n > high)
        return fail(E_USAGE, "%s=%s in the environment: expected a number from %d to %d", name, text, low, high);
    *value = (int)n;
    return OK;
}

static void print_set(Buf *b, char **environment, const Launcher *l)
{
    const char *names[] = {l->rank, l->size, l->local_rank, l->local_size, l->node};
    int shown = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = world_variable(environment, names[i]);
        if (value) buf_printf(b, "%s%s=%s", shown++ ? " " : "", names[i], value);
    }
}

/* The hosts that a variable, or the file that it names, lists; none if it is not set. */
static Status hosts_of(const char *name, char **environment, HostList *list)
{
    const char *value = world_variable(environment, name);
    *list = (HostList){0};
    if (!value) return OK;
    if (strncmp(name, "SLURM", 5) == 0) return status_context(hosts_from_slurm(value, list), "%s", name);
    return status_context(hosts_from_file(value, list), "%s", name);
}

/* PALS sets no size; the job's list of slots has it. */
static Status size_of_nodefile(char **environment, int *size)
{
    HostList list;
    TRY(hosts_of("PBS_NODEFILE", environment, &list));
    if (list.count) *size = hosts_slots(&list);
    hosts_free(&list);
    return OK;
}

/* Slurm's variables are in every process of a job; only a step (srun) has ranks. */
static bool is_set(char **environment, const Launcher *l)
{
    if (l->scheduler)
        return world_variable(environment, l->rank) && world_variable(environment, l->size) &&
               world_variable(environment, "SLURM_STEP_ID");
    if (!l->size) return world_variable(environment, l->rank) != NULL;
    return world_variable(environment, l->rank) || world_variable(environment, l->size);
}

static Status read_set(char **environment, const Launcher *l, World *w)
{
    int size;
    *w = (World){0};
    TRY(read_number(environment, l->size, 1, MOST_RANKS, -1, &size));
    if (!l->size) TRY(size_of_nodefile(environment, &size));
    TRY(read_number(environment, l->rank, 0, MOST_RANKS - 1, -1, &w->rank));
    if (w->rank < 0 || size < 0) {
        Buf b = {0};
        print_set(&b, environment, l);
        Status status =
            fail(E_USAGE, "the environment has only a part of what %s sets: %s, but no %s. Unset it, or set both",
                 l->source, b.data,
                 w->rank < 0 ? l->rank
                 : l->size   ? l->size
                             : "PBS_NODEFILE");
        buf_free(&b);
        return status;
    }
    w->size = size;
    if (w->rank >= size)
        return fail(E_USAGE, "%s=%d in the environment, but there are %d ranks (%s)", l->rank, w->rank, size,
                    l->size ? l->size : "PBS_NODEFILE");
    TRY(read_number(environment, l->local_rank, 0, size - 1, 0, &w->local_rank));
    TRY(read_number(environment, l->local_size, 1, size, 0, &w->local_size));
    TRY(read_number(environment, l->node, 0, size - 1, 0, &w->node));
    TRY(read_number(environment, l->nodes, 1, size, 0, &w->nodes));
    if (w->local_size > 0 && w->local_rank >= w->local_size)
        return fail(E_USAGE, "%s=%d in the environment, but %s=%d", l->local_rank, w->local_rank, l->local_size,
                    w->local_size);
    snprintf(w->source, sizeof w->source, "%s", l->source);
    return OK;
}

/* Two launchers must agree if one started the other's ranks. A scheduler's step need not: it may have started the
   launcher's helpers. */
static Status check_agreement(char **environment, const Launcher *first, const World *w)
{
    for (int i = 0; i < N_LAUNCHERS; i++) {
        const Launcher *l = &launchers[i];
        World other;
        if (l == first || l->scheduler || !is_set(environment, l)) continue;
        TRY(read_set(environment, l, &other));
        if (other.rank == w->rank && other.size == w->size) continue;
        Buf b = {0};
        print_set(&b, environment, first);
        buf_printf(&b, " (%s), and ", first->source);
        print_set(&b, environment, l);
        Status status =
            fail(E_USAGE,
                 "the environment has two different ranks: %s (%s). Unset the variables that are left from elsewhere",
                 b.data, l->source);
        buf_free(&b);
        return status;
    }
    return OK;
}

/* ---- the job's name, and rank 0's host ---- */

static void find_job(char **environment, World *w)
{
    static const char *const names[][3] = {
        /* name, variable, a second variable that separates runs */
        {"cairn", "CAIRN_JOB", NULL},    {"torchrun", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
        {"mpi", "PMIX_NAMESPACE", NULL}, {"mpi", "PMI_JOBID", NULL},
        {"pals", "PALS_APID", NULL},     {"pbs", "PBS_JOBID", NULL},
        {"sge", "JOB_ID", NULL},
    };
    const char *slurm = world_variable(environment, "SLURM_JOB_ID"),
               *step = world_variable(environment, "SLURM_STEP_ID"),
               *restarts = world_variable(environment, "SLURM_RESTART_COUNT");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = world_variable(environment, names[i][1]),
                   *more = names[i][2] ? world_variable(environment, names[i][2]) : NULL;
        if (i == 2 && slurm && strcmp(w->source, "Slurm") == 0) break;
        if (!value) continue;
        snprintf(w->job, sizeof w->job, "%s-%.60s%s%.20s", names[i][0], value, more ? "." : "", more ? more : "");
        return;
    }
    if (slurm) {
        bool stepped = step && strcmp(w->source, "Slurm") == 0;
        snprintf(w->job, sizeof w->job, "slurm-%.40s%s%.20s%s%.20s", slurm, stepped ? "." : "", stepped ? step : "",
                 restarts ? "+" : "", restarts ? restarts : "");
    }
}

static Status find_master(char **environment, World *w)
{
    const char *master = world_variable(environment, "MASTER_ADDR");
    static const char *const lists[] = {"SLURM_STEP_NODELIST", "PBS_NODEFILE", "SLURM_JOB_NODELIST"};
    bool slurm = strcmp(w->source, "Slurm") == 0;
    TRY(read_number(environment, "MASTER_PORT", 1, 65535, 0, &w->master_port));
    if (master && strlen(master) >= sizeof w->master)
        return fail(E_USAGE, "MASTER_ADDR in the environment has %zu characters", strlen(master));
    if (master) {
        snprintf(w->master, sizeof w->master, "%s", master);
        return OK;
    }
    if (w->size == 1 || w->local_size == w->size) return OK;
    for (int i = slurm ? 0 : 1; i < 3 && !w->master[0]; i++) {
        HostList list;
        TRY(hosts_of(lists[i], environment, &list));
        if (list.count) snprintf(w->master, sizeof w->master, "%s", list.hosts[0].name);
        hosts_free(&list);
    }
    return OK;
}

Status world_find(char **environment, World *w)
{
    const Launcher *first = NULL;
    *w = (World){.size = 1, .local_size = 1, .nodes = 1};
    for (int i = 0; i < N_LAUNCHERS && !first; i++)
        if (is_set(environment, &launchers[i])) first = &launchers[i];
    if (!first) {
        find_job(environment, w);
        return OK;
    }
    TRY(read_set(environment, first, w));
    TRY(check_agreement(environment, first, w));
    if (w->size == 1) w->local_size = w->nodes = 1;
    find_job(environment, w);
    return find_master(environment, w);
}
