/* The orders for agents, with the environment of their ranks. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launch/launch_internal.h"
#include "launch/machine.h"

extern char **environ;

/* At least 10 s, however short the ranks' time-out is: launcher and agents beat every 2 s, and an agent may try an
   address for 5 s. */
double launch_silence(const Launch *l) { return fmax(l->peer_timeout, 10); }

/* Variables that an ssh session lacks. The GPUs of a scheduler differ between hosts, so each host keeps its own. */
static bool travels(const Launch *l, const char *entry)
{
    static const char devices[] = "CUDA_VISIBLE_DEVICES=";
    if (l->sites.from != SITES_OF_FILE && strncmp(entry, devices, sizeof devices - 1) == 0) return false;
    return variable_begins(entry, "CAIRN_ NCCL_ GLOO_ CUDA_ OMP_ GOMP_ "
                                  "ONEDNN_ DNNL_ LD_LIBRARY_PATH= LANG= LC_ SGE_ROOT= "
                                  "JOB_ID= PBS_JOBID= SLURM_JOB_ID= RESTARTED= SLURM_RESTART_COUNT= XDG_CACHE_HOME= ");
}

static void tell_setting(Launch *l, Remote *r, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void tell_setting(Launch *l, Remote *r, const char *format, ...)
{
    Buf text = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    fleet_send(&l->fleet, r, "set", text.data);
    buf_free(&text);
}

/* Options of launch that ranks share, if they were set. */
static void tell_options(Launch *l, Remote *r)
{
    static const int shared[] = {OPTION_iface, OPTION_connect_timeout, OPTION_peer_timeout, OPTION_snapshot_dir};
    const char *texts[] = {l->c->iface, NULL, NULL, l->c->snapshot_dir};
    const double seconds[] = {0, l->c->connect_timeout, l->c->peer_timeout, 0};
    for (int i = 0; i < 4; i++) {
        if (l->c->source[shared[i]] < FROM_FILE) continue;
        char name[48];
        snprintf(name, sizeof name, "%s", config_flag(shared[i]));
        for (char *p = name; *p; p++) *p = *p == '-' ? '_' : (char)(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
        if (texts[i])
            tell_setting(l, r, "CAIRN_%s=%s", name, texts[i]);
        else
            tell_setting(l, r, "CAIRN_%s=%.3fs", name, seconds[i]);
    }
}

/* The command, with the time that is left in place of its --max-time. */
static void tell_words(Launch *l, Remote *r)
{
    char **words = l->c->positional, name[16];
    for (int i = 0; i < l->c->n_positional; i++) {
        size_t length = strcspn(words[i], "=");
        snprintf(name, sizeof name, "%.*s", (int)length, words[i]);
        if (l->max_time > 0 && (strcmp(name, "--max-time") == 0 || strcmp(name, "--max_time") == 0))
            i += !words[i][length];
        else
            fleet_send(&l->fleet, r, "arg", words[i]);
    }
    if (l->max_time > 0) tell_setting(l, r, "CAIRN_MAX_TIME=%.3fs", l->time_left);
}

void orders_send(Launch *l, Remote *r, int node)
{
    char text[64], directory[4096];
    if (!getcwd(directory, sizeof directory)) snprintf(directory, sizeof directory, "/");
    fleet_send(&l->fleet, r, "dir", directory);
    fleet_send(&l->fleet, r, "job", l->job);
    if (!r->site->here) {
        snprintf(text, sizeof text, "%.3f", launch_silence(l));
        fleet_send(&l->fleet, r, "silence", text);
        for (char **e = environ; *e; e++)
            if (travels(l, *e)) fleet_send(&l->fleet, r, "set", *e);
    }
    tell_options(l, r);
    tell_setting(l, r, "WORLD_SIZE=%d", l->fleet.n_ranks);
    tell_setting(l, r, "LOCAL_WORLD_SIZE=%d", r->n_ranks);
    tell_setting(l, r, "NODE_RANK=%d", node);
    tell_setting(l, r, "MASTER_ADDR=%s", l->address);
    tell_setting(l, r, "MASTER_PORT=%d", l->port);
    tell_setting(l, r, "CAIRN_JOB=%s", l->job);
    tell_setting(l, r, "CAIRN_JOB_TOKEN=%s", l->token);
    tell_setting(l, r, "CAIRN_RENDEZVOUS=%s", l->rendezvous);
    fleet_send(&l->fleet, r, "arg", "cairn");
    if (l->c->probe) {
        fleet_send(&l->fleet, r, "arg", "launch");
        fleet_send(&l->fleet, r, "arg", "--");
        fleet_send(&l->fleet, r, "arg", "@probe");
    }
    tell_words(l, r);
    for (int k = 0; k < r->n_ranks; k++) {
        snprintf(text, sizeof text, "%d %d", r->first_rank + k, k);
        fleet_send(&l->fleet, r, "rank", text);
    }
    fleet_send(&l->fleet, r, "go", "");
}
