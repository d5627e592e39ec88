// Pieces between ranks by Gloo's unbound buffers: its TCP connections and its thread, none of its collectives, so that
// waits can be cut short from outside and a failure has a peer's name.
#include "comm/gloo.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <dlfcn.h>

#include <gloo/common/error.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

// ---- Gloo's thread ----
// Gloo's thread throws the error of a connection, which all waits on it have been given before, and nothing there
// catches it: std::terminate would end a rank whose peer was just killed. So threads of Gloo are started here, where
// libstdc++'s std::thread calls this function, by its place in the order of symbols; the thread goes on with the other
// connections. Where libstdc++ is found first, as in a program in C++, the function is not called.

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

namespace
{

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// Larger pieces go as several: the system's calls move less than 2 GiB at once.
constexpr size_t kPiece = size_t(1) << 30;

Milliseconds milliseconds(double seconds) { return Milliseconds(std::max<long long>(1, (long long)(seconds * 1e3))); }

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

struct Gloo {
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::mutex mutex; // of `live`
    std::vector<Buffer> live;
    std::vector<gloo::transport::UnboundBuffer *> posted;
    std::atomic<bool> aborted{false};
};

void set_error(char *error, size_t size, const char *text)
{
    if (size) snprintf(error, size, "%s", text);
}

// Gloo's wait for its peers to connect cannot be cut short. So a thread of its own waits; when a rank is lost the
// caller abandons that thread, which ends by its own timeout.
struct Opening {
    GlooOptions options;
    std::string address, error;
    std::unique_ptr<Gloo> gloo;
    std::mutex calls; // into the caller's store
    bool left_alone = false;
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
};

class Store : public gloo::rendezvous::Store
{
  public:
    explicit Store(Opening &opening) : opening_(opening) {}
    void set(const std::string &key, const std::vector<char> &data) override
    {
        const std::lock_guard<std::mutex> lock(opening_.calls);
        const GlooOptions &o = opening_.options;
        if (opening_.left_alone || o.set(o.store, key.c_str(), data.data(), data.size()))
            throw std::runtime_error("the rendezvous is lost");
    }
    std::vector<char> get(const std::string &key) override
    {
        const std::lock_guard<std::mutex> lock(opening_.calls);
        const GlooOptions &o = opening_.options;
        void *data = nullptr;
        size_t size = 0;
        if (opening_.left_alone || o.get(o.store, key.c_str(), o.timeout_s, &data, &size))
            throw std::runtime_error("no address of rank " + key);
        const std::unique_ptr<void, void (*)(void *)> owner(data, std::free);
        const char *bytes = static_cast<const char *>(data);
        return std::vector<char>(bytes, bytes + size);
    }
    void wait(const std::vector<std::string> &keys) override
    {
        for (const auto &key : keys) get(key);
    }
    void wait(const std::vector<std::string> &keys, const Milliseconds &) override { wait(keys); }

  private:
    Opening &opening_;
};

void connect(Opening &o)
{
    try {
        gloo::transport::tcp::attr attr;
        attr.hostname = o.address;
        auto device = gloo::transport::tcp::CreateDevice(attr);
        auto g = std::make_unique<Gloo>();
        g->context = std::make_shared<gloo::rendezvous::Context>(o.options.rank, o.options.size);
        g->context->setTimeout(milliseconds(o.options.timeout_s));
        Store store(o);
        g->context->connectFullMesh(store, device);
        o.gloo = std::move(g);
    } catch (const std::exception &e) {
        o.error = e.what();
    } catch (...) {
        o.error = "an unknown exception";
    }
    const std::lock_guard<std::mutex> lock(o.mutex);
    o.done = true;
    o.changed.notify_all();
}

void *open(const GlooOptions *options, char *error, size_t error_size)
{
    try {
        auto o = std::make_shared<Opening>();
        o->options = *options;
        o->address = options->address;
        std::thread([o] { connect(*o); }).detach();
        std::unique_lock<std::mutex> lock(o->mutex);
        while (!o->changed.wait_for(lock, Milliseconds(50), [&] { return o->done; })) {
            if (!options->lost(options->store)) continue;
            lock.unlock();
            const std::lock_guard<std::mutex> calls(o->calls); // none is under way, none will be
            o->left_alone = true;
            set_error(error, error_size, "given up");
            return nullptr;
        }
        if (o->gloo) return o->gloo.release();
        set_error(error, error_size, o->error.c_str());
    } catch (const std::exception &e) {
        set_error(error, error_size, e.what());
    } catch (...) {
        set_error(error, error_size, "an unknown exception");
    }
    return nullptr;
}

struct Transfer {
    gloo::transport::UnboundBuffer *buffer;
    int peer;
    bool send;
};

// Receives are posted first, so that a message finds its buffer at once.
void post(Gloo *g, const GlooMessage *messages, int n, bool send, std::vector<Transfer> &pieces)
{
    for (int i = 0; i < n; i++) {
        const GlooMessage &m = messages[i];
        if ((m.send != 0) != send) continue;
        for (size_t at = 0; at < m.bytes; at += kPiece) {
            Buffer buffer =
                g->context->createUnboundBuffer(static_cast<char *>(m.data) + at, std::min(kPiece, m.bytes - at));
            gloo::transport::UnboundBuffer *b = buffer.get();
            {
                const std::lock_guard<std::mutex> lock(g->mutex);
                g->live.push_back(std::move(buffer));
            }
            pieces.push_back({b, m.peer, send});
            if (send)
                b->send(m.peer, 0);
            else
                b->recv(m.peer, 0);
        }
    }
}

void release(Gloo *g)
{
    const std::lock_guard<std::mutex> lock(g->mutex);
    g->live.clear();
}

// After a failure nothing may be moved into or out of the caller's memory any more, and the others shall notice soon.
void give_up(Gloo *g)
{
    g->aborted = true;
    try {
        g->context->closeConnections();
    } catch (...) {
    }
}

int exchange(void *self, const GlooMessage *messages, int n, double timeout_s, int *peer, char *error,
             size_t error_size)
{
    Gloo *g = static_cast<Gloo *>(self);
    *peer = -1;
    try {
        const auto end = Clock::now() + milliseconds(timeout_s);
        std::vector<Transfer> pieces;
        post(g, messages, n, false, pieces);
        post(g, messages, n, true, pieces);
        for (const Transfer &p : pieces) {
            *peer = p.peer;
            if (g->aborted) throw std::runtime_error("given up");
            const auto left = std::max(Milliseconds(1), std::chrono::duration_cast<Milliseconds>(end - Clock::now()));
            const bool done = p.send ? p.buffer->waitSend(nullptr, left) : p.buffer->waitRecv(nullptr, left);
            if (!done) throw std::runtime_error("given up");
        }
        release(g);
        *peer = -1;
        return 0;
    } catch (const std::exception &e) {
        set_error(error, error_size, e.what());
    } catch (...) {
        set_error(error, error_size, "an unknown exception");
    }
    give_up(g);
    release(g);
    return 1;
}

// A message that was posted: its pieces, in order.
struct Ticket {
    std::vector<Buffer> pieces;
    bool send;
};

void forget(Gloo *g, const Ticket &ticket)
{
    const std::lock_guard<std::mutex> lock(g->mutex);
    for (const auto &piece : ticket.pieces)
        g->posted.erase(std::remove(g->posted.begin(), g->posted.end(), piece.get()), g->posted.end());
}

void *post_one(void *self, const GlooMessage *m, uint64_t tag, char *error, size_t error_size)
{
    Gloo *g = static_cast<Gloo *>(self);
    auto ticket = std::make_unique<Ticket>();
    ticket->send = m->send != 0;
    try {
        if (g->aborted) throw std::runtime_error("given up");
        for (size_t at = 0; at < m->bytes; at += kPiece) {
            ticket->pieces.push_back(
                g->context->createUnboundBuffer(static_cast<char *>(m->data) + at, std::min(kPiece, m->bytes - at)));
            gloo::transport::UnboundBuffer *b = ticket->pieces.back().get();
            {
                const std::lock_guard<std::mutex> lock(g->mutex);
                g->posted.push_back(b);
            }
            if (m->send)
                b->send(m->peer, tag);
            else
                b->recv(m->peer, tag);
        }
        return ticket.release();
    } catch (const std::exception &e) {
        set_error(error, error_size, e.what());
    } catch (...) {
        set_error(error, error_size, "an unknown exception");
    }
    give_up(g);
    forget(g, *ticket);
    return nullptr;
}

int wait_one(void *self, void *of, double timeout_s, char *error, size_t error_size)
{
    Gloo *g = static_cast<Gloo *>(self);
    const std::unique_ptr<Ticket> ticket(static_cast<Ticket *>(of));
    int status = 1;
    try {
        const auto end = Clock::now() + milliseconds(timeout_s);
        for (const auto &b : ticket->pieces) {
            if (g->aborted) throw std::runtime_error("given up");
            const auto left = std::max(Milliseconds(1), std::chrono::duration_cast<Milliseconds>(end - Clock::now()));
            if (!(ticket->send ? b->waitSend(nullptr, left) : b->waitRecv(nullptr, left)))
                throw std::runtime_error("given up");
        }
        status = 0;
    } catch (const std::exception &e) {
        set_error(error, error_size, e.what());
    } catch (...) {
        set_error(error, error_size, "an unknown exception");
    }
    if (status) give_up(g);
    forget(g, *ticket);
    return status;
}

void abort_exchange(void *self)
{
    Gloo *g = static_cast<Gloo *>(self);
    try {
        const std::lock_guard<std::mutex> lock(g->mutex);
        g->aborted = true;
        for (const auto &b : g->live) {
            b->abortWaitRecv();
            b->abortWaitSend();
        }
        for (auto *b : g->posted) {
            b->abortWaitRecv();
            b->abortWaitSend();
        }
    } catch (...) {
    }
}

// Gloo's closeConnections resets connections, which discards what the system has not yet sent: over a slow network the
// end of the last message. Its destructors close them in order.
void close(void *self)
{
    Gloo *g = static_cast<Gloo *>(self);
    try {
        if (g->aborted) g->context->closeConnections();
        delete g;
    } catch (...) {
    }
}

} // namespace

extern "C" {
__attribute__((visibility("default"))) extern const uint64_t cairn_module_abi;
__attribute__((visibility("default"))) extern const GlooModule cairn_comm_gloo;
const uint64_t cairn_module_abi = GLOO_ABI;
const GlooModule cairn_comm_gloo = {open, exchange, post_one, wait_one, abort_exchange, close};
}
