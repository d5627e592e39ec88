/* In place of with_zlib/unpack_gz.c where zlib was not found. */
#include "tasks/pretrain/wiki/unpack.h"

Status unpack_gz_open(GzReader **gz)
{
    *gz = NULL;
    return fail(E_FAIL, "this program was built without zlib; install zlib1g-dev, then configure and build again, or "
                        "unpack the file with gzip -dk");
}

void unpack_gz_close(GzReader *gz) { (void)gz; }

Status unpack_gz(GzReader *gz, const uint8_t **data, size_t *len, size_t most, Buf *out, bool *ended)
{
    (void)gz, (void)data, (void)len, (void)most, (void)out, (void)ended;
    return fail(E_FAIL, "built without zlib");
}
