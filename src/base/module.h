/* Modules that the program loads where it needs them, cairn_<name>.so: backends, transports. */
#ifndef CAIRN_BASE_MODULE_H
#define CAIRN_BASE_MODULE_H

#include <stdint.h>

#include "base/status.h"

/* Looks in $CAIRN_BACKEND_DIR, the program's folder and its ../lib/cairn, in this order. The module must export
   `const uint64_t cairn_module_abi`, equal to `abi`. It stays loaded to the end: its threads may outlive its user.
   E_USAGE, beginning with "<kind> '<name>': "; `advice` says what to do where there is no such file. */
Status module_load(const char *kind, const char *name, uint64_t abi, const char *advice, void **handle);
/* What the module exports as `symbol`; E_USAGE where there is none. */
Status module_symbol(void *handle, const char *kind, const char *name, const char *symbol, void **address);

#endif
