/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of a bandwidth kernel: set-up, start, samples, validation, each told as a line of JSON.
 */
#ifndef CHAOSITY_MEASURE_H
#define CHAOSITY_MEASURE_H

#include <stdint.h>

#include "streams/stream_arrays.h"
#include "streams/stream_options.h"
#include "streams/timed_passes.h"

struct request {
    struct job job;
    uint64_t warmup_passes;
};

/* The passes of a stream over arrays that were mapped; without warm-up. */
struct passes passes_of(struct arrays *arrays);

/* Runs it and prints the lines. Returns the exit code. */
int measure(const struct request *request);

#endif
