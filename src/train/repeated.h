/* Ends that repeat: OUT/not_finite.json counts how often training ended at the same step because a value was not
   finite. After the third time the state that it began from is suspected to be damaged, and an earlier one is taken. */
#ifndef CAIRN_TRAIN_REPEATED_H
#define CAIRN_TRAIN_REPEATED_H

#include "base/base.h"

/* Steps from … before `to`, whose states are not taken; to 0: all are. */
typedef struct {
    int64_t from, to;
} Suspects;

static inline bool suspects_have(const Suspects *s, int64_t step) { return step >= s->from && step < s->to; }

/* Training that began after step `from` ended in step `at`. A file that cannot be written is a warning. */
void repeated_record(const char *output_dir, int64_t from, int64_t at);
/* Logs what is suspected, if there is any. */
void repeated_suspects(const char *output_dir, Suspects *s);

#endif
