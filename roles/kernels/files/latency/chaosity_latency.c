/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-latency measures how long a CPU waits for a load from memory of a given size and place.
 *
 * One pinned thread follows a chain of dependent loads (pointer_chase.c), which is timed in blocks
 * (timed_blocks.c). Sequence of a run: make the chain, warm up, print ready, wait for the start,
 * take samples, check that the chain was followed.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/command_line.h"
#include "common/cpu_lists_and_pinning.h"
#include "common/errors.h"
#include "common/placed_memory.h"
#include "common/run_options.h"
#include "common/start_line_and_signals.h"
#include "latency/cache_sizes.h"
#include "latency/latency_options.h"
#include "latency/pointer_chase.h"
#include "latency/timed_blocks.h"

static struct {
    int cpu; /* -1: not given */
    size_t bytes, block_bytes, warmup_bytes, line_bytes;
    uint64_t seed;
    struct run_options run_options;
} options = {
    .cpu = -1,
    .warmup_bytes = SIZE_MAX, /* not given */
    .seed = 1,
    .run_options = {.sample_seconds = 0.05, .max_seconds = 10},
};

struct state {
    struct mapping mapping;
    struct chase chase;
    void **position;   /* the line that the chase has reached; the chase begins at the first line */
    uint64_t steps;    /* number of steps from the first line to `position` */
    const char *wrong; /* the error that a check found; NULL: no error */
    struct block_timing *timing;
    struct timed_work work;
};

static const struct command_option command_options[] = {
    CPU_OPTION("--cpu", "the CPU that loads", options.cpu),
    {"--bytes", "N", "size of the memory: whole cache lines, at least two", set_bytes,
     &options.bytes},
    {"--block-bytes", "N",
     "load all lines of a block of this size before those of the next block, so that TLB misses are "
     "rare: 262144 is 64 pages of 4 KiB (default: the whole memory is one block)",
     set_bytes, &options.block_bytes},
    {"--seed", "N", "seed of the random order (default 1); the same seed gives the same order",
     set_count, &options.seed},
    {"--warmup-bytes", "N",
     "before the first sample, load lines of this total size, or all lines once if they are fewer "
     "(default: the size of CPU N's largest cache; where it is unknown, all)",
     set_bytes, &options.warmup_bytes},
    LATENCY_OPTIONS(options),
};

/* Ends the process with an error if the options cannot be measured, and sets defaults that depend
 * on the CPU. */
static void complete_options(void) {
    if (options.cpu < 0 || options.bytes == 0)
        refuse("--cpu and --bytes (above 0) are needed, see --help");
    require_allowed_cpus((struct index_list){&options.cpu, 1});
    if (options.line_bytes == 0)
        options.line_bytes = cache_line_bytes(options.cpu);
    if (options.bytes % options.line_bytes != 0 || options.bytes < 2 * options.line_bytes)
        refuse("--bytes must be a multiple of the cache line (%zu bytes) and at least two lines, "
               "not %zu",
               options.line_bytes, options.bytes);
    if (options.block_bytes % options.line_bytes != 0)
        refuse("--block-bytes must be a multiple of the cache line (%zu bytes), not %zu",
               options.line_bytes, options.block_bytes);
    if (options.warmup_bytes == SIZE_MAX) {
        size_t largest = largest_cache_bytes(options.cpu);
        options.warmup_bytes = largest > 0 ? largest : options.bytes;
    }
    if (options.warmup_bytes > options.bytes)
        options.warmup_bytes = options.bytes;
}

static void link_to_self(void *chase, size_t from, size_t count) {
    chase_link_to_self(chase, from, count);
}

/* The pinned thread that will load from the pages touches them first. */
static void make_chain(struct state *state) {
    struct chase *chase = &state->chase;
    struct array_slice all = {chase->start, chase->line_bytes, 0, chase->lines};
    fill_slice(&state->mapping, all, link_to_self, chase);
    if (!stop_requested())
        chase_shuffle(chase, options.block_bytes / options.line_bytes, options.seed);
}

static void print_ready(const struct state *state) {
    printf("{\"event\":\"ready\",\"bytes\":%zu,\"line_bytes\":%zu,\"lines\":%zu,\"block_bytes\":%zu,\"seed\":%" PRIu64
           ",\"warmup_bytes\":%zu,\"threads\":[{\"cpu\":%d,\"tid\":%d}],",
           options.bytes, options.line_bytes, state->chase.lines, options.block_bytes, options.seed,
           options.warmup_bytes, options.cpu, (int)syscall(SYS_gettid));
    print_placement(&options.run_options.placement, &state->mapping, 1,
                    huge_page_bytes(&state->mapping));
    print_run_options(&options.run_options);
    print_build();
}

/* Tests compile a defect that the checks must find: make EXTRA=-DMUTANT=3 (1 and 2 are in
 * pointer_chase.c). */
#ifndef MUTANT
#define MUTANT 0
#endif
enum { BLOCKS_SHORT = 3 };

static void chase_on(void *self, uint64_t accesses) {
    struct state *state = self;
    state->position = chase_walk(state->position, accesses - (MUTANT == BLOCKS_SHORT));
    state->steps += accesses;
    /* This condition on the last load makes the CPU read the clock only after this load; arm64 may
     * otherwise read the clock while the load is in flight. */
    if (state->position == NULL)
        refuse("the chain is broken: a link is not the address of a line");
}

static bool warms_all_lines(void) { return options.warmup_bytes >= options.bytes; }

/* Loads lines until the caches contain what they contain in all later turns of the chain (if caches
 * replace the least recently used line). Without warm-up, lines that the set-up left in the caches
 * would make the first turn too fast. Other programs may empty the caches of the core while this
 * program waits for the start; choose_block_length() fills the caches again within milliseconds. A
 * complete turn also shows whether the chain is one cycle over all lines. */
static void warm_up(struct state *state) {
    const struct chase *chase = &state->chase;
    if (warms_all_lines()) {
        uint64_t turn = chase_steps_to_return(state->position, chase->lines);
        if (turn != chase->lines && !stop_requested())
            state->wrong = "the chain is not one cycle over all lines";
        return;
    }
    /* Number of steps between two checks for a stop signal, which take a few milliseconds. */
    enum { LOOK = 1 << 16 };
    uint64_t left = options.warmup_bytes / chase->line_bytes;
    for (; left > 0 && !stop_requested(); left -= left < LOOK ? left : LOOK)
        chase_on(state, left < LOOK ? left : LOOK);
}

/* Checks the chain. If a turn is short, also checks that the chase ended after the counted number
 * of steps from the first line. (In a long turn, repeating the steps would take as long as the
 * measurement.) */
static void check(struct state *state) {
    const struct chase *chase = &state->chase;
    void **begin = (void **)(void *)chase->start;
    if (state->wrong != NULL)
        return;
    if (!chase_is_permutation(chase))
        state->wrong = "the chain does not link every line once";
    else if (!chase_has_line(chase, state->position))
        state->wrong = "the chase ended outside the lines";
    else if (warms_all_lines() && state->position != chase_walk(begin, state->steps % chase->lines))
        state->wrong = "the chase did not take as many steps as were counted";
}

static enum start wait_until_started(struct state *state) {
    if (stop_requested())
        return START_STOPPED;
    print_ready(state);
    return options.run_options.wait_for_start ? wait_for_start() : START_GO;
}

static int measure(struct state *state) {
    make_chain(state);
    if (!stop_requested())
        /* The warm-up is before the start, since it may take as long as the measurement. */
        warm_up(state);
    enum start start = wait_until_started(state);
    const char *stopped_by = stopped_by_start(start);
    if (start == START_GO) {
        choose_block_length(state->timing);
        stopped_by = take_samples(state->timing, &options.run_options);
        check(state);
    }
    return print_done_line(state->timing, start == START_GO, state->wrong, stopped_by);
}

static int run(void) {
    complete_options();
    struct state state = {0};
    state.work = (struct timed_work){chase_on, &state, CHASE_UNROLL, NULL, NULL};
    deliver_stop_signals();
    pin_to_cpu(options.cpu);
    state.timing = new_block_timing(&state.work);
    state.mapping = map_memory(options.bytes, options.run_options.placement);
    state.chase =
        (struct chase){state.mapping.start, options.bytes / options.line_bytes, options.line_bytes};
    state.position = (void **)(void *)state.chase.start;
    int exit_code = measure(&state);
    free(state.timing);
    free_index_list(options.run_options.placement.nodes);
    return exit_code;
}

const struct program program = {
    .name = "chaosity-latency",
    .usage = "--cpu N --bytes N [OPTION]...",
    .summary = "Measures the latency of loads by a random chase through all cache lines of some "
               "memory.",
    .options = command_options,
    .notes =
        "SIGTERM or SIGINT ends the measurement after the current block; then the chain is "
        "checked. Prints JSON lines: one \"ready\", many \"sample\", one \"done\". A sample gives "
        "the "
        "number of accesses between two readings of CLOCK_MONOTONIC, in nanoseconds, and "
        "\"blocks\": how many blocks of accesses took how many nanoseconds per access, in bins at "
        "most 0.2 % wide. Exit code: 0 right result, 1 wrong result, 2 refused.",
    .example = "from CPU 0 to 1 GiB of node 1, for 2 seconds\n"
               "  chaosity-latency --cpu 0 --memory-nodes 1 --bytes 1073741824 --pages thp \\\n"
               "      --max-seconds 2",
    .run = run,
};
