/* SPDX-License-Identifier: Apache-2.0
 *
 * The sequence of a measurement that runs a task program repeatedly: set-up, start, samples,
 * checks.
 */
#ifndef CHAOSITY_REPEATED_RUNS_HPP
#define CHAOSITY_REPEATED_RUNS_HPP

#include <vector>

#include "tasks/task_program_interface.hpp"

enum runtime { VANILLA, LOCALITY };
enum data_place { SPREAD, ONE_NODE };
inline constexpr const char *runtimes[] = {"vanilla", "locality"};
inline constexpr const char *data_places[] = {"spread", "one_node"};

struct program_entry {
    const char *name;
    std::unique_ptr<task_program> (*make)(const program_context &where);
};

constexpr program_entry task_programs[] = {
    {"stencil", new_stencil},
    {"matmul", new_matmul},
    {"mergesort", new_mergesort},
    {"spmv", new_spmv},
};

struct task_options {
    int program = -1, runtime = -1, data = -1; /* positions in the lists above; -1: not given */
    index_list cpus{};
    size_t bytes = 0;
    struct run_options run_options = {{}, 0.02, 10, false};
};

/* Runs the program with these teams and prints the ready, sample and done lines. Returns the exit
 * code. */
int run_repeatedly(const task_options &options, std::vector<team> members);

#endif
