/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-traffic makes memory traffic at a chosen share of the highest rate that a set of PUs
 * reaches. chaosity-traffic runs beside a program whose latency under load is measured.
 *
 * The code for the sequence of a run and for the limited rate is in limited_rate_traffic.c, for
 * threads in thread_team.c, for the kernels in stream_kernels.c, and for their check in
 * array_validation.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/command_line.h"
#include "common/cpu_lists_and_pinning.h"
#include "common/errors.h"
#include "common/parse_numbers.h"
#include "common/run_options.h"
#include "streams/limited_rate_traffic.h"

static struct traffic_options options = {
    .stream_options.run_options = {.sample_seconds = 0.02, .max_seconds = 10},
    .share = 100,
    .peak_seconds = 0.2,
};

/* Returns the stream kernel of a traffic kernel; `run` is NULL for instruction sets without
 * non-temporal stores. */
static const struct stream *stream_of(const struct traffic_kernel *kernel) {
    int i = 0;
    while (strcmp(streams[i].name, kernel->name) != 0)
        i++;
    return &streams[i];
}

static void set_kernel(void *target, const char *option, const char *text) {
    (void)option;
    struct traffic_options *traffic = target;
    for (int i = 0; i < traffic_kernel_count; i++)
        if (strcmp(traffic_kernels[i].name, text) == 0)
            traffic->kernel = &traffic_kernels[i];
    if (traffic->kernel == NULL || strcmp(traffic->kernel->name, text) != 0)
        refuse("unknown kernel '%s'; --list prints all kernels", text);
    traffic->stream_options.stream = find_stream(text);
}

static void list_traffic_kernels(void *target, const char *option, const char *text) {
    (void)target, (void)option, (void)text;
    for (int i = 0; i < traffic_kernel_count; i++)
        if (stream_of(&traffic_kernels[i])->run[0] != NULL)
            puts(traffic_kernels[i].name);
    exit(EXIT_VALID);
}

static void set_share(void *target, const char *option, const char *text) {
    uint64_t share = parse_count(option, text, 100);
    if (share == 0)
        refuse("--share takes 1 to 100 per cent; for no traffic, do not run it");
    *(int *)target = (int)share;
}

static const struct command_option command_options[] = {
    {"--kernel", "NAME",
     "a kernel of --list, each with another share of reads; *_nt have non-temporal stores, the "
     "others ordinary stores",
     set_kernel, &options},
    STREAM_OPTIONS(options.stream_options),
    PAGES_OPTION(options.stream_options.run_options),
    {"--share", "P", "1 to 100 per cent of its own peak rate (default 100: unlimited)", set_share,
     &options.share},
    {"--peak-seconds", "S",
     "run at full speed for this time before the first sample. The peak rate is measured in the "
     "second half; the first half fills TLBs and caches, wakes cores and raises their clock "
     "(default 0.2)",
     set_seconds, &options.peak_seconds},
    {"--list", NULL, "print the kernels that this build offers, one per line", list_traffic_kernels,
     NULL},
    RUN_OPTIONS(options.stream_options.run_options, "least duration of a sample (default 0.02)"),
};

static int run(void) {
    require_stream_options(&options.stream_options);
    require_allowed_cpus(options.stream_options.cpus);
    int exit_code = run_traffic(&options);
    free_stream_options(options.stream_options);
    return exit_code;
}

const struct program program = {
    .name = "chaosity-traffic",
    .usage = "--kernel NAME --cpus LIST --array-bytes N [OPTION]...",
    .summary = "Makes memory traffic at an even rate, to run next to another measurement.",
    .options = command_options,
    .notes =
        "SIGTERM or SIGINT stops all threads after their current chunks, a few microseconds; then "
        "the contents are checked. Prints JSON lines: one \"ready\", many \"sample\" (bytes moved "
        "between two readings of CLOCK_MONOTONIC, in nanoseconds), one \"done\". Bytes are the "
        "memory's traffic, unlike in chaosity-bandwidth: a non-temporal store counts once, an "
        "ordinary store twice, since it fetches the line first. Exit code: 0 right result, 1 wrong "
        "result, 2 refused.",
    .example = "half of the traffic that CPUs 1 to 3 can make on node 0, for 5 seconds\n"
               "  chaosity-traffic --kernel read --cpus 1-3 --memory-nodes 0 \\\n"
               "      --array-bytes 1073741824 --pages thp --share 50 --max-seconds 5",
    .instruction_set = chosen_isa_name,
    .run = run,
};
