/* The input is a whole file if it begins as a zip or with PyTorch's magic pickle. Otherwise it is the object's pickle,
   put into both forms with valid checksums and with storages '0' (24 bytes) and '1' (8 bytes). */
#include "../state/file_builders.h"
#include "fuzz_tensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_path(0, "x.pt");
    if (size >= 3 && (memcmp(data, "PK", 2) == 0 || memcmp(data, "\x80\x02\x8a", 3) == 0)) {
        fuzz_store(path, data, size);
        fuzz_read(path, size);
        return 0;
    }
    ZipBuilder z = {0};
    zip_add(&z, "x/data.pkl", data, size);
    zip_add(&z, "x/data/0", elements, 24);
    zip_add(&z, "x/data/1", elements, 8);
    zip_end(&z);
    fuzz_store(path, z.out.data, z.out.len);
    fuzz_read(path, z.out.len);
    buf_free(&z.out);

    Buf old = pytorch_old_start();
    buf_append(&old, data, size);
    buf_puts(&old, "\x80\x02]");
    pickle_string(&old, "0");
    buf_puts(&old, "a.");
    put_le(&old, 6, 8);
    buf_append(&old, elements, 24);
    fuzz_store(path, old.data, old.len);
    fuzz_read(path, old.len);
    buf_free(&old);
    return 0;
}
