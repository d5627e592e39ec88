/* Any bytes as a command line, an environment and a configuration file. Lines up to the first that begins with `{` are
   words of the command line, or, with CAIRN_ in front, variables; the rest is the file. An accepted input must be
   printed as a file that gives the same configuration; a refused one must give a message and leave nothing behind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/config.h"

enum { MOST = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file in memory that is written again for each input. */
static const char *file_path(const char *text, size_t len)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("config", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    CHECK(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, text, len, 0) == (ssize_t)len, "cannot write %s", path);
    return path;
}

/* Ignores files of others. */
static bool names_a_file(const char *line)
{
    return strncmp(line, "--config", 8) == 0 || strncasecmp(line, "CAIRN_CONFIG", 12) == 0;
}

/* Accepted: prints and reads back to the same text. */
static void check_round_trip(const Config *c, char *command)
{
    Config again;
    Buf text = {0}, second = {0};
    config_json(c, &text);
    char *argv[] = {(char *)"cairn", command, (char *)"--config", (char *)file_path(text.data, text.len), NULL};
    CHECK(config_parse(&again, 4, argv, NULL) == OK, "refuses its own file: %s\n%s", status_message(), text.data);
    config_json(&again, &second);
    CHECK(strcmp(text.data, second.data) == 0, "another configuration:\n%s%s", text.data, second.data);

    Json *stored;
    Effect worst;
    Buf report = {0};
    CHECK(js_parse("stored", text.data, text.len, &stored) == OK, "%s", status_message());
    CHECK(config_difference(c, stored, &worst, &report) == OK, "%s", status_message());
    buf_free(&report);
    js_free(stored);
    config_free(&again);
    buf_free(&text);
    buf_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mem_strndup((const char *)data, size), *rest = text;
    char *argv[MOST + 4] = {(char *)"cairn"}, *environment[MOST + 1] = {NULL};
    int argc = 1, n_variables = 0;
    while (rest && *rest && *rest != '{') {
        char *line = strsep(&rest, "\n");
        if (names_a_file(line)) continue;
        if (strncmp(line, "CAIRN_", 6) == 0 && n_variables < MOST)
            environment[n_variables++] = line;
        else if (argc < MOST)
            argv[argc++] = line;
    }
    if (rest && *rest && argc > 1) {
        argv[argc++] = (char *)"--config";
        argv[argc++] = (char *)file_path(rest, strlen(rest));
    }
    Config c;
    if (config_parse(&c, argc, argv, environment) == OK) {
        check_round_trip(&c, argv[1]);
        config_free(&c);
    } else {
        CHECK(*status_message() && !c.task && !c.positional && !c.n_positional, "refused, with remains: '%s'",
              status_message());
    }
    free(text);
    return 0;
}
