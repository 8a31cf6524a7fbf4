/* SPDX-License-Identifier: Apache-2.0
 *
 * The first thread of the team leads: it plans rounds of whole passes; the others follow. All meet
 * before and after each round at a spinning barrier; inside a round no thread waits for another,
 * since each only touches its own part. With large arrays a round is one pass, as in STREAM; with
 * arrays that fit a cache it is many, or the barrier would be what is measured.
 */
#define _GNU_SOURCE
#include "measure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "barrier.h"
#include "common.h"
#include "contents.h"
#include "team.h"

/* A round ends after about this long even when its sample is to be longer, so that a stop is seen
 * soon; 1000 times what a barrier of some hundred threads takes. */
static const double round_seconds = 0.05;

struct thread {
    _Alignas(APART_BYTES) struct member *member;
    uint64_t passes; /* warm-up included */
};

struct state {
    const struct request *request;
    struct team team;
    struct thread *threads;
    struct spin_barrier barrier; /* spins: around rounds */
    uint64_t round;              /* passes of the next round, 0: end */
    double pass_ns;              /* of the last round, 0: none yet; for planning only */
    uint64_t measured_passes;    /* without warm-up: the samples' bytes are these times a pass's */
};

static void run_passes(const struct state *state, struct thread *thread, uint64_t passes) {
    const struct stream *stream = state->team.job->stream;
    struct member *member = thread->member;
    for (uint64_t i = 0; i < passes; i++)
        run_pass(stream, &member->part, thread->passes++, &member->verdict);
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
    double wanted_ns = state->team.job->course.sample_seconds * 1e9, elapsed_ns = 0;
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

static uint64_t bytes_per_pass(const struct job *job) {
    return (uint64_t)job->stream->arrays * job->array_bytes;
}

/* Warm-up, samples, and the end of the other threads. */
static void lead(struct state *state) {
    const struct request *request = state->request;
    for (uint64_t i = 0; i < request->warmup_passes && !stop_requested(); i++)
        lead_round(state, 1);
    uint64_t now = monotonic_ns();
    uint64_t limit_ns = now + (uint64_t)(request->job.course.max_seconds * 1e9);
    while (now < limit_ns && !stop_requested()) {
        struct span sample = lead_sample(state, limit_ns);
        print_sample(sample.begin_ns, sample.end_ns, sample.passes * bytes_per_pass(&request->job));
        state->measured_passes += sample.passes;
        now = sample.end_ns;
    }
    state->team.stopped_by = stop_requested() ? "signal" : "time";
    state->round = 0;
    spin_barrier_wait(&state->barrier);
}

static void print_ready(const void *self) {
    const struct state *state = self;
    const struct job *job = state->team.job;
    printf("{\"event\":\"ready\",\"kernel\":\"%s\",\"arrays\":%d,\"array_bytes\":%zu,"
           "\"bytes_per_pass\":%" PRIu64 ",",
           job->stream->name, job->stream->arrays, job->array_bytes, bytes_per_pass(job));
    print_team(&state->team);
    print_course(&job->course);
    printf("\"warmup_passes\":%" PRIu64 ",", state->request->warmup_passes);
    print_build(&job->course, stream_isa);
}

static void run_thread(void *self, int index) {
    struct state *state = self;
    struct thread *thread = &state->threads[index];
    struct member *member = &state->team.members[index];
    thread->member = member;
    if (index == 0)
        lead(state);
    else
        follow(state, thread);
    check_contents(state->team.job->stream, &member->part, thread->passes, &member->verdict);
}

int measure(const struct request *request) {
    int threads = request->job.cpus.count;
    struct state state = {
        .request = request,
        .threads = new_apart(threads, sizeof(struct thread)),
        .barrier.threads = (unsigned)threads,
    };
    run_team(&state.team, &request->job, &(struct work_plan){print_ready, run_thread, &state});
    printf("{\"event\":\"done\",\"passes\":%" PRIu64 ",", state.measured_passes);
    free(state.threads);
    return end_team(&state.team, "computed");
}
