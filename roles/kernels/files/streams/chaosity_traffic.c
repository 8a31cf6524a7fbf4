/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-traffic: memory traffic at a chosen share of what a set of PUs can make, to be run
 * beside something whose latency under load is measured.
 *
 * rate_limiter.c has the course of a run, thread_team.c the threads, stream_kernels.c the kernels, validation.c what is
 * checked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/process.h"
#include "common/cpu_lists.h"
#include "streams/rate_limiter.h"
#include "streams/stream_options.h"
#include "common/command_line.h"
#include "streams/stream_kernels.h"

static const char help[] =
    "Usage: chaosity-traffic --kernel NAME --cpus LIST --array-bytes N [OPTION]...\n"
    "Makes memory traffic at an even rate, as a load beside another measurement.\n"
    "\n"
    "  --kernel NAME         one of --list, with another share of reads each; *_nt have\n"
    "                        non-temporal stores, others ordinary ones\n" JOB_HELP
    "  --pages KIND          base (default), thp (transparent huge pages), 2M or 1G (reserved\n"
    "                        huge pages); huge pages that are not there are an error\n"
    "  --share P             1 to 100 per cent of its own peak (default 100: not held back)\n"
    "  --peak-seconds S      run at full speed for so long before the first sample, of which the\n"
    "                        second half is the peak; the first half fills TLBs and caches,\n"
    "                        wakes cores and raises their clock (default 0.2)\n"
    "  --sample-seconds S    a sample lasts at least this long (default 0.02)\n"
    "  --max-seconds S       stop after this long with samples (default 10)\n"
    "  --barrier             after the ready line, wait for a line on stdin before starting;\n"
    "                        the end of input means stop\n"
    "  --list                print the kernels that this build offers, one a line\n"
    "  --version             print version (with a hash of the sources), compiler and\n"
    "                        instruction set\n"
    "  --help                print this\n"
    "\n"
    "SIGTERM or SIGINT stops all threads after the chunks that they are in, a few microseconds;\n"
    "then the contents are checked. Prints JSON lines: one \"ready\", many \"sample\" (bytes "
    "moved\n"
    "between two readings of CLOCK_MONOTONIC, in nanoseconds), one \"done\". Bytes are what the\n"
    "memory moves, other than in chaosity-bandwidth: a non-temporal store counts once and an\n"
    "ordinary one twice, since it fetches the line first. Exit code: 0 right result, 1 wrong\n"
    "result, 2 could not do what was asked.\n"
    "\n"
    "Example: half of the traffic that the CPUs 1 to 3 can make on node 0, for 5 seconds\n"
    "  chaosity-traffic --kernel read --cpus 1-3 --memory-nodes 0 --array-bytes 1073741824 \\\n"
    "      --pages thp --share 50 --max-seconds 5\n";

enum option_value { KERNEL = 1, SHARE, PEAK_SECONDS, LIST };

static const struct option options[] = {
    {"kernel", required_argument, NULL, KERNEL},
    JOB_OPTIONS,
    {"share", required_argument, NULL, SHARE},
    {"peak-seconds", required_argument, NULL, PEAK_SECONDS},
    {"list", no_argument, NULL, LIST},
    COMMON_OPTIONS,
    {NULL, 0, NULL, 0},
};

/* The stream of a mix; its `run` is NULL where the instruction set has no non-temporal store. */
static const struct stream *stream_of(const struct mix *mix) {
    int i = 0;
    while (strcmp(streams[i].name, mix->name) != 0)
        i++;
    return &streams[i];
}

static const struct mix *find_mix(const char *name) {
    for (int i = 0; i < mix_count; i++)
        if (strcmp(mixes[i].name, name) == 0)
            return &mixes[i];
    refuse("there is no kernel '%s', --list prints those there are", name);
}

static _Noreturn void list_mixes(void) {
    for (int i = 0; i < mix_count; i++)
        if (stream_of(&mixes[i])->run != NULL)
            puts(mixes[i].name);
    exit(EXIT_VALID);
}

static int parse_share(const char *text) {
    uint64_t share = parse_count("--share", text, 100);
    if (share == 0)
        refuse("--share takes 1 to 100 per cent; for no traffic, do not run it");
    return (int)share;
}

static void set_own_option(void *to, int option, const char *text) {
    struct injection *injection = to;
    if (set_job_option(&injection->job, option, text))
        return;
    switch ((enum option_value)option) {
    case KERNEL:
        injection->mix = find_mix(text);
        injection->job.stream = find_stream(text);
        return;
    case SHARE: injection->share = parse_share(text); return;
    case PEAK_SECONDS:
        injection->peak_seconds = parse_seconds("--peak-seconds", text, MOST_SECONDS);
        return;
    case LIST: list_mixes();
    }
}

static const struct program program = {
    .name = "chaosity-traffic",
    .help = help,
    .isa = stream_isa,
    .options = options,
    .set = set_own_option,
};

int main(int argc, char *argv[]) {
    struct injection injection = {
        .job.course = {.sample_seconds = 0.02, .max_seconds = 10},
        .share = 100,
        .peak_seconds = 0.2,
    };
    begin_program(argc, argv, &program, &injection.job.course, &injection);
    require_job(&injection.job);
    require_allowed_cpus(injection.job.cpus);
    int exit_code = inject(&injection);
    free_job(injection.job);
    return exit_code;
}
