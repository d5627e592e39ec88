#include "base/digest.h"

#include <xxhash.h>

#include "base/mem.h"
#include "base/status.h"

/* A DigestStream is an XXH3_state_t; the name keeps xxhash out of the header. */

static Digest from_xxh(XXH128_hash_t h) { return (Digest){h.high64, h.low64}; }

DigestStream *digest_new(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state) mem_exhausted(576);
    XXH3_128bits_reset(state);
    return (DigestStream *)state;
}

void digest_update(DigestStream *s, const void *data, size_t len)
{
    if (len) XXH3_128bits_update((XXH3_state_t *)s, data, len);
}

Digest digest_value(const DigestStream *s) { return from_xxh(XXH3_128bits_digest((const XXH3_state_t *)s)); }

void digest_free(DigestStream *s) { XXH3_freeState((XXH3_state_t *)s); }

Digest digest_of(const void *data, size_t len) { return from_xxh(XXH3_128bits(data, len)); }

const char *digest_format(Digest d, char out[33])
{
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)d.hi, (unsigned long long)d.lo);
    return out;
}

bool digest_parse(const char *text, Digest *d)
{
    unsigned long long hi, lo;
    if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32) return false;
    if (sscanf(text, "%16llx%16llx", &hi, &lo) != 2) return false;
    *d = (Digest){.hi = hi, .lo = lo};
    return true;
}

int digest_equal(Digest a, Digest b) { return a.hi == b.hi && a.lo == b.lo; }
