#include "data/shard_digests.h"

static int by_name(const void *name, const void *path) { return strcmp(name, file_basename(*(char *const *)path)); }

static void take_shard(const Json *shard, char *const *paths, int n, ShardDigest *digests)
{
    const char *name = js_string(js_get(shard, "name"), "");
    char *const *path = bsearch(name, paths, (size_t)n, sizeof *paths, by_name);
    Digest d;
    if (!path || !digest_parse(js_string(js_get(shard, "xxh3_128"), ""), &d)) return;
    digests[path - paths].expected = d;
    atomic_store(&digests[path - paths].state, DIGEST_PENDING);
}

Status shard_digests_read(char *const *paths, int n, ShardDigest **digests)
{
    char *folder = file_directory(paths[0]), *manifest = file_join(folder, "manifest.json");
    Json *doc = NULL;
    Status status = OK;
    *digests = mem_array((size_t)n, sizeof **digests);
    if (!file_exists(manifest)) goto done;
    status = js_read(manifest, &doc);
    if (status != OK)
        TRY_DONE(status_context(status, "the digests of the shards; remove %s to train without them", manifest));
    const Json *shards = js_get(doc, "cairn_shards") ? js_get(doc, "shards") : NULL;
    for (size_t i = 0; i < js_size(shards); i++) take_shard(js_at(shards, i), paths, n, *digests);
done:
    js_free(doc);
    MEM_FREE(folder, manifest);
    return status;
}

/* Threads that come at the same time read the file each. */
static Status compare(const char *path, ShardDigest *d)
{
    Digest found;
    TRY(file_digest(path, &found, NULL));
    bool right = digest_equal(found, d->expected);
    if (!right) d->found = found;
    atomic_store(&d->state, right ? DIGEST_RIGHT : DIGEST_WRONG);
    return OK;
}

Status shard_digest_check(const char *path, ShardDigest *d)
{
    if (atomic_load(&d->state) == DIGEST_PENDING) TRY(compare(path, d));
    if (atomic_load(&d->state) != DIGEST_WRONG) return OK;
    return fail(
        E_CORRUPT,
        "%s: damaged: its digest (XXH3-128) is %s, that of manifest.json beside it %s. Remove the folder and make "
        "its shards again; or, where that manifest is not of this file, remove the manifest",
        path, DIGEST_TEXT(d->found), DIGEST_TEXT(d->expected));
}
