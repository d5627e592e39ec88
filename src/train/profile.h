/* `--profile N`: times of every instr of N steps, into OUT/profile/ (docs/files.md): a trace for Perfetto with the
   device's clocks, power and temperature, and a table of ops against the machine's limits. Every rank is profiled;
   rank 0 writes. The first steps of a process warm up and are not profiled. No result changes.

   All times are of clock_monotonic, to which a backend's marks are tied (backend.h), counted from profile_open. A file
   that cannot be written ends the profile with a warning, and training continues; a Status is an error of the device.
   Every function takes a NULL Profile and then does nothing. */
#ifndef CAIRN_TRAIN_PROFILE_H
#define CAIRN_TRAIN_PROFILE_H

#include "train/run.h"
#include "train/sampling.h"

#define PROFILE_WARM_UP 3 /* steps, at most; a short run has fewer */

typedef struct Profile Profile;

/* For the next --profile steps of `left`, after the warm-up; NULL for none. Rank 0 measures the machine's rates if they
   are unknown. `sampling` keeps its samples (NULL: there are none) and lives as long. */
Profile *profile_open(Run *run, Sampling *sampling, int64_t left);
/* Around a step. `mean_length`: of its sequences, in tokens. The last profile_step_end is Collective and writes the
   files. */
Status profile_step_begin(Profile *p);
Status profile_step_end(Profile *p, int64_t step, double mean_length);
/* An event of the host track from `begin` (clock_monotonic) until now; ignored in the warm-up. */
void profile_range(Profile *p, double begin, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Writes the steps so far of rank 0, where fewer than wanted were made. */
void profile_close(Profile *p);

#endif
