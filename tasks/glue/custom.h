/* Inside tasks/glue: labels of a user's own files. */
#pragma once

#include "tasks/glue/glue.h"

void glue_custom_be_regression(GlueTask *task);
void glue_custom_be_classes(GlueCustom *custom, char **names, int n); /* takes the names over */
/* The labels that train's file has: numbers with a fraction are scores, all else are classes, whole numbers in their
   order, others by their bytes. Logs them with their counts, and warns of two that may be one, and of rare ones. The
   elements of vectors have the names of `model` (or ""), if it has several labels. */
Status glue_custom_labels_of_data(GlueCustom *custom, const char *dir, const char *model);

/* ---- the text of a row's label (label_text.c) ---- */

/* The word of a table program for a missing value: nan, NA, None, null … */
bool glue_label_missing(RecordText label);

/* The labels of a row that may have several. Zero-initialise. */
typedef struct {
    RecordText *labels; // (n) without blanks around them
    int n, cap;
    bool vector;  /* all are 0 or 1, true or false, as of a vector with an element per label */
    bool numbers; /* all are numbers, true or false: perhaps another vector */
} GlueLabelList;

/* Cuts a text at its commas; a vector, and numbers in brackets, also at blanks and without the brackets. E_FORMAT: a
   list with quotes, as Python prints one. */
Status glue_label_list(GlueLabelList *list, const char *path, const Record *row, RecordText text);
bool glue_label_set(RecordText element);                  /* of a vector: 1 or true */
bool glue_label_is_new(const GlueLabelList *list, int i); /* the i-th one does not occur before */
bool glue_label_twice(const GlueLabelList *list);         /* one text occurs twice */
bool glue_label_is_element(RecordText label);             /* it could be a vector's */
/* E_FORMAT: the row is a vector, but its labels have no names; shows what to do. */
Status glue_label_vector(const char *path, int64_t line, RecordText text);
