/* `--profile N`: times of every instr of N steps, into OUT/profile/ (docs/files.md): a trace for Perfetto, a table of
   ops against the machine's limits. All ranks profile and rank 0 writes; of a pipeline the times of works are noted
   without --profile, too, for a timeline.
   The first steps of a process warm up and are not profiled. No result changes.

   All times are of clock_monotonic, to which a backend's marks are tied (backend.h), counted from profile_open. A file
   that cannot be written ends the profile with a warning, and training continues; a Status is an error of the device.
   Every function takes a NULL Profile and then does nothing. */
#pragma once

#include "train/measure/sampling.h"
#include "train/session/session.h"

#define PROFILE_WARM_UP 3 /* steps, at most; a short run has fewer */
#define PROFILE_WORKS   3 /* steps of a pipeline without --profile */

typedef struct Profile Profile;

/* For the next `wanted` steps of `left`, after the warm-up; NULL for none. Rank 0 measures the machine's rates if they
   are unknown. `sampling` (NULL: none) has the samples of the device for the trace. Collective in a pipeline. The
   caller closes the profile, also after a failure. */
Status profile_open(const char *output_dir, Session *session, Sampling *sampling, int64_t wanted, int64_t left,
                    Profile **profile);
/* Around a step. `mean_length`: of its sequences, in tokens. The last profile_step_end writes the files, and is
   Collective; in a pipeline all are. */
Status profile_step_begin(Profile *p);
Status profile_step_end(Profile *p, int64_t step, double mean_length);
/* An event of the host track from `begin` (clock_monotonic) until now; ignored in the warm-up. */
void profile_range(Profile *p, double begin, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Writes the steps so far, of ops those of rank 0, where fewer than `wanted` were made. */
void profile_close(Profile *p);
