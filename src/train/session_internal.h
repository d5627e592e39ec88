/* Between session.c and session_state.c. */
#ifndef CAIRN_TRAIN_SESSION_INTERNAL_H
#define CAIRN_TRAIN_SESSION_INTERNAL_H

#include "train/session.h"

/* Frees what session_fill gave and session_ready has not copied. */
void session_free_filled(Session *s);
/* The (2·layers + 1) forms that the weights ask for now. */
Status session_norm_forms(const Session *s, uint8_t *forms);

#endif
