/* This host's name, and the program's. */
#pragma once

#include <stddef.h>

void host_name(char *name, size_t size); /* ends with a NUL; "localhost" where the host has none */
char *host_program(void);                /* path of this program's file; "cairn" if unknown. The caller frees */
