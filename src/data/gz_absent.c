/* In place of gz_zlib.c where zlib was not found. */
#include "data/gz.h"

Status gz_open(GzReader **gz)
{
    *gz = NULL;
    return fail(E_FAIL, "this program was built without zlib; install zlib1g-dev, then configure and build again, or "
                        "unpack the file with gzip -dk");
}

void gz_close(GzReader *gz) { (void)gz; }

Status gz_read(GzReader *gz, const uint8_t **data, size_t *len, size_t most, Buf *out, bool *ended)
{
    (void)gz, (void)data, (void)len, (void)most, (void)out, (void)ended;
    return fail(E_FAIL, "built without zlib");
}
