/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-paths: what a set of PUs reads from each of several memory nodes while all paths to them
 * are busy.
 *
 * The reference program for weights of page placement: run on every worker node at once, each
 * node's rate is what this worker gets from it under full contention.
 *
 * round_robin_reads.c has the course of a run, thread_team.c the threads, validation.c what is checked.
 */
#include <stdio.h>
#include <stdlib.h>

#include "streams/stream_arrays.h"
#include "common/process.h"
#include "common/cpu_lists.h"
#include "common/command_line.h"
#include "streams/round_robin_reads.h"
#include "streams/stream_kernels.h"

static const char help[] =
    "Usage: chaosity-paths --cpus LIST --memory-nodes LIST --bytes N [OPTION]...\n"
    "Reads from several memory nodes in rotation and tells what each of them gave.\n"
    "\n"
    "  --cpus LIST           one pinned thread on each of these CPUs (Linux list: 0-3,8)\n"
    "  --memory-nodes LIST   the NUMA nodes to read from, each with a buffer bound to it\n"
    "  --bytes N             size of a node's buffer, of which each thread reads its own part: a\n"
    "                        multiple of 64, at least 64 a thread, and more than the caches hold\n"
    "  --turn-seconds S      how long a thread reads from a node before the next (default 0.002);\n"
    "                        at any time thread t is at node (t + turn) mod nodes of the list\n"
    "  --pages KIND          base (default), thp (transparent huge pages), 2M or 1G (reserved\n"
    "                        huge pages); huge pages that are not there are an error\n"
    "  --sample-seconds S    a sample is as many whole rotations as last this long (default 0.02)\n"
    "  --max-seconds S       stop after this long with samples (default 10)\n"
    "  --barrier             after the ready line, wait for a line on stdin before starting;\n"
    "                        the end of input means stop\n"
    "  --version             print version (with a hash of the sources), compiler and\n"
    "                        instruction set\n"
    "  --help                print this\n"
    "\n"
    "SIGTERM or SIGINT stops all threads after the chunks that they are in, a few microseconds;\n"
    "then the sums of all that was read are checked. Prints JSON lines: one \"ready\" (mapping:\n"
    "the address of each node's buffer), many \"sample\" (bytes read between two readings of\n"
    "CLOCK_MONOTONIC, in nanoseconds; bytes_by_node, and ns_by_node, the time that all threads\n"
    "together spent at the node), one \"done\". A node's rate for the set of CPUs is its bytes\n"
    "over its time, multiplied by the number of threads. Exit code: 0 right result, 1 wrong\n"
    "result, 2 could not do what was asked.\n"
    "\n"
    "Example: what the CPUs 0 to 3 read from two nodes, a GiB on each, for 2 seconds\n"
    "  chaosity-paths --cpus 0-3 --memory-nodes 0,1 --bytes 1073741824 --pages thp \\\n"
    "      --max-seconds 2\n";

enum option_value { CPUS = 1, BYTES, TURN_SECONDS };

static const struct option options[] = {
    {"cpus", required_argument, NULL, CPUS},
    {"bytes", required_argument, NULL, BYTES},
    {"turn-seconds", required_argument, NULL, TURN_SECONDS},
    COMMON_OPTIONS,
    {NULL, 0, NULL, 0},
};

static void set_own_option(void *to, int option, const char *text) {
    struct rotation *rotation = to;
    switch ((enum option_value)option) {
    case CPUS: rotation->cpus = parse_index_list("--cpus", text, MOST_CPUS); return;
    case BYTES: rotation->buffer_bytes = parse_count("--bytes", text, MOST_BYTES); return;
    case TURN_SECONDS:
        rotation->turn_seconds = parse_seconds("--turn-seconds", text, MOST_SECONDS);
        return;
    }
}

static const struct program program = {
    .name = "chaosity-paths",
    .help = help,
    .isa = stream_isa,
    .options = options,
    .set = set_own_option,
};

int main(int argc, char *argv[]) {
    struct rotation rotation = {
        .turn_seconds = 0.002,
        .course = {.sample_seconds = 0.02, .max_seconds = 10},
    };
    begin_program(argc, argv, &program, &rotation.course, &rotation);
    if (rotation.cpus.count == 0 || rotation.course.placement.nodes.count == 0 ||
        rotation.buffer_bytes == 0)
        refuse("--cpus, --memory-nodes and --bytes (above 0) are needed, see --help");
    require_array_bytes("--bytes", rotation.buffer_bytes, rotation.cpus.count);
    require_allowed_cpus(rotation.cpus);
    int exit_code = rotate(&rotation);
    free_index_list(rotation.cpus);
    free_index_list(rotation.course.placement.nodes);
    return exit_code;
}
