/* The inputs of a micro-batch: each an array of MicroBatch (data/data.h), an INPUT tensor of a plan (ModelTensors) and
   an upload of the session; beside them only `ctl`. A new one is a line here, code that fills it (data/batch.c) and an
   instr that reads it (bert.c). */
#pragma once

/* X(name, rows, columns, plans): (rows, columns) I32. Labels have the width of the examples, and are F32 where they are
   scores. Plans that have it: ALWAYS, all; READ, of a head that does not read all rows; MASKED, of a head that reads
   masked positions; LABELS, of a head with labels.

   seq, seq_index      index of the row's sequence, of the sequence, in the global batch
   first               place in `read` of the sequence's first row
   read                the rows that the head reads, by sequences: the first row, then the masked ones
   read_pos, read_seq  pos and seq of these rows
   masked              places in `read` of the masked rows
   masked_labels       their ids before masking
   labels              classes; targets of a classifier (S, labels), where its loss has weights or smoothing; scores, in
                       regression (S) and of several labels at once (S, labels); of a span head the
                       first and the last token (S, 2); in pretraining next-sentence labels */
#define MICRO_INPUT_LIST(X)                                                                                            \
    X(ids, TOKENS, 1, ALWAYS)                                                                                          \
    X(types, TOKENS, 1, ALWAYS)                                                                                        \
    X(pos, TOKENS, 1, ALWAYS)                                                                                          \
    X(seq, TOKENS, 1, ALWAYS)                                                                                          \
    X(spans, SEQS, 2, ALWAYS)                                                                                          \
    X(seq_index, SEQS, 1, ALWAYS)                                                                                      \
    X(first, SEQS, 1, ALWAYS)                                                                                          \
    X(read, READ, 1, READ)                                                                                             \
    X(read_pos, READ, 1, READ)                                                                                         \
    X(read_seq, READ, 1, READ)                                                                                         \
    X(masked, MASKED, 1, MASKED)                                                                                       \
    X(masked_labels, MASKED, 1, MASKED)                                                                                \
    X(labels, SEQS, 1, LABELS)

typedef enum {
#define X(name, ...) MICRO_##name,
    MICRO_INPUT_LIST(X)
#undef X
        N_MICRO_INPUTS
} MicroInput;
