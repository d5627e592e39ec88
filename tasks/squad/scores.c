/* The scores of evaluate-v1.1.py and evaluate-v2.0.py. */

#include "tasks/squad/squad.h"
#include "text/characters.h"
#include "text/utf8.h"

/* ---- texts ---- */

static bool is_article(const char *word, size_t len)
{
    return (len == 1 && *word == 'a') || (len == 2 && memcmp(word, "an", 2) == 0) ||
           (len == 3 && memcmp(word, "the", 3) == 0);
}

/* The end of the run of word characters, or of others, that begins at `at`. */
static const char *run_end(const char *at, const char *end, bool word)
{
    while (at < end) {
        const char *here = at;
        if (character_is_word(utf8_decode(&at, end)) != word) return here;
    }
    return end;
}

static void put_without_articles(const char *at, const char *end, Buf *out)
{
    for (bool word = false; at < end; word = !word) {
        const char *next = run_end(at, end, word);
        if (word && is_article(at, (size_t)(next - at)))
            buf_puts(out, " ");
        else
            buf_append(out, at, (size_t)(next - at));
        at = next;
    }
}

void squad_put_words(const char *at, const char *end, Buf *out)
{
    bool blank = false;
    while (at < end) {
        const char *here = at;
        if (character_is_space(utf8_decode(&at, end))) {
            blank = true;
            continue;
        }
        if (blank && out->len) buf_puts(out, " ");
        buf_append(out, here, (size_t)(at - here));
        blank = false;
    }
}

void squad_normalise(const char *text, Buf *out)
{
    Buf lower = {0}, words = {0};
    size_t kept = 0;
    buf_puts(out, "");
    characters_lower(text, strlen(text), &lower);
    for (size_t i = 0; i < lower.len; i++) {
        unsigned char c = (unsigned char)lower.data[i];
        if (c >= 0x80 || !ispunct(c)) lower.data[kept++] = (char)c;
    }
    if (kept) put_without_articles(lower.data, lower.data + kept, &words);
    if (words.len) squad_put_words(words.data, words.data + words.len, out);
    BUF_FREE(&lower, &words);
}

/* ---- a question ---- */

/* The next word of a normalised text; NULL: none is left. */
static const char *next_word(const char **at, size_t *len)
{
    const char *word = *at;
    if (!*word) return NULL;
    *len = strcspn(word, " ");
    *at = word + *len + (word[*len] == ' ');
    return word;
}

/* Words in both, each as often as in the text that has it less often. */
static int64_t common_words(const char *a, const char *b, int64_t *n_a, int64_t *n_b)
{
    bool *used = mem_alloc(strlen(b) + 1); /* by the place of a word in b */
    const char *at = a, *word;
    size_t len, other_len;
    int64_t common = 0;
    *n_a = *n_b = 0;
    for (const char *left = b; next_word(&left, &len);) ++*n_b;
    while ((word = next_word(&at, &len))) {
        ++*n_a;
        const char *left = b, *other;
        while ((other = next_word(&left, &other_len)))
            if (!used[other - b] && len == other_len && memcmp(word, other, len) == 0) break;
        if (!other) continue;
        used[other - b] = true;
        common++;
    }
    free(used);
    return common;
}

static double f1_of(const char *answer, const char *truth, bool version_2)
{
    int64_t n_answer, n_truth, common = common_words(answer, truth, &n_answer, &n_truth);
    if (version_2 && (n_answer == 0 || n_truth == 0)) return n_answer == n_truth ? 1 : 0;
    if (common == 0) return 0;
    double precision = (double)common / (double)n_answer, recall = (double)common / (double)n_truth;
    return 2 * precision * recall / (precision + recall);
}

static void raise_score(SquadScore *s, const char *answer, const char *truth, bool version_2)
{
    s->exact = fmax(s->exact, strcmp(answer, truth) == 0);
    s->f1 = fmax(s->f1, f1_of(answer, truth, version_2));
}

SquadScore squad_score(const SquadQuestion *q, const char *answer, bool version_2)
{
    SquadScore s = {0, 0};
    Buf ours = {0};
    int32_t compared = 0;
    squad_normalise(answer, &ours);
    for (int32_t i = 0; i < q->n_answers; i++) {
        Buf truth = {0};
        squad_normalise(q->answers[i].text, &truth);
        if (!version_2 || truth.len) {
            raise_score(&s, ours.data, truth.data, version_2);
            compared++;
        }
        buf_free(&truth);
    }
    if (version_2 && compared == 0) raise_score(&s, ours.data, "", version_2);
    buf_free(&ours);
    return s;
}

/* ---- a file ---- */

const char *squad_metric_name(SquadMetric metric, bool version_2)
{
    static const char *const names[] = {
#define X(name, text) text,
        SQUAD_METRIC_LIST(X)
#undef X
    };
    return metric == SQUAD_EXACT && !version_2 ? "exact_match" : names[metric];
}

typedef struct {
    double odds;
    int64_t question;
} Odds;

static int least_odds_first(const void *a, const void *b)
{
    const Odds *x = a, *y = b;
    if (x->odds != y->odds) return x->odds < y->odds ? -1 : 1;
    return x->question < y->question ? -1 : 1;
}

/* The threshold of the odds, above which no answer is given, with the largest score: find_best_thresh. */
static double best_threshold(const SquadFile *file, const SquadScore *scores, bool exact, const bool *answered,
                             const Odds *sorted, double *threshold)
{
    int64_t n = file->n_questions;
    double sum = 0, best;
    for (int64_t i = 0; i < n; i++) sum += file->questions[i].n_answers == 0;
    best = sum;
    *threshold = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t q = sorted[i].question;
        double score = exact ? scores[q].exact : scores[q].f1;
        sum += file->questions[q].n_answers ? score : answered[q] ? -1 : 0;
        if (!(sum > best)) continue;
        best = sum;
        *threshold = sorted[i].odds;
    }
    return 100 * best / (double)n;
}

void squad_figures(const SquadFile *file, const SquadScore *scores, const double *odds, const bool *answered,
                   double figures[N_SQUAD_METRICS])
{
    int64_t n = file->n_questions, n_with[2] = {0};
    double exact[2] = {0}, f1[2] = {0}; /* without and with answers */
    Odds *sorted = mem_array((size_t)n, sizeof *sorted);
    for (int64_t i = 0; i < n; i++) {
        bool has = file->questions[i].n_answers > 0;
        n_with[has]++;
        exact[has] += scores[i].exact;
        f1[has] += scores[i].f1;
        sorted[i] = (Odds){odds[i], i};
    }
    figures[SQUAD_EXACT] = 100 * (exact[0] + exact[1]) / (double)n;
    figures[SQUAD_F1] = 100 * (f1[0] + f1[1]) / (double)n;
    for (int has = 0; has < 2; has++) {
        double each = n_with[has] ? 100 / (double)n_with[has] : NAN;
        figures[has ? SQUAD_HAS_EXACT : SQUAD_NO_EXACT] = exact[has] * each;
        figures[has ? SQUAD_HAS_F1 : SQUAD_NO_F1] = f1[has] * each;
    }
    qsort(sorted, (size_t)n, sizeof *sorted, least_odds_first);
    figures[SQUAD_BEST_EXACT] =
        best_threshold(file, scores, true, answered, sorted, &figures[SQUAD_BEST_EXACT_THRESHOLD]);
    figures[SQUAD_BEST_F1] = best_threshold(file, scores, false, answered, sorted, &figures[SQUAD_BEST_F1_THRESHOLD]);
    free(sorted);
}
