/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-bandwidth: the memory bandwidth that a set of PUs gets from a set of memory nodes.
 *
 * A variant of STREAM (John D. McCalpin): the same four kernels and the same way to count bytes,
 * own code. Differences: one kernel a run, time instead of a number of passes, samples with time
 * stamps so that loads that run together can be compared over the same window, whole numbers as
 * contents so that the check is exact, placement by system calls, and non-temporal stores as
 * kernels of their own. Results must be labelled "variant of STREAM".
 *
 * streams.c has the kernels, contents.c what is checked, measure.c the course of a run; common.c,
 * cpus.c, memory.c and barrier.h know nothing of bandwidth.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "common.h"
#include "measure.h"

static const char help[] =
    "Usage: chaosity-bandwidth --kernel NAME --cpus LIST --array-bytes N [OPTION]...\n"
    "Measures the memory bandwidth that CPUs get from memory nodes. A variant of STREAM.\n"
    "\n"
    "  --kernel NAME         one of --list; *_nt have non-temporal stores, others ordinary ones\n"
    "  --cpus LIST           one pinned thread on each of these CPUs (Linux list: 0-3,8)\n"
    "  --array-bytes N       size of each array: a multiple of 64, at least 64 a thread\n"
    "  --memory-nodes LIST   bind the pages to these NUMA nodes (default: a page is where it is\n"
    "                        first touched, which each thread does for its part)\n"
    "  --interleave          spread the pages over the nodes instead of filling them in turn\n"
    "  --pages KIND          base (default), thp (transparent huge pages), 2M or 1G (reserved\n"
    "                        huge pages); huge pages that are not there are an error\n"
    "  --sample-seconds S    a sample is as many whole passes as last this long (default 0.02)\n"
    "  --max-seconds S       stop measuring after this long (default 10)\n"
    "  --warmup-passes N     passes before the first sample (default 1: the first pass after\n"
    "                        set-up fills TLBs and caches, wakes cores and raises their clock)\n"
    "  --barrier             after the ready line, wait for a line on stdin before measuring;\n"
    "                        the end of input means stop\n"
    "  --list                print the kernels that this build offers, one a line\n"
    "  --version             print version (with a hash of the sources), compiler and\n"
    "                        instruction set\n"
    "  --help                print this\n"
    "\n"
    "SIGTERM or SIGINT ends the measurement after the pass that runs; then the result is\n"
    "checked. Prints JSON lines: one \"ready\", many \"sample\" (bytes moved between two readings\n"
    "of CLOCK_MONOTONIC, in nanoseconds), one \"done\". Bytes count as in STREAM: each array that\n"
    "is read or written counts once a pass; what a store fetches first (write-allocate) does\n"
    "not. Bandwidth is bytes / (end_ns - begin_ns). The last sample may be shorter, when it was\n"
    "stopped. Exit code: 0 right result, 1 wrong result, 2 could not do what was asked.\n"
    "\n"
    "Example: triad over 3 x 1 GiB of node 1, by the CPUs 0 to 3, for 2 seconds\n"
    "  chaosity-bandwidth --kernel triad_nt --cpus 0-3 --memory-nodes 1 \\\n"
    "      --array-bytes 1073741824 --pages thp --max-seconds 2\n";

/* clang-format off */
enum option_value { /* values for getopt_long(); there are no short options */
    KERNEL = 1, CPUS, ARRAY_BYTES, MEMORY_NODES, INTERLEAVE, PAGES, SAMPLE_SECONDS, MAX_SECONDS,
    WARMUP_PASSES, BARRIER, LIST, VERSION_OPTION, HELP
};
/* clang-format on */

static const struct option options[] = {
    {"kernel", required_argument, NULL, KERNEL},
    {"cpus", required_argument, NULL, CPUS},
    {"array-bytes", required_argument, NULL, ARRAY_BYTES},
    {"memory-nodes", required_argument, NULL, MEMORY_NODES},
    {"interleave", no_argument, NULL, INTERLEAVE},
    {"pages", required_argument, NULL, PAGES},
    {"sample-seconds", required_argument, NULL, SAMPLE_SECONDS},
    {"max-seconds", required_argument, NULL, MAX_SECONDS},
    {"warmup-passes", required_argument, NULL, WARMUP_PASSES},
    {"barrier", no_argument, NULL, BARRIER},
    {"list", no_argument, NULL, LIST},
    {"version", no_argument, NULL, VERSION_OPTION},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

/* Limits that only keep nonsense from overflowing: 1 PiB, a year. */
static const uint64_t most_bytes = (uint64_t)1 << 50;
static const double most_seconds = 366 * 86400.0;

static const struct stream *find_stream(const char *name) {
    for (int i = 0; i < stream_count; i++) {
        if (strcmp(streams[i].name, name) != 0)
            continue;
        if (streams[i].run == NULL)
            refuse("the kernel %s is not offered: the instruction set this was built for (%s) "
                   "has no non-temporal store",
                   name, stream_isa);
        return &streams[i];
    }
    refuse("there is no kernel '%s', --list prints those there are", name);
}

static _Noreturn void list_streams(void) {
    for (int i = 0; i < stream_count; i++)
        if (streams[i].run != NULL)
            puts(streams[i].name);
    exit(EXIT_VALID);
}

static void set_option(struct request *request, int option, const char *text) {
    switch ((enum option_value)option) {
    case KERNEL: request->stream = find_stream(text); return;
    case CPUS: request->cpus = parse_index_list("--cpus", text, MOST_CPUS); return;
    case ARRAY_BYTES: request->array_bytes = parse_count("--array-bytes", text, most_bytes); return;
    case MEMORY_NODES:
        request->placement.nodes = parse_index_list("--memory-nodes", text, MOST_NODES);
        return;
    case INTERLEAVE: request->placement.interleave = true; return;
    case PAGES: request->placement.pages = parse_page_kind("--pages", text); return;
    case SAMPLE_SECONDS:
        request->sample_seconds = parse_seconds("--sample-seconds", text, most_seconds);
        return;
    case MAX_SECONDS:
        request->max_seconds = parse_seconds("--max-seconds", text, most_seconds);
        return;
    case WARMUP_PASSES:
        request->warmup_passes = parse_count("--warmup-passes", text, UINT32_MAX);
        return;
    case BARRIER: request->wait_for_start = true; return;
    case LIST: list_streams();
    case VERSION_OPTION:
        printf("chaosity-bandwidth %s (%s, %s)\n", VERSION, COMPILER, stream_isa);
        exit(EXIT_VALID);
    case HELP: fputs(help, stdout); exit(EXIT_VALID);
    }
}

static void require_whole(const struct request *request) {
    if (request->stream == NULL || request->cpus.count == 0 || request->array_bytes == 0)
        refuse("--kernel, --cpus and --array-bytes (above 0) are needed, see --help");
    require_array_bytes(request->array_bytes, request->cpus.count);
    if (request->placement.interleave && request->placement.nodes.count == 0)
        refuse("--interleave needs --memory-nodes");
    require_allowed_cpus(request->cpus);
}

int main(int argc, char *argv[]) {
    struct request request = {
        .started_ns = monotonic_ns(),
        .sample_seconds = 0.02,
        .max_seconds = 10,
        .warmup_passes = 1,
    };
    set_program_name("chaosity-bandwidth");
    install_signal_handlers();
    setvbuf(stdout, NULL, _IOLBF, 1 << 16); /* a line is seen as soon as it is there */

    opterr = 0; /* one sentence, this program's own */
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == '?')
            refuse("'%s' is no option or lacks its value, see --help", argv[optind - 1]);
        set_option(&request, option, optarg);
    }
    if (optind < argc)
        refuse("'%s' belongs to no option, see --help", argv[optind]);
    require_whole(&request);
    int exit_code = measure(&request);
    free_index_list(request.cpus);
    free_index_list(request.placement.nodes);
    return exit_code;
}
