/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of a bandwidth kernel: set-up, start, samples, validation, each told as a line of JSON.
 */
#ifndef CHAOSITY_MEASURE_H
#define CHAOSITY_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpus.h"
#include "memory.h"
#include "streams.h"

struct request {
    const struct stream *stream;
    struct index_list cpus;
    struct placement placement;
    size_t array_bytes; /* a multiple of LINE_BYTES, at least a line a thread */
    double sample_seconds;
    double max_seconds;
    uint64_t warmup_passes;
    bool wait_for_start;
    uint64_t started_ns; /* when the program began, for the set-up time */
};

/* Runs it and prints the lines. Returns the exit code. */
int measure(const struct request *request);

#endif
