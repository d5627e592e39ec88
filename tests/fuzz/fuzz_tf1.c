/* The input is two bytes of length, that much of an index, and the data file. If the index lacks a table's magic
   number, it is the entries of one block (after a byte that selects Snappy), put into a table with valid checksums. */
#include "../state/file_builders.h"
#include "fuzz_tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *prefix = fuzz_path(0, "x.ckpt"), *index = fuzz_path(1, "x.ckpt.index");
    const char *shards[2] = {fuzz_path(2, "x.ckpt.data-00000-of-00001"), fuzz_path(3, "x.ckpt.data-00000-of-00002")};
    if (size < 2) return 0;
    size_t n = reader_le16(data);
    data += 2;
    size -= 2;
    if (n > size) n = size;
    for (int i = 0; i < 2; i++) fuzz_store(shards[i], data + n, size - n); /* the second of two stays absent */
    if (n >= 48 && reader_le64(data + n - 8) == UINT64_C(0xdb4775248b80fb57)) {
        fuzz_store(index, data, n);
    } else if (n > 0) {
        Buf entries = {0};
        buf_append(&entries, data + 1, n - 1);
        Buf table = table_of(&entries, data[0] & 1);
        fuzz_store(index, table.data, table.len);
        buf_free(&table);
        buf_free(&entries);
    } else {
        return 0;
    }
    fuzz_read(prefix, SIZE_MAX); /* an absent data file bounds nothing */
    return 0;
}
