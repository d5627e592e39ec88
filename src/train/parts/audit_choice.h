/* What --audit asks for. */
#pragma once

#include "base/base.h"

typedef struct {
    bool recompute;
    double share; /* of the steps, 0 to 1 */
} AuditChoice;

/* E_USAGE. */
Status audit_parse(const char *text, AuditChoice *choice);
