/* A stream of the host executor. NCCL's twin queues work on it without knowing the executor. */
#pragma once

/* `run` is called at the work's turn in its lane until it returns true (done); the lane waits meanwhile, and the others
   continue. `drop` is called once, after that or in its place. */
struct CudaHostStream {
    void (*queue)(const CudaHostStream *stream, bool (*run)(void *work), void (*drop)(void *work), void *work);
    int lane;
};
