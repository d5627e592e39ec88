/* Finds hosts in a file or in a scheduler's variables. */
#include "launch/sites.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/host.h"
#include "comm/meet/hosts.h"
#include "comm/meet/world.h"

void sites_free(Sites *sites)
{
    for (int i = 0; i < sites->n; i++) free(sites->list[i].name);
    free(sites->list);
    *sites = (Sites){0};
}

/* `stated`: the list's slots were given explicitly. */
static void take_hosts(Sites *sites, const HostList *hosts, bool stated)
{
    sites->list = mem_array((size_t)hosts->count, sizeof *sites->list);
    sites->n = hosts->count;
    for (int i = 0; i < hosts->count; i++)
        sites->list[i] = (Site){.name = mem_strdup(hosts->hosts[i].name), .slots = stated ? hosts->hosts[i].slots : 0};
}

static Status from_lines(Sites *sites, const char *path)
{
    HostList hosts;
    TRY(hosts_from_file(path, &hosts));
    /* PBS writes a line per chunk without mpiprocs, which is not a number of ranks. */
    bool stated = hosts.stated || hosts_slots(&hosts) > hosts.count || sites->from == SITES_OF_GRID_ENGINE;
    take_hosts(sites, &hosts, stated);
    hosts_free(&hosts);
    return OK;
}

static Status from_slurm(Sites *sites, char **environment, const char *nodes)
{
    /* Without SLURM_NTASKS, tasks per node counts cores. */
    const char *tasks =
        world_variable(environment, "SLURM_NTASKS") ? world_variable(environment, "SLURM_TASKS_PER_NODE") : NULL;
    HostList hosts = {0};
    Status status = hosts_from_slurm(nodes, &hosts);
    if (status == OK && tasks) status = hosts_slots_from_slurm(tasks, &hosts);
    if (status == OK) take_hosts(sites, &hosts, tasks != NULL);
    hosts_free(&hosts);
    return status;
}

/* ---- this machine among them ---- */

static bool own_address(const struct ifaddrs *own, const struct sockaddr *address)
{
    bool v6 = address->sa_family == AF_INET6;
    size_t at = v6 ? offsetof(struct sockaddr_in6, sin6_addr) : offsetof(struct sockaddr_in, sin_addr);
    for (const struct ifaddrs *i = own; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == address->sa_family &&
            memcmp((const char *)i->ifa_addr + at, (const char *)address + at, v6 ? 16 : 4) == 0)
            return true;
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
    char name[256];
    struct ifaddrs *own = NULL;
    host_name(name, sizeof name);
    if (getifaddrs(&own) != 0) own = NULL;
    bool any = false; /* at most one site is this machine */
    for (int i = 0; i < sites->n && !any; i++) any = sites->list[i].here = this_machine(sites->list[i].name, name, own);
    if (own) freeifaddrs(own);
}

Status sites_find(const char *file, char **environment, Sites *sites)
{
    const char *pbs = world_variable(environment, "PBS_NODEFILE"),
               *grid_engine = world_variable(environment, "PE_HOSTFILE");
    const char *slurm = world_variable(environment, "SLURM_JOB_NODELIST");
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
    for (Site *s = sites->list; status == OK && s < sites->list + sites->n; s++) {
        s->open = true;
        s->limit = s->slots;
    }
    if (status == OK)
        mark_here(sites);
    else
        sites_free(sites);
    return status;
}

/* ---- placing ---- */

int64_t sites_room(const Sites *sites)
{
    int64_t room = 0;
    for (const Site *s = sites->list; s < sites->list + sites->n; s++) {
        if (s->open && s->limit == 0) return INT64_MAX;
        if (s->open) room += s->limit;
    }
    return room;
}

Status sites_place(Sites *sites, int64_t ranks)
{
    int64_t room = sites_room(sites);
    if (ranks > room)
        return fail(E_USAGE, "--ranks %lld, but %s has %lld slots on %d host%s; start fewer, or ask for more slots",
                    (long long)ranks, sites->source, (long long)room, sites->n, sites->n == 1 ? "" : "s");
    for (Site *s = sites->list; s < sites->list + sites->n; s++)
        s->ranks = !s->open || ranks ? 0 : s->limit && s->limit < s->usual ? s->limit : s->usual;
    for (int64_t k = 0; k < ranks; k++) { /* each goes to the least filled host */
        Site *best = NULL;
        for (Site *s = sites->list; s < sites->list + sites->n; s++) {
            if (!s->open || (s->limit && s->ranks >= s->limit)) continue;
            if (!best || (int64_t)s->ranks * best->usual < (int64_t)best->ranks * s->usual) best = s;
        }
        best->ranks++;
    }
    return OK;
}
