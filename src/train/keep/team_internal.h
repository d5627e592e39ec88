/* Between team.c and team_write.c: the store's values. */
#pragma once

#include <stdio.h>

#include "comm/meet/store.h"
#include "train/keep/team.h"

#define TEAM_POLL_S 0.1 /* between looks at a rank that is waited for */

enum { TEAM_NAME_BYTES = 64 };

Status team_put(const Team *t, const char *name, const void *data, size_t size);
/* Waits up to `within_s`, also where the store fails at once; the caller frees *data. */
Status team_get(const Team *t, const char *name, double within_s, void **data, size_t *size);

/* Comes to the round of the leader, or of a member, that met again after the loss of an earlier leader that this rank
   did not see. */
void team_catch_up(Team *t, int rank);
