/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs that run a stream are asked for alike: which one, by whom, over how much
 * memory.
 */
#ifndef CHAOSITY_JOB_H
#define CHAOSITY_JOB_H

#include <stdbool.h>
#include <stddef.h>

#include "common/cpu_lists.h"
#include "common/command_line.h"
#include "streams/stream_kernels.h"

struct job {
    const struct stream *stream; /* one that this build offers */
    struct index_list cpus;
    size_t array_bytes; /* a multiple of LINE_BYTES, at least a line a thread */
    struct course course;
};

/* Values for getopt_long(), between those of the programs' own options and the common ones. */
enum job_option { CPUS = 128, ARRAY_BYTES };

/* For a program's table. */
/* clang-format off */
#define JOB_OPTIONS                                                  \
    {"cpus", required_argument, NULL, CPUS},                         \
    {"array-bytes", required_argument, NULL, ARRAY_BYTES}
/* clang-format on */

/* For a program's help; --memory-nodes is a common option, but here threads touch their parts. */
#define JOB_HELP                                                                                   \
    "  --cpus LIST           one pinned thread on each of these CPUs (Linux list: 0-3,8)\n"        \
    "  --array-bytes N       size of each array: a multiple of 64, at least 64 a thread\n"         \
    "  --memory-nodes LIST   bind the pages to these NUMA nodes (default: a page is where it is\n" \
    "                        first touched, which each thread does for its part)\n"

/* Returns whether the option was one of the job's. */
bool set_job_option(struct job *job, int option, const char *text);

/* The stream of that name. Refuses one that there is not or that this build does not offer. */
const struct stream *find_stream(const char *name);

/* Refuses a job that lacks something or gives a thread nothing to do. */
void require_job(const struct job *job);

void free_job(struct job job);

#endif
