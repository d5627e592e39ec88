/* Starts the ranks of an agent. */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/host.h"
#include "base/test_switch.h"
#include "launch/agent_internal.h"

extern char **environ;

/* Variables of other launchers that would give our ranks a rank. */
static const char others[] =
    "OMPI_COMM_WORLD_ PMI_ PMIX_ MV2_COMM_WORLD_ MPI_LOCAL PALS_ "
    "SLURM_STEP SLURM_PROCID= SLURM_LOCALID= SLURM_NODEID= SLURM_NTASKS SLURM_NPROCS= "
    "SLURM_TASK_PID= SLURM_LAUNCH_NODE_IPADDR= RANK= WORLD_SIZE= LOCAL_RANK= LOCAL_WORLD_SIZE= "
    "NODE_RANK= GROUP_RANK= MASTER_ADDR= MASTER_PORT= CAIRN_JOB_TOKEN= CAIRN_RENDEZVOUS= "
    "CAIRN_REPORTS= ";

/* The environment of a rank: ours without those variables, and the launcher's settings. */
static char **environment_of(const Agent *a, const Child *c, int reports)
{
    int n = 0;
    while (environ[n]) n++;
    char **all = mem_array((size_t)(n + a->n_settings + 4), sizeof *all);
    n = 0;
    for (char **e = environ; *e; e++) {
        bool replaced = variable_begins(*e, others);
        size_t name = strcspn(*e, "=") + 1;
        for (int i = 0; i < a->n_settings && !replaced; i++) replaced = strncmp(a->settings[i], *e, name) == 0;
        if (!replaced) all[n++] = mem_strdup(*e);
    }
    for (int i = 0; i < a->n_settings; i++) all[n++] = mem_strdup(a->settings[i]);
    all[n++] = mem_printf("RANK=%d", c->rank);
    all[n++] = mem_printf("LOCAL_RANK=%d", c->local_rank);
    all[n++] = mem_printf("CAIRN_REPORTS=%d", reports);
    return all;
}

/* In the child, after fork: only system calls are allowed. */
static void become_rank(const Agent *a, const Child *c, const char *program, char **environment,
                        const int pipes[N_CHILD_PIPES][2], pid_t agent, cpu_set_t *set)
{
    sigset_t none;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent) _exit(1);
    setpgid(0, 0);
    cores_bind(&a->cores, c->local_rank, a->n_children, set);
    bool direct = a->direct && c->rank == 0;
    dup2(direct ? AGENT_STDOUT : pipes[CHILD_STDOUT][1], STDOUT_FILENO);
    dup2(direct ? AGENT_STDERR : pipes[CHILD_STDERR][1], STDERR_FILENO);
    int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    if (nothing > STDERR_FILENO) close(nothing);
    if (a->direct) close(AGENT_STDOUT), close(AGENT_STDERR);
    fcntl(pipes[CHILD_REPORTS][1], F_SETFD, 0); /* it stays open */
    for (int s = 1; s < NSIG; s++) signal(s, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(program, a->arguments, environment);
    static const char why[] = "error: the program of this rank cannot be started\n";
    ssize_t told = write(STDERR_FILENO, why, sizeof why - 1);
    (void)told;
    _exit(1);
}

static Status start_rank(Agent *a, Child *c, const char *program)
{
    int pipes[N_CHILD_PIPES][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    Status status = OK;
    char **environment = NULL;
    cpu_set_t *set = mem_alloc(a->cores.bytes + sizeof(cpu_set_t));
    pid_t agent = getpid();
    for (int k = 0; k < N_CHILD_PIPES; k++)
        if (pipe2(pipes[k], O_CLOEXEC | (k == CHILD_REPORTS ? O_NONBLOCK : 0)) != 0)
            TRY_DONE(fail(E_IO, "rank %d: no pipe for its output: %m", c->rank));
    environment = environment_of(a, c, pipes[CHILD_REPORTS][1]);
    c->pid = fork();
    if (c->pid < 0) TRY_DONE(fail(E_IO, "rank %d cannot be started: %m", c->rank));
    if (c->pid == 0) become_rank(a, c, program, environment, (const int(*)[2])pipes, agent, set);
    setpgid(c->pid, c->pid);
    c->alive = true;
    agent_tell(a, &(AgentEvent){.kind = AGENT_STARTED});
    for (int k = 0; k < N_CHILD_PIPES; k++) {
        wire_reader(&c->pipes[k], pipes[k][0]);
        pipes[k][0] = -1;
    }
done:
    for (int k = 0; k < 2 * N_CHILD_PIPES; k++)
        if (pipes[k / 2][k % 2] >= 0) close(pipes[k / 2][k % 2]);
    for (char **e = environment; e && *e; e++) free(*e);
    MEM_FREE(environment, set);
    return status;
}

Status agent_start_ranks(Agent *a)
{
    Status status = OK;
    const char *other = test_switch("PROGRAM");
    char *own = host_program(); /* its file may have been replaced meanwhile */
    const char *program = other ? other : access(own, X_OK) == 0 ? own : "/proc/self/exe";
    a->state.kills = cgroup_memory_kills("");
    if (a->directory && chdir(a->directory) != 0)
        TRY_DONE(fail(E_USAGE, "%s, the folder in which launch was started, does not exist here: %m", a->directory));
    a->arguments = mem_resize(a->arguments, (size_t)a->n_arguments + 1, sizeof *a->arguments);
    a->arguments[a->n_arguments] = NULL;
    for (int i = 0; i < a->n_children; i++) TRY_DONE(start_rank(a, &a->children[i], program));
done:
    free(own);
    return status;
}
