/* Shared by the tests of src/config: command lines as words, refusals, files. */
#pragma once

#include "testing.h"

#include "config/config.h"

enum { MAX_ARGS = 24 };

/* config_parse of words; `environment` ends with NULL or is NULL itself. */
static inline Status parse_with(Config *c, char **environment, const char *command, va_list words)
{
    char *argv[MAX_ARGS] = {(char *)"cairn", (char *)command};
    int argc = 2;
    for (char *word; (word = va_arg(words, char *)); argv[argc++] = word) assert_true(argc < MAX_ARGS);
    return config_parse(c, argc, argv, environment);
}

__attribute__((sentinel)) static inline Status parse_env(Config *c, char **environment, const char *command, ...)
{
    va_list words;
    va_start(words, command);
    Status status = parse_with(c, environment, command, words);
    va_end(words);
    return status;
}

__attribute__((sentinel)) static inline Status parse(Config *c, const char *command, ...)
{
    va_list words;
    va_start(words, command);
    Status status = parse_with(c, NULL, command, words);
    va_end(words);
    return status;
}

/* The command line is refused with E_USAGE and a message that has all of these. Nothing must be freed. */
#define assert_refused(call, ...)                                                                                      \
    do {                                                                                                               \
        const char *const parts_[] = {__VA_ARGS__};                                                                    \
        assert_status(call, E_USAGE);                                                                                  \
        for (size_t i_ = 0; i_ < sizeof parts_ / sizeof *parts_; i_++) assert_message(parts_[i_]);                     \
        assert_null(c.task);                                                                                           \
        assert_null(c.positional);                                                                                     \
    } while (0)

/* A file with `text` in `dir`. The caller frees the path. */
static inline char *store(const char *dir, const char *name, const char *text)
{
    testing_write(dir, name, text);
    return file_join(dir, name);
}

static inline char *print_json(const Config *c)
{
    Buf out = {0};
    config_json(c, &out);
    return out.data;
}
