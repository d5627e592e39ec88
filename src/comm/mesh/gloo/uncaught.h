// Exceptions of Gloo that no caller can catch: of its threads, and of its destructors.
#pragma once

// From now on an error of a thread of Gloo that no wait is given goes to `of_thread`, and the thread goes on. One that
// a destructor does not let pass goes to `of_all`, which must not return.
void uncaught_handle(void (*of_thread)(const char *error), void (*of_all)(const char *error));
