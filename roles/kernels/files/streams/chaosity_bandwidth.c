/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-bandwidth measures the memory bandwidth that a set of PUs gets from a set of memory
 * nodes.
 *
 * The program is a variant of STREAM (John D. McCalpin) with other code, but with the same four
 * kernels and the same way to count bytes. The differences are: one kernel per run, a time limit
 * instead of a number of passes, samples with time stamps so that programs that run together can be
 * compared over the same window, whole numbers as contents so that the check is exact, placement by
 * system calls, and kernels with non-temporal stores. Results must be labelled "variant of STREAM".
 *
 * The code for the kernels is in stream_kernels.c, for their check in array_validation.c, for
 * threads in thread_team.c, and for the sequence of a run in timed_passes.c.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/command_line.h"
#include "common/cpu_lists_and_pinning.h"
#include "common/errors.h"
#include "common/placed_memory.h"
#include "common/run_options.h"
#include "streams/bandwidth_run.h"

static struct bandwidth_options options = {
    .stream_options.run_options = {.sample_seconds = 0.02, .max_seconds = 10},
    .warmup_passes = 1,
};

static void set_kernel(void *target, const char *option, const char *text) {
    (void)option;
    *(const struct stream **)target = find_stream(text);
}

static void list_streams(void *target, const char *option, const char *text) {
    (void)target, (void)option, (void)text;
    for (int i = 0; i < stream_count; i++)
        if (streams[i].run[0] != NULL)
            puts(streams[i].name);
    exit(EXIT_VALID);
}

static const struct command_option command_options[] = {
    {"--kernel", "NAME",
     "a kernel of --list; *_nt have non-temporal stores, the others ordinary stores", set_kernel,
     &options.stream_options.stream},
    STREAM_OPTIONS(options.stream_options),
    {"--interleave", NULL,
     "put pages on the nodes in turn instead of filling one node after another", set_flag,
     &options.stream_options.run_options.placement.interleave},
    PAGES_OPTION(options.stream_options.run_options),
    WARMUP_PASSES_OPTION(options.warmup_passes),
    {"--list", NULL, "print the kernels that this build offers, one per line", list_streams, NULL},
    RUN_OPTIONS(options.stream_options.run_options,
                "duration of a sample, rounded up to whole passes (default 0.02)"),
};

static int run(void) {
    const struct placement *placement = &options.stream_options.run_options.placement;
    require_stream_options(&options.stream_options);
    if (placement->interleave && placement->nodes.count == 0)
        refuse("--interleave needs --memory-nodes");
    require_allowed_cpus(options.stream_options.cpus);
    int exit_code = run_bandwidth(&options);
    free_stream_options(options.stream_options);
    return exit_code;
}

const struct program program = {
    .name = "chaosity-bandwidth",
    .usage = "--kernel NAME --cpus LIST --array-bytes N [OPTION]...",
    .summary =
        "Measures the memory bandwidth that CPUs get from memory nodes. A variant of STREAM.",
    .options = command_options,
    .notes =
        "SIGTERM or SIGINT ends the measurement after the current pass; then the result is "
        "checked. Prints JSON lines: one \"ready\", many \"sample\" (bytes moved between two "
        "readings of CLOCK_MONOTONIC, in nanoseconds), one \"done\". Bytes count as in STREAM: "
        "each "
        "array that is read or written counts once per pass; the line that an ordinary store "
        "fetches first (write-allocate) does not count. Bandwidth is bytes / (end_ns - begin_ns). "
        "The last sample may be shorter. Exit code: 0 right result, 1 wrong result, 2 refused.",
    .example = "triad over 3 x 1 GiB of node 1 by CPUs 0 to 3, for 2 seconds\n"
               "  chaosity-bandwidth --kernel triad_nt --cpus 0-3 --memory-nodes 1 \\\n"
               "      --array-bytes 1073741824 --pages thp --max-seconds 2",
    .instruction_set = chosen_isa_name,
    .run = run,
};
