#include "launch/launch.h"

Status command_launch(const Config *c)
{
    (void)c;
    return fail(E_USAGE, "launch is not built yet");
}
