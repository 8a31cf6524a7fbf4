/* SPDX-License-Identifier: Apache-2.0
 *
 * chase_reference CPU BYTES LINE_BYTES SEED PAGES WARMUP_BYTES TURNS SECONDS: compare the chase of
 * chaosity-latency with a naive loop, in one process with the objects of chaosity-latency, over the
 * same chain in the same pages. The chase and the loop run in turns of SECONDS, in alternating
 * order. Two processes would have different pages, and on a shared machine the pages of one process
 * may be slower than the pages of the other.
 *
 * The program prints JSON lines: "sample" of the chase, "naive" with the nanoseconds of a step, and
 * "done" of the chase. "naive" has the mean over the whole turn and the median over its pieces.
 * Between two pieces, the loop only reads the clock.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "common/cpu_lists_and_pinning.h"
#include "common/errors.h"
#include "common/monotonic_clock.h"
#include "common/parse_numbers.h"
#include "common/placed_memory.h"
#include "common/run_options.h"
#include "latency/pointer_chase.h"
#include "latency/timed_blocks.h"

/* A piece is so long that the 20 or 30 ns of reading the clock do not matter, and so short that
 * most pieces are not interrupted. Nearly all pieces of 1 ms would be interrupted by other work of the
 * CPU, and their median would include this work. */
static const double piece_ns = 1e5;

/* This function is not inlined, so that the compiler keeps the loop as it is written. */
static __attribute__((noinline)) void **follow(void **p, size_t n) {
    while (n--)
        p = *p;
    return p;
}

static double timed(void ***p, size_t steps) {
    uint64_t begin = monotonic_ns();
    *p = follow(*p, steps);
    if (*p == NULL) /* never true; but the test waits for the last load before the clock is read */
        refuse("the chain is broken");
    return (double)(monotonic_ns() - begin);
}

static int compare_times(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

struct state {
    void **position;
    double seconds, *each;
    size_t most, steps; /* pieces that fit, steps of a piece */
};

/* chaosity-latency does the same. */
static void chase_on(void *self, uint64_t accesses) {
    struct state *state = self;
    state->position = chase_walk(state->position, accesses);
    if (state->position == NULL)
        refuse("the chain is broken");
}

static void naive_turn(struct state *state) {
    size_t pieces = 0;
    uint64_t begin = monotonic_ns();
    while (pieces < state->most && (double)(monotonic_ns() - begin) < state->seconds * 1e9)
        state->each[pieces++] = timed(&state->position, state->steps) / (double)state->steps;
    double all = (double)(monotonic_ns() - begin) / ((double)pieces * (double)state->steps);
    qsort(state->each, pieces, sizeof *state->each, compare_times);
    printf("{\"event\":\"naive\",\"mean_ns\":%.9g,\"median_ns\":%.9g,\"pieces\":%zu}\n", all,
           state->each[(pieces - 1) / 2], pieces);
}

int main(int argc, char *argv[]) {
    set_program_name("chase_reference");
    if (argc != 9)
        refuse("CPU BYTES LINE_BYTES SEED PAGES WARMUP_BYTES TURNS SECONDS are needed");
    int cpu = (int)parse_count("CPU", argv[1], MOST_CPUS - 1);
    size_t bytes = parse_count("BYTES", argv[2], SIZE_MAX);
    size_t line_bytes = parse_count("LINE_BYTES", argv[3], SIZE_MAX);
    uint64_t seed = parse_count("SEED", argv[4], UINT64_MAX);
    struct placement placement = {.pages = parse_page_kind("PAGES", argv[5])};
    size_t warmup_bytes = parse_count("WARMUP_BYTES", argv[6], SIZE_MAX);
    uint64_t turns = parse_count("TURNS", argv[7], 1000);
    struct state state = {.seconds = parse_seconds("SECONDS", argv[8], 3600), .steps = 1024};
    struct run_options run_options = {.sample_seconds = state.seconds, .max_seconds = state.seconds};

    pin_to_cpu(cpu);
    struct mapping mapping = map_memory(bytes, placement);
    struct chase chase = {mapping.start, bytes / line_bytes, line_bytes};
    chase_link_to_self(&chase, 0, chase.lines);
    chase_shuffle(&chase, 0, seed);
    huge_page_bytes(&mapping); /* refuses a mixture of pages */

    state.most = (size_t)(state.seconds * 1e9 / piece_ns) + 1;
    state.each = malloc(state.most * sizeof *state.each);
    if (state.each == NULL)
        refuse("out of memory");
    state.position = follow((void **)(void *)chase.start,
                            (warmup_bytes < bytes ? warmup_bytes : bytes) / line_bytes);
    while (timed(&state.position, state.steps) < piece_ns)
        state.steps *= 2;
    struct timed_work work = {chase_on, &state, CHASE_UNROLL};
    struct block_timing *timing = new_block_timing(&work);
    choose_block_length(timing);

    for (uint64_t turn = 0; turn < turns; turn++) {
        if (turn % 2 == 1)
            naive_turn(&state);
        take_samples(timing, &run_options);
        if (turn % 2 == 0)
            naive_turn(&state);
    }
    int code = print_done_line(timing, true, NULL, "time");
    free(timing);
    free(state.each);
    return code;
}
