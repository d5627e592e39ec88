#include "cuda_host/fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <sys/mman.h>

#include "asan.h"
#if TESTING_ASAN
#    include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#    error "the host executor switches fibers on x86-64 only"
#endif

/* void fiber_jump(void **save, void *load): saves the callee-saved registers on the old stack and loads those of the
   new one. */
asm(R"(
    .text
    .p2align 4
    .type fiber_jump, @function
fiber_jump:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size fiber_jump, . - fiber_jump
)");
extern "C" void fiber_jump(void **save, void *load);

namespace
{
constexpr int n_stacks = 1024;
constexpr size_t page = 4096;
#if TESTING_ASAN
constexpr size_t stack_bytes = 256 << 10;
#else
constexpr size_t stack_bytes = 128 << 10;
#endif

/* Each stack has a guard page below it. */
unsigned char *stacks()
{
    static unsigned char *memory;
    if (memory) return memory;
    void *p = mmap(nullptr, n_stacks * (page + stack_bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("cannot get stacks for the host executor's threads");
        abort();
    }
    memory = static_cast<unsigned char *>(p);
    for (int i = 0; i < n_stacks; i++) mprotect(memory + i * (page + stack_bytes), page, PROT_NONE);
    return memory;
}
} // namespace

void fiber_init(Fiber *fiber, int i, void (*entry)())
{
    unsigned char *bottom = stacks() + i * (page + stack_bytes) + page;
    fiber->bottom = bottom;
    fiber->size = stack_bytes;
    fiber->fake_stack = nullptr;
    /* From the top: 0 (no caller), entry as fiber_jump's return address, its six registers. So the stack is aligned as
       after a call when entry begins. */
    uintptr_t *top = reinterpret_cast<uintptr_t *>(bottom + stack_bytes);
    top[-1] = 0;
    top[-2] = reinterpret_cast<uintptr_t>(entry);
    for (int r = 3; r <= 8; r++) top[-r] = 0;
    fiber->stack_pointer = top - 8;
}

void fiber_switch(Fiber *from, Fiber *to, bool from_ends)
{
#if TESTING_ASAN
    __sanitizer_start_switch_fiber(from_ends ? nullptr : &from->fake_stack, to->bottom, to->size);
#else
    (void)from_ends;
#endif
    fiber_jump(&from->stack_pointer, to->stack_pointer);
#if TESTING_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

void fiber_entered(Fiber *caller)
{
#if TESTING_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &caller->bottom, &caller->size);
#else
    (void)caller;
#endif
}

void fiber_forget(Fiber *fiber) { ASAN_UNPOISON_MEMORY_REGION(fiber->bottom, fiber->size); }
