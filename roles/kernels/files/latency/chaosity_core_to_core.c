/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-core-to-core: how long one cache line takes to move between two CPUs.
 *
 * The initiator writes an odd number into the line and the responder answers with the next even
 * number, each as soon as it sees the other's. The line moves twice per round trip, so the latency
 * is half a round trip. In this time a line that one CPU owns and has written moves to the other
 * CPU: it requests the line, gets it, sees the new number, and requests it again in order to write.
 *
 * For all pairs of CPUs the request first goes to the line's home node, which --memory-nodes sets.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/command_line.h"
#include "common/cpu_lists_and_pinning.h"
#include "common/errors.h"
#include "common/placed_memory.h"
#include "common/run_options.h"
#include "common/spin_barrier.h"
#include "common/start_line_and_signals.h"
#include "latency/cache_sizes.h"
#include "latency/latency_options.h"
#include "latency/timed_blocks.h"

static struct {
    int cpu, responder; /* -1: not given */
    size_t line_bytes;
    struct run_options run_options;
} options = {
    .cpu = -1,
    .responder = -1,
    .run_options = {.sample_seconds = 0.05, .max_seconds = 10},
};

static const struct command_option command_options[] = {
    CPU_OPTION("--cpu", "the CPU that writes first and measures the time", options.cpu),
    CPU_OPTION("--responder", "the CPU that answers", options.responder),
    LATENCY_OPTIONS(options),
};

/* Refuses what cannot be measured and sets the default of the line's size. */
static void complete_options(void) {
    if (options.cpu < 0 || options.responder < 0)
        refuse("--cpu and --responder are needed, see --help");
    if (options.cpu == options.responder)
        refuse("--cpu and --responder must be two CPUs, not %d twice", options.cpu);
    int cpus[] = {options.cpu, options.responder};
    require_allowed_cpus((struct index_list){cpus, 2});
    if (options.line_bytes == 0)
        options.line_bytes = cache_line_bytes(options.cpu);
}

/* The line that moves holds one number. Its accesses are relaxed: the number is all that the two
 * threads exchange, and all CPUs see the same order of values of one object. A stronger order would
 * add instructions on arm64 that do not belong to moving a line. */
typedef _Atomic uint64_t shared_line;

/* Tells the responder to end; never an answer. */
#define LAST UINT64_MAX

/* Defects that the checks must find, for tests: make EXTRA=-DMUTANT=1, ... */
#ifndef MUTANT
#define MUTANT NO_MUTANT
#endif
enum { NO_MUTANT, WRONG_ANSWER, BLOCKS_SHORT, MUTANT_ANSWER = 1000 };

struct state {
    struct mapping mapping;
    shared_line *line;
    struct block_timing *timing;
    pthread_barrier_t all_ready; /* threads sleep here until set-up is done and until the start */

    _Alignas(PADDING_BYTES) uint64_t moves; /* requested so far, warm-up included */
    uint64_t answered; /* the last right answer, which is the number of moves */
    uint64_t wrong_answers;

    _Alignas(PADDING_BYTES) int responder_tid;
    uint64_t wrong_questions; /* written once, at the end, so that only `line` moves */
};

/* Neither thread pauses between two looks: on x86 a pause takes as long as many moves of a line. */
static uint64_t await_change(shared_line *line, uint64_t from) {
    uint64_t seen;
    do
        seen = atomic_load_explicit(line, memory_order_relaxed);
    while (seen == from);
    return seen;
}

static void *respond(void *with) {
    struct state *state = with;
    uint64_t mine = 0, wrong = 0, seen;
    pin_to_cpu(options.responder);
    state->responder_tid = (int)syscall(SYS_gettid);
    pthread_barrier_wait(&state->all_ready); /* set up */
    pthread_barrier_wait(&state->all_ready); /* started; without a start LAST is there already */
    while ((seen = await_change(state->line, mine)) != LAST) {
        wrong += seen != mine + 1;
        mine = seen + 1 + 2 * (MUTANT == WRONG_ANSWER && seen > MUTANT_ANSWER);
        atomic_store_explicit(state->line, mine, memory_order_relaxed);
    }
    state->wrong_questions = wrong;
    return NULL;
}

/* Ends even when all answers are wrong, since any change counts as an answer. */
static void move_line(void *self, uint64_t moves) {
    struct state *state = self;
    uint64_t answered = state->answered, wrong = 0;
    state->moves += moves;
    if (MUTANT == BLOCKS_SHORT)
        moves -= 2;
    for (uint64_t i = 0; i < moves / 2; i++) {
        uint64_t question = answered + 1;
        answered = question + 1;
        atomic_store_explicit(state->line, question, memory_order_relaxed);
        wrong += await_change(state->line, question) != answered;
    }
    state->answered = answered;
    state->wrong_answers += wrong;
}

static void print_ready(const struct state *state) {
    printf("{\"event\":\"ready\",\"line_bytes\":%zu,\"threads\":[{\"cpu\":%d,\"tid\":%d},"
           "{\"cpu\":%d,\"tid\":%d}],",
           options.line_bytes, options.cpu, (int)syscall(SYS_gettid), options.responder,
           state->responder_tid);
    print_placement(&options.run_options.placement, &state->mapping, 1,
                    huge_page_bytes(&state->mapping));
    print_run_options(&options.run_options);
    print_build();
}

static enum start wait_until_started(struct state *state) {
    if (stop_requested())
        return START_STOPPED;
    print_ready(state);
    return options.run_options.wait_for_start ? wait_for_start() : START_GO;
}

static const char *find_wrong(const struct state *state, uint64_t number_at_end) {
    if (state->wrong_answers > 0 || state->wrong_questions > 0)
        return "a number in the line was not the next number";
    if (number_at_end != state->moves)
        return "the line moved less or more often than was counted";
    return NULL;
}

static int measure(struct state *state) {
    pthread_t responder;
    atomic_store(state->line, 0); /* the first touch of the page */
    if (pthread_create(&responder, NULL, respond, state) != 0)
        refuse("the responder's thread cannot be started");
    deliver_stop_signals();
    pthread_barrier_wait(&state->all_ready);
    enum start start = wait_until_started(state);
    const char *stopped_by = stopped_by_start(start);
    uint64_t number_at_end = 0;
    if (start == START_GO) {
        pthread_barrier_wait(&state->all_ready);
        choose_block_length(state->timing);
        stopped_by = take_samples(state->timing, &options.run_options);
        number_at_end = atomic_load(state->line);
        atomic_store(state->line, LAST);
    } else {
        atomic_store(state->line, LAST);
        pthread_barrier_wait(&state->all_ready);
    }
    pthread_join(responder, NULL);
    return print_done_line(state->timing, start == START_GO, find_wrong(state, number_at_end),
                           stopped_by);
}

static int run(void) {
    complete_options();
    struct state state = {0};
    struct timed_work work = {move_line, &state, 2};
    pthread_barrier_init(&state.all_ready, NULL, 2);
    pin_to_cpu(options.cpu);
    state.timing = new_block_timing(&work);
    state.mapping = map_memory(options.line_bytes, options.run_options.placement);
    state.line = (shared_line *)(void *)state.mapping.start;
    int exit_code = measure(&state);
    free(state.timing);
    free_index_list(options.run_options.placement.nodes);
    return exit_code;
}

const struct program program = {
    .name = "chaosity-core-to-core",
    .usage = "--cpu N --responder M [OPTION]...",
    .summary = "Measures the latency of moving one cache line between two CPUs.",
    .options = command_options,
    .notes =
        "SIGTERM or SIGINT ends the measurement after the current block; then the numbers in the "
        "line are checked. Prints JSON lines: one \"ready\", many \"sample\", one \"done\". A "
        "sample "
        "gives the number of moves of the line (two per round trip) between two readings of "
        "CLOCK_MONOTONIC, in nanoseconds, and \"blocks\": how many blocks of moves took how many "
        "nanoseconds per move, in bins at most 0.2 % wide. Exit code: 0 right result, 1 wrong "
        "result, 2 refused.",
    .example = "from CPU 0 to CPU 8 and back, through a line of node 1, for 2 seconds\n"
               "  chaosity-core-to-core --cpu 0 --responder 8 --memory-nodes 1 --max-seconds 2",
    .run = run,
};
