/* What ranks exchange other than gradients. */
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/file.h"
#include "base/host.h"
#include "train/ranks/ranks.h"

#define PIECE     ((size_t)64 << 20) /* bytes of a message: no longer than a transport's smallest limit */
#define TEXT_SIZE 2048

Status ranks_all(Ranks *r, Status mine)
{
    if (!r) return mine;
    Comm *c = ranks_comm(r);
    char said[TEXT_SIZE] = "", *text = mem_strdup(status_message());
    int32_t code = (int32_t)mine, *all = mem_array((size_t)c->size, sizeof *all);
    int who = 0;
    Status status = OK;
    TRY_DONE(ranks_meet(r));
    TRY_DONE(comm_allgather(c, &code, sizeof code, all));
    while (who < c->size && all[who] == OK) who++;
    if (who == c->size) goto done;
    if (who == c->rank) snprintf(said, sizeof said, "%s", text);
    TRY_DONE(comm_broadcast(c, said, sizeof said, who));
    if (who == c->rank)
        status = fail(mine, "%s", text);
    else if (who == 0)
        status = fail((Status)all[who], "%s", said);
    else
        status = fail((Status)all[who], "%s: %s", comm_peer_name(c, who), said);
done:
    MEM_FREE(text, all);
    return status;
}

Status ranks_broadcast(Ranks *r, void *data, size_t bytes)
{
    if (!r) return OK;
    TRY(ranks_meet(r));
    for (size_t at = 0; at < bytes; at += PIECE)
        TRY(comm_broadcast(ranks_comm(r), (char *)data + at, bytes - at < PIECE ? bytes - at : PIECE, 0));
    return OK;
}

Status ranks_broadcast_text(Ranks *r, Buf *text)
{
    if (!r) return OK;
    uint64_t size = text->len;
    TRY(ranks_broadcast(r, &size, sizeof size));
    char *bytes = mem_alloc((size_t)size + 1);
    if (ranks_first(r) && size > 0) memcpy(bytes, text->data, (size_t)size);
    Status status = ranks_broadcast(r, bytes, (size_t)size);
    if (status == OK && !ranks_first(r)) {
        buf_free(text);
        buf_append(text, bytes, (size_t)size);
    }
    free(bytes);
    return status;
}

Status ranks_broadcast_path(Ranks *r, char **path)
{
    Buf text = {0};
    if (!r) return OK;
    if (*path) buf_puts(&text, *path);
    Status status = ranks_broadcast_text(r, &text);
    free(*path);
    *path = status == OK && text.len > 0 ? mem_strndup(text.data, text.len) : NULL;
    buf_free(&text);
    return status;
}

Status ranks_gather(Ranks *r, void **data, size_t *bytes)
{
    char *all = NULL;
    if (!r) return OK;
    size_t *sizes = mem_array((size_t)ranks_size(r), sizeof *sizes);
    Status status = ranks_meet(r);
    if (status == OK) status = comm_gather(ranks_comm(r), *data, *bytes, &all, sizes);
    if (status == OK) {
        free(*data);
        *data = all;
        *bytes = 0;
        for (int i = 0; i < ranks_size(r); i++) *bytes += sizes[i];
    } else {
        free(all);
    }
    free(sizes);
    return status;
}

Status ranks_allgather(Ranks *r, const void *mine, size_t bytes, void *all)
{
    if (!r) memcpy(all, mine, bytes);
    TRY(ranks_meet(r));
    return r ? comm_allgather(ranks_comm(r), mine, bytes, all) : OK;
}

Status ranks_least(Ranks *r, int64_t *n)
{
    int64_t *all = mem_array((size_t)ranks_size(r), sizeof *all);
    Status status = ranks_allgather(r, n, sizeof *n, all);
    for (int i = 0; i < ranks_size(r) && status == OK; i++)
        if (all[i] < *n) *n = all[i];
    free(all);
    return status;
}

Status ranks_same(Ranks *r, const char *name, const char *value)
{
    if (!r) return OK;
    TRY(ranks_meet(r));
    Status status = comm_agree(ranks_comm(r), &(CommFact){name, value}, 1);
    return status == E_USAGE ? fail(E_FAIL, "ranks that must agree differ: %s", status_message()) : status;
}

Status ranks_agree(Ranks *r, const Backend *b, bool one_kind, Dtype compute, Digest data)
{
    if (!r) return OK;
    char backend[BACKEND_DESCRIBE + 16];
    snprintf(backend, sizeof backend, "%.13s: %s", b->name, b->device && !one_kind ? "" : b->describe);
    const CommFact facts[] = {{"backend", backend},
                              {"precision", backend_precision(b, compute)},
                              {"data and model (by digest)", DIGEST_TEXT(data)}};
    TRY(ranks_meet(r));
    return comm_agree(ranks_comm(r), facts, sizeof facts / sizeof *facts);
}

Status ranks_hosts(Ranks *r, Buf *hosts)
{
    enum { NAME = 65 };
    char own[NAME], *names = mem_array((size_t)ranks_size(r), NAME), *end = names + NAME * ranks_size(r);
    host_name(own, NAME);
    Status status = ranks_allgather(r, own, NAME, names);
    for (char *at = names; status == OK && at < end; at += NAME) {
        int count = 0;
        for (char *other = names; other < at && count == 0; other += NAME) count -= strcmp(other, at) == 0;
        if (count < 0) continue; /* named before */
        for (char *other = at; other < end; other += NAME) count += strcmp(other, at) == 0;
        buf_printf(hosts, "%s%s", hosts->len ? ", " : "", at);
        if (count > 1) buf_printf(hosts, " (%d ranks)", count);
    }
    free(names);
    return status;
}

/* ---- which ranks share rank 0's output folder ---- */

enum { CONTENT = 33 };

/* Opened for writing, because a rank that sees the folder writes into it. */
static bool holds(const char *path, const char *content)
{
    char found[CONTENT];
    int fd = file_open(path, O_RDWR | O_NOFOLLOW);
    bool same = fd >= 0 && file_read_some(fd, found, CONTENT) == CONTENT && memcmp(found, content, CONTENT) == 0;
    if (fd >= 0) close(fd);
    return same;
}

Status ranks_see(Ranks *r, const char *folder, bool *sees)
{
    Digest id = {0};
    bool first = ranks_first(r);
    for (int i = 0; i < ranks_size(r); i++) sees[i] = !r || comm_node(ranks_comm(r), i) == comm_node(ranks_comm(r), 0);
    if (!r || !folder) return OK;
    if (first) CHECK(getrandom(&id, sizeof id, 0) == sizeof id, "no random numbers from the system");
    TRY(ranks_broadcast(r, &id, sizeof id));
    const char *content = DIGEST_TEXT(id);
    char *path = mem_printf("%s/.seen.tmp.%u", folder, (unsigned)id.lo); /* a name that the next start removes */
    Status status = ranks_all(r, first ? file_write_durable(path, content, CONTENT) : OK);
    bool own = status == OK && holds(path, content);
    if (status == OK) status = ranks_allgather(r, &own, sizeof own, sees);
    if (first) (void)unlink(path);
    free(path);
    return status;
}
