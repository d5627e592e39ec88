/* Inside commands: the parts of `cairn report`. */
#pragma once

#include "config/config.h"
#include "report/compare.h"
#include "report/page.h"

/* Runs of one group have equal losses, bit for bit, at all steps that they have in common. */
typedef struct {
    int group[COMPARE_MOST];                     /* of each run, from 0 by their first runs */
    int first[COMPARE_MOST], size[COMPARE_MOST]; // (n) the first run of each group, and how many it has
    int n;
} LossGroups;

/* ---- report_losses.c ---- */
/* Finds the groups and appends lines that name them and what may make them differ. `broken` gets a message where losses
   differ though the runs' configurations promise equal ones. */
void losses_compare(const ComparedRun *runs, int n, LossGroups *groups, Buf *out, Buf *broken);
/* "none = full" */
void losses_put_group(const ComparedRun *runs, int n, const LossGroups *groups, int group, Buf *out);

/* ---- report_proof.c ---- */
/* Writes proof.html and proof.txt into --output-dir. `losses` are whole lines about them. */
Status proof_write(const Config *c, const ComparedRun *runs, int n, const LossGroups *groups, const char *losses);
