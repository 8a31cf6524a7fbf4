/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading from several memory nodes in turn, so that all paths to them are busy at the same time.
 */
#ifndef CHAOSITY_ROUND_ROBIN_READS_H
#define CHAOSITY_ROUND_ROBIN_READS_H

#include <stddef.h>

#include "common/cpu_lists_and_pinning.h"
#include "common/run_options.h"

struct round_robin_options {
    struct index_list cpus;
    /* Bytes of each node's buffer: a multiple of LINE_BYTES, at least a line per thread. */
    size_t buffer_bytes;
    double turn_seconds; /* time for which a thread reads from one node */
    struct run_options run_options; /* options; the placement in them contains the nodes */
};

/* Runs the reads and prints the ready, sample and done lines. Returns the exit code. */
int run_round_robin_reads(const struct round_robin_options *options);

#endif
