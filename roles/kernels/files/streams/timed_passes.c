/* SPDX-License-Identifier: Apache-2.0
 *
 * The first thread of the team is the leader: it plans rounds of complete passes, and the other
 * threads follow. All threads meet before and after each round at a spinning barrier. With large
 * arrays, a round is one pass, as in STREAM. With arrays that fit into a cache, a round is many
 * passes, because otherwise the barrier would take most of the time.
 */
#include "streams/timed_passes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/monotonic_clock.h"
#include "common/parse_numbers.h"
#include "common/run_options.h"
#include "common/spin_barrier.h"
#include "common/start_line_and_signals.h"

/* Longest duration of a round in seconds, so that a stop signal is noticed soon. This duration is
 * 1000 times the time of a barrier of some hundred threads. */
static const double round_seconds = 0.05;

struct thread {
    _Alignas(PADDING_BYTES) struct verdict *verdict;
    int index;
    uint64_t passes; /* number of passes, including the warm-up */
};

struct state {
    const struct passes *work;
    struct team *team;
    struct thread *threads;
    struct spin_barrier barrier; /* before and after each round */
    uint64_t round;              /* number of passes of the next round; 0 ends the measurement */
    /* Duration of a pass in the last round, for planning; 0 before the first round. */
    double pass_ns;
    uint64_t measured_passes; /* number of passes without the warm-up */
};

void set_warmup_passes(void *target, const char *option, const char *text) {
    *(uint64_t *)target = parse_count(option, text, UINT32_MAX);
}

static void run_passes(struct state *state, struct thread *thread, uint64_t passes) {
    const struct passes *work = state->work;
    for (uint64_t i = 0; i < passes; i++) {
        if (work->wait_for_all && i > 0)
            spin_barrier_wait(&state->barrier);
        work->run(work->self, thread->index, thread->passes++, thread->verdict);
    }
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

/* The leader arrives last at the barrier. The clock is read before the leader releases the other
 * threads, and again after the slowest thread has arrived at the next barrier. */
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

/* Returns the number of passes that take a given time, estimated from the last round; at least
 * one. */
static uint64_t passes_for(const struct state *state, double nanoseconds) {
    double most = fmin(nanoseconds, round_seconds * 1e9);
    return state->pass_ns > 0 ? (uint64_t)fmax(ceil(most / state->pass_ns), 1) : 1;
}

/* Runs rounds until the sample is long enough or the measurement ends. */
static struct span lead_sample(struct state *state, uint64_t limit_ns) {
    double wanted_ns = state->team->run_options->sample_seconds * 1e9, elapsed_ns = 0;
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

/* Runs the warm-up and the samples in the first thread, and then tells the other threads to end. */
static void lead(struct state *state) {
    const struct passes *work = state->work;
    for (uint64_t i = 0; i < work->warmup && !stop_requested(); i++)
        lead_round(state, 1);
    uint64_t now = monotonic_ns();
    uint64_t limit_ns = now + (uint64_t)(state->team->run_options->max_seconds * 1e9);
    while (now < limit_ns && !stop_requested()) {
        struct span sample = lead_sample(state, limit_ns);
        print_sample(sample.begin_ns, sample.end_ns, work->amount,
                     sample.passes * work->amount_per_pass);
        state->measured_passes += sample.passes;
        now = sample.end_ns;
    }
    state->team->stopped_by = stop_requested() ? "signal" : "time";
    state->round = 0;
    spin_barrier_wait(&state->barrier);
}

static void print_ready(const void *self) {
    const struct state *state = self;
    const struct passes *work = state->work;
    printf("{\"event\":\"ready\",\"kernel\":\"%s\",", work->kernel);
    work->print_details(work->self);
    print_team(state->team);
    print_run_options(state->team->run_options);
    printf("\"warmup_passes\":%" PRIu64 ",", work->warmup);
    print_build();
}

static void set_up_thread(void *self, int index) {
    const struct state *state = self;
    state->work->set_up(state->work->self, index);
}

static void run_thread(void *self, int index) {
    struct state *state = self;
    struct thread *thread = &state->threads[index];
    thread->index = index;
    thread->verdict = &state->team->members[index].verdict;
    if (index == 0)
        lead(state);
    else
        follow(state, thread);
    state->work->check(state->work->self, index, thread->passes, thread->verdict);
}

int run_timed_passes(struct team *team, const struct passes *work) {
    int threads = team->cpus.count;
    struct state state = {
        .work = work,
        .team = team,
        .threads = allocate_padded(threads, sizeof(struct thread)),
        .barrier.threads = (unsigned)threads,
    };
    team->arrays = work->arrays;
    run_team(team, &(struct team_work){set_up_thread, print_ready, run_thread, &state});
    printf("{\"event\":\"done\",\"passes\":%" PRIu64 ",", state.measured_passes);
    free(state.threads);
    return end_team(team, work->kernel, "computed");
}
