/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-paths measures the bandwidth that a set of PUs gets from each of several memory nodes
 * while all paths to these nodes are busy.
 *
 * chaosity-paths is the reference program for weights of page placement: if it runs on every worker
 * node at once, the rate of a node is the bandwidth that this worker gets from the node under full
 * contention.
 *
 * The code for the sequence of a run is in round_robin_reads.c, for threads in thread_team.c.
 */
#include "common/command_line.h"
#include "common/cpu_lists_and_pinning.h"
#include "common/errors.h"
#include "common/run_options.h"
#include "streams/round_robin_reads.h"
#include "streams/stream_arrays.h"
#include "streams/stream_options.h"

static struct round_robin_options options = {
    .turn_seconds = 0.002,
    .run_options = {.sample_seconds = 0.02, .max_seconds = 10},
};

static const struct command_option command_options[] = {
    CPUS_OPTION(options.cpus),
    MEMORY_NODES_OPTION(options.run_options,
                        "the NUMA nodes to read from, each with a buffer bound to it"),
    {"--bytes", "N",
     "size of each node's buffer, of which each thread reads its own part: a multiple of 64, at "
     "least 64 per thread, and more than the caches hold",
     set_bytes, &options.buffer_bytes},
    {"--turn-seconds", "S",
     "how long a thread reads from a node before the next (default 0.002); at any time thread t "
     "reads from node number (t + turn) mod nodes of the list",
     set_seconds, &options.turn_seconds},
    PAGES_OPTION(options.run_options),
    ISA_OPTION,
    RUN_OPTIONS(options.run_options,
                "duration of a sample, rounded up to whole rounds over all nodes (default 0.02)"),
};

static int run(void) {
    const struct index_list nodes = options.run_options.placement.nodes;
    if (options.cpus.count == 0 || nodes.count == 0 || options.buffer_bytes == 0)
        refuse("--cpus, --memory-nodes and --bytes (above 0) are needed, see --help");
    require_array_bytes("--bytes", options.buffer_bytes, options.cpus.count);
    require_allowed_cpus(options.cpus);
    int exit_code = run_round_robin_reads(&options);
    free_index_list(options.cpus);
    free_index_list(nodes);
    return exit_code;
}

const struct program program = {
    .name = "chaosity-paths",
    .usage = "--cpus LIST --memory-nodes LIST --bytes N [OPTION]...",
    .summary = "Reads from several memory nodes in turn and prints the bytes and time of each.",
    .options = command_options,
    .notes =
        "SIGTERM or SIGINT stops all threads after their current chunks, a few microseconds; then "
        "the sums of all that was read are checked. Prints JSON lines: one \"ready\" (mapping: the "
        "address of each node's buffer), many \"sample\" (bytes read between two readings of "
        "CLOCK_MONOTONIC, in nanoseconds; bytes_by_node; ns_by_node, the time that all threads "
        "together spent on the node), one \"done\". The rate of a node for the set of CPUs is its "
        "bytes divided by its time, multiplied by the number of threads. Exit code: 0 right "
        "result, "
        "1 wrong result, 2 refused.",
    .example = "CPUs 0 to 3 read from two nodes, 1 GiB on each, for 2 seconds\n"
               "  chaosity-paths --cpus 0-3 --memory-nodes 0,1 --bytes 1073741824 --pages thp \\\n"
               "      --max-seconds 2",
    .instruction_set = chosen_isa_name,
    .run = run,
};
