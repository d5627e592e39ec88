/* What an import found, as lines for people and as an error. */

#include "state/models/import.h"

enum {
    MAX_ROWS = 60, /* of the error table */
    MAX_NAMES = 6, /* in a message */
    FEW_NAMES = 2  /* of a kind, in the summary */
};

static const char *const kind_names[] = {
#define X(kind, text) text,
    IMPORT_LIST(X)
#undef X
};

static bool is_error(ImportKind kind) { return kind >= IMPORT_MISSING; }

Status import_report_errors(const ImportReport *r)
{
    int errors = 0, shown = 0;
    size_t width = 0;
    Buf text = {0};
    for (int k = IMPORT_MISSING; k < N_IMPORT_KINDS; k++) {
        if (!r->n[k]) continue;
        buf_printf(&text, "%s%d %s", errors ? ", " : "", r->n[k], kind_names[k]);
        errors += r->n[k];
    }
    if (!errors) return OK;
    for (int i = 0; i < r->count; i++)
        if (is_error(r->lines[i].kind) && strlen(r->lines[i].name) > width) width = strlen(r->lines[i].name);
    if (width > 72) width = 72;
    log_error("%s: these tensors do not fit the model:", r->path);
    for (int i = 0; i < r->count; i++) {
        const ImportLine *line = &r->lines[i];
        if (!is_error(line->kind)) continue;
        if (shown < MAX_ROWS)
            log_error("  %-11s  %-*s  %s", kind_names[line->kind], (int)width, line->name, line->detail);
        if (shown < MAX_NAMES) buf_printf(&text, "%s%s", shown ? ", " : ": ", line->name);
        shown++;
    }
    if (shown > MAX_ROWS) log_error("  … and %d more", shown - MAX_ROWS);
    if (shown > MAX_NAMES) buf_puts(&text, " …");
    Status status = fail(E_FORMAT, "%s: %s; %s", r->path, text.data,
                         r->n[IMPORT_TWICE] ? "the file holds more than one model; save the wanted one alone"
                                            : "give the config.json (--model-config) that belongs to these weights, or "
                                              "weights that belong to it");
    buf_free(&text);
    return status;
}

static void put_kind(const ImportReport *r, ImportKind kind, const char *what, Buf *out)
{
    int shown = 0;
    if (!r->n[kind]) return;
    buf_printf(out, "; %d %s:", r->n[kind], what);
    for (int i = 0; i < r->count && shown < FEW_NAMES; i++)
        if (r->lines[i].kind == kind) buf_printf(out, "%s %s", shown++ ? "," : "", r->lines[i].name);
    if (r->n[kind] > shown) buf_puts(out, " …");
}

void import_report_log(const ImportReport *r)
{
    Buf text = {0};
    buf_printf(&text, "weights: %d tensors, %" PRId64 " parameters from %s (%s)", r->n[IMPORT_LOADED], r->parameters,
               r->path, tensor_format_name(r->format));
    put_kind(r, IMPORT_NEW, "new, initialised at random", &text);
    put_kind(r, IMPORT_UNUSED, "not used (heads that this model lacks)", &text);
    if (r->foreign) buf_printf(&text, "; its class is %s ('architectures'), whose head is not used", r->foreign);
    put_kind(r, IMPORT_IGNORED, "ignored (buffers, counters, slots of the optimizer)", &text);
    log_info("%s", text.data);
    buf_free(&text);
}

bool import_report_loaded(const ImportReport *r, const char *parameter)
{
    for (int i = 0; i < r->count; i++)
        if (r->lines[i].kind == IMPORT_LOADED && strcmp(r->lines[i].name, parameter) == 0) return true;
    return false;
}

void import_report_free(ImportReport *r)
{
    for (int i = 0; i < r->count; i++) {
        MEM_FREE(r->lines[i].name, r->lines[i].detail);
    }
    MEM_FREE(r->lines, r->path, r->foreign);
    *r = (ImportReport){0};
}
