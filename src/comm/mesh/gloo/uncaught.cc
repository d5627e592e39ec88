// Exceptions of Gloo that no caller can catch.
#include "comm/mesh/gloo/uncaught.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>

#include <dlfcn.h>

#include <gloo/common/error.h>
#include <gloo/common/logging.h>

namespace
{

// ---- what nothing can catch ----
// Gloo's destructors throw where the system refuses a call, and do not let that pass.

void (*failed)(const char *error);
void (*fatal)(const char *error);
std::terminate_handler terminate_before;

void terminate()
{
    static std::atomic<bool> begun{false};
    if (begun.exchange(true)) std::abort();
    try {
        if (const auto e = std::current_exception()) std::rethrow_exception(e);
    } catch (const gloo::EnforceNotMet &e) {
        fatal(e.what());
    } catch (const gloo::Exception &e) {
        fatal(e.what());
    } catch (...) {
    }
    terminate_before();
}

} // namespace

void uncaught_handle(void (*of_thread)(const char *), void (*of_all)(const char *))
{
    failed = of_thread;
    fatal = of_all;
    const auto before = std::set_terminate(terminate);
    if (before != terminate) terminate_before = before;
}

// ---- Gloo's threads ----
// A thread of Gloo throws the error of a connection, which all waits on it have been given before, and other errors,
// which no wait gets. Nothing there catches them: std::terminate would end a rank whose peer was just killed. So
// threads of Gloo are started here, where libstdc++'s std::thread calls this function, by its place in the order of
// symbols; the thread goes on with the other connections, because destructors wait for it. Where libstdc++ is found
// first, as in a program in C++, the function is not called.

namespace
{

// The type of a thread's work. It is private from GCC 14 on, and an explicit instantiation may name what is private.
struct WorkType {
    friend auto work_type(WorkType);
};
template <typename T> struct Names {
    friend auto work_type(WorkType) { return static_cast<T *>(nullptr); }
};
template struct Names<std::thread::_State>;
using State = std::remove_pointer_t<decltype(work_type(WorkType()))>;
using StartThread = void(std::thread *, std::unique_ptr<State>, void (*)());

struct Caught : State {
    std::unique_ptr<State> work;
    explicit Caught(std::unique_ptr<State> w) : work(std::move(w)) {}
    void _M_run() override
    {
        for (bool over = false; !over;) {
            try {
                work->_M_run();
                over = true;
            } catch (const gloo::IoException &) {
            } catch (const std::bad_alloc &) {
                throw; // the program's handler ends the process
            } catch (const std::exception &e) {
                failed(e.what());
                std::this_thread::sleep_for(std::chrono::milliseconds(10)); // it may be thrown again at once
            }
        }
    }
};

} // namespace

#define START_THREAD "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE"

void start_thread(std::thread *thread, std::unique_ptr<State> work, void (*depend)()) __asm__(START_THREAD);
void start_thread(std::thread *thread, std::unique_ptr<State> work, void (*depend)())
{
    static StartThread *const start = reinterpret_cast<StartThread *>(dlsym(RTLD_NEXT, START_THREAD));
    start(thread, std::unique_ptr<State>(new Caught(std::move(work))), depend);
}
