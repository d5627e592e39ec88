/* Between ranks.c and ranks_options.c. */
#ifndef CAIRN_TRAIN_RANKS_RANKS_INTERNAL_H
#define CAIRN_TRAIN_RANKS_RANKS_INTERNAL_H

#include "train/ranks/ranks.h"

/* Collective. E_USAGE names the first option that differs between ranks and must not. */
Status ranks_compare_options(Comm *comm, const Config *c);

#endif
