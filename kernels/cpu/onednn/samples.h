/* Samples of oneDNN's products of rows, made when the backend opens: whether one row's bits depend on other things. */
#pragma once

#include "kernels/cpu/onednn/matmul.h"

/* The most threads, up to cpu.threads, with which neither they nor the number of rows change a row's bits in this type;
   0: not even one. So it does not depend on cpu.threads whether oneDNN serves. `kernel`: its name. */
int samples_threads(dnnl_engine_t engine, dnnl_stream_t stream, Dtype dtype, const char *kernel);
