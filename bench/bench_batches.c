/* The batches of a training run as another trainer needs them to take the same steps: one line of JSON per batch, with
   the sequences in the step's order and their masks. bench_batches DIR VOCAB MAX_SEQ_LENGTH BATCH_SIZE SEED BATCHES */
#include <stdio.h>
#include <stdlib.h>

#include "data/shards.h"

static void numbers(const char *name, const int32_t *values, int64_t n)
{
    printf("\"%s\": [", name);
    for (int64_t i = 0; i < n; i++) printf("%s%d", i ? "," : "", values[i]);
    printf("]");
}

static void sequence(const Examples *e, int64_t i)
{
    int64_t at = e->offset[i], length = example_length(e, i), masks = e->masked_offset[i], first = 0;
    while (first < length && e->types[at + first] == 0) first++;
    printf("{");
    numbers("ids", e->ids + at, length);
    printf(", \"first\": %lld, \"next\": %d, ", (long long)first, e->label[i]); /* the rest is of the second sentence */
    numbers("places", e->masked_place + masks, example_masked(e, i));
    printf(", ");
    numbers("words", e->masked_label + masks, example_masked(e, i));
    printf("}");
}

static Status run(char **argv)
{
    Vocab *vocab = NULL;
    Shards *s = NULL;
    Status status = OK;
    TRY_DONE(vocab_read(argv[2], NULL, &vocab));
    ShardsOptions o = {
        .vocab = vocab, .max_length = atoi(argv[3]), .batch_size = atoll(argv[4]), .seed = strtoull(argv[5], NULL, 10)};
    TRY_DONE(shards_open(argv[1], &o, &s));
    for (int64_t batch = 0; batch < atoll(argv[6]); batch++) {
        const Examples *e;
        TRY_DONE(shards_step(s, batch, &e));
        printf("[");
        for (int64_t i = 0; i < e->count; i++) {
            if (i) printf(", ");
            sequence(e, i);
        }
        printf("]\n");
    }
done:
    shards_close(s);
    vocab_free(vocab);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: bench_batches DIR VOCAB MAX_SEQ_LENGTH BATCH_SIZE SEED BATCHES\n");
        return 2;
    }
    Status status = run(argv);
    if (status != OK) log_error("%s", status_message());
    return status_exit_code(status);
}
