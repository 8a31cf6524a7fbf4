/* SPDX-License-Identifier: Apache-2.0
 *
 * tasks_driver PROGRAM BYTES RUNS SPREAD CPUS...: runs a program by teams, each on one of the lists
 * of CPUs, and prints how many values are wrong, how many blocks were noted and how many of them
 * were local. The nodes are made up, so that it means something on any machine: with SPREAD 0 the
 * part of team i is on node i, and so are all threads of a team that has one; else all blocks lie on
 * SPREAD nodes in turns, and threads are on node 0.
 */
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tasks/task_program_interface.hpp"

static const size_t page = 4096;
static size_t spread;
static char *memory;
static std::vector<size_t> first;
static thread_local size_t here = 0;
static std::atomic<uint64_t> noted{0}, near{0};

/* In place of the one that asks the kernel. */
void page_access_counter::record_access(const void *start, size_t bytes) const {
    const size_t offset = (size_t)(static_cast<const char *>(start) - memory);
    if (bytes > 0 && offset + bytes > first.back())
        refuse("%zu bytes at %zu are outside the data", bytes, offset);
    for (size_t at = offset / page; bytes > 0 && at <= (offset + bytes - 1) / page; at++) {
        const auto part = std::upper_bound(first.begin(), first.end(), at * page);
        const size_t node = spread > 0 ? at % spread : (size_t)(part - first.begin()) - 1;
        noted++;
        near += node == here;
    }
}

static std::unique_ptr<task_program> make(const char *name, const program_context &where) {
    if (strcmp(name, "stencil") == 0)
        return new_stencil(where);
    if (strcmp(name, "matmul") == 0)
        return new_matmul(where);
    return strcmp(name, "mergesort") == 0 ? new_mergesort(where) : new_spmv(where);
}

int main(int argc, char *argv[]) {
    std::vector<team> members;
    for (int i = 5; i < argc; i++) {
        const index_list list = parse_index_list("CPUS", argv[i], MOST_CPUS);
        members.push_back({i - 5, {list.index, list.index + list.count}});
        free_index_list(list);
    }
    const uint64_t runs = strtoull(argv[3], nullptr, 10);
    spread = strtoull(argv[4], nullptr, 10);
    pinned_teams arenas(members);
    const page_access_counter counter;
    auto work = make(argv[1], {arenas, counter, strtoull(argv[2], nullptr, 10)});
    size_t bytes = 0;
    for (int i = 0; i < arenas.count(); i++) {
        first.push_back(bytes);
        bytes += (work->part_bytes(i) + page - 1) / page * page;
    }
    first.push_back(bytes);
    memory = static_cast<char *>(aligned_alloc(page, bytes));
    for (int i = 0; i < arenas.count(); i++)
        work->place_part(i, memory + first[(size_t)i]);
    arenas.run([&](int team) {
        here = spread > 0 ? 0 : (size_t)team;
        work->fill(team);
        arenas.wait_for_all();
        for (uint64_t number = 0; number < runs; number++)
            work->run(team, number);
    });
    printf("%llu %llu %llu\n", (unsigned long long)work->count_wrong_values(runs),
           (unsigned long long)noted.load(), (unsigned long long)near.load());
    free(memory);
    return 0;
}
