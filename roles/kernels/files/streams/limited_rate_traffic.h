/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory traffic at an even, limited rate, as a load that runs together with another measurement.
 */
#ifndef CHAOSITY_LIMITED_RATE_TRAFFIC_H
#define CHAOSITY_LIMITED_RATE_TRAFFIC_H

#include "streams/stream_options.h"

/* A stream kernel by the traffic that the memory sees: how many lines it reads and writes for each
 * line of an array. An ordinary store first fetches the line that it overwrites, which counts as a
 * read. (Some processors omit this fetch when whole lines are overwritten and the memory is busy.
 * It is counted all the same.) */
struct traffic_kernel {
    const char *name; /* of the stream kernel */
    int reads, writes;
};

extern const struct traffic_kernel traffic_kernels[];
extern const int traffic_kernel_count;

struct traffic_options {
    const struct traffic_kernel *kernel;
    struct stream_options stream_options;
    int share; /* 1 to 100 per cent of its own peak rate; 100: unlimited */
    double peak_seconds;
};

/* Runs the traffic and prints the ready, sample and done lines. Returns the exit code. */
int run_traffic(const struct traffic_options *options);

#endif
