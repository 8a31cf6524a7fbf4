/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-traffic: memory traffic at a chosen share of what a set of PUs can make, to be run
 * beside something whose latency under load is measured.
 *
 * inject.c has the course of a run, streams.c the kernels, contents.c what is checked.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "common.h"
#include "inject.h"

static const char help[] =
    "Usage: chaosity-traffic --kernel NAME --cpus LIST --array-bytes N [OPTION]...\n"
    "Makes memory traffic at an even rate, as a load beside another measurement.\n"
    "\n"
    "  --kernel NAME         one of --list, with another share of reads each; *_nt have\n"
    "                        non-temporal stores, others ordinary ones\n"
    "  --cpus LIST           one pinned thread on each of these CPUs (Linux list: 0-3,8)\n"
    "  --array-bytes N       size of each array: a multiple of 64, at least 64 a thread\n"
    "  --memory-nodes LIST   bind the pages to these NUMA nodes (default: a page is where it is\n"
    "                        first touched, which each thread does for its part)\n"
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

/* clang-format off */
enum option_value { /* values for getopt_long(); there are no short options */
    KERNEL = 1, CPUS, ARRAY_BYTES, MEMORY_NODES, PAGES, SHARE, PEAK_SECONDS, SAMPLE_SECONDS,
    MAX_SECONDS, BARRIER, LIST, VERSION_OPTION, HELP
};
/* clang-format on */

static const struct option options[] = {
    {"kernel", required_argument, NULL, KERNEL},
    {"cpus", required_argument, NULL, CPUS},
    {"array-bytes", required_argument, NULL, ARRAY_BYTES},
    {"memory-nodes", required_argument, NULL, MEMORY_NODES},
    {"pages", required_argument, NULL, PAGES},
    {"share", required_argument, NULL, SHARE},
    {"peak-seconds", required_argument, NULL, PEAK_SECONDS},
    {"sample-seconds", required_argument, NULL, SAMPLE_SECONDS},
    {"max-seconds", required_argument, NULL, MAX_SECONDS},
    {"barrier", no_argument, NULL, BARRIER},
    {"list", no_argument, NULL, LIST},
    {"version", no_argument, NULL, VERSION_OPTION},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

/* Limits that only keep nonsense from overflowing: 1 PiB, a year. */
static const uint64_t most_bytes = (uint64_t)1 << 50;
static const double most_seconds = 366 * 86400.0;

/* The stream of a mix; its `run` is NULL where the instruction set has no non-temporal store. */
static const struct stream *stream_of(const struct mix *mix) {
    int i = 0;
    while (strcmp(streams[i].name, mix->name) != 0)
        i++;
    return &streams[i];
}

static void set_kernel(struct injection *injection, const char *name) {
    for (int i = 0; i < mix_count; i++) {
        if (strcmp(mixes[i].name, name) != 0)
            continue;
        injection->mix = &mixes[i];
        injection->stream = stream_of(&mixes[i]);
        if (injection->stream->run == NULL)
            refuse("the kernel %s is not offered: the instruction set this was built for (%s) "
                   "has no non-temporal store",
                   name, stream_isa);
        return;
    }
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

static void set_option(struct injection *injection, int option, const char *text) {
    switch ((enum option_value)option) {
    case KERNEL: set_kernel(injection, text); return;
    case CPUS: injection->cpus = parse_index_list("--cpus", text, MOST_CPUS); return;
    case ARRAY_BYTES:
        injection->array_bytes = parse_count("--array-bytes", text, most_bytes);
        return;
    case MEMORY_NODES:
        injection->placement.nodes = parse_index_list("--memory-nodes", text, MOST_NODES);
        return;
    case PAGES: injection->placement.pages = parse_page_kind("--pages", text); return;
    case SHARE: injection->share = parse_share(text); return;
    case PEAK_SECONDS:
        injection->peak_seconds = parse_seconds("--peak-seconds", text, most_seconds);
        return;
    case SAMPLE_SECONDS:
        injection->sample_seconds = parse_seconds("--sample-seconds", text, most_seconds);
        return;
    case MAX_SECONDS:
        injection->max_seconds = parse_seconds("--max-seconds", text, most_seconds);
        return;
    case BARRIER: injection->wait_for_start = true; return;
    case LIST: list_mixes();
    case VERSION_OPTION:
        printf("chaosity-traffic %s (%s, %s)\n", VERSION, COMPILER, stream_isa);
        exit(EXIT_VALID);
    case HELP: fputs(help, stdout); exit(EXIT_VALID);
    }
}

int main(int argc, char *argv[]) {
    struct injection injection = {
        .started_ns = monotonic_ns(),
        .share = 100,
        .peak_seconds = 0.2,
        .sample_seconds = 0.02,
        .max_seconds = 10,
    };
    set_program_name("chaosity-traffic");
    install_signal_handlers();
    setvbuf(stdout, NULL, _IOLBF, 1 << 16); /* a line is seen as soon as it is there */

    opterr = 0; /* one sentence, this program's own */
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == '?')
            refuse("'%s' is no option or lacks its value, see --help", argv[optind - 1]);
        set_option(&injection, option, optarg);
    }
    if (optind < argc)
        refuse("'%s' belongs to no option, see --help", argv[optind]);
    if (injection.mix == NULL || injection.cpus.count == 0 || injection.array_bytes == 0)
        refuse("--kernel, --cpus and --array-bytes (above 0) are needed, see --help");
    require_array_bytes(injection.array_bytes, injection.cpus.count);
    require_allowed_cpus(injection.cpus);
    int exit_code = inject(&injection);
    free_index_list(injection.cpus);
    free_index_list(injection.placement.nodes);
    return exit_code;
}
