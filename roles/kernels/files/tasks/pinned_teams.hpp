/* SPDX-License-Identifier: Apache-2.0
 *
 * The two runtimes as teams of threads. A team is a oneTBB arena with one thread pinned to each of
 * its CPUs. Within a team idle threads steal tasks from any other thread at random, which is
 * oneTBB's own scheduler. Tasks never leave their team. So the vanilla runtime is one team over all
 * CPUs, and the locality runtime is one team per node.
 *
 * An observer pins the threads to the given CPUs. tbb::task_arena::constraints would bind them to
 * whole nodes, and silently to nothing where the library tbbbind is not installed.
 */
#ifndef CHAOSITY_PINNED_TEAMS_HPP
#define CHAOSITY_PINNED_TEAMS_HPP

#include <cstddef>
#include <functional>
#include <memory>
#include <pthread.h>
#include <vector>

struct team {
    int node; /* -1: CPUs of any node */
    std::vector<int> cpus;
};

struct pinned_thread {
    int cpu, tid;
};

class pinned_teams {
  public:
    explicit pinned_teams(std::vector<team> members);
    ~pinned_teams();

    /* Runs body(i) for all teams i at the same time, on each team's first thread in the team's
     * arena; the calling thread is the first thread of team 0. Before that, every thread has been
     * found on its CPU. Refuses when oneTBB starts fewer threads than there are CPUs. */
    void run(const std::function<void(int)> &body);

    /* Called by the first thread of each team: sleeps until all of these have called it. */
    void wait_for_all();

    int count() const { return (int)members_.size(); }
    const team &operator[](int index) const { return members_[(size_t)index]; }
    const std::vector<pinned_thread> &threads() const { return threads_; }

    /* Divides `count` items among the teams in proportion to their CPUs. Team i has the items from
     * result[i] up to, not including, result[i + 1]. */
    std::vector<size_t> split_among_teams(size_t count) const;

  private:
    struct arena;
    void collect_threads(int index);

    std::vector<team> members_;
    std::vector<std::unique_ptr<arena>> arenas_;
    std::vector<pinned_thread> threads_; /* in the order of the CPUs, team by team */
    pthread_barrier_t barrier_;
};

#endif
