/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-copies measures how fast data is copied between pinned memory of the host and an OpenCL
 * device, in one direction or in both directions at once.
 *
 * Every 50 us, the host asks which copies have ended, and counts these copies. The host sleeps in
 * between, so that it takes no time from a device that is the processor of the host.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/command_line.h"
#include "common/errors.h"
#include "common/monotonic_clock.h"
#include "common/parse_numbers.h"
#include "common/run_options.h"
#include "common/start_line_and_signals.h"
#include "opencl/opencl_device.h"
#include "opencl/pinned_copies.h"

enum { MOST_DIRECTIONS = 2, UNIT_BYTES = 4096, SEEN_BYTES = 32 << 20 };

static struct {
    struct opencl_choice choice;
    const char *direction;
    size_t bytes, copy_bytes;
    struct run_options run_options;
} options = {
    .direction = "to_device",
    .bytes = 256 << 20,
    .copy_bytes = 16 << 20,
    .run_options = {.sample_seconds = 0.05, .max_seconds = 10},
};

static const struct command_option command_options[] = {
    OPENCL_OPTIONS(options.choice),
    {"--direction", "NAME",
     "to_device (default), from_device, or both_ways: both at once, each with buffers of its own",
     set_text, &options.direction},
    {"--bytes", "N", "size of the buffers on each side, for each direction (default 268435456)",
     set_bytes, &options.bytes},
    {"--copy-bytes", "N", "size of one copy, of which --bytes is a multiple (default 16777216)",
     set_bytes, &options.copy_bytes},
    MEMORY_NODES_OPTION(options.run_options,
                        "refuse if the kernel shows pages of the host's buffers on other nodes; "
                        "numactl --membind places them"),
    RUN_OPTIONS(options.run_options, "least duration of a sample (default 0.05)"),
};

static bool goes(const char *direction) {
    return strcmp(options.direction, direction) == 0 || strcmp(options.direction, "both_ways") == 0;
}

static void print_ready(const struct opencl_device *device, uint64_t pages_seen) {
    char nodes[1024];
    format_index_list(options.run_options.placement.nodes, nodes, sizeof nodes);
    printf("{\"event\":\"ready\",");
    print_opencl_device(device);
    printf("\"direction\":\"%s\",\"bytes\":%zu,\"copy_bytes\":%zu,\"memory_nodes\":\"%s\","
           "\"pages_seen\":%" PRIu64 ",",
           options.direction, options.bytes, options.copy_bytes, nodes, pages_seen);
    print_run_options(&options.run_options);
    print_build();
    require_written();
}

static const char *take_samples(struct copies copies[], int count) {
    uint64_t from = monotonic_ns(), now = from, bytes = 0;
    uint64_t limit_ns = now + (uint64_t)(options.run_options.max_seconds * 1e9);
    uint64_t sample_ns = (uint64_t)(options.run_options.sample_seconds * 1e9);
    while (now < limit_ns && !stop_requested()) {
        for (int i = 0; i < count; i++)
            bytes += go_on_copying(&copies[i]) * options.copy_bytes;
        now = monotonic_ns();
        if (now - from >= sample_ns && bytes > 0) {
            printf("{\"event\":\"sample\",\"begin_ns\":%" PRIu64 ",\"end_ns\":%" PRIu64
                   ",\"bytes\":%" PRIu64 "}\n",
                   from, now, bytes);
            require_written();
            from = now;
            bytes = 0;
        }
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000}, NULL);
    }
    return stop_requested() ? "signal" : "time";
}

static int print_done(const struct copies copies[], int count, const char *stopped_by, bool ran,
                      uint64_t *piece) {
    uint64_t ended[MOST_DIRECTIONS] = {0}, wrong = 0;
    for (int i = 0; i < count; i++) {
        ended[copies[i].to_device ? 0 : 1] = copies[i].ended;
        wrong += wrong_words(&copies[i], piece);
    }
    printf("{\"event\":\"done\",\"valid\":%s,\"copies_to_device\":%" PRIu64
           ",\"copies_from_device\":%" PRIu64 ",\"wrong_words\":%" PRIu64
           ",\"stopped_by\":\"%s\"}\n",
           !ran         ? "null"
           : wrong == 0 ? "true"
                        : "false",
           ended[0], ended[1], wrong, stopped_by);
    require_written();
    if (!ran || wrong == 0)
        return EXIT_VALID;
    complain("%" PRIu64 " words are wrong; the numbers must not be used", wrong);
    return EXIT_INVALID;
}

static void require_complete_options(void) {
    if (!goes("to_device") && !goes("from_device"))
        refuse("--direction takes to_device, from_device or both_ways, not '%s'",
               options.direction);
    if (options.copy_bytes == 0 || options.copy_bytes % UNIT_BYTES != 0)
        refuse("--copy-bytes takes a multiple of %d above 0, not %zu", UNIT_BYTES,
               options.copy_bytes);
    if (options.bytes == 0 || options.bytes % options.copy_bytes != 0)
        refuse("--bytes takes a multiple of --copy-bytes (%zu) above 0, not %zu",
               options.copy_bytes, options.bytes);
}

static int run(void) {
    require_complete_options();
    struct opencl_device device = open_opencl_device(&options.choice, NULL);
    /* Allocates memory for the check. All pages of this memory are touched, so that the kernel
     * shows on which nodes they are, even if a driver hides the pages that it pins. */
    size_t bytes = options.copy_bytes > SEEN_BYTES ? options.copy_bytes : SEEN_BYTES;
    uint64_t *piece = malloc(bytes);
    if (piece == NULL)
        refuse("no memory to read the results back");
    memset(piece, 1, bytes);
    struct copies copies[MOST_DIRECTIONS];
    int count = 0;
    uint64_t pages_seen = 0;
    for (int to_device = 1; to_device >= 0; to_device--)
        if (goes(to_device ? "to_device" : "from_device")) {
            copies[count] =
                new_copies(&device, count, to_device, options.bytes, options.copy_bytes);
            pages_seen += pages_on_nodes(&copies[count++], options.run_options.placement.nodes);
        }
    deliver_stop_signals();
    enum start start = START_STOPPED;
    if (!stop_requested()) {
        print_ready(&device, pages_seen);
        start = options.run_options.wait_for_start ? wait_for_start() : START_GO;
    }
    const char *stopped_by = stopped_by_start(start);
    if (start == START_GO)
        stopped_by = take_samples(copies, count);
    for (int i = 0; i < count; i++)
        stop_copying(&copies[i]);
    int exit_code = print_done(copies, count, stopped_by, start == START_GO, piece);
    for (int i = 0; i < count; i++)
        free_copies(&copies[i]);
    free(piece);
    close_opencl_device(&device);
    return exit_code;
}

const struct program program = {
    .name = "chaosity-copies",
    .usage = "[OPTION]...",
    .summary = "Measures copies between pinned memory of the host and an OpenCL device.",
    .options = command_options,
    .notes = "SIGTERM or SIGINT ends the measurement; then all copied data is checked. Prints JSON "
             "lines: one \"ready\", many \"sample\" (bytes of the copies that ended between two "
             "readings of CLOCK_MONOTONIC, in nanoseconds; a byte that is copied counts once), one "
             "\"done\". Exit code: 0 right result, 1 wrong result, 2 refused.",
    .example = "the host's memory on node 1, both directions at once, for 2 seconds\n"
               "  numactl --cpunodebind=1 --membind=1 chaosity-copies --slot 0000:41:00.0 \\\n"
               "      --direction both_ways --memory-nodes 1 --max-seconds 2",
    .run = run,
};
