/* Unpacks gz: a stream of members, by zlib. A program built without zlib fails (E_FAIL) and names it. */
#pragma once

#include "base/base.h"

/* Whether a file with these first bytes is packed by gz. */
static inline bool gz_begins(const void *head, size_t len) { return len >= 2 && memcmp(head, "\x1f\x8b", 2) == 0; }

typedef struct GzReader GzReader;
Status gz_open(GzReader **gz); /* E_FAIL: built without zlib */
void gz_close(GzReader *gz);   /* takes NULL */
/* Consumes bytes of *data, *len and appends up to `most` bytes of text to `out`. *ended: the last member so far is
   complete. E_FORMAT: damaged. */
Status gz_read(GzReader *gz, const uint8_t **data, size_t *len, size_t most, Buf *out, bool *ended);
