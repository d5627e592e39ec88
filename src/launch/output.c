/* Shows the output of ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/launch_internal.h"

enum { KEPT_LINES = 12, KNOWN_LINES = 256 };

typedef struct {
    char *lines[KEPT_LINES]; /* a ring; NULL: none */
    int next;
} Last;

struct Output {
    Last *ranks; // (n)
    int n;
    bool all;
    char *known[KNOWN_LINES]; /* errors and warnings that were shown; a ring */
    int next_known;
};

Output *output_open(int n_ranks, bool all)
{
    Output *o = mem_alloc(sizeof *o);
    *o = (Output){.ranks = mem_array((size_t)n_ranks, sizeof *o->ranks), .n = n_ranks, .all = all};
    return o;
}

void output_close(Output *o)
{
    if (!o) return;
    for (int r = 0; r < o->n; r++)
        for (int k = 0; k < KEPT_LINES; k++) free(o->ranks[r].lines[k]);
    for (int k = 0; k < KNOWN_LINES; k++) free(o->known[k]);
    free(o->ranks);
    free(o);
}

static void show(int stream, const char *line)
{
    Buf text = {0};
    buf_printf(&text, "%s\n", line);
    writer_put(stream == 1 ? STDOUT_FILENO : STDERR_FILENO, text.data, text.len);
    buf_free(&text);
}

static bool matters(const char *line)
{
    static const char *const starts[] = {"error: ", "warning: ", "==", "terminate called", "CHECK failed"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(line, starts[i], strlen(starts[i])) == 0) return true;
    return false;
}

static bool is_known(Output *o, const char *line)
{
    for (int k = 0; k < KNOWN_LINES; k++)
        if (o->known[k] && strcmp(o->known[k], line) == 0) return true;
    free(o->known[o->next_known]);
    o->known[o->next_known] = mem_strdup(line);
    o->next_known = (o->next_known + 1) % KNOWN_LINES;
    return false;
}

void output_line(Output *o, int rank, const char *host, int stream, const char *line)
{
    if (rank == 0) {
        if (matters(line)) is_known(o, line);
        show(stream, line);
    } else if (o->all || matters(line)) {
        if (!o->all && is_known(o, line)) return;
        char *text = mem_printf("[rank %d on %s] %s", rank, host, line);
        show(2, text);
        free(text);
    } else if (rank > 0 && rank < o->n) {
        Last *last = &o->ranks[rank];
        free(last->lines[last->next]);
        last->lines[last->next] = mem_strdup(line);
        last->next = (last->next + 1) % KEPT_LINES;
    }
}

void output_last(Output *o, int rank, const char *host)
{
    Last *last = &o->ranks[rank];
    for (int k = 0; k < KEPT_LINES; k++) {
        char **line = &last->lines[(last->next + k) % KEPT_LINES];
        if (!*line) continue;
        char *text = mem_printf("[rank %d on %s] %s", rank, host, *line);
        show(2, text);
        free(text);
        free(*line);
        *line = NULL;
    }
}
