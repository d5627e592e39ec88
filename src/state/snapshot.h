/* Snapshots: training state in host memory that outlives the process (docs/state.md; docs/contracts.md 7 and 8).

   Each rank has one file in a memory-backed folder: its slice of weights, m and v in fp32, the small state (the text of
   state.json), and what it takes to write a checkpoint without the process that made it: the table of tensors and the
   run's small files. Mode 0600; the name tells user, run, number of ranks, whose slice it is and who holds it:

       cairn-<uid>-<run>-<world>-<slice>-<holder>.snapshot

   Two slots take turns. A slot is invalid while it is written; then it gets its digest (complete), and when all ranks
   have completed the generation, its commit mark. The other slot is not touched before that, so a kill at any
   instruction leaves the generation before. A generation is good when every slice of it is complete somewhere: own or a
   copy. The header, the fixed part and each slot have digests; what is torn, flipped, of another run, version or number
   of ranks is named and left aside.

   Errors: E_MEMORY no room, with the numbers; E_IO what the system refuses; E_CORRUPT a generation that cannot be put
   together, with what is missing; E_NUMERIC weights that are not finite, which never make a generation. */
#ifndef CAIRN_STATE_SNAPSHOT_H
#define CAIRN_STATE_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "model/params.h"
#include "state/checkpoint.h"
#include "state/slices.h"

enum { SNAPSHOT_ARRAYS = 3, SNAPSHOT_SLOTS = 2 }; /* weights, m, v */

/* ---- which run ---- */

/* The number that the output folder holds in `.run`, made where there is none (`fresh`: in any case anew). A folder
   that was removed and made again is another run. Not made (`create` false) and not there: both halves are 0. */
Status snapshot_run(const char *output, bool create, bool fresh, Digest *run);
bool snapshot_run_known(Digest run);
/* The folder's real path, by which its run is known on all hosts; caller frees. */
char *snapshot_canonical(const char *output);

/* Bytes that files of this run take in `dir` now, of whatever process. */
uint64_t snapshot_present(const char *dir, const char *output);

/* ---- writing ---- */

typedef struct {
    const char *dir;    /* --snapshot-dir */
    const char *output; /* the output folder, canonical */
    Digest run;
    int world, slice, holder; /* ranks; whose slice; the rank that keeps it */
    const ParamTable *params;
    const Intervals *part; /* the slice's intervals */
    const ModelFile *files;
    int n_files;
} SnapshotPlace;

typedef struct Snapshot Snapshot;

/* Bytes of such a file; `n_files` files of `file_bytes` in all. */
uint64_t snapshot_bytes(const ParamTable *params, const Intervals *part, uint64_t file_bytes);
/* Bytes that this place has already: of a file that snapshot_open would go on with, or take away first. */
uint64_t snapshot_held(const SnapshotPlace *place);
/* Is `dir` memory (tmpfs, ramfs, hugetlbfs)? E_IO where there is no such folder. */
Status snapshot_memory_backed(const char *dir, bool *memory);
/* Goes on with the file of this place if it is of the same run, model and slice: its generations stay until others are
   complete. Else makes a new one, and takes away a dead one of that name. E_FAIL while a living process holds it. */
Status snapshot_open(const SnapshotPlace *place, Snapshot **s);
void snapshot_close(Snapshot *s);   /* waits for its thread; the file stays. Takes NULL */
void snapshot_discard(Snapshot *s); /* closes, and removes the file. Takes NULL */

/* What is copied. Host memory, or, with `fetch`, what that gives: elements [begin, end) of an array, on the calling
   thread. */
typedef struct {
    const float *arrays[SNAPSHOT_ARRAYS]; /* each the flat space, or, where `own`, the slice alone */
    bool own[SNAPSHOT_ARRAYS];
    Status (*fetch)(void *context, int array, int64_t begin, int64_t end, float *to);
    void *context;
    int64_t generation, step;
    const char *state; /* JSON text */
    size_t state_size;
} SnapshotSource;

/* What the thread does once a slot is complete, or, with `whole` false, will not be: others may wait for it. `slot` as
   snapshot_slot_… take it. */
typedef Status (*SnapshotAfter)(void *context, Snapshot *s, int slot, bool whole);
void snapshot_set_after(Snapshot *s, SnapshotAfter after, void *context);

/* Begins generation `generation` in the slot that does not hold `keep` (0: none). The one before must have been
   collected (snapshot_poll). The arrays may not change before snapshot_wait_copied returned. */
Status snapshot_begin(Snapshot *s, const SnapshotSource *source, int64_t keep);
void snapshot_wait_copied(Snapshot *s); /* returns at once where nothing is under way */
typedef enum { SNAPSHOT_IDLE, SNAPSHOT_BUSY, SNAPSHOT_COMPLETE, SNAPSHOT_FAILED } SnapshotOutcome;
/* COMPLETE and FAILED once each (FAILED with its message), then IDLE. `wait`: never BUSY. */
SnapshotOutcome snapshot_poll(Snapshot *s, bool wait);
/* All ranks have this generation. */
void snapshot_commit(Snapshot *s, int64_t generation);
/* Seconds of processor time and of the clock that the thread has used for the last generation. */
void snapshot_cost(const Snapshot *s, double *processor_s, double *clock_s);
/* The newest generation in the file that is complete; 0: none. */
int64_t snapshot_newest(const Snapshot *s);

/* A slot as bytes, to be sent to another holder and stored there: header and contents. snapshot_store begins with
   snapshot_receive_begin (which slot: as snapshot_begin), then the bytes come in order. */
uint64_t snapshot_slot_bytes(const Snapshot *s);
const uint8_t *snapshot_slot_data(const Snapshot *s, int slot);
int snapshot_receive_begin(Snapshot *s, int64_t keep);
uint8_t *snapshot_receive_room(Snapshot *s, int slot); /* (snapshot_slot_bytes) */
/* The bytes are there: E_CORRUPT if they are not a whole slot of this generation. */
Status snapshot_receive_end(Snapshot *s, int slot, int64_t generation);

/* ---- reading ---- */

typedef struct {
    int64_t generation, step; /* generation 0: empty */
    double stamp;             /* clock_wall when it was begun */
    bool whole, committed;
} SnapshotSlot;

typedef struct {
    char *path, *output, *host;
    char *why; /* NULL: good; else why this file is left aside */
    int64_t pid;
    bool alive; /* a process holds it */
    Digest run, params;
    int world, slice, holder;
    uint64_t bytes;
    SnapshotSlot slots[SNAPSHOT_SLOTS];
    struct SnapshotView *view; /* private */
} SnapshotFile;

typedef struct {
    SnapshotFile *files; /* by name */
    int count, cap;
} SnapshotList;

/* All files in `dir` that this user has, of the run in `output` (canonical; NULL: of every run), digests compared. A
   missing `dir` gives none. */
Status snapshot_find(const char *dir, const char *output, SnapshotList *list);
void snapshot_list_free(SnapshotList *list); /* takes a zeroed one */
/* Warns of what is left aside: damaged files and slots, and, with `run` known, those of other runs. */
void snapshot_list_warn(const SnapshotList *list, Digest run);

/* One complete slice of one generation, and where it can be read: plain numbers, which ranks exchange. */
typedef struct {
    int64_t generation, step;
    Digest params;
    int32_t world, slice;
    int32_t rank, file, slot; /* the rank whose list has it, its index there, its slot */
    int32_t committed, copy;  /* copy: held by another rank than wrote it */
} SnapshotPiece;

/* Appends the pieces of `run` in the list. */
void snapshot_pieces(const SnapshotList *list, Digest run, int rank, SnapshotPiece **pieces, int *count, int *cap);

typedef struct {
    int64_t generation, step; /* generation 0: there is none */
    int world;
    SnapshotPiece *pieces; /* (world), by slice */
    int64_t newest;        /* the largest generation seen at all, whole or not */
} SnapshotSet;

/* The newest generation of which every slice is there: that of the latest step, of one step that of the largest number.
   `missing` (may be NULL) gets, for each newer one, what it lacks. `params`: only of this model. */
void snapshot_choose(const SnapshotPiece *pieces, int count, const Digest *params, SnapshotSet *set, Buf *missing);
void snapshot_set_free(SnapshotSet *set); /* takes a zeroed one */

/* Contents of a piece that lies in this list. Valid as long as the list. */
const Interval *snapshot_intervals(const SnapshotFile *f, int *count);
const float *snapshot_values(const SnapshotFile *f, int slot, int array); // (slice)
const char *snapshot_state(const SnapshotFile *f, int slot, size_t *size);
void snapshot_scatter(const Interval *intervals, int count, const float *values, float *to);
/* One piece of the list into the flat space (NULL: not that array). */
void snapshot_assemble_piece(const SnapshotList *list, const SnapshotPiece *piece,
                             float *const arrays[SNAPSHOT_ARRAYS]);
/* Every slice of the set into the flat space (NULL: not that array); for one list that has them all. */
void snapshot_assemble(const SnapshotList *list, const SnapshotSet *set, float *const arrays[SNAPSHOT_ARRAYS]);

/* The tensors and small files that came with it; valid as long as the list. */
const ParamTable *snapshot_params(const SnapshotFile *f);
const ModelFile *snapshot_files(const SnapshotFile *f, int *count);

/* Removes the files of dead processes of the run in `output` (NULL: of every run), `except_world` ranks' (0: all), and
   what unfinished ones left. `removed`, `kept` (may be NULL) count. */
Status snapshot_remove(const char *dir, const char *output, int except_world, int *removed, int *kept);

#endif
