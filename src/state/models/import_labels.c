/* What the config.json beside the weights says of their head: the labels, and what it gives for a text. */

#include "base/sort.h"
#include "state/models/import.h"

enum { DEFAULT_LABELS = 2, MOST_LABELS = 1 << 20 };

/* Classes of Transformers whose heads Cairn reads, without Bert or DistilBert in front. */
static const char known_heads[] = "Model ForPreTraining ForMaskedLM LMHeadModel ForNextSentencePrediction "
                                  "ForSequenceClassification ForQuestionAnswering";

/* Both NULL where there is no config.json. */
static Status read_config(const char *path, char **file, Json **doc)
{
    *doc = NULL;
    *file = import_find_config(path);
    return *file ? js_read(*file, doc) : OK;
}

/* ---- labels ---- */

/* Numbers and booleans are names too, as JSON writes them: 0, 1.0, true. NULL: of another kind. */
static char *label_text(const Json *v)
{
    JsonKind kind = js_kind(v);
    const char *text = kind == JSON_KIND_NULL || kind == JSON_KIND_NOT_FINITE ? NULL : js_text(v);
    return text ? mem_strdup(text) : NULL;
}

static Status from_id2label(const char *file, const Json *names, char **labels, int n)
{
    for (int i = 0; i < n; i++) {
        const Json *v = js_get(names, SHORT_TEXT("%d", i));
        if (!v)
            return fail(E_FORMAT, "%s: 'id2label' has %d members, but none for \"%d\"; expected \"0\" to \"%d\"", file,
                        n, i, n - 1);
        if (!(labels[i] = label_text(v)))
            return fail(E_FORMAT, "%s: 'id2label': the label of \"%d\" must be a text, a number, true or false", file,
                        i);
    }
    return OK;
}

static Status from_label2id(const char *file, const Json *ids, char **labels, int n)
{
    for (void *it = js_first(ids); it; it = js_next(ids, it)) {
        int64_t i = js_int(js_value(it), -1);
        if (i < 0 || i >= n || labels[i])
            return fail(E_FORMAT,
                        "%s: 'label2id' has %d members, and the number of '%s' is none of 0 to %d, or given twice; "
                        "write 'id2label'",
                        file, n, js_key(it), n - 1);
        labels[i] = mem_strdup(js_key(it));
    }
    return OK;
}

/* The number of labels, or −1 where nothing is said. E_FORMAT: two keys differ. */
static Status count_labels(const char *file, const Json *doc, int *n)
{
    static const char *const maps[] = {"id2label", "label2id"};
    const char *by = NULL;
    *n = -1;
    for (int i = 0; i < 2 && *n < 0; i++) {
        const Json *map = js_get(doc, maps[i]);
        if (!map || js_kind(map) == JSON_KIND_NULL) continue;
        if (js_kind(map) != JSON_KIND_OBJECT || js_size(map) > MOST_LABELS)
            return fail(E_FORMAT, "%s: '%s' must be an object of at most %d labels", file, maps[i], MOST_LABELS);
        by = maps[i];
        *n = (int)js_size(map);
    }
    const Json *number = js_get(doc, "num_labels");
    if (!number || js_kind(number) == JSON_KIND_NULL) return OK;
    int64_t said = js_int(number, -1);
    if (said < 0 || said > MOST_LABELS)
        return fail(E_FORMAT, "%s: 'num_labels' must be a whole number from 0 to %d", file, MOST_LABELS);
    if (by && said != *n)
        return fail(E_FORMAT,
                    "%s: 'num_labels' is %lld, and '%s' has %d labels; remove the wrong one (the rows of "
                    "classifier.weight are the labels)",
                    file, (long long)said, by, *n);
    *n = (int)said;
    return OK;
}

Status import_labels_in(const char *file, const Json *doc, char ***labels, int *n, bool *said)
{
    const Json *names = js_get(doc, "id2label"), *ids = js_get(doc, "label2id");
    int count;
    *labels = NULL;
    *n = 0;
    TRY(count_labels(file, doc, &count));
    *said = count >= 0;
    if (!*said) count = DEFAULT_LABELS; /* Transformers does not write it */
    if (count == 0) return OK;
    char **found = mem_array((size_t)count, sizeof *found);
    Status status = js_size(names) > 0 ? from_id2label(file, names, found, count)
                    : js_size(ids) > 0 ? from_label2id(file, ids, found, count)
                                       : OK;
    for (int i = 0; i < count && status == OK; i++)
        if (!found[i]) found[i] = mem_printf("LABEL_%d", i);
    const char *twice = status == OK ? sort_find_twice(found, (size_t)count) : NULL;
    if (twice) status = fail(E_FORMAT, "%s: 'id2label' has two labels '%s'; expected different names", file, twice);
    if (status != OK) {
        mem_free_texts(found, count);
        return status;
    }
    *labels = found;
    *n = count;
    return OK;
}

Status import_labels(const char *path, char ***labels, int *n)
{
    char *file;
    Json *doc;
    bool said;
    *labels = NULL;
    *n = 0;
    Status status = read_config(path, &file, &doc);
    if (status == OK && doc) status = import_labels_in(file, doc, labels, n, &said);
    js_free(doc);
    free(file);
    return status;
}

/* ---- what the model gives ---- */

static const char *class_of(const Json *doc)
{
    const char *name = js_string(js_at(js_get(doc, "architectures"), 0), "");
    if (str_starts_with(name, "TF")) return name + strlen("TF");
    return str_starts_with(name, "Flax") ? name + strlen("Flax") : name;
}

/* The rest of a class's name behind that of its kind; NULL: another model's. */
static const char *head_of(const char *class)
{
    for (int i = 0; i < N_MODEL_KINDS; i++)
        if (str_starts_with(class, model_kinds[i].prefix)) return class + strlen(model_kinds[i].prefix);
    return NULL;
}

static bool is_foreign(const char *class)
{
    const char *head = head_of(class);
    return *class && (!head || !str_list_has(known_heads, ' ', head, strlen(head)));
}

char *import_foreign_class(const char *path)
{
    char *file;
    Json *doc;
    Status status = read_config(path, &file, &doc); /* another reader names an unreadable one */
    char *found = status == OK && is_foreign(class_of(doc)) ? mem_strdup(class_of(doc)) : NULL;
    js_free(doc);
    free(file);
    return found;
}

static const struct {
    const char *type;
    HeadKind kind;
} problems[] = {{"regression", HEAD_REGRESSION},
                {"multi_label_classification", HEAD_MULTI},
                {"single_label_classification", HEAD_CLASSIFIER}};

Status import_problem_in(const char *file, const Json *doc, HeadKind *kind, bool *said)
{
    const Json *type = js_get(doc, "problem_type");
    int n = 0;
    *kind = HEAD_CLASSIFIER;
    *said = type && js_kind(type) != JSON_KIND_NULL;
    if (!doc) return OK;
    if (is_foreign(class_of(doc)))
        return fail(E_FORMAT,
                    "%s: the model is a %s ('architectures'), whose head Cairn does not have; `cairn glue --do-train` "
                    "takes its encoder. Where its head is that of BertForSequenceClassification, write this name there",
                    file, class_of(doc));
    const char *head = head_of(class_of(doc));
    if (head && strcmp(head, "ForQuestionAnswering") == 0) {
        *kind = HEAD_SPAN;
        return OK;
    }
    TRY(count_labels(file, doc, &n));
    if (!*said && n == 1) *kind = HEAD_REGRESSION;
    if (!*said) return OK;
    size_t i = 0, count = sizeof problems / sizeof *problems;
    while (i < count && strcmp(js_string(type, ""), problems[i].type) != 0) i++;
    if (i == count)
        return fail(E_FORMAT, "%s: 'problem_type' is '%s'; expected %s, %s or %s", file, js_string(type, "no text"),
                    problems[0].type, problems[1].type, problems[2].type);
    *kind = problems[i].kind;
    if (n < 0) n = DEFAULT_LABELS;
    if (*kind == HEAD_REGRESSION && n != 1)
        return fail(E_FORMAT, "%s: 'problem_type' is regression, with %d labels; Cairn has regression of one score",
                    file, n);
    if (*kind == HEAD_CLASSIFIER && n == 1)
        return fail(E_FORMAT,
                    "%s: 'problem_type' is single_label_classification, with one label; expected two at least, or "
                    "regression",
                    file);
    return OK;
}

Status import_problem(const char *path, const HeadKind *wanted, HeadKind *kind)
{
    char *file;
    Json *doc;
    bool said = false;
    *kind = HEAD_CLASSIFIER;
    Status status = read_config(path, &file, &doc);
    if (status == OK) status = import_problem_in(file, doc, kind, &said);
    if (status == OK && wanted && said && *kind != HEAD_SPAN && *kind != *wanted)
        status = fail(E_USAGE, "%s: 'problem_type' is %s, and the task needs another; give a model of the task", file,
                      js_string(js_get(doc, "problem_type"), ""));
    js_free(doc);
    free(file);
    return status;
}
