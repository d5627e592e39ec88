/* The training loop: steps, saves, signals, metrics, the end. It trains on the examples of run->source. */
#ifndef CAIRN_TRAIN_TRAIN_H
#define CAIRN_TRAIN_TRAIN_H

#include "config/config.h"
#include "data/data.h"
#include "optim/optim.h"
#include "report/report.h"
#include "train/session.h"

typedef struct Run Run; /* train/run.h */

/* What snapshots in memory (train/snapshots.h) took, in this process. */
typedef struct {
    int64_t taken, every;              /* committed; steps between them at last */
    double stalled_s, longest_stall_s; /* training waited: in all, and for one */
    double processor_s, seconds;       /* of the thread, for all of them */
    uint64_t bytes;                    /* of the file */
} SnapshotStats;

/* Where training stands; what is in a checkpoint beside the tensors. */
typedef struct {
    int64_t step, batch; /* updates made; global batches consumed */
    double loss_sum;     /* Σ of step losses since the start */
    double last_loss;
    double best_metric; /* NaN: none yet */
    int64_t best_step;
    int64_t evaluated;         /* the step of the last evaluation during training; 0: none yet */
    int64_t evaluated_samples; /* sequences seen before that evaluation; negative: an old state does not tell */
    bool finished;             /* trained to the end */
    /* of this process, not saved */
    int64_t sequences, tokens;
    double seconds;      /* inside steps */
    size_t peak_bytes;   /* largest session_memory_used seen */
    double save_stall_s; /* longest time training stood for a save */
    SnapshotStats snapshots;
    Digest run;                             /* of the output folder, with ranks or snapshots (state/snapshot.h) */
    int64_t snapshot_newest, snapshot_kept; /* generations: the newest seen; the one it goes on from, 0: none */
} TrainProgress;

/* Resuming, in three parts. train_find looks for a checkpoint in the output folder, or where --resume says, and in
   memory for a snapshot that is newer; it reads progress and LayerNorm forms, which plans need. train_compare, once the
   plan is made, refuses a flag or fingerprint that alters the run (E_USAGE; --override takes it). train_load reads the
   tensors. Nothing found: the run starts from the beginning. With ranks the first and the last are Collective: rank 0
   looks and reads, and sends to the others. */
typedef struct {
    char *dir;  /* the checkpoint's folder; NULL: nothing was found, or a snapshot */
    char *name; /* in messages: the folder, or "the snapshot of step 7 in /dev/shm" */
    TrainProgress progress;
    uint8_t *norm_forms; /* (n_forms) */
    int n_forms;
    Json *state;                /* state.json; NULL: nothing was found */
    struct TrainMemory *memory; /* the snapshot (train/recover.h); NULL: a checkpoint */
} TrainResume;
static inline bool train_found(const TrainResume *r) { return r->state != NULL; }
Status train_find(const Config *config, const char *output_dir, Ranks *ranks, TrainResume *resume);
Status train_compare(const Config *config, const char *fingerprint, const TrainResume *resume);
Status train_load(TrainResume *resume, Session *session);
void train_resume_free(TrainResume *resume);

/* E_USAGE if the folder holds weights but no run: training would put another model in their place. */
Status train_check_output(const char *output_dir);

/* Trains to the end, or until a signal or --max-time (E_STOPPED after a durable save). */
Status train_run(Run *run);

/* What the weights and sizes that a run starts from are known by, wherever they lie: the sizes and rates of `model`,
   and of the file --model the names, shapes and small tensors (reading all of it would take as long as loading it). An
   unreadable file has a digest of its own. `weights_path` "": random weights. */
Digest train_origin(const Model *model, const char *weights_path);

/* A JSON object of strings: what a run's bits depend on beside its flags. `data` digests everything that is trained on;
   a change of it or of `origin` alters the run, a change of the others only its last bits. */
void train_fingerprint(const Backend *backend, Dtype compute, int64_t micro_tokens, int ranks, Digest data,
                       Digest origin, Buf *out);

#endif
