/* The options of all ranks compared, before anything depends on them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/table.h"
#include "train/ranks/ranks_internal.h"

Status ranks_check_batch(const Config *c, int64_t ranks)
{
    const char *name = c->foreign[OPTION_batch_size]; /* it may count a rank's sequences */
    long long batch = (long long)c->batch_size, all = batch * (long long)ranks;
    if (ranks <= 1 || !name) return OK;
    return fail(E_USAGE,
                "--%s %lld with %lld ranks: give --batch-size, which counts the sequences of all ranks: %lld, or %lld "
                "if each rank has %lld",
                name, batch, (long long)ranks, batch, all, batch);
}

Status ranks_compare_options(Comm *comm, const Config *c)
{
    Status status = OK;
    int n = 0;
    CommFact facts[N_OPTIONS];
    char flags[N_OPTIONS][64];
    Buf values[N_OPTIONS] = {{0}};
    bool given[N_OPTIONS] = {false}, *all = mem_array((size_t)comm->size, sizeof given); // (size, N_OPTIONS)
    for (int i = 0; i < N_OPTIONS; i++) {
        buf_puts(&values[i], "");
        config_value_text(c, i, &values[i]);
        given[i] = values[i].len > 0;
    }
    /* Versions come first: another version has other options. */
    TRY_DONE(comm_agree(comm, &(CommFact){"version", CAIRN_VERSION}, 1));
    TRY_DONE(comm_allgather(comm, given, sizeof given, all));
    for (int i = 0; i < N_OPTIONS; i++) {
        const char *letters = config_table[i].commands;
        bool skip = strchr(letters, 'D') != NULL;
        for (int r = 1; r < comm->size; r++) skip = skip && all[r * N_OPTIONS + i] == all[i];
        if (skip || !config_option_of(i, c->command) || strchr(letters, 'R')) continue;
        snprintf(flags[n], sizeof flags[n], "--%s", config_flag(i));
        facts[n] = (CommFact){flags[n], values[i].data};
        n++;
    }
    TRY_DONE(comm_agree(comm, facts, n));
done:
    for (int i = 0; i < N_OPTIONS; i++) buf_free(&values[i]);
    free(all);
    return status;
}
