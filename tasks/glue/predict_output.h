/* Inside tasks/glue: the rows that `cairn predict` writes (predict_output.c). */
#pragma once

#include "config/config.h"
#include "tasks/glue/glue.h"

typedef struct {
    const GlueTask *task; /* NULL: vectors. The caller sets both */
    int64_t n;            /* values of a row: labels, or elements */
    bool npy;             /* NumPy's form 1.0, (rows, n) in fp32, in place of `form` */
    RecordsForm form;     /* RECORDS_TSV, RECORDS_CSV or RECORDS_JSONL */
    char *list, **keep;   // (n_keep) --keep-columns, and its names, which lie in `list`
    int n_keep;
    int first;    /* the first of them among a row's texts */
    Buf kept;     /* of the rows that are not written yet */
    size_t *ends; // (n_ends) of each of these rows in `kept`
    int n_ends, cap_ends;
} PredictOutput;

/* The form is --format, by default the ending of --output. E_USAGE: they differ, or the ending says nothing. */
Status predict_output_init(PredictOutput *out, const Config *c);
void predict_output_free(PredictOutput *out); /* takes a zeroed one */
/* Adds the columns to keep to the wanted ones. E_USAGE: one has the name of a prediction's column. */
Status predict_output_columns(PredictOutput *out, RecordsOptions *o);
/* Notes the columns to keep of a row, in order. E_FORMAT: the form cannot hold a text. */
Status predict_output_keep(PredictOutput *out, const Records *records, const Record *row);
/* `rows` of the whole file; only NumPy's form has it. The header's size does not depend on it. */
void predict_output_header(const PredictOutput *out, int64_t rows, Buf *text);
/* Row `i` of those that are noted, with its prediction: v (n). */
void predict_output_row(const PredictOutput *out, int64_t index, int i, const float *v, Buf *text);
void predict_output_forget(PredictOutput *out); /* the noted rows */
