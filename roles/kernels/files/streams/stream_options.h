/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of the programs that run a stream kernel: the kernel, CPUs and size of the arrays.
 */
#ifndef CHAOSITY_STREAM_OPTIONS_H
#define CHAOSITY_STREAM_OPTIONS_H

#include <stddef.h>

#include "common/cpu_lists_and_pinning.h"
#include "common/run_options.h"
#include "streams/instruction_sets.h"
#include "streams/stream_kernels.h"

struct stream_options {
    const struct stream *stream; /* a kernel that this build offers */
    struct index_list cpus;
    size_t array_bytes; /* a multiple of LINE_BYTES, at least a line for each thread */
    struct run_options run_options;
};

/* Rows of a table of options; `options` is a struct stream_options. */
/* clang-format off */
#define CPUS_OPTION(cpus) \
    {"--cpus", "LIST", "one pinned thread on each of these CPUs (Linux list: 0-3,8)", \
     set_cpus, &(cpus)}
#define STREAM_OPTIONS(options) \
    CPUS_OPTION((options).cpus), \
    {"--array-bytes", "N", "size of each array: a multiple of 64, at least 64 per thread", \
     set_bytes, &(options).array_bytes}, \
    MEMORY_NODES_OPTION((options).run_options, \
                        "bind the pages to these NUMA nodes (default: a page lies where it is " \
                        "first touched; each thread touches its own part)"), \
    ISA_OPTION
/* clang-format on */

/* The kernel with this name. Refuses an unknown name and a kernel that this build does not offer.
 */
const struct stream *find_stream(const char *name);

/* Refuses options that lack the kernel, CPUs or size, and a size that leaves a thread without
 * work. */
void require_stream_options(const struct stream_options *options);

void free_stream_options(struct stream_options options);

#endif
