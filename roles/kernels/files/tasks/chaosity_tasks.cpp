/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-tasks: how much a runtime that knows the nodes gains over a runtime that does not, for
 * one set of task-parallel programs (document 004, which uses Cilk).
 *
 * The programs are in task_*.cpp, the runtimes in pinned_teams.cpp, the measure of locality in
 * page_locality.cpp, and the sequence of a run in repeated_runs.cpp.
 *
 * If a program ignores nodes, chance decides where its pages lie: on the node that touches a page
 * first. In document 004 all pages lie on one node, because one thread writes them. Then the share
 * of local accesses is the share of the work that this node's cores do, which is 1/n only if all
 * cores are equally fast and start at the same time. Here pages lie on the nodes in turn by
 * default, as random first touch would put them on average. Any piece of data larger than n pages
 * has 1/n of its pages on each node, so 1/n of the accesses are local whichever core steals a task.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>

#include "tasks/repeated_runs.hpp"

namespace {

task_options requested;

/* Bytes per CPU that are enough for each thread to have tasks that other threads can steal. */
const size_t least_bytes_a_cpu = 256 * 1024;

/* Sets an int to the position of a name among two names. */
template <const char *const *names>
void set_choice(void *target, const char *option, const char *text) {
    for (int i = 0; i < 2; i++)
        if (strcmp(names[i], text) == 0) {
            *static_cast<int *>(target) = i;
            return;
        }
    refuse("%s takes %s or %s, not '%s'", option, names[0], names[1], text);
}

void set_program(void *target, const char *, const char *text) {
    for (int i = 0; i < (int)std::size(task_programs); i++)
        if (strcmp(task_programs[i].name, text) == 0) {
            *static_cast<int *>(target) = i;
            return;
        }
    refuse("--program takes stencil, matmul, mergesort or spmv, not '%s'", text);
}

const command_option command_options[] = {
    {"--program", "NAME",
     "stencil: five points, on a grid of whole numbers\n"
     "matmul: blocked matrix product\n"
     "mergesort: with other keys in each run\n"
     "spmv: irregular, sparse matrix times vector with power-law rows",
     set_program, &requested.program},
    {"--runtime", "NAME",
     "vanilla: one arena over all CPUs; any thread steals tasks from any other\n"
     "locality: one arena and one part of the data per node; tasks stay with their data and are "
     "stolen within the node only",
     set_choice<runtimes>, &requested.runtime},
    {"--cpus", "LIST", "one pinned thread on each of these CPUs (Linux list: 0-3,8)", set_cpus,
     &requested.cpus},
    {"--bytes", "N",
     "size of all data, at least 256 KiB per CPU; copies of data that several teams read (matmul, "
     "spmv) come on top of this",
     set_bytes, &requested.bytes},
    {"--data", "WHERE",
     "for the vanilla runtime: spread (default), pages lie on the nodes in turn, so that on n "
     "nodes "
     "1/n of the accesses are local whichever thread makes them; or one_node, the first CPU "
     "touches "
     "all pages, as a serial initialisation does, so that the accesses of this node's cores are "
     "local",
     set_choice<data_places>, &requested.data},
    MEMORY_NODES_OPTION(requested.run_options,
                        "nodes to keep the data on (default: the nodes of the "
                        "CPUs that have memory)"),
    PAGES_OPTION(requested.run_options),
    RUN_OPTIONS(requested.run_options,
                "duration of a sample, rounded up to whole runs (default 0.02)"),
};

void require_complete_options() {
    if (requested.program < 0 || requested.runtime < 0 || requested.cpus.count == 0)
        refuse("--program, --runtime, --cpus and --bytes are needed, see --help");
    const size_t least = (size_t)requested.cpus.count * least_bytes_a_cpu;
    if (requested.bytes < least)
        refuse("--bytes must be at least %zu, 256 KiB for each of %d CPUs, not %zu", least,
               requested.cpus.count, requested.bytes);
    if (requested.runtime == LOCALITY && requested.data >= 0)
        refuse("--data is for the vanilla runtime; locality has a part of the data on each node");
    require_allowed_cpus(requested.cpus);
}

bool contains(const index_list &list, int index) {
    return std::find(list.index, list.index + list.count, index) != list.index + list.count;
}

/* Sets the nodes, unless they were given, to those nodes of the CPUs that have memory. */
void set_default_nodes() {
    index_list &nodes = requested.run_options.placement.nodes;
    if (nodes.count > 0)
        return;
    const auto node_of_cpu = nodes_of_cpus();
    const auto with_memory = nodes_with_memory();
    nodes.index = static_cast<int *>(calloc(MOST_NODES, sizeof(int)));
    if (nodes.index == nullptr)
        refuse("out of memory");
    for (int node : with_memory)
        for (int i = 0; i < requested.cpus.count; i++)
            if (node_of_cpu[(size_t)requested.cpus.index[i]] == node && !contains(nodes, node))
                nodes.index[nodes.count++] = node;
    if (nodes.count == 0) /* none of the CPUs' nodes has memory */
        nodes.index[nodes.count++] = with_memory[0];
}

std::vector<team> teams_of() {
    const int *cpus = requested.cpus.index, *end = cpus + requested.cpus.count;
    if (requested.runtime == VANILLA)
        return {{-1, {cpus, end}}};
    const auto node_of_cpu = nodes_of_cpus();
    std::map<int, team> by_node;
    for (const int *cpu = cpus; cpu < end; cpu++) {
        const int node = node_of_cpu[(size_t)*cpu];
        if (!contains(requested.run_options.placement.nodes, node))
            refuse("CPU %d is on node %d, which has no memory or is not in --memory-nodes: the "
                   "locality runtime keeps data on the node of each CPU",
                   *cpu, node);
        team &own = by_node[node];
        own.node = node;
        own.cpus.push_back(*cpu);
    }
    std::vector<team> found;
    for (const auto &one : by_node)
        found.push_back(one.second);
    return found;
}

int run() {
    require_complete_options();
    set_default_nodes();
    const int exit_code = run_repeatedly(requested, teams_of());
    free_index_list(requested.cpus);
    free_index_list(requested.run_options.placement.nodes);
    return exit_code;
}

} // namespace

extern "C" const struct program program = {
    "chaosity-tasks",
    "--program NAME --runtime NAME --cpus LIST --bytes N [OPTION]...",
    "Runs a task-parallel program repeatedly, on a runtime that knows the NUMA nodes or one that "
    "does not.",
    command_options,
    "SIGTERM or SIGINT ends the measurement after the current run; then the result is checked, "
    "exactly. Prints JSON lines: one \"ready\", many \"sample\" (whole runs between two readings "
    "of "
    "CLOCK_MONOTONIC, in nanoseconds), one \"done\" with the locality: the share of block accesses "
    "whose block was on the node of the core that made them (a block is a page), over all runs "
    "including the run before the first sample. Exit code: 0 right result, 1 wrong result, 2 "
    "refused.",
    "merge sort of 1 GiB by 16 CPUs, with tasks kept on the nodes of their data\n"
    "  chaosity-tasks --program mergesort --runtime locality --cpus 0-15 --bytes 1073741824",
    nullptr,
    run,
};
