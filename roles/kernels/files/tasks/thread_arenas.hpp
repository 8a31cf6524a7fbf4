/* SPDX-License-Identifier: Apache-2.0
 *
 * The two runtimes, as teams of threads: a team is a oneTBB arena with a thread pinned to each of
 * its CPUs. Within a team idle threads steal from any other at random, which is oneTBB's own
 * scheduler; no task ever leaves its team. So one team over all CPUs is the vanilla runtime, and a
 * team a node is the locality runtime.
 *
 * Threads are pinned by an observer, to the CPUs that were given. tbb::task_arena::constraints
 * would bind them to whole nodes, and to nothing at all, without a word, where the library that it
 * needs (tbbbind) is not installed.
 */
#ifndef CHAOSITY_TEAMS_HPP
#define CHAOSITY_TEAMS_HPP

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

class teams {
  public:
    explicit teams(std::vector<team> members);
    ~teams();

    /* Runs body(i) for every team i at the same time, each by its team's first thread in the team's
     * arena; the calling thread is the first of team 0. All threads have been seen on their CPUs
     * before it begins. Refuses when oneTBB does not give as many threads as there are CPUs. */
    void run(const std::function<void(int)> &body);

    /* By the first thread of every team: sleeps until all have come. */
    void meet();

    int count() const { return (int)members_.size(); }
    const team &operator[](int index) const { return members_[(size_t)index]; }
    const std::vector<pinned_thread> &threads() const { return threads_; }

    /* Divides things among the teams in proportion to their CPUs: team i has those from [i] up to
     * [i + 1]. */
    std::vector<size_t> parts(size_t things) const;

  private:
    struct arena;
    void gather(int index);

    std::vector<team> members_;
    std::vector<std::unique_ptr<arena>> arenas_;
    std::vector<pinned_thread> threads_; /* in the order of the CPUs, team by team */
    pthread_barrier_t all_;
};

#endif
