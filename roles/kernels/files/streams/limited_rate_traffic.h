/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory traffic at an even, limited rate, for a load that runs together with another measurement.
 */
#ifndef CHAOSITY_LIMITED_RATE_TRAFFIC_H
#define CHAOSITY_LIMITED_RATE_TRAFFIC_H

#include "streams/stream_options.h"

/* A stream kernel with its memory traffic: the numbers of lines that the kernel reads and writes
 * for each line of an array. An ordinary store first fetches the line that it overwrites, which
 * counts as a read. (Some processors omit this fetch when whole lines are overwritten and the
 * memory is busy. The fetch is counted nevertheless.) */
struct traffic_kernel {
    const char *name; /* name of the stream kernel */
    int reads, writes;
};

extern const struct traffic_kernel traffic_kernels[];
extern const int traffic_kernel_count;

struct traffic_options {
    const struct traffic_kernel *kernel;
    struct stream_options stream_options;
    int share; /* 1 to 100 per cent of the peak rate of each thread; 100: unlimited */
    double peak_seconds;
};

/* Runs the traffic and prints the ready, sample and done lines. Returns the exit code. */
int run_traffic(const struct traffic_options *options);

#endif
