/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads that do a job, one OpenMP thread a PU: their set-up, their start and what is told of
 * them all. What they do in between is the programs' own. The first thread leads: it also takes the
 * time and prints.
 */
#ifndef CHAOSITY_TEAM_H
#define CHAOSITY_TEAM_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "common/spin_barrier.h"
#include "common/process.h"
#include "common/cpu_lists.h"
#include "streams/expected_values.h"
#include "common/placed_memory.h"
#include "common/command_line.h"

struct member {
    _Alignas(APART_BYTES) int cpu;
    int tid;
    struct verdict verdict;
};

struct team {
    struct index_list cpus; /* one member on each */
    const struct course *course;
    const struct mapping *mappings; /* what they work on; not touched yet */
    int mapping_count;
    uint64_t huge_page_bytes; /* of all mappings, once they were touched */
    struct member *members;
    pthread_barrier_t gate; /* sleeps: for set-up and for the start, which may be far away */
    enum start start;
    const char *stopped_by; /* to be set by whoever ends the work, if it started */
};

/* What a program has its team do. */
struct work_plan {
    void (*set_up)(void *self, int index); /* by each member, already pinned */
    void (*print_ready)(const void *self); /* by the leader, when all are set up */
    void (*run)(void *self, int index);    /* by each member, once started; its check included */
    void *self;
};

/* Zeroed memory for an object of each thread, whose type keeps it APART_BYTES from the others. */
void *new_apart(int count, size_t object_bytes);

/* Sets the members up, awaits the start and, if it comes, has each run its work. The team's CPUs,
 * course and mappings are to be there. */
void run_team(struct team *team, const struct work_plan *plan);

/* Prints, as fields of the ready line and with a comma after the last, the members and where their
 * memory is. */
void print_team(const struct team *team);

/* Prints a whole sample; `amount` is the name of what is counted. */
void print_sample(uint64_t begin_ns, uint64_t end_ns, const char *amount, uint64_t counted);

/* Prints the last fields of the done line, after a comma; when the result is wrong, complains of
 * what the `kernel` `did`. Frees what the team has, and returns the exit code. */
int end_team(struct team *team, const char *kernel, const char *did);

#endif
