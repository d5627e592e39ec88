/* Defaults of the sanitizers for every program of a sanitizer build, however it is started. ASAN_OPTIONS and
   UBSAN_OPTIONS of the environment come on top. */
#include <sanitizer/asan_interface.h>

const char *__ubsan_default_options(void);

/* intercept_tls_get_addr=0: where oneDNN uses AVX-512, AddressSanitizer takes the thread-local data of a loaded library
   for a block of another kind, and the search for leaks ends with a signal 11 of its own.
   quarantine_size_mb=16: with the usual 256 MiB nearly every allocation touches fresh pages, which took a third of the
   time of tests that allocate much. `test.sh deep` has the 256. */
const char *__asan_default_options(void)
{
    return "detect_leaks=1:detect_stack_use_after_return=1:intercept_tls_get_addr=0:quarantine_size_mb=16";
}

const char *__ubsan_default_options(void) { return "print_stacktrace=1"; }
