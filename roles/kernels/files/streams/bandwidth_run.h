/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of a bandwidth kernel in complete passes over its arrays.
 */
#ifndef CHAOSITY_BANDWIDTH_RUN_H
#define CHAOSITY_BANDWIDTH_RUN_H

#include <stdint.h>

#include "streams/stream_arrays.h"
#include "streams/stream_options.h"
#include "streams/timed_passes.h"

struct bandwidth_options {
    struct stream_options stream_options;
    uint64_t warmup_passes;
};

/* Returns the passes of a kernel over mapped arrays, without warm-up. */
struct passes passes_over(struct arrays *arrays);

/* Runs the kernel and prints the ready, sample and done lines. Returns the exit code. */
int run_bandwidth(const struct bandwidth_options *options);

#endif
