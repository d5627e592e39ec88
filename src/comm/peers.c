#include "comm/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void append_file(Buf *b, const char *path)
{
    Buf text = {0};
    if (file_read(path, 4096, &text) == OK && text.len) buf_append(b, text.data, text.len);
    buf_free(&text);
}

/* The same for all processes that share kernel, host name and network, and for no others. */
static Hash128 host_identity(const char *name)
{
    Buf b = {0};
    struct stat st;
    append_file(&b, "/proc/sys/kernel/random/boot_id");
    buf_printf(&b, "|%s|", name);
    if (stat("/proc/self/ns/net", &st) == 0) buf_printf(&b, "%llu", (unsigned long long)st.st_ino);
    Hash128 h = siphash(siphash_key("host"), b.data, b.len);
    buf_free(&b);
    return h;
}

/* Every rank's `mine`, by way of rank 0, so that the store is asked 2N times and not N². Missing ranks are named. */
Status peers_exchange(const World *w, Store *s, const char *what, const void *mine, size_t size, void *all,
                      double timeout_s)
{
    Status status = OK;
    Buf missing = {0};
    void *data = NULL;
    size_t got;
    double end = clock_monotonic() + timeout_s;
    char name[64];
    snprintf(name, sizeof name, "%s/%d", what, w->rank);
    if (w->rank != 0) {
        TRY(store_set(s, name, mine, size));
        snprintf(name, sizeof name, "%s/all", what);
        /* Rank 0 says who is missing; it is given time to. */
        TRY(store_get(s, name, timeout_s + 2, &data, &got));
        if (got == size * (size_t)w->size)
            memcpy(all, data, got);
        else
            status = fail(E_PEER, "rank 0 gave up: %.*s", (int)got, (const char *)data);
        free(data);
        return status;
    }
    memcpy(all, mine, size);
    for (int r = 1; r < w->size; r++) {
        double left = end - clock_monotonic();
        snprintf(name, sizeof name, "%s/%d", what, r);
        status = store_get(s, name, left > 0 ? left : 0, &data, &got);
        if (status != OK || got != size)
            buf_printf(&missing, "%s%d", missing.len ? ", " : "", r);
        else
            memcpy((char *)all + (size_t)r * size, data, size);
        if (status == OK) free(data);
    }
    snprintf(name, sizeof name, "%s/all", what);
    if (missing.len) {
        status =
            fail(E_PEER, "rank 0 waited %.0f s; of %d ranks these did not come: %s", timeout_s, w->size, missing.data);
        if (store_set(s, name, status_message(), strlen(status_message())) != OK) log_debug("%s", status_message());
    } else {
        status = store_set(s, name, all, size * (size_t)w->size);
    }
    buf_free(&missing);
    return status;
}

Status peers_meet(const World *w, const CommOptions *o, Store *store, double timeout_s, PeerCard **cards)
{
    PeerCard mine = {.process = getpid()};
    (void)o;
    gethostname(mine.name, sizeof mine.name - 1);
    mine.host = host_identity(mine.name);
    snprintf(mine.address, sizeof mine.address, "127.0.0.1");
    *cards = mem_array((size_t)w->size, sizeof **cards);
    Status status = peers_exchange(w, store, "card", &mine, sizeof mine, *cards, timeout_s);
    if (status != OK) {
        free(*cards);
        *cards = NULL;
    }
    return status;
}
