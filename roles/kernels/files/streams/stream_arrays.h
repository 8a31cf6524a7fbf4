/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays of a stream kernel in one mapping, divided among threads.
 */
#ifndef CHAOSITY_STREAM_ARRAYS_H
#define CHAOSITY_STREAM_ARRAYS_H

#include <stddef.h>

#include "common/placed_memory.h"
#include "streams/array_validation.h"
#include "streams/stream_kernels.h"

struct arrays {
    const struct stream *stream;
    size_t bytes; /* bytes of one array: a multiple of LINE_BYTES, at least a line per thread */
    int threads;
    struct mapping mapping; /* the mapping that contains all arrays */
    /* Parts of threads: complete cache lines; their sizes differ by at most one line. */
    struct part *parts;
};

/* If a size does not give each thread a cache line, the process ends with an error that names the
 * option. */
void require_array_bytes(const char *option, size_t bytes, int threads);

/* Maps memory for arrays whose stream, bytes and threads are set, and divides it into parts. Each
 * array begins on a new page. The function touches no page. */
void map_arrays(struct arrays *arrays, struct placement placement);

void free_arrays(struct arrays *arrays);

/* Writes the initial contents of a thread's part. The calling thread is the first to touch these
 * pages. The function returns early after a stop signal. */
void touch_part(const struct arrays *arrays, int thread);

/* Chooses the instruction set in a trial of `seconds` that walks through the first thread's part,
 * whose initial contents it restores. So the trial reads from the same cache or memory as the
 * run. */
void choose_isa_on(const struct arrays *arrays, double seconds);

#endif
