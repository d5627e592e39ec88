/* TESTING_ASAN: whether this is a build with AddressSanitizer (the build may set it for a file that is not checked).
   Its marks on memory that must not be touched do nothing in other builds. */
#pragma once

#if defined(TESTING_ASAN)
#elif defined(__SANITIZE_ADDRESS__)
#    define TESTING_ASAN 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define TESTING_ASAN 1
#    endif
#endif

#ifdef TESTING_ASAN
#    include <sanitizer/asan_interface.h>
#    undef ASAN_POISON_MEMORY_REGION /* nothing in a file that is not checked */
#    undef ASAN_UNPOISON_MEMORY_REGION
#    define ASAN_POISON_MEMORY_REGION(p, bytes)   __asan_poison_memory_region((p), (bytes))
#    define ASAN_UNPOISON_MEMORY_REGION(p, bytes) __asan_unpoison_memory_region((p), (bytes))
#else
#    define TESTING_ASAN                          0
#    define ASAN_POISON_MEMORY_REGION(p, bytes)   ((void)(p), (void)(bytes))
#    define ASAN_UNPOISON_MEMORY_REGION(p, bytes) ((void)(p), (void)(bytes))
#endif
