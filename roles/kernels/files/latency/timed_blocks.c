/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "latency/timed_blocks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "common/monotonic_clock.h"
#include "common/start_line_and_signals.h"

/* Duration of the shortest block, in durations of a clock reading. With this duration, reading the
 * clock takes below 0.25 % of a block when the length is chosen, and still below 1 % if accesses
 * later become four times as fast, which can happen when loads on other cores end. */
static const double shortest_block = 400;

/* Shortest median duration of the blocks in a first sample, in durations of a clock reading. If the
 * median block is shorter, accesses were slow while the length was chosen, for example because of
 * another process on the same core, and the length is doubled. So reading the clock takes at most
 * 0.5 % of a block. */
static const double shortest_sampled_block = 200;

/* The duration of an undisturbed block is that of the fastest of TRIES blocks. If another process
 * used the CPU before, the caches are empty, and filling an L2 cache again takes some milliseconds;
 * a thousand blocks of shortest_block last longer than that. If a clock reading is slow (an
 * emulated machine, a clock outside the processor), a thousand blocks would last seconds. In this
 * case, the number of blocks that fit into TRIES_NS is used, but at least FEW_TRIES. */
enum { TRIES = 1000, FEW_TRIES = 8, TRIES_NS = 12000000 };

static int compare_durations(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* Returns the median time between two consecutive readings of the clock. If the clock is so coarse
 * that this time is 0, the function returns the smallest step of the clock. */
static double timer_cost_ns(void) {
    enum { READINGS = 1001 };
    uint64_t between[READINGS], step = 0;
    /* The loop runs once, unless a thousand readings take less than a step of the clock. */
    while (step == 0) {
        for (int i = 0; i < READINGS; i++) {
            uint64_t begin = monotonic_ns();
            between[i] = monotonic_ns() - begin;
        }
        qsort(between, READINGS, sizeof between[0], compare_durations);
        for (int i = READINGS - 1; i >= READINGS / 2 && between[i] > 0; i--)
            step = between[i];
    }
    return (double)step;
}

static int bin_of(uint64_t duration_ns) {
    if (duration_ns >> MOST_DURATION_BITS != 0)
        return BINS - 1;
    if (duration_ns >> (BIN_BITS + 1) == 0)
        return (int)duration_ns;
    int dropped = 63 - BIN_BITS - __builtin_clzll(duration_ns);
    return (dropped << BIN_BITS) + (int)(duration_ns >> dropped);
}

static double bin_centre_ns(int bin) {
    int dropped = bin >> (BIN_BITS + 1) == 0 ? 0 : (bin >> BIN_BITS) - 1;
    uint64_t first = (uint64_t)(bin - (dropped << BIN_BITS)) << dropped;
    return (double)first + (double)(((uint64_t)1 << dropped) - 1) / 2;
}

void histogram_add(struct histogram *histogram, uint64_t duration_ns) {
    int bin = bin_of(duration_ns);
    if (histogram->blocks == 0 || bin < histogram->lowest)
        histogram->lowest = bin;
    if (histogram->blocks == 0 || bin > histogram->highest)
        histogram->highest = bin;
    histogram->count[bin]++;
    histogram->blocks++;
}

static void histogram_empty(struct histogram *histogram) {
    for (int bin = histogram->lowest; bin <= histogram->highest; bin++)
        histogram->count[bin] = 0;
    histogram->blocks = 0;
}

/* Adds the histogram `part` to `whole` and empties `part`. */
static void histogram_move(struct histogram *whole, struct histogram *part) {
    if (whole->blocks == 0 || part->lowest < whole->lowest)
        whole->lowest = part->lowest;
    if (whole->blocks == 0 || part->highest > whole->highest)
        whole->highest = part->highest;
    whole->blocks += part->blocks;
    for (int bin = part->lowest; bin <= part->highest; bin++)
        whole->count[bin] += part->count[bin];
    histogram_empty(part);
}

double histogram_median_ns(const struct histogram *histogram) {
    uint64_t below = 0, half = (histogram->blocks + 1) / 2;
    int bin = histogram->lowest;
    while ((below += histogram->count[bin]) < half)
        bin++;
    return bin_centre_ns(bin);
}

void histogram_print(const struct histogram *histogram, uint64_t accesses_per_block) {
    const char *separator = "{";
    for (int bin = histogram->lowest; bin <= histogram->highest; bin++)
        if (histogram->count[bin] > 0) {
            /* seven digits distinguish all bins, and no number is so large that it is printed with
             * an exponent
             */
            printf("%s\"%.7g\":%" PRIu64, separator,
                   bin_centre_ns(bin) / (double)accesses_per_block, histogram->count[bin]);
            separator = ",";
        }
    printf("}");
}

struct block_timing *new_block_timing(const struct timed_work *work) {
    struct block_timing *timing = calloc(1, sizeof *timing);
    if (timing == NULL)
        refuse("out of memory");
    timing->work = work;
    timing->timer_ns = timer_cost_ns();
    return timing;
}

struct span {
    uint64_t begin_ns, end_ns;
};

static struct span run_block(const struct block_timing *timing, uint64_t accesses) {
    struct span span;
    span.begin_ns = monotonic_ns();
    timing->work->run(timing->work->self, accesses);
    span.end_ns = monotonic_ns();
    return span;
}

static uint64_t fastest_ns(const struct block_timing *timing, uint64_t accesses) {
    uint64_t fastest = UINT64_MAX, begin_ns = monotonic_ns(), now = begin_ns;
    for (int i = 0; i < TRIES && !stop_requested(); i++) {
        if (i >= FEW_TRIES && now - begin_ns > TRIES_NS)
            break;
        struct span block = run_block(timing, accesses);
        now = block.end_ns;
        if (block.end_ns - block.begin_ns < fastest)
            fastest = block.end_ns - block.begin_ns;
    }
    return fastest;
}

void choose_block_length(struct block_timing *timing) {
    uint64_t accesses = timing->work->unit;
    while ((double)fastest_ns(timing, accesses) < shortest_block * timing->timer_ns &&
           !stop_requested())
        accesses *= 2;
    timing->accesses_per_block = accesses;
}

static void print_sample(const struct block_timing *timing, struct span span) {
    printf("{\"event\":\"sample\",\"begin_ns\":%" PRIu64 ",\"end_ns\":%" PRIu64
           ",\"accesses\":%" PRIu64 ",\"blocks\":",
           span.begin_ns, span.end_ns, timing->sample.blocks * timing->accesses_per_block);
    histogram_print(&timing->sample, timing->accesses_per_block);
    printf("}\n");
    require_written();
}

/* Runs blocks of accesses until the sample is long enough or the measurement ends. */
static struct span take_sample(struct block_timing *timing, uint64_t sample_ns, uint64_t limit_ns) {
    struct span sample = {0}, block;
    do {
        block = run_block(timing, timing->accesses_per_block);
        histogram_add(&timing->sample, block.end_ns - block.begin_ns);
        if (timing->work->note_block != NULL)
            timing->work->note_block(timing->work->self, block.end_ns - block.begin_ns);
        if (sample.begin_ns == 0)
            sample.begin_ns = block.begin_ns;
    } while (block.end_ns - sample.begin_ns < sample_ns && block.end_ns < limit_ns &&
             !stop_requested());
    sample.end_ns = block.end_ns;
    return sample;
}

/* Doubles the length of a block, and drops the sample because its blocks were too short. */
static void lengthen_blocks(struct block_timing *timing) {
    histogram_empty(&timing->sample);
    if (timing->work->forget_blocks != NULL)
        timing->work->forget_blocks(timing->work->self);
    timing->accesses_per_block *= 2;
}

static bool blocks_are_too_short(const struct block_timing *timing) {
    return histogram_median_ns(&timing->sample) < shortest_sampled_block * timing->timer_ns;
}

const char *take_samples(struct block_timing *timing, const struct run_options *run_options) {
    uint64_t sample_ns = (uint64_t)(run_options->sample_seconds * 1e9);
    uint64_t now = monotonic_ns(), limit_ns = now + (uint64_t)(run_options->max_seconds * 1e9);
    while (now < limit_ns && !stop_requested()) {
        struct span sample = take_sample(timing, sample_ns, limit_ns);
        now = sample.end_ns;
        bool first = timing->all.blocks == 0, last = now >= limit_ns || stop_requested();
        if (first && !last && blocks_are_too_short(timing)) {
            lengthen_blocks(timing);
            continue;
        }
        print_sample(timing, sample);
        histogram_move(&timing->all, &timing->sample);
    }
    return stop_requested() ? "signal" : "time";
}

int print_done_line(const struct block_timing *timing, bool ran, const char *wrong,
                    const char *stopped_by) {
    const struct histogram *all = &timing->all;
    const char *valid = wrong == NULL ? "true" : "false";
    printf("{\"event\":\"done\",\"valid\":%s,\"accesses\":%" PRIu64 ",\"blocks\":%" PRIu64
           ",\"timer_ns\":%g,",
           ran ? valid : "null", all->blocks * timing->accesses_per_block, all->blocks,
           timing->timer_ns);
    if (all->blocks > 0) {
        double median_ns = histogram_median_ns(all);
        printf("\"accesses_per_block\":%" PRIu64 ",\"timer_share\":%.6f,\"latency_ns\":%.7g,",
               timing->accesses_per_block, timing->timer_ns / median_ns,
               median_ns / (double)timing->accesses_per_block);
    } else
        printf("\"accesses_per_block\":null,\"timer_share\":null,\"latency_ns\":null,");
    printf("\"stopped_by\":\"%s\"}\n", stopped_by);
    require_written();
    if (!ran || wrong == NULL)
        return EXIT_VALID;
    complain("%s; the numbers must not be used", wrong);
    return EXIT_INVALID;
}
