/* The training loop: steps, saves, signals, metrics, the end. It trains on the examples of run->source. */
#ifndef CAIRN_TRAIN_TRAIN_H
#define CAIRN_TRAIN_TRAIN_H

#include "config/config.h"
#include "data/data.h"
#include "optim/optim.h"
#include "report/report.h"
#include "train/persist.h"
#include "train/session/session.h"

typedef struct Run Run; /* train/run.h */

/* Cost of the snapshots in memory (train/snapshots.h), in this process. */
typedef struct {
    int64_t taken, every;              /* committed; steps between the last ones */
    double stalled_s, longest_stall_s; /* wait of training: in all, and for one */
    double processor_s, seconds;       /* of the thread, in all */
    uint64_t bytes;                    /* of the file */
} SnapshotStats;

/* Progress of the training: the part of a checkpoint beside the tensors. */
typedef struct {
    int64_t step, batch; /* updates made; global batches consumed */
    double loss_sum;     /* Σ of step losses since the start */
    double last_loss;
    double best_metric; /* NaN: no evaluation gave a number yet, and best_step is 0 */
    int64_t best_step;
    int64_t evaluated;         /* the step of the last evaluation during training; 0: none yet */
    int64_t evaluated_samples; /* sequences seen before that evaluation; negative: unknown, in an old state */
    bool finished;             /* trained to the end */
    /* of this process, not saved */
    int64_t sequences, tokens;
    double seconds;      /* inside steps */
    size_t peak_bytes;   /* largest session_memory_used seen */
    double save_stall_s; /* longest wait of training for a save */
    SnapshotStats snapshots;
    Digest run; /* of the output folder, with ranks or snapshots (state/snapshot.h) */
    int64_t snapshot_newest,
        snapshot_kept; /* generations: the newest seen; the one that this run resumed from, 0: none */
} TrainProgress;

/* Resuming, in three parts. train_find searches the output folder or --resume for a checkpoint, and memory for a newer
   snapshot; it reads progress and LayerNorm forms, which plans need. train_compare, once the plan is made,
   refuses a flag or fingerprint that alters the run (E_USAGE, unless --override; always where the run found is
   `finished`). train_load reads the tensors. With nothing found the run starts from the beginning. train_find and
   train_load are Collective: rank 0 reads, and sends to the others. */
typedef struct {
    char *dir;  /* the checkpoint's folder; NULL: nothing was found, or a snapshot */
    char *name; /* in messages: the folder, or "the snapshot of step 7 in /dev/shm" */
    TrainProgress progress;
    Json *state;    /* state.json; NULL: nothing was found */
    Persist memory; /* of this rank, with the snapshot's set, which is the same on all ranks; generation 0: none */
} TrainResume;
static inline bool train_found(const TrainResume *r) { return r->state != NULL; }
Status train_find(const Config *config, const char *output_dir, Ranks *ranks, TrainResume *resume);
Status train_compare(const Config *config, const char *fingerprint, const TrainResume *resume, bool finished);
Status train_load(TrainResume *resume, Session *session);
void train_resume_free(TrainResume *resume);

/* Trains to the end, or until a signal or --max-time (E_STOPPED after a durable save). */
Status train_run(Run *run);

/* Digest of the sizes and rates of `model`, and of the names, shapes and small tensors in the file `weights_path`
   (reading all of it would take as long as loading it). An unreadable file has a digest of its own. "": random weights.
 */
Digest train_origin(const Model *model, const char *weights_path);

/* A JSON object of strings: the facts beside the flags that a run's bits depend on. `data` digests all training data. A
   change of data, origin or precision alters the run, a change of the others only its last bits. */
void train_fingerprint(const Run *run, Digest data, Buf *out);

#endif
