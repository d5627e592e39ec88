/* sdpa.h in a build without cuDNN. */
extern "C" {
#include "kernels/cuda/sdpa.h"
}

Status sdpa_open(int, int)
{
    return fail(E_USAGE, "--attention cudnn: this build has no cuDNN: cudnn.h of 9.18.1 or newer was not there when it "
                         "was configured (WITH_CUDNN). Use --attention own");
}

void sdpa_close(void) {}
bool sdpa_is_open(void) { return false; }
const char *sdpa_describe(void) { return ""; }
Status sdpa_plan(const SdpaShape *, const SdpaPlan **) { return sdpa_open(0, 0); }
size_t sdpa_workspace(const SdpaPlan *) { return 0; }
bool sdpa_has_run(const SdpaPlan *) { return false; }
Status sdpa_run(const SdpaPlan *, const SdpaData *, void *) { return sdpa_open(0, 0); }
