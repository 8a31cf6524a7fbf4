/* SPDX-License-Identifier: Apache-2.0
 *
 * Times accesses that take 8 us each while the length of a block is chosen, and 1 us afterwards.
 * Prints the samples, the done line, and how often the work was told to forget its blocks.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/monotonic_clock.h"
#include "latency/timed_blocks.h"

static uint64_t access_ns = 8000;
static int forgotten;

static void run_accesses(void *self, uint64_t accesses) {
    (void)self;
    for (uint64_t end = monotonic_ns() + accesses * access_ns; monotonic_ns() < end;)
        ;
}

static void forget_blocks(void *self) {
    (void)self;
    forgotten++;
}

int main(void) {
    const struct timed_work work = {run_accesses, NULL, 1, NULL, forget_blocks};
    const struct run_options run_options = {.sample_seconds = 0.02, .max_seconds = 0.2};
    struct block_timing *timing = new_block_timing(&work);
    choose_block_length(timing);
    access_ns = 1000;
    const char *stopped_by = take_samples(timing, &run_options);
    int code = print_done_line(timing, true, NULL, stopped_by);
    printf("%d\n", forgotten);
    free(timing);
    return code;
}
