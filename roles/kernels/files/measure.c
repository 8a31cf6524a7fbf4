/* SPDX-License-Identifier: Apache-2.0
 *
 * One OpenMP thread a PU. The first one leads: it plans rounds of whole passes, takes the time and
 * prints; the others follow. All meet before and after each round at a spinning barrier; inside a
 * round no thread waits for another, since each only touches its own part. With large arrays a
 * round is one pass, as in STREAM; with arrays that fit a cache it is many, or the barrier would be
 * what is measured.
 */
#define _GNU_SOURCE
#include "measure.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arrays.h"
#include "barrier.h"
#include "common.h"
#include "contents.h"

/* A round ends after about this long even when its sample is to be longer, so that a stop is seen
 * soon; 1000 times what a barrier of some hundred threads takes. */
static const double round_seconds = 0.05;

struct thread {
    _Alignas(APART_BYTES) int cpu;
    int tid;
    struct part part;
    struct verdict verdict;
    uint64_t passes; /* warm-up included */
};

struct state {
    const struct request *request;
    struct arrays arrays;
    uint64_t huge_page_bytes; /* of the mapping, once it was touched */
    struct thread *threads;
    pthread_barrier_t gate;      /* sleeps: for set-up and for the start, which may be far away */
    struct spin_barrier barrier; /* spins: around rounds */
    uint64_t round;              /* passes of the next round, 0: end */
    double pass_ns;              /* of the last round, 0: none yet; for planning only */
    enum start start;
    uint64_t measured_passes; /* without warm-up: the samples' bytes are these times a pass's */
    const char *stopped_by;
};

static void run_passes(const struct state *state, struct thread *thread, uint64_t passes) {
    for (uint64_t i = 0; i < passes; i++)
        run_pass(state->request->stream, &thread->part, thread->passes++, &thread->verdict);
}

static void follow(struct state *state, struct thread *thread) {
    for (;;) {
        spin_barrier_wait(&state->barrier);
        if (state->round == 0)
            return;
        run_passes(state, thread, state->round);
        spin_barrier_wait(&state->barrier);
    }
}

struct span {
    uint64_t begin_ns, end_ns, passes;
};

/* The clock is read before the leader, which comes last, lets the others go, and after the slowest
 * has come back. */
static struct span lead_round(struct state *state, uint64_t passes) {
    struct span span = {.passes = passes};
    state->round = passes;
    span.begin_ns = monotonic_ns();
    spin_barrier_wait(&state->barrier);
    run_passes(state, &state->threads[0], passes);
    spin_barrier_wait(&state->barrier);
    span.end_ns = monotonic_ns();
    state->pass_ns = (double)(span.end_ns - span.begin_ns) / (double)passes;
    return span;
}

/* As many passes as fill this time, going by the last round; at least one. */
static uint64_t passes_for(const struct state *state, double nanoseconds) {
    double most = fmin(nanoseconds, round_seconds * 1e9);
    return state->pass_ns > 0 ? (uint64_t)fmax(ceil(most / state->pass_ns), 1) : 1;
}

/* Rounds until the sample has lasted long enough, or the end has come. */
static struct span lead_sample(struct state *state, uint64_t limit_ns) {
    double wanted_ns = state->request->sample_seconds * 1e9, elapsed_ns = 0;
    struct span sample = {0};
    do {
        uint64_t now = sample.passes > 0 ? sample.end_ns : monotonic_ns();
        double left_ns = limit_ns > now ? (double)(limit_ns - now) : 0;
        uint64_t passes = passes_for(state, fmin(wanted_ns - elapsed_ns, left_ns));
        struct span round = lead_round(state, passes);
        if (sample.passes == 0)
            sample.begin_ns = round.begin_ns;
        sample.end_ns = round.end_ns;
        sample.passes += round.passes;
        elapsed_ns = (double)(sample.end_ns - sample.begin_ns);
    } while (elapsed_ns < wanted_ns && sample.end_ns < limit_ns && !stop_requested());
    return sample;
}

static uint64_t bytes_per_pass(const struct request *request) {
    return (uint64_t)request->stream->arrays * request->array_bytes;
}

static void print_sample(const struct state *state, struct span sample) {
    printf("{\"event\":\"sample\",\"begin_ns\":%" PRIu64 ",\"end_ns\":%" PRIu64
           ",\"bytes\":%" PRIu64 "}\n",
           sample.begin_ns, sample.end_ns, sample.passes * bytes_per_pass(state->request));
    if (ferror(stdout)) /* a full disk; when the reader is gone, SIGPIPE ends the process */
        refuse("the results could not be written to the standard output");
}

/* Warm-up, samples, and the end of the other threads. */
static void lead(struct state *state) {
    const struct request *request = state->request;
    for (uint64_t i = 0; i < request->warmup_passes && !stop_requested(); i++)
        lead_round(state, 1);
    uint64_t now = monotonic_ns(), limit_ns = now + (uint64_t)(request->max_seconds * 1e9);
    while (now < limit_ns && !stop_requested()) {
        struct span sample = lead_sample(state, limit_ns);
        print_sample(state, sample);
        state->measured_passes += sample.passes;
        now = sample.end_ns;
    }
    state->stopped_by = stop_requested() ? "signal" : "time";
    state->round = 0;
    spin_barrier_wait(&state->barrier);
}

static void print_ready(const struct state *state) {
    const struct request *request = state->request;
    printf("{\"event\":\"ready\",\"kernel\":\"%s\",\"arrays\":%d,\"array_bytes\":%zu,"
           "\"bytes_per_pass\":%" PRIu64 ",\"threads\":[",
           request->stream->name, request->stream->arrays, request->array_bytes,
           bytes_per_pass(request));
    for (int i = 0; i < request->cpus.count; i++)
        printf("%s{\"cpu\":%d,\"tid\":%d}", i > 0 ? "," : "", state->threads[i].cpu,
               state->threads[i].tid);
    printf("],");
    print_placement(&request->placement, &state->arrays.mapping, state->huge_page_bytes);
    printf("\"sample_seconds\":%g,\"max_seconds\":%g,\"warmup_passes\":%" PRIu64
           ",\"setup_seconds\":%.6f,\"version\":\"%s\",\"compiler\":\"%s\",\"isa\":\"%s\"}\n",
           request->sample_seconds, request->max_seconds, request->warmup_passes,
           (double)(monotonic_ns() - request->started_ns) * 1e-9, VERSION, COMPILER, stream_isa);
}

static int print_done(const struct state *state) {
    struct verdict sum = {0};
    for (int i = 0; i < state->request->cpus.count; i++) {
        const struct verdict *verdict = &state->threads[i].verdict;
        sum.wrong += verdict->wrong;
        sum.max_relative_error = fmax(sum.max_relative_error, verdict->max_relative_error);
    }
    printf("{\"event\":\"done\",\"passes\":%" PRIu64 ",", state->measured_passes);
    if (state->start == START_GO)
        printf("\"valid\":%s,\"max_relative_error\":%g,", sum.wrong == 0 ? "true" : "false",
               sum.max_relative_error);
    else /* nothing ran: neither right nor wrong */
        printf("\"valid\":null,\"max_relative_error\":null,");
    printf("\"stopped_by\":\"%s\"}\n", state->stopped_by);
    if (fflush(stdout) != 0 || ferror(stdout))
        refuse("the results could not be written to the standard output");
    if (sum.wrong == 0)
        return EXIT_VALID;
    complain("%s computed wrong values: %" PRIu64 " checks failed, the largest relative error is "
             "%g; the numbers must not be used",
             state->request->stream->name, sum.wrong, sum.max_relative_error);
    return EXIT_INVALID;
}

/* What the leader does alone between set-up and measurement, while the others sleep. */
static enum start await_start(struct state *state) {
    if (stop_requested())
        return START_STOPPED;
    state->huge_page_bytes = huge_page_bytes(&state->arrays.mapping);
    print_ready(state);
    return state->request->wait_for_start ? wait_for_start() : START_GO;
}

static void run_thread(struct state *state, int index) {
    struct thread *thread = &state->threads[index];
    bool leader = index == 0;
    if (leader)
        deliver_stop_signals();
    thread->cpu = pin_to_cpu(state->request->cpus.index[index]);
    thread->tid = (int)syscall(SYS_gettid);
    thread->part = part_of(&state->arrays, index);
    touch_part(&state->arrays, &thread->part);
    pthread_barrier_wait(&state->gate);
    if (leader)
        state->start = await_start(state);
    pthread_barrier_wait(&state->gate);
    if (state->start != START_GO)
        return;
    if (leader)
        lead(state);
    else
        follow(state, thread);
    check_contents(state->request->stream, &thread->part, thread->passes, &thread->verdict);
    pthread_barrier_wait(&state->gate);
}

int measure(const struct request *request) {
    int threads = request->cpus.count;
    struct state state = {
        .request = request,
        .arrays = {.stream = request->stream, .bytes = request->array_bytes, .threads = threads},
        .barrier.threads = (unsigned)threads,
    };
    state.threads = aligned_alloc(APART_BYTES, sizeof(struct thread) * (size_t)threads);
    if (state.threads == NULL)
        refuse("out of memory");
    memset(state.threads, 0, sizeof(struct thread) * (size_t)threads);
    map_arrays(&state.arrays, request->placement);
    pthread_barrier_init(&state.gate, NULL, (unsigned)threads);
    omp_set_dynamic(0); /* exactly as many threads as asked for */
#pragma omp parallel num_threads(threads)
    {
        if (omp_get_num_threads() != threads)
            refuse("OpenMP started %d threads instead of %d (is OMP_THREAD_LIMIT set?)",
                   omp_get_num_threads(), threads);
        run_thread(&state, omp_get_thread_num());
    }
    if (state.start == START_END_OF_INPUT)
        state.stopped_by = "end_of_input";
    else if (state.start == START_STOPPED)
        state.stopped_by = "signal";
    int exit_code = print_done(&state);
    free(state.threads);
    return exit_code;
}
