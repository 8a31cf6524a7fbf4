/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-tasks: how much a runtime that knows the nodes gains over one that does not, by one set
 * of task-parallel programs (document 004, there on Cilk).
 *
 * task_stencil.cpp and its like have the programs, thread_arenas.cpp the runtimes, page_access_counts.cpp the indicator
 * of locality, repeated_runs.cpp the course of a run.
 *
 * Where a program that knows of no nodes has its data is chance: whoever touches a page first.
 * Document 004's lay on one node, written there by one thread; then the share of local accesses is
 * the share of the work that this node's cores do, 1/n only if all cores are equally fast and start
 * equally soon. Here pages lie on the nodes in turns by default, as random first touch would have
 * them on the average: any piece of data that is larger than n pages has 1/n of them on each node,
 * so whichever core steals whichever task, 1/n of its accesses are local.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tasks/repeated_runs.hpp"

namespace {

const char help[] =
    "Usage: chaosity-tasks --program NAME --runtime NAME --cpus LIST --bytes N [OPTION]...\n"
    "Runs a task-parallel program again and again, on a runtime that knows the NUMA nodes or not.\n"
    "\n"
    "  --program NAME        stencil: five points, on a grid of whole numbers\n"
    "                        matmul: blocked matrix product\n"
    "                        mergesort: of keys that are other ones in each run\n"
    "                        spmv: irregular, sparse matrix by vector with power-law rows\n"
    "  --runtime NAME        vanilla: one arena over all CPUs, any thread steals from any other\n"
    "                        locality: one arena a node, data in a part a node, tasks stay with\n"
    "                        their data and are stolen within the node\n"
    "  --cpus LIST           one pinned thread on each of these CPUs (Linux list: 0-3,8)\n"
    "  --bytes N             size of all data, at least 256 KiB a CPU; what a team only reads of\n"
    "                        the others' (matmul, spmv) it has a copy of, on top of this\n"
    "  --data WHERE          of vanilla: spread (default), pages lie on the nodes in turns, so that\n"
    "                        1/n of the accesses on n nodes are local whoever does them; or\n"
    "                        one_node, all pages are touched by the first CPU, as a serial\n"
    "                        initialisation does: local is what that node's cores do of the work\n"
    "  --memory-nodes LIST   nodes to keep the data on (default: the CPUs' nodes that have memory)\n"
    "  --pages KIND          base (default), thp (transparent huge pages), 2M or 1G (reserved\n"
    "                        huge pages); huge pages that are not there are an error\n"
    "  --sample-seconds S    a sample is as many whole runs as last this long (default 0.02)\n"
    "  --max-seconds S       stop measuring after this long (default 10)\n"
    "  --barrier             after the ready line, wait for a line on stdin before measuring;\n"
    "                        the end of input means stop\n"
    "  --version             print version (with a hash of the sources) and compiler\n"
    "  --help                print this\n"
    "\n"
    "SIGTERM or SIGINT ends the measurement after the run that is under way; then the result is\n"
    "checked, exactly. Prints JSON lines: one \"ready\", many \"sample\" (whole runs between two\n"
    "readings of CLOCK_MONOTONIC, in nanoseconds), one \"done\" with the share of block accesses\n"
    "whose block was on the node of the core that did it (locality; a block is a page), over all\n"
    "runs and the one before the first sample. Exit code: 0 right result, 1 wrong result, 2 could\n"
    "not do what was asked.\n"
    "\n"
    "Example: merge sort of 1 GiB by 16 CPUs with tasks kept on the nodes of their data\n"
    "  chaosity-tasks --program mergesort --runtime locality --cpus 0-15 --bytes 1073741824\n";

enum option_value { PROGRAM = 1, RUNTIME, CPUS, BYTES, DATA };

const option options[] = {
    {"program", required_argument, nullptr, PROGRAM},
    {"runtime", required_argument, nullptr, RUNTIME},
    {"cpus", required_argument, nullptr, CPUS},
    {"bytes", required_argument, nullptr, BYTES},
    {"data", required_argument, nullptr, DATA},
    COMMON_OPTIONS,
    {nullptr, 0, nullptr, 0},
};

/* Each thread gets tasks enough to be stolen from. */
const size_t least_bytes_a_cpu = 256 * 1024;

template <typename names> int choice(const char *option, const names &known, const char *text) {
    const char *const *found =
        std::find_if(std::begin(known), std::end(known),
                     [=](const char *name) { return strcmp(name, text) == 0; });
    if (found == std::end(known))
        refuse("%s takes %s or %s, not '%s'", option, known[0], known[1], text);
    return (int)(found - std::begin(known));
}

int program_named(const char *text) {
    for (int i = 0; i < (int)std::size(task_programs); i++)
        if (strcmp(task_programs[i].name, text) == 0)
            return i;
    refuse("--program takes stencil, matmul, mergesort or spmv, not '%s'", text);
}

void set_own_option(void *to, int option, const char *text) {
    request &asked = *static_cast<request *>(to);
    switch (static_cast<option_value>(option)) {
    case PROGRAM: asked.program = program_named(text); return;
    case RUNTIME: asked.runtime = choice("--runtime", runtimes, text); return;
    case CPUS: asked.cpus = parse_index_list("--cpus", text, MOST_CPUS); return;
    case BYTES: asked.bytes = parse_count("--bytes", text, MOST_BYTES); return;
    case DATA: asked.data = choice("--data", data_places, text); return;
    }
}

void require_whole(const request &asked) {
    if (asked.program < 0 || asked.runtime < 0 || asked.cpus.count == 0)
        refuse("--program, --runtime, --cpus and --bytes are needed, see --help");
    const size_t least = (size_t)asked.cpus.count * least_bytes_a_cpu;
    if (asked.bytes < least)
        refuse("--bytes must be at least %zu, 256 KiB for each of %d CPUs, not %zu", least,
               asked.cpus.count, asked.bytes);
    if (asked.runtime == LOCALITY && asked.data >= 0)
        refuse("--data is of the vanilla runtime; locality has a part of the data on each node");
    require_allowed_cpus(asked.cpus);
}

bool among(const index_list &list, int index) {
    return std::find(list.index, list.index + list.count, index) != list.index + list.count;
}

/* The nodes of the CPUs as far as they have memory, unless nodes were named. */
void complete_nodes(request &asked) {
    index_list &nodes = asked.how.placement.nodes;
    if (nodes.count > 0)
        return;
    const auto node_of_cpu = nodes_of_cpus();
    const auto with_memory = nodes_with_memory();
    nodes.index = static_cast<int *>(calloc(MOST_NODES, sizeof(int)));
    if (nodes.index == nullptr)
        refuse("out of memory");
    for (int node : with_memory)
        for (int i = 0; i < asked.cpus.count; i++)
            if (node_of_cpu[(size_t)asked.cpus.index[i]] == node && !among(nodes, node))
                nodes.index[nodes.count++] = node;
    if (nodes.count == 0) /* CPUs whose memory is all elsewhere */
        nodes.index[nodes.count++] = with_memory[0];
}

std::vector<team> teams_of(const request &asked) {
    const int *cpus = asked.cpus.index, *end = cpus + asked.cpus.count;
    if (asked.runtime == VANILLA)
        return {{-1, {cpus, end}}};
    const auto node_of_cpu = nodes_of_cpus();
    std::map<int, team> by_node;
    for (const int *cpu = cpus; cpu < end; cpu++) {
        const int node = node_of_cpu[(size_t)*cpu];
        if (!among(asked.how.placement.nodes, node))
            refuse("CPU %d is on node %d, which has no memory or is none of --memory-nodes: the "
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

const program this_program = {
    "chaosity-tasks", help, nullptr, options, set_own_option,
};

} // namespace

int main(int argc, char *argv[]) {
    request asked;
    asked.how.sample_seconds = 0.02;
    asked.how.max_seconds = 10;
    begin_program(argc, argv, &this_program, &asked.how, &asked);
    require_whole(asked);
    complete_nodes(asked);
    const int exit_code = repeat(asked, teams_of(asked));
    free_index_list(asked.cpus);
    free_index_list(asked.how.placement.nodes);
    return exit_code;
}
