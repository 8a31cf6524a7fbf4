/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of the bandwidth benchmark. They count bytes as STREAM does: each array that a kernel
 * reads or writes counts once a pass. What an ordinary store fetches before it overwrites it
 * (write-allocate) is not counted; the *_nt kernels do not fetch it.
 */
#ifndef CHAOSITY_STREAMS_H
#define CHAOSITY_STREAMS_H

#include <stdbool.h>
#include <stddef.h>

/* One pass over a part of the arrays: a is written (by `read`: read), b and c are read. All are
 * aligned to LINE_BYTES and `elements` is a multiple of LINE_DOUBLES. Returns the sum of what was
 * read (`read`), or 0. */
typedef double stream_function(double *a, const double *b, const double *c, size_t elements,
                               double scalar);

enum { LINE_BYTES = 64, LINE_DOUBLES = LINE_BYTES / 8, MOST_ARRAYS = 3 };

enum operation { READ, FILL, COPY, SCALE, ADD, TRIAD };

struct stream {
    const char *name;
    enum operation operation;
    int arrays;        /* each is used once a pass: bytes of a pass = arrays * bytes of an array */
    bool non_temporal; /* stores; see drain_stores() */
    stream_function *run; /* NULL: this instruction set has no non-temporal store */
    const char *formula;
};

/* Returns when all non-temporal stores of this thread have left the core, which a stream does not
 * wait for: it takes as long as some hundred lines. */
void drain_stores(void);

extern const struct stream streams[];
extern const int stream_count;
extern const char stream_isa[]; /* avx512, avx2, sse2, neon or generic */

#endif
