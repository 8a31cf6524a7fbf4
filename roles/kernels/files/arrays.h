/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays of a stream in one mapping, and each thread's part of them.
 */
#ifndef CHAOSITY_ARRAYS_H
#define CHAOSITY_ARRAYS_H

#include <stddef.h>

#include "contents.h"
#include "memory.h"
#include "streams.h"

struct arrays {
    const struct stream *stream;
    size_t bytes; /* of one array: a multiple of LINE_BYTES, at least a line a thread */
    int threads;
    struct mapping mapping; /* holds all of them */
};

/* Refuses sizes that do not give each thread a line; says which option it is about. */
void require_array_bytes(size_t bytes, int threads);

/* Maps memory for them, each on pages of its own; touches nothing. */
void map_arrays(struct arrays *arrays, struct placement placement);

/* The part of one thread: whole cache lines, at most one more than another thread's. */
struct part part_of(const struct arrays *arrays, int thread);

/* Writes the initial contents of a part, to be called by the thread that will use it, already
 * pinned: it is the first to touch each page. Ends early when the program is to stop. */
void touch_part(const struct arrays *arrays, struct part *part);

#endif
