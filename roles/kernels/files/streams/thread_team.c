/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "streams/thread_team.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/errors.h"
#include "streams/instruction_sets.h"
#include "streams/stream_arrays.h"

/* Time of the trial, which is long enough for 8 turns of 2 ms of each of three instruction sets. */
static const double isa_trial_seconds = 0.05;

void *allocate_padded(int count, size_t object_bytes) {
    size_t bytes = object_bytes * (size_t)count;
    void *objects = aligned_alloc(PADDING_BYTES, bytes);
    if (objects == NULL)
        refuse("out of memory");
    return memset(objects, 0, bytes);
}

/* The leader runs this function between set-up and start, while the other threads sleep. */
static enum start wait_until_started(struct team *team, const struct team_work *plan) {
    if (stop_requested())
        return START_STOPPED;
    for (int i = 0; i < team->mapping_count; i++)
        team->huge_page_bytes += huge_page_bytes(&team->mappings[i]);
    if (team->arrays != NULL)
        choose_isa_on(team->arrays, fmin(isa_trial_seconds, team->run_options->max_seconds / 10));
    plan->print_ready(plan->self);
    return team->run_options->wait_for_start ? wait_for_start() : START_GO;
}

static void run_member(struct team *team, const struct team_work *plan, int index) {
    struct member *member = &team->members[index];
    bool leader = index == 0;
    if (leader)
        deliver_stop_signals();
    member->cpu = pin_to_cpu(team->cpus.index[index]);
    member->tid = (int)syscall(SYS_gettid);
    plan->set_up(plan->self, index);
    pthread_barrier_wait(&team->gate);
    if (leader)
        team->start = wait_until_started(team, plan);
    pthread_barrier_wait(&team->gate);
    if (team->start != START_GO)
        return;
    plan->run(plan->self, index);
    pthread_barrier_wait(&team->gate);
}

struct started_member {
    struct team *team;
    const struct team_work *plan;
    int index;
    pthread_t thread;
};

static void *start_member(void *with) {
    const struct started_member *started = with;
    run_member(started->team, started->plan, started->index);
    return NULL;
}

void run_team(struct team *team, const struct team_work *plan) {
    int threads = team->cpus.count;
    struct started_member *started = calloc((size_t)threads, sizeof *started);
    if (started == NULL)
        refuse("out of memory");
    team->members = allocate_padded(threads, sizeof(struct member));
    pthread_barrier_init(&team->gate, NULL, (unsigned)threads);
    for (int i = 1; i < threads; i++) {
        started[i] = (struct started_member){.team = team, .plan = plan, .index = i};
        int error = pthread_create(&started[i].thread, NULL, start_member, &started[i]);
        if (error != 0)
            refuse("thread %d of %d cannot be started: %s", i + 1, threads, strerror(error));
    }
    run_member(team, plan, 0); /* the first thread of the process is the leader */
    for (int i = 1; i < threads; i++)
        pthread_join(started[i].thread, NULL);
    free(started);
    if (team->start != START_GO)
        team->stopped_by = stopped_by_start(team->start);
}

void print_team(const struct team *team) {
    printf("\"threads\":[");
    for (int i = 0; i < team->cpus.count; i++)
        printf("%s{\"cpu\":%d,\"tid\":%d}", i > 0 ? "," : "", team->members[i].cpu,
               team->members[i].tid);
    printf("],");
    print_isa_trial();
    print_placement(&team->run_options->placement, team->mappings, team->mapping_count,
                    team->huge_page_bytes);
}

void print_sample(uint64_t begin_ns, uint64_t end_ns, const char *amount, uint64_t counted) {
    printf("{\"event\":\"sample\",\"begin_ns\":%" PRIu64 ",\"end_ns\":%" PRIu64 ",\"%s\":%" PRIu64
           "}\n",
           begin_ns, end_ns, amount, counted);
    require_written();
}

static struct verdict sum_of_verdicts(const struct team *team) {
    struct verdict sum = {0};
    for (int i = 0; i < team->cpus.count; i++) {
        const struct verdict *verdict = &team->members[i].verdict;
        sum.wrong += verdict->wrong;
        sum.max_relative_error = fmax(sum.max_relative_error, verdict->max_relative_error);
    }
    return sum;
}

int end_team(struct team *team, const char *kernel, const char *did) {
    struct verdict sum = sum_of_verdicts(team);
    if (team->start == START_GO)
        printf("\"valid\":%s,\"max_relative_error\":%g,", sum.wrong == 0 ? "true" : "false",
               sum.max_relative_error);
    else /* no work ran, so the result is neither right nor wrong */
        printf("\"valid\":null,\"max_relative_error\":null,");
    printf("\"stopped_by\":\"%s\"}\n", team->stopped_by);
    require_written();
    free(team->members);
    if (sum.wrong == 0)
        return EXIT_VALID;
    complain("%s %s wrong values: %" PRIu64 " checks failed, the largest relative error is %g; "
             "the numbers must not be used",
             kernel, did, sum.wrong, sum.max_relative_error);
    return EXIT_INVALID;
}
