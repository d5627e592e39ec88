/* config.json beside the weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/import.h"

static char *find_beside(const char *path, const char *name)
{
    char *directory = file_is_directory(path) ? mem_strdup(path) : file_directory(path);
    char *found = file_join(directory, name);
    free(directory);
    if (file_exists(found)) return found;
    free(found);
    return NULL;
}

char *import_find_config(const char *path)
{
    char *found = find_beside(path, "config.json");
    return found ? found : find_beside(path, "bert_config.json");
}

void import_labels_free(char **labels, int n)
{
    for (int i = 0; i < n; i++) free(labels[i]);
    free(labels);
}

Status import_labels(const char *path, char ***labels, int *n)
{
    char *file = import_find_config(path);
    Json *doc = NULL;
    Status status = OK;
    int count = 0;
    *labels = NULL;
    *n = 0;
    if (!file) return OK;
    TRY_DONE(js_read(file, &doc));
    const Json *names = js_get(doc, "id2label");
    count = (int)js_size(names);
    if (count == 0) goto done;
    *labels = mem_array((size_t)count, sizeof **labels);
    for (int i = 0; i < count; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        const char *name = js_string(js_get(names, key), NULL);
        if (!name)
            TRY_DONE(fail(E_FORMAT, "%s: 'id2label' has %d members, but none for \"%d\"; expected \"0\" to \"%d\"",
                          file, count, i, count - 1));
        (*labels)[i] = mem_strdup(name);
    }
    *n = count;
done:
    if (status != OK && *labels) {
        import_labels_free(*labels, count);
        *labels = NULL;
    }
    js_free(doc);
    free(file);
    return status;
}

Status import_problem(const char *path, HeadKind *kind)
{
    char *file = import_find_config(path);
    Json *doc = NULL;
    Status status = OK;
    if (file) status = js_read(file, &doc);
    const char *type = js_string(js_get(doc, "problem_type"), "");
    int64_t labels = js_int(js_get(doc, "num_labels"), (int64_t)js_size(js_get(doc, "id2label")));
    const char *architecture = js_string(js_at(js_get(doc, "architectures"), 0), "");
    *kind = str_ends_with(architecture, "ForQuestionAnswering")                 ? HEAD_SPAN
            : strcmp(type, "multi_label_classification") == 0                   ? HEAD_MULTI
            : strcmp(type, "regression") == 0 || (*type == '\0' && labels == 1) ? HEAD_REGRESSION
                                                                                : HEAD_CLASSIFIER;
    js_free(doc);
    free(file);
    return status;
}
