/* SPDX-License-Identifier: Apache-2.0
 *
 * The clock from which all times in the output are read.
 */
#ifndef CHAOSITY_MONOTONIC_CLOCK_H
#define CHAOSITY_MONOTONIC_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns the time of CLOCK_MONOTONIC in nanoseconds. All processes of a machine read the same
 * clock, which is never set back. So samples of programs that run together can be compared over the
 * same window of time. */
static inline uint64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
