/* The digests of shards in the manifest.json beside them, which `cairn shards` writes. */
#pragma once

#include <stdatomic.h>

#include "base/base.h"

typedef struct {
    Digest expected, found; /* found: of a damaged one */
    atomic_int state;       /* ShardDigestState */
} ShardDigest;
typedef enum { DIGEST_NONE, DIGEST_PENDING, DIGEST_RIGHT, DIGEST_WRONG } ShardDigestState; /* PENDING: known alone */

/* `paths` are files of one folder, sorted. Without a manifest of `cairn shards`, or where it does not list a file,
   there is no digest to compare. The caller frees *digests, (n). */
Status shard_digests_read(char *const *paths, int n, ShardDigest **digests);
/* Reads the file, once in a process, and compares; E_CORRUPT where it differs. Any thread may call. */
Status shard_digest_check(const char *path, ShardDigest *d);
