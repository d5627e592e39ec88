/* Which ranks share rank 0's output folder. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/file.h"
#include "train/ranks/ranks.h"

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
    char content[CONTENT];
    size_t bytes = 1;
    bool first = ranks_first(r);
    for (int i = 0; i < ranks_size(r); i++) sees[i] = !r || comm_node(ranks_comm(r), i) == comm_node(ranks_comm(r), 0);
    if (!r || !folder) return OK;
    if (first) CHECK(getrandom(&id, sizeof id, 0) == sizeof id, "no random numbers from the system");
    TRY(ranks_broadcast(r, &id, sizeof id));
    digest_format(id, content);
    char *path = mem_printf("%s/.seen.tmp.%u", folder, (unsigned)id.lo); /* a name that the next start removes */
    bool *all = mem_alloc(bytes);
    Status status = ranks_all(r, first ? file_write_durable(path, content, CONTENT) : OK);
    *all = status == OK && holds(path, content);
    if (status == OK) status = ranks_gather(r, (void **)&all, &bytes);
    if (status == OK) memcpy(sees, all, bytes);
    if (first) (void)unlink(path);
    MEM_FREE(all, path);
    return status;
}
