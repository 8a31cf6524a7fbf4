/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of the bandwidth benchmark. Bytes count as in STREAM: each array that a kernel reads
 * or writes counts once per pass. A line that an ordinary store fetches before the store overwrites
 * it (write-allocate) does not count; the *_nt kernels do not fetch these lines.
 */
#ifndef CHAOSITY_STREAM_KERNELS_H
#define CHAOSITY_STREAM_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "streams/instruction_sets.h"

/* Runs one pass over a part of the arrays: writes a (the kernel `read` reads a), and reads b and c.
 * All arrays are aligned to LINE_BYTES, and `elements` is a multiple of LINE_DOUBLES. Returns the
 * sum of all elements for `read`, and 0 for other kernels. */
typedef double stream_function(double *a, const double *b, const double *c, size_t elements,
                               double scalar);

enum { LINE_BYTES = 64, LINE_DOUBLES = LINE_BYTES / 8, MOST_ARRAYS = 3 };

enum operation { READ, FILL, COPY, SCALE, ADD, TRIAD };

struct stream {
    const char *name;
    enum operation operation;
    /* Number of arrays, each used once per pass: bytes of a pass = arrays * bytes of an array. */
    int arrays;
    bool non_temporal; /* says whether the kernel has non-temporal stores; see drain_stores() */
    /* the function of each instruction set; NULL if the set has no non-temporal store */
    stream_function *run[ISAS];
};

/* Waits until all non-temporal stores of this thread have left the core; before they have, the data
 * are not in memory. The wait takes as long as moving some hundred lines. The kernels do not wait
 * for their stores. */
void drain_stores(void);

extern const struct stream streams[];
extern const int stream_count;

#endif
