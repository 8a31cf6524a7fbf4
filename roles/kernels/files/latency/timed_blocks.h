/* SPDX-License-Identifier: Apache-2.0
 *
 * The latency of accesses, measured in blocks of accesses. A single access is too short for the
 * clock, since one clock reading takes as long as tens of accesses. A block is a fixed number of
 * accesses between two clock readings; many blocks give a distribution.
 *
 * A block is so long that reading the clock takes far below 1 % of its duration. The time of a
 * clock reading is not subtracted. A reading between two other readings takes another time than a
 * reading among loads, and subtracting a number with an error as large as the number would correct
 * nothing.
 */
#ifndef CHAOSITY_TIMED_BLOCKS_H
#define CHAOSITY_TIMED_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/run_options.h"

/* A histogram of durations of blocks in whole nanoseconds. Below 1024 ns, each duration has a
 * separate bin; above 1024 ns, every power of two has 512 bins. So bins are at most 0.2 % wide from
 * 512 ns on, and all blocks are longer (see shortest_block). These bins need no logarithm, and the
 * few used bins are neighbours in memory, so the histogram needs little of the caches. */
enum { BIN_BITS = 9, MOST_DURATION_BITS = 40 /* 18 minutes; longer durations count as that */ };
enum { BINS = (MOST_DURATION_BITS - BIN_BITS + 1) << BIN_BITS };

struct histogram {
    uint64_t count[BINS];
    uint64_t blocks;
    /* All bins outside this range are empty; the range is undefined while `blocks` is 0. */
    int lowest, highest;
};

void histogram_add(struct histogram *histogram, uint64_t duration_ns);
/* Returns the centre of the bin with the median duration, in ns. For an even number of blocks, the
 * lower of the two middle durations is the median. */
double histogram_median_ns(const struct histogram *histogram);
/* Prints a JSON object: keys are nanoseconds per access (centres of bins), and values are numbers
 * of blocks.
 */
void histogram_print(const struct histogram *histogram, uint64_t accesses_per_block);

/* The work that is timed. */
struct timed_work {
    /* Runs a number of accesses, a multiple of `unit`. */
    void (*run)(void *self, uint64_t accesses);
    void *self;
    uint64_t unit;
    /* Called with the duration of each block of a sample, after the block; NULL: not called. */
    void (*note_block)(void *self, uint64_t duration_ns);
    /* Called when the blocks that were noted so far no longer count; NULL: not called. */
    void (*forget_blocks)(void *self);
};

struct block_timing {
    const struct timed_work *work;
    double timer_ns; /* duration of a clock reading or, for a coarse clock, the step of the clock */
    uint64_t accesses_per_block;
    struct histogram sample, all; /* histogram of the current sample, and of all samples */
};

/* Measures the duration of a clock reading. Ends the process with an error if memory is exhausted.
 * The caller must free() the result. */
struct block_timing *new_block_timing(const struct timed_work *work);

/* Chooses the number of accesses of a block. Call this function after the warm-up of the caches,
 * right before the samples. The function runs the work for about ten milliseconds, in which a core
 * that slept also wakes and raises its clock (Linux's schedutil checks a core's load every 10 ms at
 * most). */
void choose_block_length(struct block_timing *timing);

/* Takes and prints samples until the time is over or a stop signal arrives. Returns the reason:
 * "time" or "signal". If the blocks of the first samples are too short, because accesses became
 * much faster after the length was chosen, these samples are dropped, and each of them doubles the
 * length. */
const char *take_samples(struct block_timing *timing, const struct run_options *run_options);

/* Prints the done line and returns the exit code. `wrong` describes an error of the result, which
 * is then reported; without an error, it is NULL. If `ran` is false, the result is neither right
 * nor wrong. */
int print_done_line(const struct block_timing *timing, bool ran, const char *wrong,
                    const char *stopped_by);

#endif
