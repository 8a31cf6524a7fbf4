/* SPDX-License-Identifier: Apache-2.0 */
#include "tasks/thread_arenas.hpp"

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

#include "tasks/c_headers.hpp"

namespace {

/* Threads come within milliseconds, in an emulated machine with more CPUs than its host later. */
const uint64_t gather_ns = 30000000000u;

/* Each slot of an arena has its CPU, so no two of its threads are on one. A thread that leaves the
 * arena sleeps where it is, and is pinned anew by the slot that it gets when it comes back. */
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

struct teams::arena {
    explicit arena(const team &own)
        : tasks((int)own.cpus.size(), 1 /* slot, kept for the first thread */),
          observer(tasks, own.cpus) {}

    tbb::task_arena tasks;
    pinning observer;
};

teams::teams(std::vector<team> members) : members_(std::move(members)) {
    for (const team &one : members_)
        arenas_.push_back(std::make_unique<arena>(one));
    pthread_barrier_init(&all_, nullptr, (unsigned)members_.size());
}

teams::~teams() { pthread_barrier_destroy(&all_); }

void teams::meet() { pthread_barrier_wait(&all_); }

std::vector<size_t> teams::parts(size_t things) const {
    size_t cpus = 0, before = 0;
    for (const team &one : members_)
        cpus += one.cpus.size();
    std::vector<size_t> first{0};
    for (const team &one : members_) {
        before += one.cpus.size();
        first.push_back((size_t)((unsigned __int128)things * before / cpus));
    }
    return first;
}

/* As many tasks as threads, none of which ends before all have begun: so each thread has one. */
void teams::gather(int index) {
    const team &own = members_[(size_t)index];
    const int wanted = (int)own.cpus.size();
    std::vector<pinned_thread> found((size_t)wanted);
    std::atomic<int> come{0};
    const uint64_t limit = monotonic_ns() + gather_ns;
    tbb::parallel_for(
        tbb::blocked_range<int>(0, wanted, 1),
        [&](const tbb::blocked_range<int> &) {
            const int place = tbb::this_task_arena::current_thread_index() % wanted;
            found[(size_t)place] = {sched_getcpu(), (int)syscall(SYS_gettid)};
            come++;
            while (come < wanted) {
                if (monotonic_ns() > limit)
                    refuse("oneTBB started %d threads of the %d that were asked for", come.load(),
                           wanted);
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

void teams::run(const std::function<void(int)> &body) {
    size_t cpus = 0;
    for (const team &one : members_)
        cpus += one.cpus.size();
    threads_.resize(cpus);
    /* oneTBB would keep to the CPUs of this process, of which the first pinning leaves one. */
    tbb::global_control most(tbb::global_control::max_allowed_parallelism, cpus);
    auto lead = [&](int index) {
        arenas_[(size_t)index]->tasks.execute([&] {
            gather(index);
            meet();
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
