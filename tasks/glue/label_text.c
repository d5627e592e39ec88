/* The text of a label: missing values, several labels in a row, vectors of 0 and 1. */
#include <strings.h>

#include "tasks/glue/custom.h"

static bool is_one_of(RecordText s, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(words[i]) == s.len && strncasecmp(words[i], s.p, s.len) == 0) return true;
    return false;
}

bool glue_label_missing(RecordText s)
{
    static const char *const words[] = {"nan", "na",    "n/a",      "null",    "none",    "<na>",    "#n/a",
                                        "#na", "-nan",  "#n/a n/a", "1.#ind",  "-1.#ind", "1.#qnan", "-1.#qnan",
                                        "\\n", "#ref!", "#div/0!",  "#value!", "#name?",  "#num!",   "#null!"};
    return is_one_of(s, words, sizeof words / sizeof *words);
}

bool glue_label_set(RecordText s)
{
    static const char *const words[] = {"1", "1.0", "1.", "true"};
    return is_one_of(s, words, sizeof words / sizeof *words);
}

bool glue_label_is_element(RecordText s)
{
    static const char *const words[] = {"0", "0.0", "0.", "false"};
    return glue_label_set(s) || is_one_of(s, words, sizeof words / sizeof *words);
}

static void cut(GlueLabelList *list, RecordText rest, const char *separators)
{
    list->n = 0;
    while (rest.len) {
        size_t n = 0;
        while (n < rest.len && !memchr(separators, rest.p[n], strlen(separators))) n++;
        RecordText label = record_trim((RecordText){rest.p, n});
        bool blank = label.len == 0 && (strchr(separators, ' ') || n == rest.len); /* a comma may end the list */
        if (!blank) MEM_PUSH(list->labels, list->n, list->cap, label);
        n += n < rest.len;
        rest = (RecordText){rest.p + n, rest.len - n};
    }
}

Status glue_label_list(GlueLabelList *list, const char *path, const Record *row, RecordText text)
{
    text = record_trim(text);
    static const char open[] = "[({", close[] = "])}";
    const char *kind = text.len >= 2 ? memchr(open, *text.p, sizeof open - 1) : NULL;
    bool brackets = kind && text.p[text.len - 1] == close[kind - open];
    RecordText within = brackets ? (RecordText){text.p + 1, text.len - 2} : text;
    cut(list, within, ", ");
    list->vector = list->numbers = list->n > 0;
    for (int i = 0; i < list->n; i++) {
        double value;
        bool element = glue_label_is_element(list->labels[i]);
        list->vector = list->vector && element;
        list->numbers = list->numbers && (element || record_number(list->labels[i], &value));
    }
    if (list->vector || (brackets && list->numbers)) return OK;
    within = record_trim(within);
    if (brackets && (within.len == 0 || *within.p == '\'' || *within.p == '"'))
        return fail(E_FORMAT, "%s:%lld: the labels '%s' are a list as Python prints it; write them as a,b", path,
                    (long long)row->line, record_shown(text).text);
    cut(list, text, ",");
    return OK;
}

bool glue_label_is_new(const GlueLabelList *list, int i)
{
    RecordText label = list->labels[i];
    for (int k = 0; k < i; k++)
        if (list->labels[k].len == label.len && memcmp(list->labels[k].p, label.p, label.len) == 0) return false;
    return true;
}

bool glue_label_twice(const GlueLabelList *list)
{
    for (int i = 0; i < list->n; i++)
        if (!glue_label_is_new(list, i)) return true;
    return false;
}

Status glue_label_vector(const char *path, int64_t line, RecordText text)
{
    return fail(
        E_FORMAT,
        "%s:%lld: the labels '%s' look like a vector, whose elements have no names. For a vector of 0 and 1 name "
        "them in their order, as --labels A,B,C; or write each row's labels, as [\"A\", \"C\"] or A,C. If the labels "
        "are called 0 and 1, give --labels 0,1, and no label twice in a row",
        path, (long long)line, record_shown(text).text);
}
