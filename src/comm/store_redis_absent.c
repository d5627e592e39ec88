/* In place of store_redis.c, where hiredis was not found when this was built. */
#include "comm/store_internal.h"

Status store_redis_open(const char *host_and_port, Hash128 job, double timeout_s, const volatile sig_atomic_t *stop,
                        const StoreKind **kind, void **self)
{
    (void)job, (void)timeout_s, (void)stop, (void)kind, (void)self;
    return fail(E_USAGE, "rendezvous redis://%s: this program was built without Redis (libhiredis-dev, WITH_REDIS)",
                host_and_port);
}
