/* SPDX-License-Identifier: Apache-2.0 */
#include "tasks/pinned_teams.hpp"

#include <atomic>
#include <sched.h>
#include <sys/syscall.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "tasks/common_c_headers.hpp"

namespace {

/* Time limit for all threads to start, in ns. They need milliseconds, but longer in an emulated
 * machine that has more CPUs than its host. */
const uint64_t collect_limit_ns = 30000000000u;

/* Pins the thread in each slot of an arena to that slot's CPU, so no two threads share a CPU. A
 * thread that leaves the arena sleeps where it is, and is pinned again by its new slot when it
 * returns. */
class pinning : public tbb::task_scheduler_observer {
  public:
    pinning(tbb::task_arena &arena, const std::vector<int> &cpus)
        : tbb::task_scheduler_observer(arena), cpus_(cpus) {
        observe(true);
    }
    ~pinning() override { observe(false); }

    void on_scheduler_entry(bool) override {
        thread_local int pinned_to = -1;
        /* an arena for one thread has two slots (oneTBB's arena.cpp, num_arena_slots) */
        const int slot = tbb::this_task_arena::current_thread_index();
        const int cpu = cpus_[(size_t)slot % cpus_.size()];
        if (pinned_to != cpu)
            pinned_to = pin_to_cpu(cpu);
    }

  private:
    const std::vector<int> &cpus_;
};

} // namespace

struct pinned_teams::arena {
    explicit arena(const team &own)
        : tasks((int)own.cpus.size(), 1 /* slot, kept for the first thread */),
          observer(tasks, own.cpus) {}

    tbb::task_arena tasks;
    pinning observer;
};

pinned_teams::pinned_teams(std::vector<team> members) : members_(std::move(members)) {
    for (const team &one : members_)
        arenas_.push_back(std::make_unique<arena>(one));
    pthread_barrier_init(&barrier_, nullptr, (unsigned)members_.size());
}

pinned_teams::~pinned_teams() { pthread_barrier_destroy(&barrier_); }

void pinned_teams::wait_for_all() { pthread_barrier_wait(&barrier_); }

std::vector<size_t> pinned_teams::split_among_teams(size_t count) const {
    size_t cpus = 0, before = 0;
    for (const team &one : members_)
        cpus += one.cpus.size();
    std::vector<size_t> first{0};
    for (const team &one : members_) {
        before += one.cpus.size();
        first.push_back((size_t)((unsigned __int128)count * before / cpus));
    }
    return first;
}

/* Records all threads of a team: runs as many tasks as threads, and no task ends before all have
 * begun, so each thread runs one. */
void pinned_teams::collect_threads(int index) {
    const team &own = members_[(size_t)index];
    const int wanted = (int)own.cpus.size();
    std::vector<pinned_thread> found((size_t)wanted);
    std::atomic<int> started{0};
    const uint64_t limit = monotonic_ns() + collect_limit_ns;
    tbb::parallel_for(
        tbb::blocked_range<int>(0, wanted, 1),
        [&](const tbb::blocked_range<int> &) {
            const int place = tbb::this_task_arena::current_thread_index() % wanted;
            found[(size_t)place] = {sched_getcpu(), (int)syscall(SYS_gettid)};
            started++;
            while (started < wanted) {
                if (monotonic_ns() > limit)
                    refuse("oneTBB started %d of %d requested threads", started.load(), wanted);
                sched_yield();
            }
        },
        tbb::simple_partitioner());
    size_t first = 0;
    for (int before = 0; before < index; before++)
        first += members_[(size_t)before].cpus.size();
    for (size_t i = 0; i < found.size(); i++)
        threads_[first + i] = found[i];
}

void pinned_teams::run(const std::function<void(int)> &body) {
    size_t cpus = 0;
    for (const team &one : members_)
        cpus += one.cpus.size();
    threads_.resize(cpus);
    /* By default oneTBB uses the CPUs of this process only, which the first pinning reduces to one.
     */
    tbb::global_control most(tbb::global_control::max_allowed_parallelism, cpus);
    auto lead = [&](int index) {
        arenas_[(size_t)index]->tasks.execute([&] {
            collect_threads(index);
            wait_for_all();
            body(index);
        });
    };
    std::vector<std::thread> others;
    for (int index = 1; index < count(); index++)
        others.emplace_back(lead, index);
    lead(0);
    for (std::thread &one : others)
        one.join();
}
