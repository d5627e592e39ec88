#include "data/shard_file.h"

#define MOST_IN_PACK 256   /* sequences */
#define MOST_PACK    65536 /* tokens */
#define MOST_LIST    4096  /* numbers of a sequence that are read, so that check_sequence reports a longer one */

const char *const shard_column_names[N_SHARD_COLUMNS] = {
    [SHARD_INPUT_IDS] = "input_ids",
    [SHARD_INPUT_MASK] = "input_mask",
    [SHARD_SEGMENT_IDS] = "segment_ids",
    [SHARD_MASKED_POSITIONS] = "masked_lm_positions",
    [SHARD_MASKED_IDS] = "masked_lm_ids",
    [SHARD_LABELS] = "next_sentence_labels",
    [SHARD_SPECIAL_POSITIONS] = "special_token_positions",
    [SHARD_PACKED_LENGTHS] = "packed_input_len",
    [SHARD_PACKED_MASKED] = "packed_masked_lm_len",
};

/* The datasets of each layout, a letter per column in the order above: s as wide as input_ids, M no wider, l lists, L
   one number per row, 3 the special tokens' places, - ignored. Capitals may be absent. */
static const struct {
    const char *name, *columns;
    bool lists;
} layouts[N_SHARD_LAYOUTS] = {
    [SHARD_FIXED] = {"fixed length", "sssMML---", false},
    [SHARD_DYNAMIC] = {"fixed length, to be masked", "s----L3--", false},
    [SHARD_LISTS] = {"variable length", "s-sMML---", true},
    [SHARD_PACKED] = {"packed", "s-sMMl-lM", true},
};

const char *shard_layout_name(ShardLayout layout) { return layouts[layout].name; }

/* ---- opening ---- */

#define bad_column(f, column, ...)                                                                                     \
    status_context(fail(E_FORMAT, __VA_ARGS__), "%s: dataset %s", hdf5_path((f)->file), shard_column_names[column])

static Status find_layout(ShardFile *f)
{
    Hdf5Column **c = f->columns;
    if (!c[SHARD_INPUT_IDS])
        return fail(
            E_FORMAT,
            "%s: no dataset input_ids: not a shard of pretraining data. Expected NVIDIA's or MLPerf's datasets, "
            "as `cairn shards` writes them",
            hdf5_path(f->file));
    if (hdf5_shape(c[SHARD_INPUT_IDS]).lists)
        f->layout = c[SHARD_PACKED_LENGTHS] ? SHARD_PACKED : SHARD_LISTS;
    else if (c[SHARD_SPECIAL_POSITIONS])
        f->layout = SHARD_DYNAMIC;
    else if (c[SHARD_INPUT_MASK])
        f->layout = SHARD_FIXED;
    else
        return fail(E_FORMAT,
                    "%s: input_ids has rows of one length, but neither input_mask nor special_token_positions says how "
                    "long they are",
                    hdf5_path(f->file));
    return OK;
}

/* Compares a column with its letter of the layout. */
static Status check_column(ShardFile *f, int column, char letter)
{
    Hdf5Column *c = f->columns[column];
    if (letter == '-') {
        f->columns[column] = NULL;
        return OK;
    }
    if (!c && letter != 'M' && letter != 'L')
        return bad_column(f, column, "is missing; the layout '%s' needs it", shard_layout_name(f->layout));
    if (!c) return OK;
    Hdf5Shape shape = hdf5_shape(c);
    bool one = letter == 'L', lists = layouts[f->layout].lists && !one;
    if (shape.lists != lists)
        return bad_column(f, column, "expected %s, as the layout '%s' has", lists ? "lists" : "rows of one length",
                          shard_layout_name(f->layout));
    if (!lists && letter == 'M' && shape.width > f->width)
        return bad_column(f, column, "its rows have %lld numbers; expected at most %d, as input_ids has",
                          (long long)shape.width, f->width);
    int64_t width = one ? 1 : letter == 's' ? f->width : shape.width;
    if (!lists && (shape.width != width || (letter == '3' && (width < 2 || width > 3))))
        return bad_column(f, column, "its rows have %lld numbers; expected %s%lld", (long long)shape.width,
                          letter == '3' ? "2 or " : "", letter == '3' ? 3LL : (long long)width);
    if (shape.rows != f->rows)
        return bad_column(f, column, "%lld rows, but input_ids has %lld", (long long)shape.rows, (long long)f->rows);
    if (shape.chunk_rows > f->unit && !one) f->unit = shape.chunk_rows;
    return OK;
}

static Status check_columns(ShardFile *f)
{
    Hdf5Column **c = f->columns;
    f->rows = hdf5_shape(c[SHARD_INPUT_IDS]).rows;
    f->width = (int)hdf5_shape(c[SHARD_INPUT_IDS]).width;
    f->unit = 1;
    for (int i = 0; i < N_SHARD_COLUMNS; i++) TRY(check_column(f, i, layouts[f->layout].columns[i]));
    f->is_masked = c[SHARD_MASKED_POSITIONS] != NULL;
    if (!c[SHARD_MASKED_IDS] != !f->is_masked)
        return bad_column(f, f->is_masked ? SHARD_MASKED_IDS : SHARD_MASKED_POSITIONS,
                          "is missing; masked_lm_positions and masked_lm_ids belong together");
    if (f->layout == SHARD_PACKED && !c[SHARD_PACKED_MASKED] != !f->is_masked)
        return bad_column(f, SHARD_PACKED_MASKED, "is missing, or given without masked_lm_positions");
    if (f->is_masked && hdf5_shape(c[SHARD_MASKED_IDS]).width != hdf5_shape(c[SHARD_MASKED_POSITIONS]).width)
        return bad_column(f, SHARD_MASKED_IDS, "its rows are not as wide as those of masked_lm_positions");
    if (f->width > f->limits.max_length)
        return fail(E_FORMAT,
                    "%s: its rows have %d tokens, the longest sequence wanted is %d; give --max-seq-length %d",
                    hdf5_path(f->file), f->width, f->limits.max_length, f->width);
    return OK;
}

Status shard_open(ShardFile *f, const char *path, ShardLimits limits)
{
    Status status = OK;
    *f = (ShardFile){.limits = limits};
    TRY_DONE(hdf5_open(path, &f->file));
    for (int i = 0; i < N_SHARD_COLUMNS; i++) TRY_DONE(hdf5_column(f->file, shard_column_names[i], &f->columns[i]));
    TRY_DONE(find_layout(f));
    TRY_DONE(check_columns(f));
done:
    if (status != OK) shard_close(f);
    return status;
}

void shard_close(ShardFile *f)
{
    hdf5_close(f->file);
    *f = (ShardFile){0};
}

Status shard_counts(ShardFile *f, int64_t first, int64_t n, int32_t *counts)
{
    if (f->layout == SHARD_PACKED)
        return hdf5_list_lengths(f->columns[SHARD_PACKED_LENGTHS], first, n, MOST_IN_PACK, counts);
    for (int64_t i = 0; i < n; i++) counts[i] = 1;
    return OK;
}

/* ---- rows ---- */

typedef struct {
    const int32_t *v; // (n)
    int64_t n;
} View;

static View column_view(const ShardFile *f, const ShardRows *rows, int column, int64_t i)
{
    if (!f->columns[column]) return (View){NULL, 0};
    const int64_t *at = rows->columns[column].offset + i;
    return (View){at[1] > at[0] ? rows->columns[column].values + at[0] : NULL, at[1] - at[0]};
}

static Status read_columns(ShardFile *f, int64_t first, int64_t n, ShardRows *rows)
{
    int most = f->layout == SHARD_PACKED          ? MOST_PACK
               : f->limits.max_length < MOST_LIST ? MOST_LIST
                                                  : f->limits.max_length;
    for (int i = 0; i < N_SHARD_COLUMNS; i++) {
        Hdf5Column *c = f->columns[i];
        Hdf5Lists *l = &rows->columns[i];
        if (!c) continue;
        Hdf5Shape shape = hdf5_shape(c);
        if (shape.lists) {
            TRY(hdf5_read_lists(c, first, n, most, l));
            continue;
        }
        if (n * shape.width > l->cap_values) {
            l->cap_values = n * shape.width;
            l->values = mem_resize(l->values, (size_t)l->cap_values, sizeof *l->values);
        }
        if (n + 1 > l->cap_rows) {
            l->cap_rows = n + 1;
            l->offset = mem_resize(l->offset, (size_t)l->cap_rows, sizeof *l->offset);
        }
        for (int64_t row = 0; row <= n; row++) l->offset[row] = row * shape.width;
        TRY(hdf5_read(c, first, n, l->values));
    }
    return OK;
}

/* One sequence as the file has it. */
typedef struct {
    const ShardFile *f;
    int64_t row;
    const int32_t *ids, *types;  // (length); types NULL: from `second`
    int length, second;          /* second: where tokens of type 1 begin */
    const int32_t *place, *word; // (masked)
    int masked, from;            /* places count from `from` */
    int32_t label;
} Raw;

#define bad_row(r, column, format, ...)                                                                                \
    bad_column((r)->f, column, "row %lld: " format, (long long)(r)->row, __VA_ARGS__)

static Status check_sequence(const Raw *r)
{
    const ShardLimits *l = &r->f->limits;
    if (r->length < 1) return bad_row(r, SHARD_INPUT_IDS, "%d tokens; expected at least 1", r->length);
    if (r->length > l->max_length)
        return bad_row(r, SHARD_INPUT_IDS, "%d tokens; the longest sequence wanted is %d (--max-seq-length)", r->length,
                       l->max_length);
    if (r->masked > l->max_predictions)
        return bad_row(r, SHARD_MASKED_POSITIONS, "%d masked positions; at most %d are wanted (--predictions)",
                       r->masked, l->max_predictions);
    for (int i = 0; i < r->length; i++)
        if (r->ids[i] < 0 || r->ids[i] >= l->vocab_size)
            return bad_row(r, SHARD_INPUT_IDS, "token %d is %d; the vocabulary has 0 to %d", i, r->ids[i],
                           l->vocab_size - 1);
    if (l->cls >= 0 && r->ids[0] != l->cls)
        return bad_row(r, SHARD_INPUT_IDS,
                       "it begins with %d; [CLS] is %d in the vocabulary. Use the one it was made with", r->ids[0],
                       l->cls);
    for (int i = 0; r->types && i < r->length; i++)
        if (r->types[i] < 0 || r->types[i] > 1)
            return bad_row(r, SHARD_SEGMENT_IDS, "token %d has the type %d; expected 0 or 1", i, r->types[i]);
    for (int i = 0; i < r->masked; i++) {
        int place = r->place[i] - r->from;
        if (place < 1 || place >= r->length)
            return bad_row(r, SHARD_MASKED_POSITIONS, "position %d lies outside of the sequence, %d to %d", r->place[i],
                           r->from + 1, r->from + r->length - 1);
        if (i && r->place[i] <= r->place[i - 1])
            return bad_row(r, SHARD_MASKED_POSITIONS, "position %d comes after %d; expected ascending ones",
                           r->place[i], r->place[i - 1]);
        if (r->word[i] < 0 || r->word[i] >= l->vocab_size)
            return bad_row(r, SHARD_MASKED_IDS, "word %d is %d; the vocabulary has 0 to %d", i, r->word[i],
                           l->vocab_size - 1);
    }
    if (r->label < -1 || r->label > 1)
        return bad_row(r, SHARD_LABELS, "the label is %d; expected 0 (is next) or 1 (random)", r->label);
    return OK;
}

static Status add_sequence(const Raw *r, int64_t *sample, Sequences *out)
{
    TRY(check_sequence(r));
    int64_t i = sequences_add(out, r->length, r->masked), at = out->e.offset[i], masked = out->e.masked_offset[i];
    memcpy(out->e.ids + at, r->ids, (size_t)r->length * sizeof *r->ids);
    for (int k = 0; k < r->length; k++)
        out->e.types[at + k] = r->types ? (uint8_t)r->types[k] : (uint8_t)(k >= r->second);
    for (int k = 0; k < r->masked; k++) {
        out->e.masked_place[masked + k] = r->place[k] - r->from;
        out->e.masked_label[masked + k] = r->word[k];
    }
    out->e.label[i] = r->label;
    out->sample[i] = (*sample)++;
    out->is_masked[i] = r->f->is_masked;
    return OK;
}

/* Positions end at the first 0, which is [CLS]'s and never masked. */
static Status fixed_masks(Raw *r, View places, View words)
{
    for (r->masked = 0; r->masked < places.n && places.v[r->masked] != 0;) r->masked++;
    for (int64_t i = r->masked; i < places.n; i++)
        if (places.v[i] != 0)
            return bad_row(r, SHARD_MASKED_POSITIONS, "position %d follows a 0, which ends the list", places.v[i]);
    r->place = places.v;
    r->word = words.v;
    return OK;
}

static Status fixed_row(Raw *r, const ShardRows *rows, int64_t i)
{
    View ids = column_view(r->f, rows, SHARD_INPUT_IDS, i), mask = column_view(r->f, rows, SHARD_INPUT_MASK, i);
    r->ids = ids.v;
    r->types = column_view(r->f, rows, SHARD_SEGMENT_IDS, i).v;
    for (r->length = 0; r->length < ids.n && mask.v[r->length] == 1;) r->length++;
    for (int64_t k = r->length; k < mask.n; k++)
        if (mask.v[k] != 0)
            return bad_row(r, SHARD_INPUT_MASK, "%d at token %lld; expected ones and then zeros", mask.v[k],
                           (long long)k);
    return fixed_masks(r, column_view(r->f, rows, SHARD_MASKED_POSITIONS, i),
                       column_view(r->f, rows, SHARD_MASKED_IDS, i));
}

/* Places of [CLS], the first [SEP] and, with pairs, the last one. */
static Status dynamic_row(Raw *r, const ShardRows *rows, int64_t i)
{
    View ids = column_view(r->f, rows, SHARD_INPUT_IDS, i),
         special = column_view(r->f, rows, SHARD_SPECIAL_POSITIONS, i);
    for (int64_t k = 0; k < special.n; k++)
        if (special.v[k] < 0 || special.v[k] >= ids.n || (k && special.v[k] <= special.v[k - 1]) ||
            (k == 0 && special.v[k] != 0))
            return bad_row(r, SHARD_SPECIAL_POSITIONS, "place %d is %d; expected 0, then ascending places below %lld",
                           (int)k, special.v[k], (long long)ids.n);
    r->ids = ids.v;
    r->second = special.v[1] + 1;
    r->length = special.v[special.n - 1] + 1;
    return OK;
}

static Status list_row(Raw *r, const ShardRows *rows, int64_t i)
{
    View ids = column_view(r->f, rows, SHARD_INPUT_IDS, i), types = column_view(r->f, rows, SHARD_SEGMENT_IDS, i),
         places = column_view(r->f, rows, SHARD_MASKED_POSITIONS, i),
         words = column_view(r->f, rows, SHARD_MASKED_IDS, i);
    if (types.n != ids.n)
        return bad_row(r, SHARD_SEGMENT_IDS, "%lld numbers, but input_ids has %lld", (long long)types.n,
                       (long long)ids.n);
    if (words.n != places.n)
        return bad_row(r, SHARD_MASKED_IDS, "%lld numbers, but masked_lm_positions has %lld", (long long)words.n,
                       (long long)places.n);
    r->ids = ids.v;
    r->types = types.v;
    r->length = (int)ids.n;
    r->place = places.v;
    r->word = words.v;
    r->masked = (int)places.n;
    return OK;
}

static Status packed_row(Raw *r, const ShardRows *rows, int64_t i, int64_t *sample, Sequences *out)
{
    Raw whole = *r;
    View lengths = column_view(r->f, rows, SHARD_PACKED_LENGTHS, i),
         masked = column_view(r->f, rows, SHARD_PACKED_MASKED, i), labels = column_view(r->f, rows, SHARD_LABELS, i);
    TRY(list_row(&whole, rows, i));
    if (r->f->is_masked && masked.n != lengths.n)
        return bad_row(r, SHARD_PACKED_MASKED, "%lld numbers, but packed_input_len has %lld", (long long)masked.n,
                       (long long)lengths.n);
    if (labels.n != lengths.n)
        return bad_row(r, SHARD_LABELS, "%lld labels, but packed_input_len has %lld sequences", (long long)labels.n,
                       (long long)lengths.n);
    int used = 0, used_masks = 0;
    for (int64_t k = 0; k < lengths.n; k++) {
        Raw one = whole;
        int masks = r->f->is_masked ? masked.v[k] : 0;
        if (lengths.v[k] < 1 || lengths.v[k] > whole.length - used)
            return bad_row(r, SHARD_PACKED_LENGTHS, "sequence %d has %d of the row's %d tokens, %d of them taken",
                           (int)k, lengths.v[k], whole.length, used);
        if (masks < 0 || masks > whole.masked - used_masks)
            return bad_row(r, SHARD_PACKED_MASKED,
                           "sequence %d has %d of the row's %d masked positions, %d of them taken", (int)k, masks,
                           whole.masked, used_masks);
        one.ids += used;
        one.types += used;
        one.length = lengths.v[k];
        one.from = used;
        one.place = whole.place ? whole.place + used_masks : NULL;
        one.word = whole.word ? whole.word + used_masks : NULL;
        one.masked = masks;
        one.label = labels.v[k];
        TRY(add_sequence(&one, sample, out));
        used += one.length;
        used_masks += masks;
    }
    if (used != whole.length)
        return bad_row(r, SHARD_PACKED_LENGTHS, "they add up to %d tokens; the row has %d", used, whole.length);
    if (used_masks != whole.masked)
        return bad_row(r, SHARD_PACKED_MASKED, "they add up to %d masked positions; the row has %d", used_masks,
                       whole.masked);
    return OK;
}

Status shard_read(ShardFile *f, int64_t first, int64_t n, int64_t sample, ShardRows *rows, Sequences *out)
{
    TRY(read_columns(f, first, n, rows));
    for (int64_t i = 0; i < n; i++) {
        View label = column_view(f, rows, SHARD_LABELS, i);
        Raw r = {.f = f, .row = first + i, .label = f->layout != SHARD_PACKED && label.n ? label.v[0] : -1};
        if (f->layout == SHARD_PACKED) {
            TRY(packed_row(&r, rows, i, &sample, out));
            continue;
        }
        TRY(f->layout == SHARD_FIXED ? fixed_row(&r, rows, i)
                                     : (f->layout == SHARD_DYNAMIC ? dynamic_row : list_row)(&r, rows, i));
        TRY(add_sequence(&r, &sample, out));
    }
    return OK;
}

void shard_rows_free(ShardRows *r)
{
    for (int i = 0; i < N_SHARD_COLUMNS; i++) hdf5_lists_free(&r->columns[i]);
}
