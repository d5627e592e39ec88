/* Modules that the program loads at run time, cairn_<name>.so: backends and transports. */
#pragma once

#include "base/status.h"

/* Looks in $CAIRN_BACKEND_DIR, the program's folder and its ../lib/cairn, in this order. The module must export
   `const uint64_t cairn_module_abi`, equal to `abi`. It stays loaded to the end: its threads may outlive its user.
   E_USAGE, beginning with "<kind> '<name>': "; `advice` is added where the file is missing. */
Status module_load(const char *kind, const char *name, uint64_t abi, const char *advice, void **handle);
/* Address of an exported symbol of the module; E_USAGE where it is missing. */
Status module_symbol(void *handle, const char *kind, const char *name, const char *symbol, void **address);
