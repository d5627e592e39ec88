/* In place of bz2_bzlib.c where libbz2 was not found. */
#include "data/bz2.h"

Status bz2_available(void)
{
    return fail(E_FAIL, "this program was built without libbz2; install libbz2-dev, then configure and build again, or "
                        "unpack the file with bzip2 -dk");
}

Status bz2_unpack_block(const uint8_t *data, unsigned first_bit, uint64_t n_bits, unsigned room, Buf *out)
{
    (void)data, (void)first_bit, (void)n_bits, (void)room, (void)out;
    return bz2_available();
}
