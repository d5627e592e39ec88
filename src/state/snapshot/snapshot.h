/* Snapshots: training state in host memory that outlives the process (docs/state.md; docs/contracts.md 7 and 8).

   Each rank has one file in a memory-backed folder: its slice of weights, m and v in fp32, with K-FAC its slice of the
   inverses, the small state (the text of state.json), and the inputs for writing a checkpoint without the process that
   made it: the tables of tensors and the run's small files. Mode 0600; the name contains user, run, world size, the
   slice's rank and the holder's rank:

       cairn-<uid>-<run>-<world>-<slice>-<holder>.snapshot

   Two slots alternate. A slot is invalid while it is written, and then receives its digest (complete). The other slot
   stays untouched until all ranks have completed the generation, so a kill at any instruction leaves the previous one.
   A generation is good if every slice of it is complete somewhere, as the original or a copy. The header, the fixed
   part and each slot have digests. Readers name and ignore files and slots that are torn, damaged, or of another run,
   version or world size.

   Errors: E_MEMORY no room, with the numbers; E_IO a refusal of the system; E_CORRUPT an incomplete generation, with
   the missing slices; E_NUMERIC weights that are not finite, which never enter a generation. */
#pragma once

#include "base/base.h"
#include "model/params.h"
#include "state/checkpoint/checkpoint.h"

enum { SNAPSHOT_KFAC = 3, SNAPSHOT_ARRAYS, SNAPSHOT_SLOTS = 2 }; /* weights, m, v; inverses */
/* The flat space of an array's elements: of the model's tensors, or of K-FAC's. */
static inline int snapshot_space(int array) { return array == SNAPSHOT_KFAC; }

/* ---- the run's number ---- */

/* Reads the run's number from `.run` in the output folder, or creates one if it is missing (`fresh`: always). A folder
   that was removed and recreated is another run. Missing and not created (`create` false): both halves are 0. */
Status snapshot_run(const char *output, bool create, bool fresh, Digest *run);
bool snapshot_run_known(Digest run);
/* The folder's real path, which identifies its run on all hosts; caller frees. */
char *snapshot_canonical(const char *output);

/* Bytes that this run's files take in `dir` now, those of all processes. */
uint64_t snapshot_present(const char *dir, const char *output);

/* ---- writing ---- */

typedef struct {
    const char *dir;    /* --snapshot-dir */
    const char *output; /* the output folder, canonical */
    Digest run;
    int world, slice, holder; /* world size; the slice's rank; the rank that holds the file */
    HeldPart own;             /* the slice */
    const ModelFile *files;
    int n_files;
} SnapshotPlace;

typedef struct Snapshot Snapshot;

/* Bytes of such a file; `n_files` files of `file_bytes` in all. */
uint64_t snapshot_bytes(const HeldPart *own, uint64_t file_bytes);
/* The digest of the tables of both spaces: files with another belong to another model. */
Digest snapshot_tables_digest(const ParamTable *const params[N_SPACES]);
/* Bytes already allocated at this place: of a file that snapshot_open would reuse, or remove first. */
uint64_t snapshot_held(const SnapshotPlace *place);
/* Whether `dir` is memory (tmpfs, ramfs, hugetlbfs). E_IO if the folder is missing. */
Status snapshot_memory_backed(const char *dir, bool *memory);
/* Reuses this place's file if it is of the same run, model and slice: its generations stay until newer ones are
   complete. Else creates a new file, and removes a dead process's file of that name. E_FAIL while a live process holds
   it. */
Status snapshot_open(const SnapshotPlace *place, Snapshot **s);
void snapshot_close(Snapshot *s);   /* waits for its thread; the file stays. Takes NULL */
void snapshot_discard(Snapshot *s); /* closes, and removes the file. Takes NULL */

/* The source of a copy: host memory, or, where an array is NULL, `fetch`, which returns elements [begin, end) of it and
   runs on the calling thread. */
typedef struct {
    const float *arrays[SNAPSHOT_ARRAYS]; /* each the flat space, or, where `own`, the slice alone */
    bool own[SNAPSHOT_ARRAYS];
    Status (*fetch)(void *context, int array, int64_t begin, int64_t end, float *to);
    void *context;
    int64_t generation, step;
    const char *state; /* JSON text */
    size_t state_size;
} SnapshotSource;

/* Called by the thread when a slot is complete, or (`whole` false) has failed, because other ranks may wait for it.
   `slot` is an argument for snapshot_slot_…. */
typedef Status (*SnapshotAfter)(void *context, Snapshot *s, int slot, bool whole);
void snapshot_set_after(Snapshot *s, SnapshotAfter after, void *context);

/* Begins generation `generation` in the slot that does not hold `keep` (0: none). snapshot_poll must have returned the
   previous one's outcome first. The arrays may not change before snapshot_wait_copied returned. */
Status snapshot_begin(Snapshot *s, const SnapshotSource *source, int64_t keep);
void snapshot_wait_copied(Snapshot *s); /* returns at once if none is in progress */
typedef enum { SNAPSHOT_IDLE, SNAPSHOT_BUSY, SNAPSHOT_COMPLETE, SNAPSHOT_FAILED } SnapshotOutcome;
/* COMPLETE and FAILED once each (FAILED with its message), then IDLE. `wait`: never BUSY. */
SnapshotOutcome snapshot_poll(Snapshot *s, bool wait);
/* Processor and wall-clock seconds that the thread used for the last generation. */
void snapshot_cost(const Snapshot *s, double *processor_s, double *clock_s);
/* The newest generation in the file that is complete; 0: none. */
int64_t snapshot_newest(const Snapshot *s);

/* A slot as bytes (mark and contents), for a copy on another rank. The receiver calls snapshot_receive_begin, which
   chooses the slot as snapshot_begin does, and stores the bytes in order. */
uint64_t snapshot_slot_bytes(const Snapshot *s);
uint8_t *snapshot_slot_data(const Snapshot *s, int slot); /* (snapshot_slot_bytes) */
int snapshot_receive_begin(Snapshot *s, int64_t keep);
/* Call it after the last byte: E_CORRUPT if the bytes are not a whole slot of this generation. */
Status snapshot_receive_end(Snapshot *s, int slot, int64_t generation);

/* ---- reading ---- */

typedef struct {
    int64_t generation, step; /* generation 0: empty */
    double stamp;             /* clock_wall when it was begun */
    bool whole;
} SnapshotSlot;

/* The fixed part of a file. */
typedef struct {
    Intervals part[N_SPACES]; /* the slice's */
    ParamTable params[N_SPACES];
    ModelFile *files; // (n_files) the run's small files
    int n_files;
} SnapshotFixed;

typedef struct {
    char *path, *output, *host;
    char *why; /* NULL: good; else why this file is ignored */
    int64_t pid;
    bool alive; /* a process holds it */
    Digest run, params;
    int world, slice, holder;
    uint64_t bytes;
    SnapshotSlot slots[SNAPSHOT_SLOTS];
    SnapshotFixed fixed; /* of a good file */
    const uint8_t *data; // (bytes) private: the mapping
} SnapshotFile;

typedef struct {
    SnapshotFile *files; /* by name */
    int count, cap;
} SnapshotList;

/* All of this user's files in `dir`, of the run in `output` (canonical; NULL: of every run), digests compared. A
   missing `dir` gives none. */
Status snapshot_find(const char *dir, const char *output, SnapshotList *list);
void snapshot_list_free(SnapshotList *list); /* takes a zeroed one */
/* Warns of ignored files and slots: damaged ones, and, with `run` known, those of other runs. */
void snapshot_list_warn(const SnapshotList *list, Digest run);

/* One complete slice of one generation, and its location: plain numbers, which ranks exchange. */
typedef struct {
    int64_t generation, step;
    Digest params;
    int32_t world, slice;
    int32_t rank, file, slot; /* the rank whose list contains it, the index in that list, the slot */
    int32_t copy;             /* its holder is not the rank that wrote it */
} SnapshotPiece;

/* The pieces of `run` in the list of rank `rank`; the caller frees. NULL without any. */
SnapshotPiece *snapshot_pieces(const SnapshotList *list, Digest run, int rank, int *count);

typedef struct {
    int64_t generation, step; /* generation 0: none */
    int world;
    SnapshotPiece *pieces; /* (world), by slice */
    int64_t newest;        /* the largest generation seen, whole or not */
} SnapshotSet;

/* Chooses the newest generation with all slices: the latest step, and for one step the largest number. Adds the missing
   slices of each newer generation to `missing` (may be NULL). */
void snapshot_choose(const SnapshotPiece *pieces, int count, SnapshotSet *set, Buf *missing);
/* Shares the chosen slices out among all ranks that have them, evenly. Rank `first` gets one if it has any. */
void snapshot_share(const SnapshotPiece *pieces, int count, int first, SnapshotSet *set);
/* snapshot_choose for the pieces of `run` in one list. */
void snapshot_choose_in(const SnapshotList *list, Digest run, SnapshotSet *set, Buf *missing);
void snapshot_set_free(SnapshotSet *set); /* takes a zeroed one */

/* Contents of a piece in this list. Valid as long as the list. */
const char *snapshot_state(const SnapshotFile *f, int slot, size_t *size);
/* Elements [begin, end) of the flat space, which must lie in one interval of the slice. E_CORRUPT: another process
   shortened the file. */
Status snapshot_read_range(const SnapshotFile *f, int slot, int array, int64_t begin, int64_t end, float *to);
/* Makes the slots of steps from … before `to` of the run in `output` empty. A file that a process holds is left, with a
   warning. */
Status snapshot_forget(const char *dir, const char *output, int64_t from, int64_t to);
/* Removes the files of dead processes of the run in `output` (NULL: of every run), except those of world size
   `except_world` (0: no exception), and unfinished files. `removed`, `kept` (may be NULL) count. */
Status snapshot_remove(const char *dir, const char *output, int except_world, int *removed, int *kept);
