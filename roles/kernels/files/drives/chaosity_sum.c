/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-sum: how fast a set of PUs sums an array of integers that is in memory, or that comes
 * from drives while it is summed.
 *
 * sum_run.c has the course of a run, thread_team.c the threads, integer_sum.c the kernel, drive_stripes.c the array on
 * drives, io_uring_reads.c the reading.
 */
#include <stdbool.h>
#include <string.h>

#include "common/process.h"
#include "common/cpu_lists.h"
#include "streams/stream_options.h"
#include "common/command_line.h"
#include "drives/io_uring_reads.h"
#include "drives/drive_stripes.h"
#include "drives/sum_run.h"

static const char help[] =
    "Usage: chaosity-sum --cpus LIST --array-bytes N [OPTION]...\n"
    "       chaosity-sum --cpus LIST --drive PATH... [OPTION]...\n"
    "Sums an array of 64-bit integers, round and round, that is in memory or striped over "
    "drives.\n"
    "\n" JOB_HELP
    "  --pages KIND          base (default), thp (transparent huge pages), 2M or 1G (reserved\n"
    "                        huge pages); huge pages that are not there are an error\n"
    "  --drive PATH          a block device or a file, only read; again for each further one.\n"
    "                        With k of them chunk i is at (i / k) * chunk on drive i mod k\n"
    "  --drives-from FILE    the same, a path a line; with none the array is in memory\n"
    "  --chunk-bytes N       what is read at once, past the page cache (default 2097152)\n"
    "  --queue-depth N       chunks on their way from each drive, by all threads together\n"
    "                        (default 32); a thread for which none is left sleeps\n"
    "  --registered-buffers yes|no\n"
    "                        let the kernel map the buffers once instead of for every read\n"
    "                        (default no)\n"
    "  --buffer-nodes LIST   as --memory-nodes, for the buffers of an array on drives, of which\n"
    "                        --array-bytes is a multiple of --chunk-bytes, or 0 (default): as\n"
    "                        much as the smallest drive holds, times their number\n"
    "  --warmup-seconds S    sum for so long before the first sample (default 0.1)\n"
    "  --sample-seconds S    a sample lasts at least this long (default 0.02)\n"
    "  --max-seconds S       stop after this long with samples (default 10)\n"
    "  --barrier             after the ready line, wait for a line on stdin before starting;\n"
    "                        the end of input means stop\n"
    "  --version             print version (with a hash of the sources), compiler and\n"
    "                        instruction set\n"
    "  --help                print this\n"
    "\n"
    "Each thread reads with a ring of its own (io_uring) and sums a chunk as soon as it is\n"
    "there, while others are on their way. Chunks are taken in the order of each drive.\n"
    "\n"
    "How it is checked: in memory the sum of every pass must be exactly that of the contents,\n"
    "which change from pass to pass. What lies on drives is not known: some chunks of each\n"
    "thread, chosen at random, are read again at the end, by plain reads, and must have the sum\n"
    "that they had, so nobody may write to them meanwhile. A read that fails or gives less than\n"
    "a chunk ends the run, and its result is wrong.\n"
    "\n"
    "SIGTERM or SIGINT stops it. Prints JSON lines: one \"ready\", many \"sample\" (bytes summed\n"
    "between two readings of CLOCK_MONOTONIC, in nanoseconds), one \"done\". Exit code: 0 right\n"
    "result, 1 wrong result, 2 could not do what was asked.\n"
    "\n"
    "Example: from two drives by the CPUs 0 to 7, with the buffers on node 0\n"
    "  chaosity-sum --cpus 0-7 --drive /dev/nvme0n1 --drive /dev/nvme1n1 --buffer-nodes 0 \\\n"
    "      --pages thp --max-seconds 5\n";

enum option_value {
    DRIVE = 1,
    DRIVES_FROM,
    CHUNK_BYTES,
    QUEUE_DEPTH,
    REGISTERED_BUFFERS,
    BUFFER_NODES,
    WARMUP_SECONDS
};

/* io_uring's own limit of a ring's entries (IORING_MAX_ENTRIES), and of what is read at once. */
enum { MOST_QUEUE_DEPTH = 32768, MOST_CHUNK_BYTES = 1 << 30 };

static const struct option options[] = {
    JOB_OPTIONS,
    {"drive", required_argument, NULL, DRIVE},
    {"drives-from", required_argument, NULL, DRIVES_FROM},
    {"chunk-bytes", required_argument, NULL, CHUNK_BYTES},
    {"queue-depth", required_argument, NULL, QUEUE_DEPTH},
    {"registered-buffers", required_argument, NULL, REGISTERED_BUFFERS},
    {"buffer-nodes", required_argument, NULL, BUFFER_NODES},
    {"warmup-seconds", required_argument, NULL, WARMUP_SECONDS},
    COMMON_OPTIONS,
    {NULL, 0, NULL, 0},
};

static const struct stream sum_stream = {"sum", READ, 1, false, NULL, "sum += a[i], integers"};

struct request {
    struct summing summing;
    struct index_list buffer_nodes;
};

static int parse_queue_depth(const char *text) {
    uint64_t depth = parse_count("--queue-depth", text, MOST_QUEUE_DEPTH);
    if (depth == 0)
        refuse("--queue-depth must be at least 1");
    return (int)depth;
}

static size_t parse_chunk_bytes(const char *text) {
    size_t bytes = parse_count("--chunk-bytes", text, MOST_CHUNK_BYTES);
    if (bytes == 0 || bytes % LINE_BYTES != 0)
        refuse("--chunk-bytes must be a multiple of %d, not %zu", LINE_BYTES, bytes);
    return bytes;
}

static bool parse_registered(const char *text) {
    if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
        refuse("--registered-buffers takes yes or no, not '%s'", text);
    return strcmp(text, "yes") == 0;
}

static void set_own_option(void *to, int option, const char *text) {
    struct request *request = to;
    struct summing *summing = &request->summing;
    if (set_job_option(&summing->job, option, text))
        return;
    switch ((enum option_value)option) {
    case DRIVE: add_drive(&summing->stripes, text); return;
    case DRIVES_FROM: add_drives_from(&summing->stripes, text); return;
    case CHUNK_BYTES: summing->stripes.chunk_bytes = parse_chunk_bytes(text); return;
    case QUEUE_DEPTH: summing->queue_depth = parse_queue_depth(text); return;
    case REGISTERED_BUFFERS: summing->registered = parse_registered(text); return;
    case BUFFER_NODES:
        request->buffer_nodes = parse_index_list("--buffer-nodes", text, MOST_NODES);
        return;
    case WARMUP_SECONDS:
        summing->warmup_seconds = parse_seconds("--warmup-seconds", text, MOST_SECONDS);
        return;
    }
}

static void require_whole(struct request *request) {
    struct summing *summing = &request->summing;
    struct placement *placement = &summing->job.course.placement;
    if (summing->stripes.count == 0) {
        if (request->buffer_nodes.count > 0)
            refuse("--buffer-nodes needs --drive; an array in memory takes --memory-nodes");
        if (summing->job.cpus.count == 0 || summing->job.array_bytes == 0)
            refuse("--cpus and --array-bytes (above 0) or --drive are needed, see --help");
        require_job(&summing->job);
        return;
    }
    if (placement->nodes.count > 0)
        refuse("--memory-nodes is for an array in memory; with drives take --buffer-nodes");
    if (summing->job.cpus.count == 0)
        refuse("--cpus is needed, see --help");
    placement->nodes = request->buffer_nodes;
    require_io_uring();
    open_stripes(&summing->stripes, summing->job.array_bytes);
}

static const struct program program = {
    .name = "chaosity-sum",
    .help = help,
    .isa = stream_isa,
    .options = options,
    .set = set_own_option,
};

int main(int argc, char *argv[]) {
    struct request request = {
        .summing =
            {
                .job.stream = &sum_stream,
                .job.course = {.sample_seconds = 0.02, .max_seconds = 10},
                .stripes.chunk_bytes = 2 << 20,
                .queue_depth = 32,
                .warmup_seconds = 0.1,
            },
    };
    struct summing *summing = &request.summing;
    begin_program(argc, argv, &program, &summing->job.course, &request);
    require_whole(&request);
    require_allowed_cpus(summing->job.cpus);
    int exit_code = sum_array(summing);
    close_stripes(&summing->stripes);
    free_job(summing->job);
    return exit_code;
}
