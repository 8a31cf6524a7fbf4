/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-core-to-core measures how long a cache line takes to move between two CPUs.
 *
 * The initiator writes an odd number into the line and the responder answers with the next even
 * number, each as soon as it sees the number of the other. The line moves twice per round trip, so
 * the latency is half a round trip. In the time of half a round trip, a line that one CPU owns and
 * has written moves to the other CPU. The other CPU requests the line, gets it, sees the new
 * number, and requests the line again in order to write.
 *
 * For all pairs of CPUs the request first goes to the line's home node, which --memory-nodes sets.
 * On processors with a mesh, the request goes to a slice of the L3 cache of this node, and a hash
 * of the address chooses the slice. So each block of moves uses another one of LINES lines in turn,
 * and the last question of a block says that the next line follows.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    int cpu, responder; /* -1: the option is not given */
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

/* Ends the process with an error if the options cannot be measured, and sets the default size of a
 * line. */
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

/* Number of lines. All lines are consecutive lines of one page, so that the TLB needs only one
 * entry. The hashes of consecutive lines choose different slices: 32 lines use many of the slices
 * of a large mesh (28 to 60), and are enough for a median and deciles. A line takes 38 to 66 ns
 * between two cores of one EPYC with a common L3, depending on the line. */
enum { LINES = 32 };

/* The line that moves contains one number. Accesses to the number have relaxed memory order,
 * because the two threads exchange only this number, and all CPUs see the same order of values of
 * one object. A stronger memory order would add instructions on arm64 that do not belong to moving
 * a line. */
typedef _Atomic uint64_t shared_line;

/* The number that tells the responder to end; it is different from each answer. */
#define LAST UINT64_MAX
/* Bit of the last question of a block and of its answer: the next number will be in the next
 * line. */
#define NEXT_LINE ((uint64_t)1 << 62)

/* Tests compile defects that the checks must find: make EXTRA=-DMUTANT=1, ... */
#ifndef MUTANT
#define MUTANT NO_MUTANT
#endif
enum { NO_MUTANT, WRONG_ANSWER, BLOCKS_SHORT, ONE_LINE, MUTANT_ANSWER = 1000 };

struct state {
    struct mapping mapping;
    struct block_timing *timing;
    struct histogram *of_line; /* durations of the blocks of each line */
    pthread_barrier_t all_ready; /* threads sleep here until set-up is done and until the start */

    /* Number of moves requested so far, including the warm-up. */
    _Alignas(PADDING_BYTES) uint64_t moves;
    uint64_t answered; /* the last right answer, which is the number of moves */
    uint64_t wrong_answers;
    int line; /* number of the line that moves now */

    _Alignas(PADDING_BYTES) int responder_tid;
    /* Written only at the end, so that no other data move between the CPUs. */
    uint64_t wrong_questions;
};

static shared_line *line_of(const struct state *state, int line) {
    return (shared_line *)(void *)((char *)state->mapping.start + (size_t)line * options.line_bytes);
}

static int line_after(int line) { return MUTANT == ONE_LINE ? 0 : (line + 1) % LINES; }

/* The threads read the line without pauses in between, since on x86, a pause takes as long as many
 * moves of a line. */
static uint64_t await_change(shared_line *line, uint64_t from) {
    uint64_t seen;
    do
        seen = atomic_load_explicit(line, memory_order_relaxed);
    while (seen == from);
    return seen;
}

static void *respond(void *with) {
    struct state *state = with;
    uint64_t mine = 0, from = 0, wrong = 0, seen;
    uint64_t left[LINES] = {0}; /* the number in each line when the thread stopped using the line */
    int line = 0;
    shared_line *here = line_of(state, line);
    pin_to_cpu(options.responder);
    state->responder_tid = (int)syscall(SYS_gettid);
    pthread_barrier_wait(&state->all_ready); /* set up */
    /* The measurement starts; without a start, the line contains LAST. */
    pthread_barrier_wait(&state->all_ready);
    while ((seen = await_change(here, from)) != LAST) {
        wrong += (seen & ~NEXT_LINE) != (mine & ~NEXT_LINE) + 1;
        mine = seen + 1 + 2 * (MUTANT == WRONG_ANSWER && (seen & ~NEXT_LINE) > MUTANT_ANSWER);
        atomic_store_explicit(here, mine, memory_order_relaxed);
        from = mine;
        if (seen & NEXT_LINE) {
            left[line] = mine;
            line = line_after(line);
            here = line_of(state, line);
            from = left[line];
        }
    }
    state->wrong_questions = wrong;
    return NULL;
}

/* Runs a block of moves of one line; the next block uses the next line. The block ends even if all
 * answers are wrong, since any change of the number counts as an answer. */
static void move_line(void *self, uint64_t moves) {
    struct state *state = self;
    shared_line *line = line_of(state, state->line);
    uint64_t answered = state->answered, wrong = 0;
    state->moves += moves;
    if (MUTANT == BLOCKS_SHORT && moves > 2)
        moves -= 2;
    for (uint64_t left = moves / 2; left > 0; left--) {
        uint64_t question = (answered + 1) | (left == 1 ? NEXT_LINE : 0);
        answered += 2;
        atomic_store_explicit(line, question, memory_order_relaxed);
        wrong += await_change(line, question) != question + 1;
    }
    state->answered = answered;
    state->wrong_answers += wrong;
    state->line = line_after(state->line);
}

static void note_block(void *self, uint64_t duration_ns) {
    struct state *state = self;
    histogram_add(&state->of_line[(state->line + LINES - 1) % LINES], duration_ns);
}

static void forget_blocks(void *self) {
    struct state *state = self;
    memset(state->of_line, 0, LINES * sizeof *state->of_line);
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

/* If all lines moved in turn, each line contains the number at the end of its last block. */
static bool lines_hold_their_numbers(const struct state *state) {
    uint64_t number = state->moves, step = state->timing->accesses_per_block;
    uint64_t blocks = state->timing->all.blocks;
    for (int back = 1; back <= LINES && (uint64_t)back <= blocks; back++, number -= step) {
        int line = (state->line + LINES - back) % LINES;
        if (atomic_load(line_of(state, line)) != (number | NEXT_LINE))
            return false;
    }
    return true;
}

static const char *find_wrong(const struct state *state) {
    if (state->wrong_answers > 0 || state->wrong_questions > 0)
        return "a number in a line was not the next number";
    if (!lines_hold_their_numbers(state))
        return "a line moved less or more often than was counted";
    return NULL;
}

static int compare_doubles(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* Prints the median of each line and, over all lines, the first and the last decile. If the run was
 * too short for a block of each line, nothing is printed. */
static void print_lines(const struct state *state) {
    double median_ns[LINES];
    for (int line = 0; line < LINES; line++) {
        if (state->of_line[line].blocks == 0)
            return;
        median_ns[line] = histogram_median_ns(&state->of_line[line]) /
                          (double)state->timing->accesses_per_block;
    }
    printf("{\"event\":\"lines\",\"latency_ns\":");
    for (int line = 0; line < LINES; line++)
        printf("%s%.7g", line == 0 ? "[" : ",", median_ns[line]);
    qsort(median_ns, LINES, sizeof median_ns[0], compare_doubles);
    printf("],\"p10_ns\":%.7g,\"p90_ns\":%.7g}\n", median_ns[LINES / 10],
           median_ns[LINES - 1 - LINES / 10]);
}

static int measure(struct state *state) {
    pthread_t responder;
    for (int line = 0; line < LINES; line++)
        atomic_store(line_of(state, line), 0); /* the first touch of the page by this thread */
    if (pthread_create(&responder, NULL, respond, state) != 0)
        refuse("the responder's thread cannot be started");
    deliver_stop_signals();
    pthread_barrier_wait(&state->all_ready);
    enum start start = wait_until_started(state);
    const char *stopped_by = stopped_by_start(start);
    const char *wrong = NULL;
    if (start == START_GO) {
        pthread_barrier_wait(&state->all_ready);
        choose_block_length(state->timing);
        stopped_by = take_samples(state->timing, &options.run_options);
        print_lines(state);
    }
    shared_line *awaited = line_of(state, state->line);
    uint64_t number = atomic_exchange(awaited, LAST);
    if (start != START_GO)
        pthread_barrier_wait(&state->all_ready);
    pthread_join(responder, NULL);
    atomic_store(awaited, number);
    if (start == START_GO)
        wrong = find_wrong(state);
    return print_done_line(state->timing, start == START_GO, wrong, stopped_by);
}

static int run(void) {
    complete_options();
    struct state state = {0};
    struct timed_work work = {move_line, &state, 2, note_block, forget_blocks};
    pthread_barrier_init(&state.all_ready, NULL, 2);
    pin_to_cpu(options.cpu);
    state.timing = new_block_timing(&work);
    state.mapping = map_memory(LINES * options.line_bytes, options.run_options.placement);
    state.of_line = calloc(LINES, sizeof *state.of_line);
    if (state.of_line == NULL)
        refuse("out of memory");
    int exit_code = measure(&state);
    free(state.timing);
    free(state.of_line);
    free_index_list(options.run_options.placement.nodes);
    return exit_code;
}

const struct program program = {
    .name = "chaosity-core-to-core",
    .usage = "--cpu N --responder M [OPTION]...",
    .summary = "Measures the latency of moving a cache line between two CPUs, over 32 lines in turn.",
    .options = command_options,
    .notes =
        "SIGTERM or SIGINT ends the measurement after the current block; then the numbers in the "
        "lines are checked. Prints JSON lines: one \"ready\", many \"sample\", one \"lines\", one "
        "\"done\". Each block moves the next of 32 lines; \"lines\" gives the median of each line, "
        "and their first and last decile. A "
        "sample "
        "gives the number of moves of the line (two per round trip) between two readings of "
        "CLOCK_MONOTONIC, in nanoseconds, and \"blocks\": how many blocks of moves took how many "
        "nanoseconds per move, in bins at most 0.2 % wide. Exit code: 0 right result, 1 wrong "
        "result, 2 refused.",
    .example = "from CPU 0 to CPU 8 and back, through lines of node 1, for 2 seconds\n"
               "  chaosity-core-to-core --cpu 0 --responder 8 --memory-nodes 1 --max-seconds 2",
    .run = run,
};
