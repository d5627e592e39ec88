/* The orders for agents, with the environment of their ranks. */
#include <unistd.h>

#include "base/test_switch.h"
#include "launch/launch_internal.h"
#include "launch/machine.h"

extern char **environ;

/* Variables that an ssh session lacks. The GPUs of a scheduler differ between hosts, so each host keeps its own. */
static bool is_passed_on(const Launch *l, const char *entry)
{
    static const char devices[] = "CUDA_VISIBLE_DEVICES=";
    if (variable_begins(entry, "CAIRN_REPORTS=")) return false; /* of this process, the rank of another launcher */
    if (l->sites.from != SITES_OF_FILE && strncmp(entry, devices, sizeof devices - 1) == 0) return false;
    return variable_begins(entry, "CAIRN_ NCCL_ GLOO_ CUDA_ OMP_ GOMP_ "
                                  "ONEDNN_ DNNL_ LD_LIBRARY_PATH= LANG= LC_ SGE_ROOT= "
                                  "JOB_ID= PBS_JOBID= SLURM_JOB_ID= RESTARTED= SLURM_RESTART_COUNT= XDG_CACHE_HOME= ");
}

/* Options of launch that ranks share, if they were set. */
static void send_options(Launch *l, Remote *r)
{
    Fleet *f = &l->fleet;
    const Config *c = l->c;
    if (c->source[OPTION_iface] >= FROM_FILE) fleet_send(f, r, "set CAIRN_IFACE=%s", c->iface);
    if (c->source[OPTION_connect_timeout] >= FROM_FILE)
        fleet_send(f, r, "set CAIRN_CONNECT_TIMEOUT=%.3fs", c->connect_timeout);
    if (c->source[OPTION_peer_timeout] >= FROM_FILE) fleet_send(f, r, "set CAIRN_PEER_TIMEOUT=%.3fs", c->peer_timeout);
    if (c->source[OPTION_snapshot_dir] >= FROM_FILE) fleet_send(f, r, "set CAIRN_SNAPSHOT_DIR=%s", c->snapshot_dir);
}

/* The command, with the remaining time in place of its --max-time. */
static void send_words(Launch *l, Remote *r)
{
    Fleet *f = &l->fleet;
    char **words = l->c->positional, name[16];
    for (int i = 0; i < l->c->n_positional; i++) {
        size_t length = strcspn(words[i], "=");
        snprintf(name, sizeof name, "%.*s", (int)length, words[i]);
        if (l->max_time > 0 && (strcmp(name, "--max-time") == 0 || strcmp(name, "--max_time") == 0))
            i += !words[i][length];
        else
            fleet_send(f, r, "arg %s", words[i]);
    }
    if (l->max_time > 0) fleet_send(f, r, "set CAIRN_MAX_TIME=%.3fs", l->time_left);
}

void orders_send(Launch *l, Remote *r, int node)
{
    Fleet *f = &l->fleet;
    const Host *host = fleet_host(f, r);
    char directory[4096];
    if (!getcwd(directory, sizeof directory)) snprintf(directory, sizeof directory, "/");
    fleet_send(f, r, "dir %s", directory);
    for (char **e = environ; *e && !r->site->here; e++)
        if (is_passed_on(l, *e)) fleet_send(f, r, "set %s", *e);
    send_options(l, r);
    fleet_send(f, r, "set WORLD_SIZE=%d", l->state.n_ranks);
    fleet_send(f, r, "set LOCAL_WORLD_SIZE=%d", host->n_ranks);
    fleet_send(f, r, "set NODE_RANK=%d", node);
    if (l->server) {
        fleet_send(f, r, "set MASTER_ADDR=%s", l->address);
        fleet_send(f, r, "set MASTER_PORT=%d", l->port);
    }
    fleet_send(f, r, "set CAIRN_JOB=%s", l->job);
    fleet_send(f, r, "set CAIRN_JOB_TOKEN=%s", l->token);
    fleet_send(f, r, "set CAIRN_RENDEZVOUS=%s", l->rendezvous);
    fleet_send(f, r, "arg cairn");
    if (l->c->probe) {
        fleet_send(f, r, "arg launch");
        fleet_send(f, r, "arg --");
        fleet_send(f, r, "arg @probe");
    }
    send_words(l, r);
    for (int k = 0; k < host->n_ranks; k++) fleet_send(f, r, "rank %d %d", host->first_rank + k, k);
    fleet_send(f, r, "go");
}
