/* Fibers: threads of the host executor, each with a stack of its own, that yield only by fiber_switch. For x86-64.
   Stacks are allocated once per process and reused for every block. Each switch is announced to AddressSanitizer. */
#pragma once

#include <cstddef>

struct Fiber {
    void *stack_pointer; /* while it does not run */
    void *fake_stack;    /* AddressSanitizer's */
    const void *bottom;
    size_t size; /* of its stack */
};

/* Makes a new fiber on the i-th stack, which begins with `entry`. entry must not return. */
void fiber_init(Fiber *fiber, int i, void (*entry)());
/* Continues with `to`; returns when a fiber switches back to `from`. With `from_ends` none does. */
void fiber_switch(Fiber *from, Fiber *to, bool from_ends);
/* First in an entry function; `caller` is the fiber that switched here (its stack is noted there). */
void fiber_entered(Fiber *caller);
/* After a fiber was abandoned in the middle of its work. */
void fiber_forget(Fiber *fiber);
