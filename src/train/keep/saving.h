/* When and what to save: between the training loop and state/checkpoint. */
#pragma once

#include "state/checkpoint/checkpoint.h"
#include "train/job/job.h"

enum { SAVING_FORMAT = 1 }; /* of state.json */

typedef struct Saving Saving;

/* The text of state.json. */
void saving_state(const Run *run, Buf *out);
/* Reads the text of the state.json of the checkpoint or snapshot `name`, which is of `step`. E_CORRUPT: another format,
   or a value out of its range. The caller frees *doc. */
Status saving_read(const char *name, const Buf *text, int64_t step, Json **doc, TrainProgress *progress);

/* Collective, and so are all calls on it that say so: saves of the whole run. Each rank writes what it owns, where it
   sees rank 0's output folder; rank 0 makes the files, and writes the rest (holding_set_writers). The caller closes it,
   also after a failure. */
Status saving_open(Saving **saving, Run *run);
/* This rank alone, which has the whole state, saves it into `folder`, while training waits. `fill` (TrainingState.fill;
   may be NULL) takes part in it. All calls are this rank's alone. */
Status saving_open_alone(Saving **saving, Run *run, const char *folder, CheckpointFill *fill, void *context);
/* Collective. Starts a save of the state, after the previous save; returns when training may change the tensors again.
   A save that fails later is reported, and the previous checkpoint stays. E_NUMERIC: weights are not finite. */
Status saving_begin(Saving *s);
/* With several ranks: this rank's vote for the end of the step that runs; then Collective, between steps, what is due
   of a save in progress. Both take NULL. */
void saving_vote(const Saving *s);
Status saving_step(Saving *s);
/* Between steps: back to the usual plan (session_set_saves) where this rank's write no longer reads the save buffer;
   `wait`: first waits for that. Takes NULL. */
Status saving_leave(Saving *s, bool wait);
/* True once after a failed background save (already reported): its step is not on disk. Rank 0's, between steps. */
bool saving_failed(Saving *s);
/* From here on one checkpoint more than --keep stays. */
void saving_keep_one_more(Saving *s);
/* Collective. Waits for the last save; its status. */
Status saving_wait(Saving *s);
/* After a lost rank, not collective: a save whose parts the ranks have not all written is given up. Then saving_join
   waits until this rank writes nothing more. */
void saving_give_up(Saving *s);
void saving_join(Saving *s);
void saving_close(Saving *s); /* gives up, and joins; takes NULL */
/* Seconds that a save took, or is expected to take; and that saving and ending is expected to take, for --max-time. */
double saving_seconds(const Saving *s);
double saving_reserve(const Saving *s);
double saving_longest_stall(const Saving *s);
