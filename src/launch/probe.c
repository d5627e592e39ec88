#include "launch/launch_internal.h"
Status probe_run(const Config *c)
{
    (void)c;
    return fail(E_USAGE, "not yet");
}
