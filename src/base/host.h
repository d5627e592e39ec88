/* This host's name, and the program's. */
#pragma once

#include <stddef.h>

void host_name(char *name, size_t size); /* ends with a NUL; "localhost" where the host has none */
/* What follows `key` on its line of a file, as "model name" in /proc/cpuinfo, without blanks and quotes at the ends; ""
   where there is none. */
void host_value(const char *path, const char *key, char *out, size_t size);
char *host_program(void); /* path of this program's file; "cairn" if unknown. The caller frees */
