#include <limits.h>
#include <zlib.h>

#include "data/gz.h"

struct GzReader {
    z_stream stream;
    bool member_done; /* the next byte begins a member */
};

Status gz_open(GzReader **gz)
{
    *gz = mem_alloc(sizeof **gz);
    if (inflateInit2(&(*gz)->stream, 15 + 16) != Z_OK) mem_exhausted(1u << 16);
    return OK;
}

void gz_close(GzReader *gz)
{
    if (!gz) return;
    inflateEnd(&gz->stream);
    free(gz);
}

Status gz_read(GzReader *gz, const uint8_t **data, size_t *len, size_t most, Buf *out, bool *ended)
{
    size_t produced = 0;
    buf_room(out, most);
    while (produced < most && (*len > 0 || !gz->member_done)) {
        if (gz->member_done) {
            if (**data == 0) { /* padding of zeros, as tape blocks leave it */
                ++*data, --*len;
                continue;
            }
            if (inflateReset(&gz->stream) != Z_OK) return fail(E_FORMAT, "damaged");
            gz->member_done = false;
        }
        unsigned in = *len < INT_MAX ? (unsigned)*len : INT_MAX;
        gz->stream.next_in = (unsigned char *)*data; /* zlib writes nothing there */
        gz->stream.avail_in = in;
        gz->stream.next_out = (unsigned char *)out->data + out->len;
        gz->stream.avail_out = (unsigned)(most - produced);
        int result = inflate(&gz->stream, Z_NO_FLUSH);
        size_t n = most - produced - gz->stream.avail_out;
        out->len += n;
        produced += n;
        *data += in - gz->stream.avail_in;
        *len -= in - gz->stream.avail_in;
        if (result == Z_STREAM_END)
            gz->member_done = true;
        else if (result == Z_BUF_ERROR || (result == Z_OK && *len == 0 && gz->stream.avail_out > 0))
            break; /* more is needed */
        else if (result != Z_OK)
            return fail(E_FORMAT, "%s", gz->stream.msg ? gz->stream.msg : "damaged");
    }
    out->data[out->len] = '\0';
    *ended = gz->member_done;
    return OK;
}
