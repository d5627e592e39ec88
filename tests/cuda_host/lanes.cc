/* Lanes and graphs of the host executor: see cuda_host.h. A list of items has the submitted work in the order of the
   calls. Running it takes each lane's items in order, and next any lane whose first item waits for nothing. */
#include "cuda_host/cuda_host.h"
#include "cuda_host/random.h"

#include <set>
#include <vector>

#include <unistd.h>

namespace
{
enum Kind { WORK, RECORD, WAIT };

struct Item {
    Kind kind;
    int lane;
    CudaHostWork work;
    uint64_t event;              /* RECORD, WAIT: counted from 1 */
    std::function<bool()> ready; /* may be none */
};

/* The number of items of each lane that are known to have run. */
struct Clock {
    size_t done[cuda_host_lanes];
};
} // namespace

struct CudaHostGraph {
    std::vector<Item> items;
    uint64_t first_event; /* recorded in it */
    Clock lane[cuda_host_lanes];
    std::vector<Clock> event; /* from first_event on */
};

static struct {
    int lane;
    bool lazy;
    std::vector<Item> pending;
    uint64_t n_events;
    std::vector<uint64_t> slot; /* the event recorded last; 0: none */
    CudaHostGraph *capturing;
    uint64_t runs;
    void (*reach)(bool); /* NULL: work reaches the device's memory at all times */
} queues;

void cuda_host_set_reach(void (*reach)(bool)) { queues.reach = reach; }

static Status run_work(const CudaHostWork &work)
{
    if (queues.reach) queues.reach(true);
    Status status = work();
    if (queues.reach) queues.reach(false);
    return status;
}

/* ---- running ---- */

namespace
{
struct Runner {
    const std::vector<Item> &items;
    std::vector<size_t> queue[cuda_host_lanes];
    size_t next[cuda_host_lanes];
    std::set<uint64_t> awaited; /* events recorded by items that have not run yet */
    std::vector<bool> done;     // (items)
    uint64_t random;
    int favourite; /* a lane that runs as far ahead as it can; above all lanes: none */

    explicit Runner(const std::vector<Item> &list)
        : items(list), next{}, done(list.size()), random(random_mix(random_step + random_seed("CAIRN_TEST_LANE_SEED") +
                                                                    random_mix(random_step + ++queues.runs)))
    {
        for (size_t i = 0; i < items.size(); i++) {
            queue[items[i].lane].push_back(i);
            if (items[i].kind == RECORD) awaited.insert(items[i].event);
        }
        int used[cuda_host_lanes + 1], n = 0;
        for (int lane = 0; lane < cuda_host_lanes; lane++)
            if (!queue[lane].empty()) used[n++] = lane;
        used[n++] = cuda_host_lanes;
        favourite = used[below(static_cast<uint64_t>(n))];
    }

    uint64_t below(uint64_t n)
    {
        random = random_mix(random_step + random);
        return random % n;
    }

    bool can(int lane) const
    {
        if (next[lane] == queue[lane].size()) return false;
        const Item &item = items[queue[lane][next[lane]]];
        if (item.ready) return item.ready();
        return item.kind != WAIT || awaited.count(item.event) == 0;
    }

    /* The next item waits for work outside. */
    bool unready() const
    {
        for (int lane = 0; lane < cuda_host_lanes; lane++)
            if (next[lane] < queue[lane].size() && items[queue[lane][next[lane]]].ready) return true;
        return false;
    }

    /* A lane that can run; −1: none. */
    int choose()
    {
        int able[cuda_host_lanes], n = 0;
        for (int lane = 0; lane < cuda_host_lanes; lane++)
            if (can(lane)) able[n++] = lane;
        if (favourite < cuda_host_lanes && can(favourite)) return favourite;
        return n ? able[below(static_cast<uint64_t>(n))] : -1;
    }

    /* Runs all items, or, where `now`, those that need not wait for work outside. */
    Status run(bool now)
    {
        for (size_t n = 0; n < items.size();) {
            int lane = choose();
            if (lane < 0 && !unready()) return fail(E_FAIL, "every lane waits for another");
            if (lane < 0 && now) return OK;
            if (lane < 0) {
                usleep(100);
                continue;
            }
            size_t at = queue[lane][next[lane]++];
            const Item &item = items[at];
            done[at] = true;
            n++;
            if (item.kind == RECORD) awaited.erase(item.event);
            if (item.kind == WORK && item.work) TRY(run_work(item.work));
        }
        return OK;
    }
};
} // namespace

Status cuda_host_wait()
{
    std::vector<Item> items;
    items.swap(queues.pending);
    queues.lazy = false;
    return Runner(items).run(false);
}

/* Runs what need not wait for work outside. */
static Status run_ready(uint64_t event, bool *recorded)
{
    std::vector<Item> items;
    items.swap(queues.pending);
    Runner runner(items);
    TRY(runner.run(true));
    *recorded = true;
    for (size_t i = 0; i < items.size(); i++) {
        if (runner.done[i]) continue;
        if (items[i].kind == RECORD && items[i].event == event) *recorded = false;
        queues.pending.push_back(std::move(items[i]));
    }
    return OK;
}

Status cuda_host_event_done(int slot, bool *done)
{
    size_t at = static_cast<size_t>(slot);
    if (at >= queues.slot.size() || queues.slot[at] == 0) return fail(E_FAIL, "event %d was never recorded", slot);
    return run_ready(queues.slot[at], done);
}

/* ---- submitting ---- */

static Status note(CudaHostGraph *g, Item item)
{
    Clock *clock = &g->lane[item.lane];
    bool belongs = item.lane == 0 || item.kind == WAIT;
    for (int l = 0; l < cuda_host_lanes; l++) belongs |= clock->done[l] > 0;
    if (!belongs) return fail(E_FAIL, "lane %d works for a graph without having waited for any of it", item.lane);
    if (item.kind == WAIT) {
        if (item.event < g->first_event) return fail(E_FAIL, "a graph waits for an event from before it");
        for (int l = 0; l < cuda_host_lanes; l++)
            clock->done[l] = std::max(clock->done[l], g->event[item.event - g->first_event].done[l]);
    }
    clock->done[item.lane]++;
    if (item.kind == RECORD) g->event.push_back(*clock);
    g->items.push_back(std::move(item));
    return OK;
}

static Status submit(Item item)
{
    if (queues.capturing) return note(queues.capturing, std::move(item));
    if (queues.lazy)
        queues.pending.push_back(std::move(item));
    else if (item.kind == WORK)
        return run_work(item.work);
    return OK;
}

Status cuda_host_wait_lane(int lane)
{
    uint64_t event = ++queues.n_events;
    bool done = false;
    TRY(submit({RECORD, lane, nullptr, event, nullptr}));
    for (;; usleep(100)) {
        TRY(run_ready(event, &done));
        if (done) break;
    }
    queues.lazy = !queues.pending.empty();
    return OK;
}

Status cuda_host_submit_to(int lane, CudaHostWork work) { return submit({WORK, lane, std::move(work), 0, nullptr}); }
Status cuda_host_submit(CudaHostWork work) { return cuda_host_submit_to(queues.lane, std::move(work)); }

Status cuda_host_submit_when(int lane, std::function<bool()> ready)
{
    if (queues.capturing) return fail(E_FAIL, "a graph cannot wait for work outside");
    queues.lazy = true;
    return submit({WORK, lane, nullptr, 0, std::move(ready)});
}

bool cuda_host_waits_outside(int first_lane)
{
    for (const Item &item : queues.pending)
        if (item.ready && item.lane >= first_lane) return true;
    return false;
}

int cuda_host_lane_chosen() { return queues.lane; }

Status cuda_host_lane_choose(int lane)
{
    CHECK(lane >= 0 && lane < cuda_host_lanes, "lane %d", lane);
    queues.lane = lane;
    queues.lazy = true;
    return OK;
}

Status cuda_host_event_record(int slot)
{
    size_t at = static_cast<size_t>(slot);
    if (at >= queues.slot.size()) queues.slot.resize(at + 1);
    queues.slot[at] = ++queues.n_events;
    return submit({RECORD, queues.lane, nullptr, queues.n_events, nullptr});
}

Status cuda_host_event_wait(int slot)
{
    size_t at = static_cast<size_t>(slot);
    if (at >= queues.slot.size() || queues.slot[at] == 0) return fail(E_FAIL, "event %d was never recorded", slot);
    return submit({WAIT, queues.lane, nullptr, queues.slot[at], nullptr});
}

/* ---- graphs ---- */

Status cuda_host_capture_begin()
{
    if (queues.capturing) return fail(E_FAIL, "a graph is being captured already");
    queues.capturing = new CudaHostGraph{};
    queues.capturing->first_event = queues.n_events + 1;
    return OK;
}

Status cuda_host_capture_end(CudaHostGraph **graph)
{
    CudaHostGraph *g = queues.capturing;
    if (!g) return fail(E_FAIL, "no graph is being captured");
    queues.capturing = nullptr;
    for (int l = 1; l < cuda_host_lanes; l++) {
        if (g->lane[0].done[l] >= g->lane[l].done[l]) continue;
        delete g;
        return fail(E_FAIL, "the graph ends while lane %d may still work: nothing waits for it", l);
    }
    *graph = g;
    return OK;
}

Status cuda_host_graph_launch(const CudaHostGraph *graph)
{
    return cuda_host_submit_to(0, [graph] { return Runner(graph->items).run(false); });
}

void cuda_host_graph_free(CudaHostGraph *graph)
{
    CHECK(cuda_host_wait() == OK, "%s", status_message());
    delete graph;
}
