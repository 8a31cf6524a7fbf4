/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays of a stream in one mapping, and each thread's part of them.
 */
#ifndef CHAOSITY_ARRAYS_H
#define CHAOSITY_ARRAYS_H

#include <stddef.h>

#include "streams/validation.h"
#include "common/placed_memory.h"
#include "streams/stream_kernels.h"

struct arrays {
    const struct stream *stream;
    size_t bytes; /* of one array: a multiple of LINE_BYTES, at least a line a thread */
    int threads;
    struct mapping mapping; /* holds all of them */
    struct part *parts;     /* of each thread: whole cache lines, at most one more than another's */
};

/* Refuses (naming the option) sizes that do not give each thread a line. */
void require_array_bytes(const char *option, size_t bytes, int threads);

/* Maps memory for arrays whose stream, bytes and threads are set, each on pages of its own, and
 * divides them into parts; touches nothing. */
void map_arrays(struct arrays *arrays, struct placement placement);

void free_arrays(struct arrays *arrays);

/* Writes the initial contents of a thread's part: whoever calls it is the first to touch its pages.
 * Ends early when the program is to stop. */
void touch_part(const struct arrays *arrays, int thread);

#endif
