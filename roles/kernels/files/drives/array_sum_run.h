/* SPDX-License-Identifier: Apache-2.0
 *
 * The sequence of a run of chaosity-sum: set-up, start, samples, validation.
 */
#ifndef CHAOSITY_ARRAY_SUM_RUN_H
#define CHAOSITY_ARRAY_SUM_RUN_H

#include <stdbool.h>
#include <stddef.h>

#include "drives/drive_stripes.h"
#include "streams/stream_options.h"

struct sum_options {
    struct stream_options
        stream_options;     /* array_bytes is the size of the array, in memory or on drives */
    struct stripes stripes; /* if count is 0, the array is in memory */
    int queue_depth;
    bool registered; /* registered buffers, see --registered-buffers */
    double warmup_seconds;
};

/* Runs the sum and prints the ready, sample and done lines. Returns the exit code. */
int run_sum(const struct sum_options *options);

#endif
