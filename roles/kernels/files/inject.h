/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory traffic at an even rate, beside which something else is measured: set-up, start, samples,
 * validation, each told as a line of JSON.
 */
#ifndef CHAOSITY_INJECT_H
#define CHAOSITY_INJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpus.h"
#include "memory.h"
#include "streams.h"

/* A stream by what the memory sees of it: how many lines it reads and writes for each line of an
 * array. An ordinary store first fetches the line that it overwrites, which is a read. (Some
 * processors leave that out at times, when whole lines are overwritten and the memory is busy; it
 * is counted all the same.) */
struct mix {
    const char *name; /* of the stream */
    int reads, writes;
    const char *says;
};

extern const struct mix mixes[];
extern const int mix_count;

struct injection {
    const struct mix *mix;
    const struct stream *stream;
    struct index_list cpus;
    struct placement placement;
    size_t array_bytes; /* a multiple of LINE_BYTES, at least a line a thread */
    int share;          /* 1 ... 100 per cent of what it can at most; 100: not held back */
    double peak_seconds;
    double sample_seconds;
    double max_seconds;
    bool wait_for_start;
    uint64_t started_ns; /* when the program began, for the set-up time */
};

/* Runs it and prints the lines. Returns the exit code. */
int inject(const struct injection *injection);

#endif
