#include "train/commands.h"

Status command_snapshot(const Config *c)
{
    (void)c;
    return fail(E_USAGE, "snapshot is not built yet");
}
