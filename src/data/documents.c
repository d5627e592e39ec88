#include "data/documents.h"

/* ---- documents ---- */

void documents_clear(Documents *d) { d->count = d->sentences = d->tokens = 0; }

void documents_free(Documents *d)
{
    MEM_FREE(d->number, d->first, d->token, d->ids);
    *d = (Documents){0};
}

void documents_begin(Documents *d, uint64_t number)
{
    if (d->count >= d->cap_count) {
        d->cap_count = 2 * d->cap_count + 64;
        d->number = mem_resize(d->number, (size_t)d->cap_count, sizeof *d->number);
        d->first = mem_resize(d->first, (size_t)d->cap_count + 1, sizeof *d->first);
    }
    d->number[d->count] = number;
    d->first[d->count] = d->sentences;
    d->first[++d->count] = d->sentences;
}

int32_t *documents_sentence(Documents *d, int64_t n)
{
    CHECK(n > 0 && d->count > 0, "a sentence of %lld tokens", (long long)n);
    if (d->sentences >= d->cap_sentences) {
        d->cap_sentences = 2 * d->cap_sentences + 256;
        d->token = mem_resize(d->token, (size_t)d->cap_sentences + 1, sizeof *d->token);
    }
    if (d->tokens + n > d->cap_tokens) {
        d->cap_tokens = d->tokens + n + (d->tokens + n) / 4 + 4096;
        d->ids = mem_resize(d->ids, (size_t)d->cap_tokens, sizeof *d->ids);
    }
    int32_t *ids = d->ids + d->tokens;
    d->token[d->sentences++] = d->tokens;
    d->tokens += n;
    d->token[d->sentences] = d->tokens;
    d->first[d->count] = d->sentences;
    return ids;
}

/* ---- pairs ---- */

/* Removes tokens from the longer segment until both fit. */
static void cut_pair(Pair *p, int64_t room, Draws *d)
{
    for (int64_t a = p->a_token_end - p->a_token, b = p->b_token_end - p->b_token; a + b > room;) {
        bool from_a = a > b, front = draw_chance(d, 0.5);
        int64_t *begin = from_a ? &p->a_token : &p->b_token, *end = from_a ? &p->a_token_end : &p->b_token_end;
        if (front)
            ++*begin;
        else
            --*end;
        if (from_a)
            a--;
        else
            b--;
    }
}

/* B from another document, of which there is one: from a random sentence on, as many as reach the length. */
static void take_random(const Documents *d, Pair *p, int64_t wanted, Draws *draw)
{
    int64_t other = p->document;
    for (int i = 0; i < 10 && other == p->document; i++) other = draw_below(draw, (uint32_t)d->count);
    if (other == p->document) other = (other + 1) % d->count;
    int64_t first = d->first[other], last = d->first[other + 1];
    p->other = other;
    p->label = 1;
    p->b = p->b_end = first + draw_below(draw, (uint32_t)(last - first));
    do p->b_end++;
    while (p->b_end < last && d->token[p->b_end] - d->token[p->b] < wanted);
}

void documents_pairs(const Documents *d, int64_t document, uint32_t round, const PairOptions *o,
                     void (*take)(void *arg, const Pair *pair), void *arg)
{
    uint64_t number = d->number[document];
    Draws draw = draws(o->seed ^ PHILOX_PAIRS, round, (uint32_t)number, (uint32_t)(number >> 32));
    int64_t room = o->max_length - 3, target = room, last = d->first[document + 1];
    bool others = d->count > 1;
    if (draw_chance(&draw, o->short_prob)) target = 2 + draw_below(&draw, (uint32_t)room - 1);
    for (int64_t begin = d->first[document], end = begin + 1; begin < last; end++) {
        if (end < last && d->token[end] - d->token[begin] < target) continue;
        if (!others && end - begin == 1) { /* a B must follow: the next sentence, or the last one after its own A */
            if (end < last)
                end++;
            else if (begin > d->first[document])
                begin--;
            else
                return;
        }
        Pair p = {.document = document, .other = document, .a = begin, .a_end = begin + 1};
        if (end - begin > 1) p.a_end += draw_below(&draw, (uint32_t)(end - begin - 1));
        bool alone = end - begin == 1;
        if (others && (alone || draw_chance(&draw, 0.5))) {
            take_random(d, &p, target - (d->token[p.a_end] - d->token[p.a]), &draw);
            end = p.a_end; /* the next pair uses the others */
        } else {
            p.b = p.a_end;
            p.b_end = end;
        }
        p.a_token = d->token[p.a];
        p.a_token_end = d->token[p.a_end];
        p.b_token = d->token[p.b];
        p.b_token_end = d->token[p.b_end];
        cut_pair(&p, room, &draw);
        take(arg, &p);
        begin = end;
    }
}

/* Sequences of one text: whole sentences as long as they fit. B stays empty. */
static void documents_texts(const Documents *d, int64_t document, const PairOptions *o,
                            void (*take)(void *arg, const Pair *pair), void *arg)
{
    int64_t room = o->max_length - 2, last = d->first[document + 1];
    for (int64_t s = d->first[document]; s < last;) {
        int64_t begin = d->token[s], end = d->token[++s];
        while (s < last && d->token[s + 1] - begin <= room) end = d->token[++s];
        for (; begin < end; begin += room) {
            Pair p = {.document = document,
                      .other = document,
                      .a_token = begin,
                      .a_token_end = end - begin > room ? begin + room : end,
                      .label = -1};
            take(arg, &p);
        }
    }
}

/* ---- sequences ---- */

typedef struct {
    const Documents *documents;
    const PairOptions *options;
    const Masking *masking;
    uint32_t round;
    uint64_t in_document;
    int32_t *scratch, *place, *label; // (max_length) each
    Sequences *out;
} Building;

static void add_pair(void *arg, const Pair *p)
{
    Building *x = arg;
    const Documents *d = x->documents;
    int64_t a = p->a_token_end - p->a_token, b = p->b_token_end - p->b_token, length = b > 0 ? a + b + 3 : a + 2;
    int64_t i = sequences_add(x->out, length, 0), at = x->out->e.offset[i], masks = x->out->e.masked_offset[i];
    int32_t *ids = x->out->e.ids + at;
    ids[0] = x->options->cls;
    memcpy(ids + 1, d->ids + p->a_token, (size_t)a * sizeof *ids);
    ids[a + 1] = x->options->sep;
    memset(x->out->e.types + at, 0, (size_t)a + 2);
    if (b > 0) {
        memcpy(ids + a + 2, d->ids + p->b_token, (size_t)b * sizeof *ids);
        ids[length - 1] = x->options->sep;
        memset(x->out->e.types + at + a + 2, 1, (size_t)b + 1);
    }
    x->out->e.label[i] = p->label;
    x->out->sample[i] = i;
    x->out->is_masked[i] = x->masking != NULL;
    uint64_t sample = d->number[p->document] << 24 | x->in_document++;
    if (!x->masking) return;
    int n = masking_draw(x->masking, sample, x->round, ids, (int)length, x->place, x->label, x->scratch);
    if (n == 0) return;
    sequences_reserve(x->out, i + 1, 0, masks + n);
    memcpy(x->out->e.masked_place + masks, x->place, (size_t)n * sizeof *x->place);
    memcpy(x->out->e.masked_label + masks, x->label, (size_t)n * sizeof *x->label);
    x->out->e.masked_offset[i + 1] = masks + n;
}

void documents_sequences(const Documents *d, uint32_t round, const PairOptions *o, const Masking *masking,
                         Sequences *out)
{
    size_t n = (size_t)o->max_length;
    Building x = {.documents = d, .options = o, .masking = masking, .round = round, .out = out};
    CHECK(o->max_length >= 8, "sequences of %d tokens", o->max_length);
    x.scratch = mem_array(n, sizeof *x.scratch);
    x.place = mem_array(n, sizeof *x.place);
    x.label = mem_array(n, sizeof *x.label);
    for (int64_t document = 0; document < d->count; document++) {
        x.in_document = 0;
        if (o->alone)
            documents_texts(d, document, o, add_pair, &x);
        else
            documents_pairs(d, document, round, o, add_pair, &x);
    }
    MEM_FREE(x.scratch, x.place, x.label);
}
