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
 * stream_kernels.c has the kernels, validation.c what is checked, thread_team.c the threads, bandwidth_run.c the course
 * of a run; process.c, cpu_lists.c, placed_memory.c, command_line.c and spin_barrier.h know nothing of bandwidth.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/process.h"
#include "common/cpu_lists.h"
#include "streams/stream_options.h"
#include "streams/bandwidth_run.h"
#include "common/command_line.h"
#include "streams/stream_kernels.h"

static const char help[] =
    "Usage: chaosity-bandwidth --kernel NAME --cpus LIST --array-bytes N [OPTION]...\n"
    "Measures the memory bandwidth that CPUs get from memory nodes. A variant of STREAM.\n"
    "\n"
    "  --kernel NAME         one of --list; *_nt have non-temporal stores, others ordinary "
    "ones\n" JOB_HELP
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

enum option_value { KERNEL = 1, INTERLEAVE, WARMUP_PASSES, LIST };

static const struct option options[] = {
    {"kernel", required_argument, NULL, KERNEL},
    JOB_OPTIONS,
    {"interleave", no_argument, NULL, INTERLEAVE},
    {"warmup-passes", required_argument, NULL, WARMUP_PASSES},
    {"list", no_argument, NULL, LIST},
    COMMON_OPTIONS,
    {NULL, 0, NULL, 0},
};

static _Noreturn void list_streams(void) {
    for (int i = 0; i < stream_count; i++)
        if (streams[i].run != NULL)
            puts(streams[i].name);
    exit(EXIT_VALID);
}

static void set_own_option(void *to, int option, const char *text) {
    struct request *request = to;
    if (set_job_option(&request->job, option, text))
        return;
    switch ((enum option_value)option) {
    case KERNEL: request->job.stream = find_stream(text); return;
    case INTERLEAVE: request->job.course.placement.interleave = true; return;
    case WARMUP_PASSES:
        request->warmup_passes = parse_count("--warmup-passes", text, UINT32_MAX);
        return;
    case LIST: list_streams();
    }
}

static void require_whole(const struct request *request) {
    const struct placement *placement = &request->job.course.placement;
    require_job(&request->job);
    if (placement->interleave && placement->nodes.count == 0)
        refuse("--interleave needs --memory-nodes");
    require_allowed_cpus(request->job.cpus);
}

static const struct program program = {
    .name = "chaosity-bandwidth",
    .help = help,
    .isa = stream_isa,
    .options = options,
    .set = set_own_option,
};

int main(int argc, char *argv[]) {
    struct request request = {
        .job.course = {.sample_seconds = 0.02, .max_seconds = 10},
        .warmup_passes = 1,
    };
    begin_program(argc, argv, &program, &request.job.course, &request);
    require_whole(&request);
    int exit_code = measure(&request);
    free_job(request.job);
    return exit_code;
}
