/* How good vectors are: correlation with scores, and the search for the right text. */
#include "base/correlation.h"
#include "base/parallel.h"
#include "tasks/embed/embed.h"
#include "train/ranks/signals.h"

enum { BLOCK = 32 }; /* candidates whose cosines with a text are computed at once */

const char *embed_metric_name(EmbedMetric metric)
{
    static const char *const names[] = {
#define X(name, text) text,
        EMBED_METRIC_LIST(X)
#undef X
    };
    return names[metric];
}

typedef struct {
    const EmbedTexts *x;
    const float *v; // (rows, 2, h)
    int64_t h;
    const Ranks *ranks;
    int64_t first;   /* row of this rank's part */
    float *blocks;   // (⌈rows / BLOCK⌉, h, BLOCK) the texts 1
    float *own;      // (rows) cosine with the right text
    int64_t *better; // (part) other texts whose cosine is not smaller
} Search;

static void normalize(float *v, int64_t h) // (h)
{
    double sum = 0;
    for (int64_t d = 0; d < h; d++) sum += (double)v[d] * (double)v[d];
    double length = fmax(sqrt(sum), 1e-12);
    for (int64_t d = 0; d < h; d++) v[d] = (float)((double)v[d] / length);
}

/* ---- pairs with scores ---- */

static void correlate(const EmbedTexts *x, const float *v, int64_t h, double figures[N_EMBED_METRICS])
{
    size_t n = (size_t)x->rows;
    double *cosine = mem_array(n, sizeof *cosine), *score = mem_array(n, sizeof *score);
    for (size_t i = 0; i < n; i++) {
        const float *a = v + 2 * i * (size_t)h, *b = a + h;
        cosine[i] = 0;
        for (int64_t d = 0; d < h; d++) cosine[i] += (double)a[d] * (double)b[d];
        score[i] = (double)x->examples.score[2 * i];
    }
    figures[EMBED_PEARSON] = correlation_pearson(cosine, score, n);
    figures[EMBED_SPEARMAN] = correlation_spearman(cosine, score, n);
    MEM_FREE(cosine, score);
}

/* ---- pairs without ---- */

static int64_t blocks_of(const EmbedTexts *x) { return (x->rows + BLOCK - 1) / BLOCK; }

static void fill_blocks(Search *s)
{
    for (int64_t j = 0; j < s->x->rows; j++)
        for (int64_t d = 0; d < s->h; d++)
            s->blocks[(j / BLOCK * s->h + d) * BLOCK + j % BLOCK] = s->v[(2 * j + 1) * s->h + d];
}

/* Cosines of the text 0 of row i with a block of candidates. Each is summed in one order, whatever is beside it. */
static void cosines(const Search *s, int64_t i, int64_t block, float sums[BLOCK])
{
    const float *a = s->v + 2 * i * s->h, *b = s->blocks + block * s->h * BLOCK;
    float sum[BLOCK] = {0}; /* of its own, for vector instructions */
    for (int64_t d = 0; d < s->h; d++, b += BLOCK)
        for (int k = 0; k < BLOCK; k++) sum[k] += a[d] * b[k];
    memcpy(sums, sum, sizeof sum);
}

static bool stops(const Search *s) { return *signals_stop() || ranks_hurry(s->ranks); }

/* A block of candidates stays in the cache while all texts of the range meet it. */
static void search_range(void *arg, size_t begin, size_t end)
{
    Search *s = arg;
    int64_t first = s->first + (int64_t)begin, last = s->first + (int64_t)end, rows = s->x->rows;
    float sums[BLOCK];
    for (int64_t i = first; i < last; i++) {
        cosines(s, i, i / BLOCK, sums);
        s->own[i] = sums[i % BLOCK];
    }
    for (int64_t block = 0; block < blocks_of(s->x) && !stops(s); block++)
        for (int64_t i = first; i < last; i++) {
            int64_t at = block * BLOCK;
            Digest right = s->x->digests[2 * i + 1];
            cosines(s, i, block, sums);
            for (int64_t j = at; j < at + BLOCK && j < rows; j++)
                if (sums[j - at] >= s->own[i] && !digest_equal(right, s->x->digests[2 * j + 1]))
                    s->better[i - s->first]++;
        }
}

/* Each rank searches for a part of the rows. */
static Status search(const EmbedTexts *x, const float *v, int64_t h, Ranks *ranks, double figures[N_EMBED_METRICS])
{
    int64_t n = x->rows, rank = ranks_rank(ranks), size = ranks_size(ranks), first = n * rank / size,
            part = n * (rank + 1) / size - first;
    size_t bytes = (size_t)part * sizeof(int64_t);
    double within[3] = {0}, inverse = 0;
    Search s = {.x = x,
                .v = v,
                .h = h,
                .ranks = ranks,
                .first = first,
                .blocks = mem_array((size_t)(blocks_of(x) * BLOCK * h), sizeof *s.blocks),
                .own = mem_array((size_t)n, sizeof *s.own),
                .better = mem_array((size_t)part, sizeof *s.better)};
    Status status = OK;
    fill_blocks(&s);
    parallel_ranges((size_t)part, BLOCK, search_range, &s);
    TRY_DONE(ranks_all(ranks, stops(&s) ? fail(E_STOPPED, "stopped in evaluation") : OK));
    TRY_DONE(ranks_gather(ranks, (void **)&s.better, &bytes));
    for (int64_t i = 0; i < n; i++) {
        within[0] += s.better[i] < 1;
        within[1] += s.better[i] < 5;
        within[2] += s.better[i] < 10;
        inverse += s.better[i] < 10 ? 1 / (double)(s.better[i] + 1) : 0;
    }
    for (int k = 0; k < 3; k++) figures[EMBED_RECALL_1 + k] = within[k] / (double)n;
    figures[EMBED_MRR] = inverse / (double)n;
done:
    MEM_FREE(s.blocks, s.own, s.better);
    return status;
}

size_t embed_measure_bytes(const EmbedTexts *x, int h)
{
    size_t rows = (size_t)(blocks_of(x) * BLOCK);
    return rows *
           (x->examples.score ? 4 * sizeof(double) : (size_t)h * sizeof(float) + sizeof(float) + sizeof(int64_t));
}

Status embed_measure(const EmbedTexts *x, float *v, int h, Ranks *ranks, double figures[N_EMBED_METRICS])
{
    for (int64_t i = 0; i < 2 * x->rows; i++) normalize(v + i * h, h);
    if (!x->examples.score) return search(x, v, h, ranks, figures);
    correlate(x, v, h, figures);
    return OK;
}
