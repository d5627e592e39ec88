/* Fibers: threads of the host executor, each with a stack of its own, that give way only where they say so. For x86-64.
   Life: stacks are made once per process and used again for every block. AddressSanitizer knows of each switch. */
#ifndef CAIRN_TESTS_CUDA_HOST_FIBER_H
#define CAIRN_TESTS_CUDA_HOST_FIBER_H

#include <cstddef>

struct Fiber {
    void *stack_pointer; /* while it does not run */
    void *fake_stack;    /* AddressSanitizer's */
    const void *bottom;
    size_t size; /* of its stack */
};

/* The i-th stack gets a new fiber, which will begin with `entry`. entry must not return. */
void fiber_init(Fiber *fiber, int i, void (*entry)());
/* Goes on with `to`; returns when somebody switches back to `from`. `from` is never come back to if `from_ends`. */
void fiber_switch(Fiber *from, Fiber *to, bool from_ends);
/* First in an entry function; `caller` is the fiber that switched here (its stack is noted there). */
void fiber_entered(Fiber *caller);
/* After a fiber was left for good in the middle of its work. */
void fiber_forget(Fiber *fiber);

#endif
