/* Finds hosts in a file or in a scheduler's variables. */
#include "launch/sites.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/hosts.h"

static const char *variable(char **environment, const char *name)
{
    size_t length = strlen(name);
    for (char **e = environment; e && *e; e++)
        if (strncmp(*e, name, length) == 0 && (*e)[length] == '=') return (*e)[length + 1] ? *e + length + 1 : NULL;
    return NULL;
}

void sites_free(Sites *sites)
{
    for (int i = 0; i < sites->n; i++) free(sites->list[i].name);
    free(sites->list);
    *sites = (Sites){0};
}

/* `stated`: the list's slots were given explicitly. */
static void take(Sites *sites, const HostList *hosts, bool stated)
{
    sites->list = mem_array((size_t)hosts->count, sizeof *sites->list);
    sites->n = hosts->count;
    for (int i = 0; i < hosts->count; i++)
        sites->list[i] = (Site){.name = mem_strdup(hosts->hosts[i].name), .slots = stated ? hosts->hosts[i].slots : 0};
}

static Status from_lines(Sites *sites, const char *path)
{
    Buf text = {0};
    HostList hosts = {0};
    Status status = OK;
    TRY_DONE(file_read(path, (size_t)64 << 20, &text));
    TRY_DONE(hosts_from_lines(path, text.data ? text.data : "", text.len, &hosts));
    bool counted = hosts_slots(&hosts) > hosts.count || (text.data && strstr(text.data, "slots="));
    /* PBS writes a line per chunk where nobody asked for mpiprocs: that is no number of ranks. */
    take(sites, &hosts, counted || sites->from == SITES_OF_GRID_ENGINE);
done:
    hosts_free(&hosts);
    buf_free(&text);
    return status;
}

static Status from_slurm(Sites *sites, char **environment, const char *nodes)
{
    /* Without a number of tasks, "tasks per node" counts cores. */
    const char *tasks = variable(environment, "SLURM_NTASKS") ? variable(environment, "SLURM_TASKS_PER_NODE") : NULL;
    HostList hosts = {0};
    Status status = hosts_from_slurm(nodes, &hosts);
    if (status == OK && tasks) status = hosts_slots_from_slurm(tasks, &hosts);
    if (status == OK) take(sites, &hosts, tasks != NULL);
    hosts_free(&hosts);
    return status;
}

/* ---- this machine among them ---- */

static bool own_address(const struct ifaddrs *own, const struct sockaddr *address)
{
    for (const struct ifaddrs *i = own; i; i = i->ifa_next) {
        const void *mine = i->ifa_addr, *other = address;
        if (!mine || i->ifa_addr->sa_family != address->sa_family) continue;
        const struct sockaddr_in *a = mine, *b = other;
        const struct sockaddr_in6 *c = mine, *d = other;
        if (address->sa_family == AF_INET && a->sin_addr.s_addr == b->sin_addr.s_addr) return true;
        if (address->sa_family == AF_INET6 && memcmp(&c->sin6_addr, &d->sin6_addr, sizeof c->sin6_addr) == 0)
            return true;
    }
    return false;
}

static bool this_machine(const char *name, const char *own_name, const struct ifaddrs *own)
{
    size_t shorter = strcspn(own_name, ".");
    if (strcmp(name, "localhost") == 0 || strcmp(name, own_name) == 0) return true;
    if (strcspn(name, ".") == shorter && strncmp(name, own_name, shorter) == 0 &&
        (!name[shorter] || !own_name[shorter]))
        return true;
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
    if (getaddrinfo(name, NULL, &hints, &found) != 0)
        return false; /* ssh may know the name, or will report the error */
    bool here = false;
    for (struct addrinfo *a = found; a && !here; a = a->ai_next) here = own_address(own, a->ai_addr);
    freeaddrinfo(found);
    return here;
}

static void mark_here(Sites *sites)
{
    char name[256] = "";
    struct ifaddrs *own = NULL;
    gethostname(name, sizeof name - 1);
    if (getifaddrs(&own) != 0) own = NULL;
    bool any = false; /* at most one site is this machine */
    for (int i = 0; i < sites->n && !any; i++) any = sites->list[i].here = this_machine(sites->list[i].name, name, own);
    if (own) freeifaddrs(own);
}

Status sites_find(const char *file, char **environment, Sites *sites)
{
    const char *pbs = variable(environment, "PBS_NODEFILE"), *grid_engine = variable(environment, "PE_HOSTFILE");
    const char *slurm = variable(environment, "SLURM_JOB_NODELIST");
    *sites = (Sites){.from = SITES_OF_NOBODY};
    Status status = OK;
    if (*file || pbs || grid_engine) {
        const char *path = *file ? file : pbs ? pbs : grid_engine;
        sites->from = *file ? SITES_OF_FILE : pbs ? SITES_OF_PBS : SITES_OF_GRID_ENGINE;
        snprintf(sites->source, sizeof sites->source, *file ? "%s%s" : "%s (%s)",
                 *file ? ""
                 : pbs ? "PBS_NODEFILE"
                       : "PE_HOSTFILE",
                 path);
        status = from_lines(sites, path);
    } else if (slurm) {
        sites->from = SITES_OF_SLURM;
        snprintf(sites->source, sizeof sites->source, "SLURM_JOB_NODELIST (%s)", slurm);
        status = from_slurm(sites, environment, slurm);
    } else {
        snprintf(sites->source, sizeof sites->source, "this host");
        sites->list = mem_alloc(sizeof *sites->list);
        sites->list[sites->n++] = (Site){.name = mem_strdup("localhost")};
    }
    if (status == OK)
        mark_here(sites);
    else
        sites_free(sites);
    return status;
}

/* ---- placing ---- */

Status sites_place(const Sites *sites, const bool *open, const int *limits, const int *usual, int64_t ranks,
                   int *counts)
{
    int64_t slots = 0;
    bool endless = false;
    for (int i = 0; i < sites->n; i++) {
        counts[i] = 0;
        if (!open[i]) continue;
        endless = endless || limits[i] == 0;
        slots += limits[i];
    }
    if (ranks == 0) {
        for (int i = 0; i < sites->n; i++)
            if (open[i]) counts[i] = limits[i] && limits[i] < usual[i] ? limits[i] : usual[i];
        return OK;
    }
    if (!endless && ranks > slots)
        return fail(E_USAGE, "--ranks %lld, but %s has %lld slots on %d host%s; start fewer, or ask for more slots",
                    (long long)ranks, sites->source, (long long)slots, sites->n, sites->n == 1 ? "" : "s");
    for (int64_t k = 0; k < ranks; k++) { /* each goes to the host that is emptiest for its size */
        int best = -1;
        for (int i = 0; i < sites->n; i++) {
            if (!open[i] || (limits[i] && counts[i] >= limits[i])) continue;
            if (best < 0 || (int64_t)counts[i] * usual[best] < (int64_t)counts[best] * usual[i]) best = i;
        }
        counts[best]++;
    }
    return OK;
}
