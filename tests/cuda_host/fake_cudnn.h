/* Functions by which tests control the library in cuDNN's place; tests look them up by name. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { FAKE_ENGINES_BOTH, FAKE_ENGINES_ANY_ORDER, FAKE_ENGINES_NONE } FakeEngines;

int64_t fake_cudnn_live(void);          /* descriptors and handles that were not destroyed */
int64_t fake_cudnn_calls(void);         /* that can fail, since fake_cudnn_fail_at */
int64_t fake_cudnn_executed(void);      /* graphs that were run */
void fake_cudnn_fail_at(int64_t call);  /* from 1, counted from now; 0: none fails */
void fake_cudnn_engines(FakeEngines e); /* the engines proposed from now on */
#ifdef __cplusplus
}
#endif
