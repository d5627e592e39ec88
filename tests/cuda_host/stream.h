/* What a stream is on the host executor: who has one, as NCCL's twin, queues work on it without knowing the executor.
 */
#ifndef CAIRN_TESTS_CUDA_HOST_STREAM_H
#define CAIRN_TESTS_CUDA_HOST_STREAM_H

/* `run` is called when it is the work's turn in its lane, until it says that it is done: the lane waits meanwhile, and
   the others go on. `drop` is called once, after that or in its place. */
struct CudaHostStream {
    void (*queue)(const CudaHostStream *stream, bool (*run)(void *work), void (*drop)(void *work), void *work);
    int lane;
};

#endif
