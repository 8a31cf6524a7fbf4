/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory traffic at an even rate, beside which something else is measured: set-up, start, samples,
 * validation, each told as a line of JSON.
 */
#ifndef CHAOSITY_INJECT_H
#define CHAOSITY_INJECT_H

#include "streams/stream_options.h"

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
    struct job job;
    int share; /* 1 ... 100 per cent of what it can at most; 100: not held back */
    double peak_seconds;
};

/* Runs it and prints the lines. Returns the exit code. */
int inject(const struct injection *injection);

#endif
