#include "data/sequences.h"

void sequences_clear(Sequences *s) { s->e.count = 0; }

static int64_t grown_capacity(int64_t cap, int64_t need)
{
    return cap >= need ? cap : cap + cap / 2 > need ? cap + cap / 2 : need;
}

void sequences_reserve(Sequences *s, int64_t count, int64_t tokens, int64_t masked)
{
    Examples *e = &s->e;
    if (count > s->cap_count || !e->offset) {
        s->cap_count = grown_capacity(s->cap_count, count);
        e->offset = mem_resize(e->offset, (size_t)s->cap_count + 1, sizeof *e->offset);
        e->masked_offset = mem_resize(e->masked_offset, (size_t)s->cap_count + 1, sizeof *e->masked_offset);
        e->label = mem_resize(e->label, (size_t)s->cap_count, sizeof *e->label);
        s->sample = mem_resize(s->sample, (size_t)s->cap_count, sizeof *s->sample);
        s->is_masked = mem_resize(s->is_masked, (size_t)s->cap_count, sizeof *s->is_masked);
        e->offset[0] = e->masked_offset[0] = 0;
    }
    if (tokens > s->cap_tokens) {
        s->cap_tokens = grown_capacity(s->cap_tokens, tokens);
        e->ids = mem_resize(e->ids, (size_t)s->cap_tokens, sizeof *e->ids);
        e->types = mem_resize(e->types, (size_t)s->cap_tokens, sizeof *e->types);
    }
    if (masked > s->cap_masked) {
        s->cap_masked = grown_capacity(s->cap_masked, masked);
        e->masked_place = mem_resize(e->masked_place, (size_t)s->cap_masked, sizeof *e->masked_place);
        e->masked_label = mem_resize(e->masked_label, (size_t)s->cap_masked, sizeof *e->masked_label);
    }
}

int64_t sequences_add(Sequences *s, int64_t length, int64_t masked)
{
    int64_t i = s->e.count, tokens = i ? s->e.offset[i] : 0, masks = i ? s->e.masked_offset[i] : 0;
    sequences_reserve(s, i + 1, tokens + length, masks + masked);
    s->e.offset[i + 1] = tokens + length;
    s->e.masked_offset[i + 1] = masks + masked;
    s->e.count++;
    return i;
}

void sequences_free(Sequences *s)
{
    examples_free(&s->e);
    MEM_FREE(s->sample, s->is_masked);
    *s = (Sequences){0};
}
