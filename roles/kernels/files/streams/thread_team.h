/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of a measurement, one per PU: set-up, start and the lines about them. The work in
 * between belongs to each program. The first thread leads: it also measures time and prints.
 *
 * No OpenMP: its runtime obeys variables such as OMP_PROC_BIND of whoever runs the program, and
 * changes the CPUs on which the process may run before main().
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
    struct index_list cpus; /* one thread on each */
    const struct run_options *run_options;
    const struct mapping *mappings; /* memory that the threads work on; not touched yet */
    int mapping_count;
    const struct arrays *arrays; /* on which the instruction set is tried; NULL: the widest */
    uint64_t huge_page_bytes; /* of all mappings, known after set-up */
    struct member *members;
    pthread_barrier_t gate; /* threads sleep here until all are set up, and until the start */
    enum start start;
    const char *stopped_by; /* the thread that ends the work sets it, if the work started */
};

/* The functions that a team runs. */
struct team_work {
    void (*set_up)(void *self, int index); /* by each thread, already pinned */
    void (*print_ready)(const void *self); /* by the leader, after all set-up */
    void (*run)(void *self, int index);    /* by each thread after the start; includes its check */
    void *self;
};

/* Zeroed memory for `count` objects, one per thread. Their type must be aligned to PADDING_BYTES,
 * so that threads do not share cache lines. */
void *allocate_padded(int count, size_t object_bytes);

/* Starts the threads, sets them up, waits for the start and, if it comes, runs the work on each
 * thread. The team's CPUs, run options and mappings must be set. */
void run_team(struct team *team, const struct team_work *plan);

/* Prints fields of the ready line, with a comma after the last: the threads and their memory. */
void print_team(const struct team *team);

/* Prints a sample line; `amount` is the name of the counted quantity. */
void print_sample(uint64_t begin_ns, uint64_t end_ns, const char *amount, uint64_t counted);

/* Prints the last fields of the done line, after a comma, frees the team's memory and returns the
 * exit code. A wrong result is reported as "`kernel` `did` wrong values". */
int end_team(struct team *team, const char *kernel, const char *did);

#endif
