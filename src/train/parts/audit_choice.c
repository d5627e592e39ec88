#include "train/parts/audit_choice.h"

static Status parse_share(const char *word, double *share)
{
    char *end;
    double percent = strtod(word, &end);
    if (end == word || strcmp(end, "%") != 0 || !(percent > 0 && percent <= 100)) return E_USAGE;
    *share = percent / 100;
    return OK;
}

Status audit_parse(const char *text, AuditChoice *choice)
{
    char *words = mem_strdup(text), *rest = words, *word;
    Status status = OK;
    *choice = (AuditChoice){0};
    while (status == OK && (word = strsep(&rest, ",")))
        if (strcmp(word, "recompute") == 0)
            choice->recompute = true;
        else if (strcmp(text, "off") != 0)
            status = choice->share > 0 ? E_USAGE : parse_share(word, &choice->share);
    free(words);
    if (status == OK) return OK;
    return fail(
        E_USAGE,
        "--audit '%s': expected off, recompute, a share of the steps above 0%% and up to 100%%, or recompute,P%%",
        text);
}
