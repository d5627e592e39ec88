/* A seekable permutation: a Feistel network of four rounds over Philox on the next even power of two, walked along its
   cycle until it lands below n (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"). */
#include "data/data.h"

Permutation permutation(uint64_t seed, uint32_t epoch, int64_t n)
{
    Permutation p = {.key = seed ^ PHILOX_ORDER, .n = n, .epoch = epoch, .half_bits = 1};
    while ((INT64_C(1) << (2 * p.half_bits)) < n) p.half_bits++;
    return p;
}

int64_t permutation_at(const Permutation *p, int64_t k)
{
    CHECK(k >= 0 && k < p->n, "element %lld of a permutation of %lld", (long long)k, (long long)p->n);
    uint32_t mask = (uint32_t)((UINT64_C(1) << p->half_bits) - 1);
    do {
        uint32_t left = (uint32_t)((uint64_t)k >> p->half_bits), right = (uint32_t)k & mask;
        for (uint32_t round = 0; round < 4; round++) {
            uint32_t next = (left ^ philox4(p->key, right, round, p->epoch, 0).v[0]) & mask;
            left = right;
            right = next;
        }
        k = (int64_t)((uint64_t)left << p->half_bits | right);
    } while (k >= p->n);
    return k;
}

int64_t batches_per_epoch(int64_t n, int64_t batch_size) { return (n + batch_size - 1) / batch_size; }

int64_t batches_examples(int64_t n, int64_t batch_size, int64_t batches)
{
    int64_t per_epoch = batches_per_epoch(n, batch_size), part = batches % per_epoch * batch_size;
    return batches < 0 ? 0 : batches / per_epoch * n + (part < n ? part : n);
}

int64_t batch_examples(uint64_t seed, int64_t n, int64_t batch_size, int64_t batch, int64_t *index)
{
    int64_t per_epoch = batches_per_epoch(n, batch_size), first = batch % per_epoch * batch_size;
    int64_t count = first + batch_size <= n ? batch_size : n - first;
    Permutation p = permutation(seed, (uint32_t)(batch / per_epoch), n);
    for (int64_t i = 0; i < count; i++) index[i] = permutation_at(&p, first + i);
    return count;
}

static Status loaded_step(void *self, int64_t batch, const Examples **examples, int64_t *index, int64_t *n)
{
    const LoadedExamples *l = self;
    *examples = l->examples;
    *n = batch_examples(l->seed, l->examples->count, l->batch_size, batch, index);
    return OK;
}

ExampleSource loaded_source(LoadedExamples *loaded)
{
    return (ExampleSource){.self = loaded, .count = loaded->examples->count, .step = loaded_step};
}
