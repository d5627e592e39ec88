/* Saved states that the next start does not take. OUT/not_finite.json counts how often training ended at the same step
   because a value was not finite. After the third time the state that it began from is suspected to be damaged, and an
   earlier one is taken. OUT/damaged.json has the states that --audit knows to be damaged, until the run is finished. */
#ifndef CAIRN_TRAIN_SUSPECTS_H
#define CAIRN_TRAIN_SUSPECTS_H

#include "base/base.h"

/* Steps from … before `to`, whose states are not taken; to 0: all are. */
typedef struct {
    int64_t from, to;
    bool damaged; /* rather none than one of these */
} Suspects;

static inline bool suspects_have(const Suspects *s, int64_t step) { return step >= s->from && step < s->to; }

/* Training that began after step `from` ended in step `at`. A file that cannot be written is a warning. */
void suspects_not_finite(const char *output_dir, int64_t from, int64_t at);
/* The states of these steps are damaged. E_IO. */
Status suspects_damaged(const char *output_dir, int64_t from, int64_t to);
/* The run is finished: no state that is left is damaged. */
void suspects_passed(const char *output_dir);
/* Logs what is suspected, if there is any. */
void suspects_read(const char *output_dir, Suspects *s);

#endif
