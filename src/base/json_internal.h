/* Inside src/base: a JSON document in memory. */
#pragma once

#include "base/json.h"

typedef struct Object Object;

struct Json {
    JsonKind kind;
    uint32_t n; /* members of an array or object */
    union {
        const char *text; /* of any other kind */
        const Json *items;
        const Object *object;
    };
};

typedef struct {
    const char *key;
    Json value;
} Member;

struct Object {
    const char *repeated;
    Member **sorted;  // (n) by their keys
    Member members[]; // (n) in the order of the text
};

/* A document: the root with everything that it points to. */
typedef struct {
    Json root;
    char *text;    /* a copy, in which strings are unescaped and numbers end with a NUL */
    void **blocks; // (n_blocks) arrays and objects
    size_t n_blocks, cap_blocks;
} Document;
