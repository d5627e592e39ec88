// Pieces between ranks by Gloo's unbound buffers: its TCP connections and its thread, none of its collectives, so that
// waits can be cut short from outside and a failure has a peer's name.
#include "comm/mesh/gloo.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "comm/mesh/gloo/uncaught.h"

namespace
{

struct Gloo {
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::mutex mutex;                                     // of `posted`
    std::vector<gloo::transport::UnboundBuffer *> posted; // in order; one thread posts and forgets
    std::atomic<bool> aborted{false};
};

void abort_waits(Gloo *g)
{
    const std::lock_guard<std::mutex> lock(g->mutex);
    g->aborted = true;
    for (auto *b : g->posted) {
        b->abortWaitRecv();
        b->abortWaitSend();
    }
}

// The open connections, and the first error of a thread of Gloo that no wait has been given. Never freed: a connecting
// thread that was left alone may outlive the others.
struct All {
    std::mutex mutex;
    std::vector<Gloo *> open;
    std::string error;
};
All &all = *new All;

// Such an error may be of any connection, so all fail.
void fail_all(const char *error)
{
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (all.error.empty()) all.error = error;
    for (Gloo *g : all.open) abort_waits(g);
}

bool thread_failed()
{
    const std::lock_guard<std::mutex> lock(all.mutex);
    return !all.error.empty();
}

std::string given_up()
{
    const std::lock_guard<std::mutex> lock(all.mutex);
    return all.error.empty() ? "given up" : all.error;
}

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// Larger pieces go as several: the system's calls move less than 2 GiB at once.
constexpr size_t kPiece = size_t(1) << 30;

Milliseconds milliseconds(double seconds) { return Milliseconds(std::max<long long>(1, (long long)(seconds * 1e3))); }

using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

// Runs `work`; false: it threw, the text is in `error`, and errno is ENOMEM where the system lacked memory, else 0.
template <typename Work> bool caught(char *error, size_t size, Work work)
{
    int number = 0;
    try {
        work();
        return true;
    } catch (const std::bad_alloc &e) {
        number = ENOMEM;
        snprintf(error, size, "%s", e.what());
    } catch (const std::system_error &e) { // a thread that cannot be started
        if (e.code() == std::errc::resource_unavailable_try_again) number = ENOMEM;
        snprintf(error, size, "%s", e.what());
    } catch (const std::exception &e) {
        snprintf(error, size, "%s", e.what());
    } catch (...) {
        snprintf(error, size, "an unknown exception");
    }
    errno = number;
    return false;
}

// For what follows a failure.
template <typename Work> void attempt(Work work)
{
    char ignored[64];
    const int number = errno;
    caught(ignored, sizeof ignored, work);
    errno = number;
}

// Gloo's wait for its peers to connect cannot be cut short. So a thread of its own waits; when a rank is lost the
// caller abandons that thread, which ends by its own timeout.
struct Opening {
    GlooOptions options;
    std::string address, error;
    int number = 0; // errno with `error`
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
    char error[512] = "";
    const bool good = caught(error, sizeof error, [&] {
        gloo::transport::tcp::attr attr;
        attr.hostname = o.address;
        auto device = gloo::transport::tcp::CreateDevice(attr);
        auto g = std::make_unique<Gloo>();
        g->context = std::make_shared<gloo::rendezvous::Context>(o.options.rank, o.options.size);
        g->context->setTimeout(milliseconds(o.options.timeout_s));
        Store store(o);
        g->context->connectFullMesh(store, device);
        o.gloo = std::move(g);
    });
    const std::lock_guard<std::mutex> lock(o.mutex);
    o.number = good ? 0 : errno;
    o.error = error;
    o.done = true;
    o.changed.notify_all();
}

void *open(const GlooOptions *options, char *error, size_t error_size)
{
    Gloo *gloo = nullptr;
    int number = 0;
    uncaught_handle(fail_all, options->fatal);
    const bool good = caught(error, error_size, [&] {
        auto o = std::make_shared<Opening>();
        o->options = *options;
        o->address = options->address;
        std::thread([o] { connect(*o); }).detach();
        std::unique_lock<std::mutex> lock(o->mutex);
        while (!o->changed.wait_for(lock, Milliseconds(50), [&] { return o->done; })) {
            if (!options->lost(options->store) && !thread_failed()) continue;
            lock.unlock();
            const std::lock_guard<std::mutex> calls(o->calls); // none is under way, none will be
            o->left_alone = true;
            throw std::runtime_error(given_up());
        }
        number = o->number;
        if (!o->gloo) throw std::runtime_error(o->error);
        const std::lock_guard<std::mutex> of_all(all.mutex);
        all.open.push_back(o->gloo.get());
        gloo = o->gloo.release();
    });
    if (!good && number) errno = number;
    return gloo;
}

// A message: its pieces, in order.
struct Ticket {
    std::vector<Buffer> pieces;
    int peer;
    bool send;
};

void post(Gloo *g, const GlooMessage &m, uint64_t tag, Ticket &ticket)
{
    ticket.peer = m.peer;
    ticket.send = m.send != 0;
    for (size_t at = 0; at < m.bytes; at += kPiece) {
        ticket.pieces.push_back(
            g->context->createUnboundBuffer(static_cast<char *>(m.data) + at, std::min(kPiece, m.bytes - at)));
        gloo::transport::UnboundBuffer *b = ticket.pieces.back().get();
        {
            const std::lock_guard<std::mutex> lock(g->mutex);
            g->posted.push_back(b);
        }
        if (ticket.send)
            b->send(m.peer, tag);
        else
            b->recv(m.peer, tag);
    }
}

// After a failure nothing may be moved into or out of the caller's memory any more, and the others shall notice soon.
void give_up(Gloo *g)
{
    g->aborted = true;
    attempt([&] { g->context->closeConnections(); });
}

void wait_for(Gloo *g, gloo::transport::UnboundBuffer *b, bool send, Clock::time_point end)
{
    const auto left = std::max(Milliseconds(1), std::chrono::duration_cast<Milliseconds>(end - Clock::now()));
    if (g->aborted || !(send ? b->waitSend(nullptr, left) : b->waitRecv(nullptr, left)))
        throw std::runtime_error(given_up());
}

void wait_for(Gloo *g, const Ticket &ticket, Clock::time_point end)
{
    for (const auto &b : ticket.pieces) wait_for(g, b.get(), ticket.send, end);
}

// Receives are posted first, so that a message finds its buffer at once.
int exchange(void *self, const GlooMessage *messages, int n, double timeout_s, int *peer, char *error,
             size_t error_size)
{
    Gloo *g = static_cast<Gloo *>(self);
    const size_t before = g->posted.size();
    std::vector<Ticket> tickets;
    *peer = -1;
    const bool good = caught(error, error_size, [&] {
        const auto end = Clock::now() + milliseconds(timeout_s);
        tickets.reserve(n);
        for (int send = 0; send < 2; send++)
            for (int i = 0; i < n; i++) {
                if ((messages[i].send != 0) != send) continue;
                tickets.emplace_back();
                post(g, messages[i], 0, tickets.back());
            }
        for (const Ticket &t : tickets) {
            *peer = t.peer;
            wait_for(g, t, end);
        }
    });
    if (good)
        *peer = -1;
    else
        give_up(g);
    attempt([&] {
        const std::lock_guard<std::mutex> lock(g->mutex);
        g->posted.resize(before);
        tickets.clear();
    });
    return !good;
}

void forget(Gloo *g, const Ticket &ticket)
{
    const std::lock_guard<std::mutex> lock(g->mutex);
    for (const auto &piece : ticket.pieces)
        g->posted.erase(std::remove(g->posted.begin(), g->posted.end(), piece.get()), g->posted.end());
}

void *post_one(void *self, const GlooMessage *m, uint64_t tag, char *error, size_t error_size)
{
    Gloo *g = static_cast<Gloo *>(self);
    std::unique_ptr<Ticket> ticket;
    const bool good = caught(error, error_size, [&] {
        if (g->aborted) throw std::runtime_error(given_up());
        ticket = std::make_unique<Ticket>();
        post(g, *m, tag, *ticket);
    });
    if (good) return ticket.release();
    give_up(g);
    attempt([&] {
        if (ticket) forget(g, *ticket);
    });
    return nullptr;
}

int wait_one(void *self, void *of, double timeout_s, char *error, size_t error_size)
{
    Gloo *g = static_cast<Gloo *>(self);
    const std::unique_ptr<Ticket> ticket(static_cast<Ticket *>(of));
    const bool good = caught(error, error_size, [&] {
        const auto end = Clock::now() + milliseconds(timeout_s);
        wait_for(g, *ticket, end);
    });
    if (!good) give_up(g);
    attempt([&] { forget(g, *ticket); });
    return !good;
}

void abort_exchange(void *self)
{
    attempt([&] { abort_waits(static_cast<Gloo *>(self)); });
}

// Gloo's closeConnections resets connections, which discards what the system has not yet sent: over a slow network the
// end of the last message. Its destructors close them in order.
void close(void *self)
{
    Gloo *g = static_cast<Gloo *>(self);
    attempt([&] {
        const std::lock_guard<std::mutex> lock(all.mutex);
        all.open.erase(std::remove(all.open.begin(), all.open.end(), g), all.open.end());
    });
    attempt([&] {
        if (g->aborted) g->context->closeConnections();
    });
    delete g;
}

} // namespace

extern "C" {
__attribute__((visibility("default"))) extern const uint64_t cairn_module_abi;
__attribute__((visibility("default"))) extern const GlooModule cairn_comm_gloo;
const uint64_t cairn_module_abi = GLOO_ABI;
const GlooModule cairn_comm_gloo = {open, exchange, post_one, wait_one, abort_exchange, close};
}
