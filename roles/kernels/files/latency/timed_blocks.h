/* SPDX-License-Identifier: Apache-2.0
 *
 * Latency from blocks of accesses: one access is too short to be timed, since reading the clock
 * takes as long as tens of them. A block is a fixed number of accesses between two readings of the
 * clock; many blocks give a distribution.
 *
 * A block is long enough that the clock's own cost is far below 1 % of it, so it is not subtracted:
 * what a single reading costs between two others differs from what it costs among loads, and to
 * subtract a number that is not known better than it is large would correct nothing.
 */
#ifndef CHAOSITY_BLOCKS_H
#define CHAOSITY_BLOCKS_H

#include <stdint.h>

#include "common/command_line.h"

/* Durations of blocks in whole nanoseconds: below 1024 each has a bin of its own, above it every
 * power of two has 512 bins. So a bin is at most 0.2 % wide from 512 ns on, where all blocks are
 * (see shortest_block), no logarithm has to be taken, and the few bins that are in use are
 * neighbours in memory, which leaves the caches to what is measured. */
enum { BIN_BITS = 9, MOST_DURATION_BITS = 40 /* 18 minutes; what is longer counts as that */ };
enum { BINS = (MOST_DURATION_BITS - BIN_BITS + 1) << BIN_BITS };

struct histogram {
    uint64_t count[BINS];
    uint64_t blocks;
    int lowest, highest; /* bins that may not be empty; meaningless without blocks */
};

void histogram_add(struct histogram *histogram, uint64_t duration_ns);
/* Centre of the bin that holds the median duration (of an even number of blocks the lower one). */
double histogram_median_ns(const struct histogram *histogram);
/* Prints a JSON object: nanoseconds an access (the bin's centre) to number of blocks. */
void histogram_print(const struct histogram *histogram, uint64_t accesses_per_block);

/* What is timed. */
struct work {
    void (*run)(void *self, uint64_t accesses); /* a multiple of `unit`; ends when all are done */
    void *self;
    uint64_t unit;
};

struct timing {
    const struct work *work;
    double timer_ns; /* of one reading of the clock; of a coarse clock, its step */
    uint64_t accesses_per_block;
    struct histogram sample, all; /* of the sample that is being taken, of all samples */
};

/* Finds out what reading the clock costs. Refuses when there is no memory. */
struct timing *new_timing(const struct work *work);

/* Finds how many accesses a block takes. To be called right before the samples, after a warm-up of
 * the caches: it runs the work for some ten milliseconds, in which a core that slept also wakes and
 * raises its clock (Linux's schedutil looks at a core's load every 10 ms at the most). */
void choose_block(struct timing *timing);

/* Takes and prints samples until the time is up or a stop is requested. Returns which of the two:
 * "time" or "signal". */
const char *take_samples(struct timing *timing, const struct course *course);

/* Prints the done line and, when the result is wrong, complains. `wrong` says in what, NULL: in
 * nothing; what never ran is neither right nor wrong. Returns the exit code. */
int print_done(const struct timing *timing, bool ran, const char *wrong, const char *stopped_by);

#endif
