/* `--profile N`: what every instr of N steps took, into OUT/profile/ (docs/files.md): a trace for Perfetto, a table of
   ops against the machine's limits, and how the device was doing. The first steps of a process warm up and are not
   looked at; training goes on afterwards as if nothing had been. No result changes.

   One clock for all: clock_monotonic, to which a backend's marks are tied (backend.h). The zero of every file is
   profile_open. What cannot be written costs the profile, with a warning, never the run: a Status tells of the device
   alone. Every function takes a NULL Profile and then does nothing. */
#ifndef CAIRN_TRAIN_PROFILE_H
#define CAIRN_TRAIN_PROFILE_H

#include "train/session.h"

#define PROFILE_WARM_UP 3 /* steps, where the run has so many beside the ones that are wanted */

typedef struct Profile Profile;

/* For the next `wanted` steps of `left`, after the warm-up; NULL for none. Measures the machine's rates if they are not
   known, and begins to sample the device. */
Profile *profile_open(const char *output_dir, Session *session, int64_t wanted, int64_t left);
/* Around a step. `mean_length`: of its sequences, in tokens. The last one's end writes the files. */
Status profile_step_begin(Profile *p);
Status profile_step_end(Profile *p, int64_t step, double mean_length);
/* Something that the host did since `begin` (clock_monotonic), for the trace's host track; not in the warm-up. */
void profile_range(Profile *p, double begin, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Writes what there is if it ends before its time. */
void profile_close(Profile *p);

#endif
