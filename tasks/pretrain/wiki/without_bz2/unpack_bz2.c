/* In place of with_bz2/unpack_bz2.c where libbz2 was not found. */
#include "tasks/pretrain/wiki/unpack.h"

Status unpack_bz2_available(void)
{
    return fail(E_FAIL, "this program was built without libbz2; install libbz2-dev, then configure and build again, or "
                        "unpack the file with bzip2 -dk");
}

Status unpack_bz2_block(const uint8_t *data, unsigned first_bit, uint64_t n_bits, size_t most, Buf *out)
{
    (void)data, (void)first_bit, (void)n_bits, (void)most, (void)out;
    return unpack_bz2_available();
}
