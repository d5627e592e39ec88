/* manifest.json: the files of a folder that Cairn wrote, a checkpoint or a published model, with sizes and XXH3-128
   digests, and a digest of the manifest itself. It is written last. */
#pragma once

#include "base/base.h"

#define MANIFEST_NAME "manifest.json"

typedef struct {
    char name[128];
    uint64_t size;
    Digest digest;
} ManifestFile;

typedef struct {
    bool model;   /* the folder is a published model, else a checkpoint */
    int64_t step; /* whose weights it has; −1: a model of no known step */
    ManifestFile *files;
    int count, cap;
} Manifest;

/* Whether a file of the folder may have this name; it may lie in a folder of the folder. */
bool manifest_name_valid(const char *name);
void manifest_add(Manifest *m, const char *name, uint64_t size, Digest digest);
const ManifestFile *manifest_find(const Manifest *m, const char *name); /* NULL if absent */
/* The canonical text of a manifest. Reading accepts exactly this text, so it detects every changed byte. */
void manifest_render(const Manifest *m, Buf *out);
/* `path` is for messages. E_CORRUPT for any text that manifest_render would not write. */
Status manifest_parse(const char *path, const char *text, size_t len, Manifest *m);
void manifest_free(Manifest *m); /* takes a zeroed one */

/* The manifest of the folder; E_CORRUPT: it has none, or a damaged one. */
Status manifest_read(const char *dir, Manifest *m);
/* Verifies size and digest of one file. Its blocks, of MANIFEST_BLOCK bytes, pass to `sink` where `to` is not NULL. */
enum { MANIFEST_BLOCK = 1 << 20 };
typedef void ManifestSink(Buf *to, const uint8_t *block, size_t len);
Status manifest_verify_file(const char *dir, const ManifestFile *f, ManifestSink *sink, Buf *to);
/* Opens a regular file of `size` bytes, or of any size (UINT64_MAX). */
Status manifest_open_file(const char *path, uint64_t size, int *fd);
/* Tells damage (E_CORRUPT) from a refusal of the system (E_IO), by errno: an unreadable file need not be damaged. */
Status manifest_read_failed(const char *path, const char *what);

/* Before a model is read; `path`: as tensor_file_open takes it. Reads its files once. Warns of each text file that is
   not as Cairn wrote it. E_CORRUPT: the weights or the manifest are not. Folders of others pass. */
Status manifest_check_model(const char *path);
