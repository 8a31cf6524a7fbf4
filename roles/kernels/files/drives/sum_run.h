/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of chaosity-sum: set-up, start, samples, validation, each told as a line of JSON.
 */
#ifndef CHAOSITY_SUMMING_H
#define CHAOSITY_SUMMING_H

#include <stdbool.h>
#include <stddef.h>

#include "streams/stream_options.h"
#include "drives/drive_stripes.h"

struct summing {
    struct job job;         /* its array_bytes: of the array, wherever it is */
    struct stripes stripes; /* count 0: the array is in memory */
    int queue_depth;
    bool registered;
    double warmup_seconds;
};

/* Runs it and prints the lines. Returns the exit code. */
int sum_array(const struct summing *summing);

#endif
