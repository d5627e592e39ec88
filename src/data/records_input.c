/* The bytes of a file of rows. */
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/records_internal.h"

#define BLOCK ((size_t)1 << 20)

/* Returns when something can be read. */
static Status wait_for_input(const RecordsInput *in)
{
    enum { LOOK_MS = 200 }; /* a signal may come just before poll */
    struct pollfd wait = {.fd = in->fd, .events = POLLIN};
    do
        if (*in->stop) return fail(E_STOPPED, "%s: stopped while waiting for more of it", in->name);
    while (poll(&wait, 1, LOOK_MS) <= 0);
    return OK;
}

static Status read_block(RecordsInput *in, void *out, size_t *n)
{
    if (in->stop) TRY(wait_for_input(in));
    ssize_t got = file_read_some(in->fd, out, BLOCK);
    if (got < 0) return fail(E_IO, "%s: cannot read it: %m", in->name);
    *n = (size_t)got;
    return OK;
}

static Status read_packed(RecordsInput *in)
{
    in->packed_at = in->packed;
    if (in->fd >= 0) {
        TRY(read_block(in, in->packed, &in->packed_len));
    } else { /* memory is read where it is */
        in->packed_at = in->memory;
        in->packed_len = in->memory_len;
        in->memory_len = 0;
    }
    if (in->packed_len == 0) in->file_end = true;
    return OK;
}

Status records_input_open(RecordsInput *in, const char *name, const char *path)
{
    struct stat info;
    in->name = name;
    in->fd = -1;
    if (path) {
        bool standard = strcmp(path, "-") == 0;
        if (!standard) TRY(file_open_input(path, in->stop != NULL, &in->fd));
        if (standard && (in->fd = dup(STDIN_FILENO)) < 0) return fail(E_IO, "%s: cannot open: %m", name);
        if (fstat(in->fd, &info) == 0 && S_ISDIR(info.st_mode))
            return fail(E_IO, "%s: a folder; expected a file of rows", name);
    }
    if (path) in->packed = mem_alloc(BLOCK);
    TRY(read_packed(in));
    if (gz_begins(in->packed_at, in->packed_len)) return status_context(gz_open(&in->gz), "%s", name);
    return OK;
}

void records_input_close(RecordsInput *in)
{
    gz_close(in->gz);
    if (in->fd >= 0) close(in->fd);
    free(in->packed);
    *in = (RecordsInput){.fd = -1};
}

Status records_input_more(RecordsInput *in, Buf *out)
{
    size_t before = out->len;
    while (out->len == before && !in->end) {
        if (in->packed_len == 0 && !in->file_end) TRY(read_packed(in));
        if (in->packed_len == 0) {
            in->end = true;
            if (in->gz && !in->gz_whole)
                return fail(E_FORMAT, "%s: the gz file ends within its data; fetch or pack it again", in->name);
        } else if (in->gz) {
            TRY(status_context(gz_read(in->gz, &in->packed_at, &in->packed_len, BLOCK, out, &in->gz_whole),
                               "%s: damaged gz file", in->name));
        } else {
            buf_append(out, in->packed_at, in->packed_len);
            in->packed_len = 0;
        }
    }
    return OK;
}

double records_share(const Records *r)
{
    struct stat info;
    if (r->in.fd < 0 || fstat(r->in.fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) return NAN;
    double at = r->in.gz ? (double)lseek(r->in.fd, 0, SEEK_CUR) - (double)r->in.packed_len : (double)(r->base + r->at);
    return fmin(at / (double)info.st_size, 1);
}
