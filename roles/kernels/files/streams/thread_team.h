/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of a measurement, one per PU: their set-up, their start, and the output lines about
 * them. Each program defines the work of its threads. The first thread is the leader: it also
 * measures time and prints.
 *
 * The programs do not use OpenMP, because its runtime obeys environment variables of the user, such
 * as OMP_PROC_BIND, and changes the CPUs on which the process may run before main().
 */
#ifndef CHAOSITY_THREAD_TEAM_H
#define CHAOSITY_THREAD_TEAM_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cpu_lists_and_pinning.h"
#include "common/placed_memory.h"
#include "common/run_options.h"
#include "common/spin_barrier.h"
#include "common/start_line_and_signals.h"
#include "streams/expected_values.h"

struct arrays;

struct member {
    _Alignas(PADDING_BYTES) int cpu;
    int tid;
    struct verdict verdict;
};

struct team {
    struct index_list cpus; /* CPUs; one thread runs on each of them */
    const struct run_options *run_options;
    const struct mapping *mappings; /* memory that the threads work on; not touched yet */
    int mapping_count;
    /* The arrays for the trial of instruction sets; NULL: the widest is used. */
    const struct arrays *arrays;
    uint64_t huge_page_bytes; /* bytes in huge pages of all mappings, known after set-up */
    struct member *members;
    /* Threads sleep at these barriers until all are set up, and until the start. */
    pthread_barrier_t gate;
    enum start start;
    const char *stopped_by; /* the thread that ends the work sets this time, if the work started */
};

/* The functions that a team runs. */
struct team_work {
    void (*set_up)(void *self, int index); /* called by each thread after it was pinned */
    /* Called by the leader after the set-up of all threads. */
    void (*print_ready)(const void *self);
    /* Called by each thread after the start; includes the check of its work. */
    void (*run)(void *self, int index);
    void *self;
};

/* Returns zeroed memory for `count` objects, one per thread. The type of the objects must be
 * aligned to PADDING_BYTES, so that threads do not share cache lines. */
void *allocate_padded(int count, size_t object_bytes);

/* Starts the threads, sets them up, waits for the start line and, if the line comes, runs the work
 * on each thread. Before the call, the CPUs, run options and mappings of the team must be set. */
void run_team(struct team *team, const struct team_work *plan);

/* Prints fields of the ready line, with a comma after the last: the threads and their memory. */
void print_team(const struct team *team);

/* Prints a sample line; `amount` is the name of the counted quantity. */
void print_sample(uint64_t begin_ns, uint64_t end_ns, const char *amount, uint64_t counted);

/* Prints the last fields of the done line, after a comma, frees the memory of the team and returns
 * the exit code. A wrong result is reported as "`kernel` `did` wrong values". */
int end_team(struct team *team, const char *kernel, const char *did);

#endif
