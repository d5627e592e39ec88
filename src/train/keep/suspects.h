/* Saved states that the next start does not take. OUT/not_finite.json counts how often training ended at the same step
   because a value was not finite. After the third time the state that it began from is suspected to be damaged, and an
   earlier one is taken. OUT/damaged.json has the steps whose states --audit found to be damaged: the next start sets
   these states aside and removes the file. */
#pragma once

#include "base/base.h"

/* Steps from … before `to`, whose states are not taken; to 0: all are. */
typedef struct {
    int64_t from, to;
} Suspects;

static inline bool suspects_have(const Suspects *s, int64_t step) { return step >= s->from && step < s->to; }

/* Training that began after step `from` ended in step `at`. A file that cannot be written is a warning. */
void suspects_not_finite(const char *output_dir, int64_t from, int64_t at);
/* Logs what is suspected, if there is any. */
void suspects_read(const char *output_dir, Suspects *s);

/* The states of these steps are damaged. E_IO. */
Status suspects_damaged(const char *output_dir, int64_t from, int64_t to);
/* False: none are known to be. */
bool suspects_find_damaged(const char *output_dir, Suspects *s);
/* They are out of the way. */
Status suspects_forget_damaged(const char *output_dir);
