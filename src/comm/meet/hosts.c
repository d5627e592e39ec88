#include "comm/meet/hosts.h"

enum { MOST_NAME = 255, MOST_SLOTS = 100000 };

static bool host_character(int c) { return isalnum(c) || c == '-' || c == '.' || c == '_' || c == ':'; }

static Status add_host(HostList *list, const char *name, size_t len, int slots)
{
    if (list->count >= HOSTS_MOST) return fail(E_FORMAT, "more than %d hosts", HOSTS_MOST);
    if (len == 0 || len > MOST_NAME) return fail(E_FORMAT, "a host name of %zu characters", len);
    for (size_t i = 0; i < len; i++)
        if (!host_character((unsigned char)name[i]) || (i == 0 && name[i] == '-'))
            return fail(E_FORMAT, "'%.*s' is not a host name", (int)len, name);
    MEM_PUSH(list->hosts, list->count, list->cap, (Host){mem_strndup(name, len), slots});
    return OK;
}

void hosts_free(HostList *list)
{
    for (int i = 0; i < list->count; i++) free(list->hosts[i].name);
    free(list->hosts);
    *list = (HostList){0};
}

int hosts_slots(const HostList *list)
{
    int64_t n = 0;
    for (int i = 0; i < list->count; i++) n += list->hosts[i].slots;
    return n > INT32_MAX ? INT32_MAX : (int)n;
}

/* ---- Slurm ---- */

/* Digits from *p on. False: none, or more than 9. */
static bool parse_digits(const char **p, int *value, int *width)
{
    *value = *width = 0;
    for (; isdigit((unsigned char)**p); (*p)++) {
        if (++*width > 9) return false;
        *value = *value * 10 + (**p - '0');
    }
    return *width > 0;
}

/* The names of one element (no comma outside of brackets); `made` is the prefix before `p`. */
static Status expand_name(const char *p, const char *end, char *made, size_t len, HostList *list);

/* An alternative within brackets: "7", "01-03" or a word. */
static Status expand_alternative(const char *p, const char *end, const char *rest, const char *rest_end, char *made,
                                 size_t len, HostList *list)
{
    int from, to, width, width_to;
    const char *at = p;
    if (parse_digits(&at, &from, &width) && at < end && *at == '-') {
        at++;
        if (!parse_digits(&at, &to, &width_to) || at != end || to < from)
            return fail(E_FORMAT, "'%.*s' is not a range", (int)(end - p), p);
        if (to - from >= HOSTS_MOST - list->count) return fail(E_FORMAT, "more than %d hosts", HOSTS_MOST);
        for (int i = from; i <= to; i++) {
            int n = snprintf(made + len, MOST_NAME + 1 - len, "%0*d", width, i);
            if (len + (size_t)n > MOST_NAME) return fail(E_FORMAT, "a host name of more than %d characters", MOST_NAME);
            TRY(expand_name(rest, rest_end, made, len + (size_t)n, list));
        }
        return OK;
    }
    size_t n = (size_t)(end - p);
    if (n == 0 || len + n > MOST_NAME) return fail(E_FORMAT, "'%.*s' within brackets", (int)n, p);
    memcpy(made + len, p, n);
    return expand_name(rest, rest_end, made, len + n, list);
}

static Status expand_name(const char *p, const char *end, char *made, size_t len, HostList *list)
{
    const char *open = memchr(p, '[', (size_t)(end - p));
    size_t plain = (size_t)((open ? open : end) - p);
    if (len + plain > MOST_NAME) return fail(E_FORMAT, "a host name of more than %d characters", MOST_NAME);
    memcpy(made + len, p, plain);
    len += plain;
    if (!open) return add_host(list, made, len, 1);
    const char *close = memchr(open, ']', (size_t)(end - open));
    if (!close) return fail(E_FORMAT, "a bracket is not closed");
    for (const char *from = open + 1; from <= close;) {
        const char *comma = memchr(from, ',', (size_t)(close - from)), *to = comma ? comma : close;
        TRY(expand_alternative(from, to, close + 1, end, made, len, list));
        from = to + 1;
    }
    return OK;
}

Status hosts_from_slurm(const char *text, HostList *list)
{
    char made[MOST_NAME + 1];
    Status status = OK;
    *list = (HostList){0};
    for (const char *p = text, *end; status == OK; p = end + 1) {
        int depth = 0;
        for (end = p; *end && (*end != ',' || depth); end++) depth += (*end == '[') - (*end == ']');
        status = expand_name(p, end, made, 0, list);
        if (!*end) break;
    }
    if (status != OK) hosts_free(list);
    return status_context(status, "list of nodes '%.200s'", text);
}

Status hosts_slots_from_slurm(const char *text, HostList *list)
{
    int host = 0, slots, times, width;
    const char *p = text;
    while (host < list->count) {
        bool good = parse_digits(&p, &slots, &width) && slots >= 1 && slots <= MOST_SLOTS;
        times = 1;
        if (good && *p == '(') {
            p++;
            good = *p++ == 'x' && parse_digits(&p, &times, &width) && *p == ')';
            if (good) p++;
        }
        if (!good || times > list->count - host)
            return fail(E_FORMAT, "tasks per node '%.200s': expected like 2(x3),1 for %d hosts", text, list->count);
        while (times--) list->hosts[host++].slots = slots;
        if (*p == ',') p++;
    }
    if (*p) return fail(E_FORMAT, "tasks per node '%.200s' names more than %d hosts", text, list->count);
    return OK;
}

/* ---- lines ---- */

static const char *next_word(const char **p, const char *end, size_t *len)
{
    while (*p < end && (**p == ' ' || **p == '\t' || **p == '\r')) (*p)++;
    const char *begin = *p;
    while (*p < end && **p != ' ' && **p != '\t' && **p != '\r') (*p)++;
    *len = (size_t)(*p - begin);
    return begin;
}

/* The count in a second word; 0: none; -1: invalid. */
static int parse_slots(const char *p, size_t len)
{
    char text[16];
    const char *at = text;
    int n, width;
    if (len == 0) return 0;
    if (len > 6 && memcmp(p, "slots=", 6) == 0) p += 6, len -= 6;
    if (len >= sizeof text) return -1;
    memcpy(text, p, len);
    text[len] = '\0';
    return parse_digits(&at, &n, &width) && !*at && n >= 1 && n <= MOST_SLOTS ? n : -1;
}

static Status parse_line(const char *p, const char *end, HostList *list)
{
    size_t len, count_len;
    const char *comment = memchr(p, '#', (size_t)(end - p));
    if (comment) end = comment;
    const char *name = next_word(&p, end, &len), *second = next_word(&p, end, &count_len);
    if (len == 0) return OK;
    int count = parse_slots(second, count_len);
    if (count > 0 && *second == 's') list->stated = true;
    if (count < 0)
        return fail(E_FORMAT, "'%.*s' after the host '%.*s': expected a number of slots, 1 to %d", (int)count_len,
                    second, (int)len, name, MOST_SLOTS);
    /* Looks at the last host first: files of many slots list a host's lines together. */
    for (int i = list->count - 1; i >= 0; i--) {
        Host *h = &list->hosts[i];
        if (strlen(h->name) != len || memcmp(h->name, name, len) != 0) continue;
        if (h->slots > MOST_SLOTS) return fail(E_FORMAT, "host '%s' has more than %d slots", h->name, MOST_SLOTS);
        h->slots += count ? count : 1;
        return OK;
    }
    return add_host(list, name, len, count ? count : 1);
}

Status hosts_from_lines(const char *what, const char *text, size_t len, HostList *list)
{
    Status status = OK;
    int line = 1;
    *list = (HostList){0};
    for (const char *p = text, *stop = text + len; p < stop && status == OK; line++) {
        const char *end = memchr(p, '\n', (size_t)(stop - p));
        if (!end) end = stop;
        status = status_context(parse_line(p, end, list), "%s, line %d", what, line);
        p = end + 1;
    }
    if (status == OK && list->count == 0) status = fail(E_FORMAT, "%s has no hosts", what);
    if (status != OK) hosts_free(list);
    return status;
}

Status hosts_from_file(const char *path, HostList *list)
{
    Buf text = {0};
    *list = (HostList){0};
    Status status = file_read(path, (size_t)64 << 20, &text);
    if (status == OK) status = hosts_from_lines(path, text.data ? text.data : "", text.len, list);
    buf_free(&text);
    return status;
}
