/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-latency: how long a CPU waits for a load from memory of a certain size and place.
 *
 * One pinned thread follows a chain of dependent loads (pointer_chase.c has the chain, timed_blocks.c how it is
 * timed). The course: make the chain, warm up, print ready, wait for the start, take samples, check
 * that it was the chain that was followed.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "latency/timed_blocks.h"
#include "latency/cpu_caches.h"
#include "latency/pointer_chase.h"
#include "common/process.h"
#include "common/cpu_lists.h"
#include "common/placed_memory.h"
#include "common/command_line.h"

static const char help[] =
    "Usage: chaosity-latency --cpu N --bytes N [OPTION]...\n"
    "Measures the latency of loads, by a random chase through all cache lines of some memory.\n"
    "\n"
    "  --cpu N               the CPU that loads\n"
    "  --bytes N             size of the memory: whole cache lines, at least two\n" LATENCY_HELP
    "  --seed N              of the random order (default 1); the same seed, the same order\n"
    "  --warmup-bytes N      lines that together have this size are loaded before the first\n"
    "                        sample, or all of them once if they are fewer (default: the largest\n"
    "                        cache of CPU N; where none is known, all)\n"
    "\n"
    "SIGTERM or SIGINT ends the measurement after the block that runs; then the chain is\n"
    "checked. Prints JSON lines: one \"ready\", many \"sample\", one \"done\". A sample says how\n"
    "many accesses were timed between two readings of CLOCK_MONOTONIC, in nanoseconds, and\n"
    "\"blocks\": how many blocks of accesses took that many nanoseconds an access, in bins at\n"
    "most 0.2 % wide. Exit code: 0 right result, 1 wrong result, 2 could not do what was asked.\n"
    "\n"
    "Example: from CPU 0, 1 GiB of node 1, for 2 seconds\n"
    "  chaosity-latency --cpu 0 --memory-nodes 1 --bytes 1073741824 --pages thp \\\n"
    "      --max-seconds 2\n";

enum option_value { CPU = 1, BYTES, SEED, WARMUP_BYTES };

static const struct option options[] = {
    {"cpu", required_argument, NULL, CPU},
    {"bytes", required_argument, NULL, BYTES},
    {"seed", required_argument, NULL, SEED},
    {"warmup-bytes", required_argument, NULL, WARMUP_BYTES},
    LATENCY_OPTIONS,
    {NULL, 0, NULL, 0},
};

struct request {
    int cpu; /* -1: not given */
    size_t bytes, warmup_bytes;
    bool warmup_given;
    uint64_t seed;
    struct course course;
};

struct state {
    const struct request *request;
    struct mapping mapping;
    struct chase chase;
    void **position;   /* of the chase, which begins at the first line */
    uint64_t steps;    /* from the first line to there */
    const char *wrong; /* what the checks have found, NULL: nothing */
    struct timing *timing;
    struct work work;
};

static void set_own_option(void *to, int option, const char *text) {
    struct request *request = to;
    switch ((enum option_value)option) {
    case CPU: request->cpu = (int)parse_count("--cpu", text, MOST_CPUS - 1); return;
    case BYTES: request->bytes = parse_count("--bytes", text, MOST_BYTES); return;
    case SEED: request->seed = parse_count("--seed", text, UINT64_MAX); return;
    case WARMUP_BYTES:
        request->warmup_bytes = parse_count("--warmup-bytes", text, MOST_BYTES);
        request->warmup_given = true;
        return;
    }
}

/* Refuses what cannot be measured and fills in what was left to this program. */
static void complete(struct request *request) {
    if (request->cpu < 0 || request->bytes == 0)
        refuse("--cpu and --bytes (above 0) are needed, see --help");
    require_allowed_cpus((struct index_list){&request->cpu, 1});
    size_t *line_bytes = &request->course.line_bytes;
    if (*line_bytes == 0)
        *line_bytes = cache_line_bytes(request->cpu);
    if (request->bytes % *line_bytes != 0 || request->bytes < 2 * *line_bytes)
        refuse("--bytes must be a multiple of the line, which has %zu bytes, and at least two "
               "lines, not %zu",
               *line_bytes, request->bytes);
    if (!request->warmup_given)
        request->warmup_bytes = largest_cache_bytes(request->cpu);
    if (request->warmup_bytes > request->bytes ||
        (!request->warmup_given && request->warmup_bytes == 0))
        request->warmup_bytes = request->bytes;
}

static void lay(void *chase, size_t from, size_t count) { chase_lay(chase, from, count); }

/* The pages are first touched here, by the thread that will load from them, already pinned. */
static void make_chain(struct state *state) {
    struct chase *chase = &state->chase;
    struct stretch all = {chase->start, chase->line_bytes, 0, chase->lines};
    fill_stretch(&state->mapping, all, lay, chase);
    if (!stop_requested())
        chase_shuffle(chase, state->request->seed);
}

static void print_ready(const struct state *state) {
    const struct request *request = state->request;
    const struct course *course = &request->course;
    printf("{\"event\":\"ready\",\"bytes\":%zu,\"line_bytes\":%zu,\"lines\":%zu,\"seed\":%" PRIu64
           ",\"warmup_bytes\":%zu,\"threads\":[{\"cpu\":%d,\"tid\":%d}],",
           request->bytes, course->line_bytes, state->chase.lines, request->seed,
           request->warmup_bytes, request->cpu, (int)syscall(SYS_gettid));
    print_placement(&course->placement, &state->mapping, 1, huge_page_bytes(&state->mapping));
    print_course(course);
    print_build(course, NULL);
}

/* A mistake that the checks must find, for the tests: make EXTRA=-DMUTANT=3 (1, 2: pointer_chase.c). */
#ifndef MUTANT
#define MUTANT 0
#endif
enum { BLOCKS_SHORT = 3 };

static void chase_on(void *self, uint64_t accesses) {
    struct state *state = self;
    state->position = chase_walk(state->position, accesses - (MUTANT == BLOCKS_SHORT));
    state->steps += accesses;
    /* A condition on the last load, so that no core reads the clock before it is there: arm64 may
     * read it while a load is under way that nothing depends on. */
    if (state->position == NULL)
        refuse("the chain is broken: it leads to no line");
}

static bool warms_all(const struct state *state) {
    return state->request->warmup_bytes >= state->request->bytes;
}

/* With caches that replace what was not used for longest, they then hold what they hold in any
 * later turn of the chain. (What runs on this core while it waits for the start may empty its own
 * caches; the milliseconds of choose_block() fill these again.) Without it, what the making of the
 * chain left in them would flatter the first turn. A whole turn is also where the chain is seen to
 * be one cycle over all lines. */
static void warm_up(struct state *state) {
    const struct chase *chase = &state->chase;
    if (warms_all(state)) {
        uint64_t turn = chase_return(state->position, chase->lines);
        if (turn != chase->lines && !stop_requested())
            state->wrong = "the chain is not one cycle over all lines";
        return;
    }
    enum { LOOK = 1 << 16 }; /* for a stop, every few milliseconds */
    uint64_t left = state->request->warmup_bytes / chase->line_bytes;
    for (; left > 0 && !stop_requested(); left -= left < LOOK ? left : LOOK)
        chase_on(state, left < LOOK ? left : LOOK);
}

/* After the samples. Where a turn is short, the end must be as many steps from the beginning as
 * were counted; to walk them again would else take as long as the measurement. */
static void check(struct state *state) {
    const struct chase *chase = &state->chase;
    void **begin = (void **)(void *)chase->start;
    if (state->wrong != NULL)
        return;
    if (!chase_intact(chase))
        state->wrong = "the chain does not link every line once";
    else if (!chase_has_line(chase, state->position))
        state->wrong = "the chase ended outside the lines";
    else if (warms_all(state) && state->position != chase_walk(begin, state->steps % chase->lines))
        state->wrong = "the chase did not take as many steps as were counted";
}

static enum start await_start(struct state *state) {
    if (stop_requested())
        return START_STOPPED;
    print_ready(state);
    return state->request->course.wait_for_start ? wait_for_start() : START_GO;
}

static int run(struct state *state) {
    make_chain(state);
    if (!stop_requested())
        warm_up(state); /* before the start, for it may take as long as the whole measurement */
    enum start start = await_start(state);
    const char *stopped_by = stopped_by_start(start);
    if (start == START_GO) {
        choose_block(state->timing);
        stopped_by = take_samples(state->timing, &state->request->course);
        check(state);
    }
    return print_done(state->timing, start == START_GO, state->wrong, stopped_by);
}

static const struct program program = {
    .name = "chaosity-latency",
    .help = help,
    .options = options,
    .set = set_own_option,
};

int main(int argc, char *argv[]) {
    struct request request = {
        .cpu = -1,
        .seed = 1,
        .course = {.sample_seconds = 0.05, .max_seconds = 10},
    };
    begin_program(argc, argv, &program, &request.course, &request);
    complete(&request);

    struct state state = {.request = &request};
    state.work = (struct work){chase_on, &state, CHASE_UNROLL};
    deliver_stop_signals();
    pin_to_cpu(request.cpu);
    state.timing = new_timing(&state.work);
    state.mapping = map_memory(request.bytes, request.course.placement);
    state.chase = (struct chase){state.mapping.start, request.bytes / request.course.line_bytes,
                                 request.course.line_bytes};
    state.position = (void **)(void *)state.chase.start;
    int exit_code = run(&state);
    free(state.timing);
    free_index_list(request.course.placement.nodes);
    return exit_code;
}
