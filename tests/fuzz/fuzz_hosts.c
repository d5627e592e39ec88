/* Any bytes as a scheduler's list of hosts. The first byte: Slurm's form (tasks per node follow the first NUL), or a
   file of lines. An accepted list has host names with slots, within bounds; a refusal has a message. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "comm/meet/hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const HostList *list)
{
    CHECK(list->count > 0 && list->count <= HOSTS_MOST && hosts_slots(list) >= list->count, "%d hosts", list->count);
    for (int i = 0; i < list->count; i++) {
        const char *name = list->hosts[i].name;
        CHECK(*name && *name != '-' && strlen(name) <= 255, "name '%s'", name);
        for (const char *p = name; *p; p++) CHECK(isalnum((unsigned char)*p) || strchr("-._:", *p), "name '%s'", name);
        CHECK(list->hosts[i].slots >= 1, "slots");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    HostList list = {0};
    if (size == 0) return 0;
    char *text = mem_strndup((const char *)data + 1, size - 1);
    size_t first = strlen(text);
    if (data[0] & 1) {
        Status status = hosts_from_slurm(text, &list);
        if (status == OK) check(&list);
        if (status == OK && first + 2 < size) {
            char *tasks = mem_strndup((const char *)data + first + 2, size - first - 2);
            if (hosts_slots_from_slurm(tasks, &list) == OK) check(&list);
            free(tasks);
        }
    } else {
        uint8_t *copy = malloc(size); /* of exact size, so that reads beyond it are detected */
        CHECK(copy, "no memory");
        memcpy(copy, data + 1, size - 1);
        copy = realloc(copy, size - 1 ? size - 1 : 1);
        if (hosts_from_lines("fuzz", (const char *)copy, size - 1, &list) == OK)
            check(&list);
        else
            CHECK(strstr(status_message(), "fuzz"), "message '%s'", status_message());
        free(copy);
    }
    hosts_free(&list);
    free(text);
    return 0;
}
