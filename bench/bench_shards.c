/* The loader alone: sequences and tokens per second of a folder of shards, in training order, with the masks that
   training would see. bench_shards DIR VOCAB [MAX_SEQ_LENGTH [BATCH_SIZE [SECONDS]]] */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "data/shards.h"

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static Status run(int argc, char **argv)
{
    Vocab *vocab = NULL;
    Shards *s = NULL;
    Status status = OK;
    double seconds = argc > 5 ? atof(argv[5]) : 5;
    TRY_DONE(vocab_read(argv[2], NULL, &vocab));
    ShardsOptions o = {.vocab = vocab,
                       .max_length = argc > 3 ? atoi(argv[3]) : 128,
                       .batch_size = argc > 4 ? atoll(argv[4]) : 256,
                       .seed = 42};
    double start = clock_monotonic();
    TRY_DONE(shards_open(argv[1], &o, &s));
    printf("open %.3f s, %lld sequences\n", clock_monotonic() - start, (long long)shards_count(s));
    start = clock_monotonic();
    double cpu = cpu_seconds();
    TRY_DONE(shards_check(s, NULL));
    printf("check of every row: %.3f s, cpu %.3f s\n", clock_monotonic() - start, cpu_seconds() - cpu);
    int64_t sequences = 0, tokens = 0, batch = 0;
    start = clock_monotonic();
    cpu = cpu_seconds();
    for (; clock_monotonic() - start < seconds; batch++) {
        const Examples *e;
        TRY_DONE(shards_step(s, batch, &e));
        sequences += e->count;
        tokens += e->offset[e->count];
    }
    double wall = clock_monotonic() - start;
    cpu = cpu_seconds() - cpu;
    printf("%lld batches of %lld: %.0f sequences/s, %.3g tokens/s; per cpu second %.3g tokens\n", (long long)batch,
           (long long)o.batch_size, (double)sequences / wall, (double)tokens / wall, (double)tokens / cpu);
done:
    shards_close(s);
    vocab_free(vocab);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_shards DIR VOCAB [MAX_SEQ_LENGTH [BATCH_SIZE [SECONDS]]]\n");
        return 2;
    }
    Status status = run(argc, argv);
    if (status != OK) log_error("%s", status_message());
    return status_exit_code(status);
}
