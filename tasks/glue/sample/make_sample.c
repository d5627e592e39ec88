/* Writes the bundled NLI sample: train, dev_matched, dev_mismatched, test_matched and test_mismatched .tsv in MNLI's
   exact layout. Ours from the first word to the last; the same bytes on every machine (Philox, fixed key, no locale, no
   clock).

   Use: make_sample DIR

   A premise states one quality of a thing (its size, age, colour or heat), and so does a hypothesis:
       entailment     the same quality, the same value
       contradiction  the same quality, the other value
       neutral        another quality
   Only both sentences together determine the label. Values and qualities are not drawn evenly, as in real text: one
   sentence alone allows a guess (about 0.5 instead of 0.33), from which learning can start.

   (Subject, thing) pairs belong to training or to evaluation, never to both, and every sentence names both, so no
   evaluated sentence is seen in training. The mismatched sets use sentence frames and genres that training never shows.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static const char *const subjects[] = {"farmer", "pilot",  "nurse", "baker", "miner",  "judge",   "sailor", "tailor",
                                       "singer", "porter", "guard", "clerk", "doctor", "painter", "hunter", "mason"};
static const char *const things[] = {"lamp",   "chair",  "table",  "boat",   "cup",    "door",   "mirror", "basket",
                                     "hammer", "bottle", "carpet", "ladder", "window", "kettle", "drum",   "wagon"};
static const char *const verbs[] = {"found", "sold", "washed", "carried", "painted", "moved", "bought", "kept"};
/* A quality's two values; qualities are drawn with weights 4, 3, 2, 1. */
static const char *const qualities[][2] = {{"big", "small"}, {"old", "new"}, {"red", "blue"}, {"hot", "cold"}};
static const char *const labels[] = {"entailment", "neutral", "contradiction"};

/* %s subject, %t thing, %v verb, %q the quality's value. */
static const char *const premises[] = {"The %s %v the %q %t.",        "The %t the %s %v was %q.",
                                       "The %q %t was %v by the %s.", "The %q %t the %s %v was here.",
                                       "%q was the %t of the %s.",    "By the %s the %t was %v, %q."};
static const char *const hypotheses[] = {"The %t of the %s was %q.", "The %s %v the %q %t.",
                                         "The %q %t was %v by the %s.", "%q, the %t of the %s."};
static const char *const other_premises[] = {"%q was the %t the %s %v.", "By the %s the %q %t was %v."};
static const char *const other_hypotheses[] = {"%q was the %t of the %s.", "The %q %t of the %s was %v."};
static const char *const genres[] = {"market", "letters", "harbour"}, *const other_genres[] = {"village", "theatre"};

#define KEY       UINT64_C(0x6361697278)
#define N_TRAIN   7200
#define N_DEV     600
#define N_TEST    12
#define HELD_BACK 40 /* pairs of subject and thing */

static uint32_t draws;

static uint32_t draw(uint32_t below) { return (uint32_t)((uint64_t)philox4(KEY, draws++, 0, 0, 0).v[0] * below >> 32); }

typedef struct {
    int subject, thing;
} Pair;

/* All pairs in a drawn order: the first HELD_BACK are for evaluation. */
static void shuffle_pairs(Pair *pairs, int n)
{
    for (int i = 0; i < n; i++) pairs[i] = (Pair){i / COUNT(things), i % COUNT(things)};
    for (int i = n - 1; i > 0; i--) {
        int j = (int)draw((uint32_t)i + 1);
        Pair swap = pairs[i];
        pairs[i] = pairs[j];
        pairs[j] = swap;
    }
}

static int draw_quality(void)
{
    static const int of_ten[10] = {0, 0, 0, 0, 1, 1, 1, 2, 2, 3};
    return of_ten[draw(10)];
}

static int draw_value(void) { return draw(4) == 0; } /* the first of the two three times out of four */

static void put_sentence(FILE *f, const char *frame, Pair pair, const char *verb, const char *quality)
{
    char text[128];
    size_t n = 0;
    for (const char *p = frame; *p; p++) {
        const char *word = NULL;
        if (*p == '%') {
            p++;
            word = *p == 's' ? subjects[pair.subject] : *p == 't' ? things[pair.thing] : *p == 'v' ? verb : quality;
        }
        n += (size_t)(word ? snprintf(text + n, sizeof text - n, "%s", word)
                           : snprintf(text + n, sizeof text - n, "%c", *p));
    }
    if (text[0] >= 'a' && text[0] <= 'z') text[0] = (char)(text[0] - 'a' + 'A');
    fputs(text, f);
}

/* One set of sentence frames. */
typedef struct {
    const char *const *premises, *const *hypotheses, *const *genres;
    int n_premises, n_hypotheses, n_genres;
} Style;

static const Style matched = {premises, hypotheses, genres, COUNT(premises), COUNT(hypotheses), COUNT(genres)};
static const Style mismatched = {other_premises,        other_hypotheses,        other_genres,
                                 COUNT(other_premises), COUNT(other_hypotheses), COUNT(other_genres)};

typedef enum { TRAIN, DEV, TEST } Kind;

static void put_row(FILE *f, int i, Kind kind, const Style *style, Pair pair)
{
    int label = (int)draw(3), given = draw_quality(), value = draw_value(), asked = given, stated = value;
    if (label == 2) stated = 1 - value;
    while (label == 1 && asked == given) asked = (int)draw(COUNT(qualities));
    if (label == 1) stated = draw_value();
    fprintf(f, "%d\t", i);
    if (kind != TEST)
        fprintf(f, "%d\t%d%c\t", i / 3, i / 3, "enc"[label]);
    else
        fprintf(f, "%d\t%dt\t", i / 3, i / 3);
    fprintf(f, "%s\tn/a\tn/a\tn/a\tn/a\t", style->genres[draw((uint32_t)style->n_genres)]);
    put_sentence(f, style->premises[draw((uint32_t)style->n_premises)], pair, verbs[draw(COUNT(verbs))],
                 qualities[given][value]);
    fputc('\t', f);
    put_sentence(f, style->hypotheses[draw((uint32_t)style->n_hypotheses)], pair, verbs[draw(COUNT(verbs))],
                 qualities[asked][stated]);
    for (int k = 0; k < (kind == TRAIN ? 2 : kind == DEV ? 6 : 0); k++) fprintf(f, "\t%s", labels[label]);
    fputc('\n', f);
}

static void put_header(FILE *f, Kind kind)
{
    fputs("index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_"
          "parse\t"
          "sentence1\tsentence2",
          f);
    if (kind != TEST) fputs("\tlabel1", f);
    if (kind == DEV) fputs("\tlabel2\tlabel3\tlabel4\tlabel5", f);
    if (kind != TEST) fputs("\tgold_label", f);
    fputc('\n', f);
}

static void write_set(const char *dir, const char *name, Kind kind, const Style *style, const Pair *pairs, int n_pairs,
                      int rows)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.tsv", dir, name);
    FILE *f = fopen(path, "wb");
    if (f) {
        put_header(f, kind);
        for (int i = 0; i < rows; i++) put_row(f, i, kind, style, pairs[draw((uint32_t)n_pairs)]);
    }
    if (!f || fclose(f) != 0) {
        fprintf(stderr, "make_sample: %s: %s\n", path, strerror(errno));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    Pair pairs[COUNT(subjects) * COUNT(things)];
    if (argc != 2) {
        fputs("use: make_sample DIR\n", stderr);
        return 2;
    }
    shuffle_pairs(pairs, COUNT(pairs));
    write_set(argv[1], "train", TRAIN, &matched, pairs + HELD_BACK, COUNT(pairs) - HELD_BACK, N_TRAIN);
    write_set(argv[1], "dev_matched", DEV, &matched, pairs, HELD_BACK, N_DEV);
    write_set(argv[1], "dev_mismatched", DEV, &mismatched, pairs, HELD_BACK, N_DEV);
    write_set(argv[1], "test_matched", TEST, &matched, pairs, HELD_BACK, N_TEST);
    write_set(argv[1], "test_mismatched", TEST, &mismatched, pairs, HELD_BACK, N_TEST);
    return 0;
}
