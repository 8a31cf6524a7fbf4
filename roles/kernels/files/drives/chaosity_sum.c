/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-sum measures how fast a set of PUs sums an array of integers that lies in memory, or
 * that is read from drives while it is summed.
 *
 * The sequence of a run is in array_sum_run.c, the code for threads in thread_team.c, for the
 * kernel in integer_sum.c, for the array on drives in drive_stripes.c, and for reading in
 * io_uring_reads.c.
 */
#include <stdbool.h>
#include <string.h>

#include "common/command_line.h"
#include "common/cpu_lists_and_pinning.h"
#include "common/errors.h"
#include "common/parse_numbers.h"
#include "common/placed_memory.h"
#include "common/run_options.h"
#include "drives/array_sum_run.h"
#include "drives/integer_sum.h"
#include "drives/io_uring_reads.h"

/* Limits of io_uring for the entries of a ring (IORING_MAX_ENTRIES) and for the bytes of one
 * read. */
enum { MOST_QUEUE_DEPTH = 32768, MOST_CHUNK_BYTES = 1 << 30 };

/* The trial of instruction sets calls this function, in which sum_words() uses the instruction set
 * that is tried. */
static double sum_array(double *a, const double *b, const double *c, size_t count, double scalar) {
    (void)b, (void)c, (void)scalar;
    return (double)sum_words((uint64_t *)(void *)a, count);
}

static const struct stream sum_stream = {"sum", READ, 1, false, {[0 ... ISAS - 1] = sum_array}};

static struct sum_options options = {
    .stream_options = {.stream = &sum_stream,
                       .run_options = {.sample_seconds = 0.02, .max_seconds = 10}},
    .stripes.chunk_bytes = 2 << 20,
    .queue_depth = 32,
    .warmup_seconds = 0.1,
};
static struct index_list buffer_nodes;

static void set_drive(void *target, const char *option, const char *text) {
    (void)option;
    add_drive(target, text);
}

static void set_drives_from(void *target, const char *option, const char *text) {
    (void)option;
    add_drives_from(target, text);
}

static void set_queue_depth(void *target, const char *option, const char *text) {
    *(int *)target = (int)parse_count(option, text, MOST_QUEUE_DEPTH);
    if (*(int *)target == 0)
        refuse("--queue-depth must be at least 1");
}

static void set_chunk_bytes(void *target, const char *option, const char *text) {
    size_t bytes = parse_count(option, text, MOST_CHUNK_BYTES);
    if (bytes == 0 || bytes % LINE_BYTES != 0)
        refuse("--chunk-bytes must be a multiple of %d, not %zu", LINE_BYTES, bytes);
    *(size_t *)target = bytes;
}

static void set_yes_or_no(void *target, const char *option, const char *text) {
    if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
        refuse("%s takes yes or no, not '%s'", option, text);
    *(bool *)target = strcmp(text, "yes") == 0;
}

static const struct command_option command_options[] = {
    STREAM_OPTIONS(options.stream_options),
    PAGES_OPTION(options.stream_options.run_options),
    {"--drive", "PATH",
     "a block device or a file, opened read-only. Repeat it for each further drive. With k drives "
     "chunk i lies at offset (i / k) * chunk on drive i mod k",
     set_drive, &options.stripes},
    {"--drives-from", "FILE",
     "a file with a path per line, each as with --drive; an empty file means that the array is in "
     "memory",
     set_drives_from, &options.stripes},
    {"--chunk-bytes", "N", "size of one read, which bypasses the page cache (default 2097152)",
     set_chunk_bytes, &options.stripes.chunk_bytes},
    {"--queue-depth", "N",
     "number of reads in flight per drive, of all threads together (default 32); a thread without "
     "a read sleeps",
     set_queue_depth, &options.queue_depth},
    {"--registered-buffers", "yes|no",
     "let the kernel map the buffers once instead of for every read (default no)", set_yes_or_no,
     &options.registered},
    {"--buffer-nodes", "LIST",
     "bind the buffers of an array on drives to these NUMA nodes. With drives --array-bytes is a "
     "multiple of --chunk-bytes; 0 (default) means the capacity of the smallest drive times the "
     "number of drives",
     set_nodes, &buffer_nodes},
    {"--warmup-seconds", "S", "sum for this time before the first sample (default 0.1)",
     set_seconds, &options.warmup_seconds},
    RUN_OPTIONS(options.stream_options.run_options, "least duration of a sample (default 0.02)"),
};

static void require_complete_options(void) {
    struct stream_options *stream_options = &options.stream_options;
    struct placement *placement = &stream_options->run_options.placement;
    if (options.stripes.count == 0) {
        if (buffer_nodes.count > 0)
            refuse("--buffer-nodes needs --drive; an array in memory takes --memory-nodes");
        if (stream_options->cpus.count == 0 || stream_options->array_bytes == 0)
            refuse("--cpus and --array-bytes (above 0) or --drive are needed, see --help");
        require_stream_options(stream_options);
        return;
    }
    if (placement->nodes.count > 0)
        refuse("--memory-nodes is for an array in memory; with drives use --buffer-nodes");
    if (stream_options->cpus.count == 0)
        refuse("--cpus is needed, see --help");
    placement->nodes = buffer_nodes;
    require_io_uring();
    open_stripes(&options.stripes, stream_options->array_bytes);
}

static int run(void) {
    require_complete_options();
    require_allowed_cpus(options.stream_options.cpus);
    int exit_code = run_sum(&options);
    close_stripes(&options.stripes);
    free_stream_options(options.stream_options);
    return exit_code;
}

const struct program program = {
    .name = "chaosity-sum",
    .usage = "--cpus LIST --array-bytes N [OPTION]...\n--cpus LIST --drive PATH... [OPTION]...",
    .summary = "Sums an array of 64-bit integers, again and again, that is in memory or striped "
               "over drives.",
    .options = command_options,
    .notes =
        "Each thread reads with an io_uring of its own and sums a chunk as soon as it has arrived, "
        "while other reads are in flight. Chunks are read in the order of each drive.\n\n"
        "Check: in memory the sum of every pass must be exactly that of the contents, which change "
        "from pass to pass. The contents of drives are unknown: at the end some chunks of each "
        "thread, chosen at random, are read again with ordinary reads and must have the same sum, "
        "so no other program may write to them meanwhile. A read that fails or returns less than a "
        "chunk ends the run with a wrong result.\n\n"
        "SIGTERM or SIGINT stops it. Prints JSON lines: one \"ready\", many \"sample\" (bytes "
        "summed "
        "between two readings of CLOCK_MONOTONIC, in nanoseconds), one \"done\". Exit code: 0 "
        "right "
        "result, 1 wrong result, 2 refused.",
    .example = "from two drives by CPUs 0 to 7, with the buffers on node 0\n"
               "  chaosity-sum --cpus 0-7 --drive /dev/nvme0n1 --drive /dev/nvme1n1 \\\n"
               "      --buffer-nodes 0 --pages thp --max-seconds 5",
    .instruction_set = chosen_isa_name,
    .run = run,
};
