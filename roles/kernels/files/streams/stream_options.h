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
    const struct stream *stream; /* a kernel that this program offers */
    struct index_list cpus;
    /* Bytes of each array: a multiple of LINE_BYTES, at least a line for each thread. */
    size_t array_bytes;
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

/* Returns the kernel with a name. For an unknown name, or a kernel that this program does not
 * offer, the process ends with an error.
 */
const struct stream *find_stream(const char *name);

/* Ends the process with an error if the options lack the kernel, CPUs or size, or if the size
 * leaves a thread without work. */
void require_stream_options(const struct stream_options *options);

void free_stream_options(struct stream_options options);

#endif
