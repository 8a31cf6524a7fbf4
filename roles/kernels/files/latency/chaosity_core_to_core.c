/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-core-to-core: how long it takes to move one cache line between two CPUs.
 *
 * The initiator writes an odd number into the line, the responder answers with the next even one,
 * each as soon as it sees the other's. The line moves twice a round trip, so its latency is half of
 * that. What lies in between: one CPU has the line to itself and has written it, the other asks for
 * it, gets it, sees the new number, and asks for it once more, to write.
 *
 * Whatever the CPUs are, the request first goes to where the line is at home, hence --memory-nodes.
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

#include "common/spin_barrier.h"
#include "latency/timed_blocks.h"
#include "latency/cpu_caches.h"
#include "common/process.h"
#include "common/cpu_lists.h"
#include "common/placed_memory.h"
#include "common/command_line.h"

static const char help[] =
    "Usage: chaosity-core-to-core --cpu N --responder M [OPTION]...\n"
    "Measures the latency of moving one cache line between two CPUs.\n"
    "\n"
    "  --cpu N               the CPU that writes first and takes the time\n"
    "  --responder M         the CPU that answers\n" LATENCY_HELP "\n"
    "SIGTERM or SIGINT ends the measurement after the block that runs; then the numbers in the\n"
    "line are checked. Prints JSON lines: one \"ready\", many \"sample\", one \"done\". A sample\n"
    "says how many moves of the line (two a round trip) were timed between two readings of\n"
    "CLOCK_MONOTONIC, in nanoseconds, and \"blocks\": how many blocks of moves took that many\n"
    "nanoseconds a move, in bins at most 0.2 % wide. Exit code: 0 right result, 1 wrong result,\n"
    "2 could not do what was asked.\n"
    "\n"
    "Example: from CPU 0 to CPU 8 and back, through a line of node 1, for 2 seconds\n"
    "  chaosity-core-to-core --cpu 0 --responder 8 --memory-nodes 1 --max-seconds 2\n";

enum option_value { CPU = 1, RESPONDER };

static const struct option options[] = {
    {"cpu", required_argument, NULL, CPU},
    {"responder", required_argument, NULL, RESPONDER},
    LATENCY_OPTIONS,
    {NULL, 0, NULL, 0},
};

struct request {
    int cpu, responder; /* -1: not given */
    struct course course;
};

/* What moves: a number and nothing else. Accesses are relaxed, since the number is all that the two
 * tell each other, and of one object all CPUs see the same order of values; a stronger order would
 * add instructions on arm64 that are no part of moving a line. */
typedef _Atomic uint64_t shared_line;

/* No answer is ever this: it tells the responder to leave. */
#define LAST UINT64_MAX

/* Mistakes that the checks must find, for the tests: make EXTRA=-DMUTANT=1, ... */
#ifndef MUTANT
#define MUTANT NO_MUTANT
#endif
enum { NO_MUTANT, WRONG_ANSWER, BLOCKS_SHORT, MUTANT_ANSWER = 1000 };

struct state {
    const struct request *request;
    struct mapping mapping;
    shared_line *line;
    struct timing *timing;
    pthread_barrier_t gate; /* sleeps: for set-up and for the start, which may be far away */

    _Alignas(APART_BYTES) uint64_t moves; /* that were to be made, warm-up included */
    uint64_t answered;                    /* the last right answer: the line moved so often */
    uint64_t wrong_answers;

    _Alignas(APART_BYTES) int responder_tid;
    uint64_t wrong_questions; /* written once, at the end: the line alone is what moves */
};

static void set_own_option(void *to, int option, const char *text) {
    struct request *request = to;
    switch ((enum option_value)option) {
    case CPU: request->cpu = (int)parse_count("--cpu", text, MOST_CPUS - 1); return;
    case RESPONDER:
        request->responder = (int)parse_count("--responder", text, MOST_CPUS - 1);
        return;
    }
}

/* Refuses what cannot be measured and fills in what was left to this program. */
static void complete(struct request *request) {
    if (request->cpu < 0 || request->responder < 0)
        refuse("--cpu and --responder are needed, see --help");
    if (request->cpu == request->responder)
        refuse("--cpu and --responder must be two CPUs, not %d twice", request->cpu);
    int cpus[] = {request->cpu, request->responder};
    require_allowed_cpus((struct index_list){cpus, 2});
    if (request->course.line_bytes == 0)
        request->course.line_bytes = cache_line_bytes(request->cpu);
}

/* Neither side pauses between two looks: on x86 a pause is as long as many moves of a line. */
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
    pin_to_cpu(state->request->responder);
    state->responder_tid = (int)syscall(SYS_gettid);
    pthread_barrier_wait(&state->gate); /* set up */
    pthread_barrier_wait(&state->gate); /* started, or never to be: then LAST is there already */
    while ((seen = await_change(state->line, mine)) != LAST) {
        wrong += seen != mine + 1;
        mine = seen + 1 + 2 * (MUTANT == WRONG_ANSWER && seen > MUTANT_ANSWER);
        atomic_store_explicit(state->line, mine, memory_order_relaxed);
    }
    state->wrong_questions = wrong;
    return NULL;
}

/* Ends even when all answers are wrong: any answer is one. */
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
    const struct request *request = state->request;
    const struct course *course = &request->course;
    printf("{\"event\":\"ready\",\"line_bytes\":%zu,\"threads\":[{\"cpu\":%d,\"tid\":%d},"
           "{\"cpu\":%d,\"tid\":%d}],",
           course->line_bytes, request->cpu, (int)syscall(SYS_gettid), request->responder,
           state->responder_tid);
    print_placement(&course->placement, &state->mapping, 1, huge_page_bytes(&state->mapping));
    print_course(course);
    print_build(course, NULL);
}

static enum start await_start(struct state *state) {
    if (stop_requested())
        return START_STOPPED;
    print_ready(state);
    return state->request->course.wait_for_start ? wait_for_start() : START_GO;
}

static const char *find_wrong(const struct state *state, uint64_t number_at_end) {
    if (state->wrong_answers > 0 || state->wrong_questions > 0)
        return "a number in the line was not the next one";
    if (number_at_end != state->moves)
        return "the line did not move as often as was counted";
    return NULL;
}

static int run(struct state *state) {
    pthread_t responder;
    atomic_store(state->line, 0); /* the first touch of the page */
    if (pthread_create(&responder, NULL, respond, state) != 0)
        refuse("the responder's thread cannot be started");
    deliver_stop_signals();
    pthread_barrier_wait(&state->gate);
    enum start start = await_start(state);
    const char *stopped_by = stopped_by_start(start);
    uint64_t number_at_end = 0;
    if (start == START_GO) {
        pthread_barrier_wait(&state->gate);
        choose_block(state->timing);
        stopped_by = take_samples(state->timing, &state->request->course);
        number_at_end = atomic_load(state->line);
        atomic_store(state->line, LAST);
    } else {
        atomic_store(state->line, LAST);
        pthread_barrier_wait(&state->gate);
    }
    pthread_join(responder, NULL);
    return print_done(state->timing, start == START_GO, find_wrong(state, number_at_end),
                      stopped_by);
}

static const struct program program = {
    .name = "chaosity-core-to-core",
    .help = help,
    .options = options,
    .set = set_own_option,
};

int main(int argc, char *argv[]) {
    struct request request = {
        .cpu = -1,
        .responder = -1,
        .course = {.sample_seconds = 0.05, .max_seconds = 10},
    };
    begin_program(argc, argv, &program, &request.course, &request);
    complete(&request);

    struct state state = {.request = &request};
    struct work work = {move_line, &state, 2};
    pthread_barrier_init(&state.gate, NULL, 2);
    pin_to_cpu(request.cpu);
    state.timing = new_timing(&work);
    state.mapping = map_memory(request.course.line_bytes, request.course.placement);
    state.line = (shared_line *)(void *)state.mapping.start;
    int exit_code = run(&state);
    free(state.timing);
    free_index_list(request.course.placement.nodes);
    return exit_code;
}
