/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that is run again and again on a runtime: set-up, start, samples and checks, each told
 * as a line of JSON.
 */
#ifndef CHAOSITY_REPEAT_HPP
#define CHAOSITY_REPEAT_HPP

#include <vector>

#include "tasks/task_program.hpp"

enum runtime { VANILLA, LOCALITY };
enum data_place { SPREAD, ONE_NODE };
constexpr const char *runtimes[] = {"vanilla", "locality"};
constexpr const char *data_places[] = {"spread", "one_node"};

struct task_program {
    const char *name;
    std::unique_ptr<workload> (*make)(const setting &where);
};

constexpr task_program task_programs[] = {
    {"stencil", new_stencil},
    {"matmul", new_matmul},
    {"mergesort", new_mergesort},
    {"spmv", new_spmv},
};

struct request {
    int program = -1, runtime = -1, data = -1; /* -1: not given */
    index_list cpus{};
    size_t bytes = 0;
    course how{};
};

/* Runs it by these teams and prints the lines. Returns the exit code. */
int repeat(const request &asked, std::vector<team> members);

#endif
