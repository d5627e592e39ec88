/* Shows the output of ranks. */
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
    MEM_FREE(o->ranks, o);
}

/* `host` NULL: without a prefix. */
static void show_line(int stream, int rank, const char *host, const char *line)
{
    char *text = host ? mem_printf("[rank %d on %s] %s\n", rank, host, line) : mem_printf("%s\n", line);
    writer_put(stream == 1 ? STDOUT_FILENO : STDERR_FILENO, text, strlen(text));
    free(text);
}

static void keep_line(char **ring, int size, int *next, const char *line)
{
    free(ring[*next]);
    ring[*next] = mem_strdup(line);
    *next = (*next + 1) % size;
}

static bool is_important(const char *line)
{
    static const char *const starts[] = {"error: ", "warning: ", "==", "terminate called", "CHECK failed"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(line, starts[i], strlen(starts[i])) == 0) return true;
    return false;
}

/* The line without the name that a rank's log puts before it (base/log.h): the launcher has its own. */
static const char *without_name(int rank, const char *line)
{
    char name[32];
    int n = snprintf(name, sizeof name, "rank %d on ", rank);
    const char *end = strncmp(line, name, (size_t)n) == 0 ? strstr(line, ": ") : NULL;
    return end && is_important(end + 2) ? end + 2 : line;
}

static bool was_shown(Output *o, const char *line)
{
    for (int k = 0; k < KNOWN_LINES; k++)
        if (o->known[k] && strcmp(o->known[k], line) == 0) return true;
    keep_line(o->known, KNOWN_LINES, &o->next_known, line);
    return false;
}

void output_line(Output *o, int rank, const char *host, int stream, const char *line)
{
    line = without_name(rank, line);
    if (rank == 0) {
        if (is_important(line)) was_shown(o, line);
        show_line(stream, rank, NULL, line);
    } else if (o->all || is_important(line)) {
        if (!o->all && was_shown(o, line)) return;
        show_line(2, rank, host, line);
    } else if (rank > 0 && rank < o->n) {
        keep_line(o->ranks[rank].lines, KEPT_LINES, &o->ranks[rank].next, line);
    }
}

void output_last(Output *o, int rank, const char *host)
{
    Last *last = &o->ranks[rank];
    for (int k = 0; k < KEPT_LINES; k++) {
        char **line = &last->lines[(last->next + k) % KEPT_LINES];
        if (!*line) continue;
        show_line(2, rank, host, *line);
        free(*line);
        *line = NULL;
    }
}
