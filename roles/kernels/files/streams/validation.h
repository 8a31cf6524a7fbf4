/* SPDX-License-Identifier: Apache-2.0
 *
 * What the arrays hold, and how it is known that every pass did its work.
 *
 * All values are whole numbers, see expected_values.h, and nothing grows, overflows or becomes denormal
 * however many passes run.
 *
 * - Sources hold a pattern that depends on the element and the array: a wrong element shows.
 * - The written array starts with -1, which no kernel writes: what no pass reached shows.
 * - The scalar changes from pass to pass: the written array must hold the last pass's result.
 * - Marks: before each pass every thread puts a number that belongs to the pass into two elements
 *   of the source of its part, the last one and one that moves; after the pass the result must have
 *   arrived there, and the source is put back. So a pass that is left out, ends early or reads
 *   stale data shows, in every pass, also for copy and add, which have no scalar. For `read` the
 *   sum must be exactly that of these contents: each element of each pass is checked. It costs a
 *   few cache misses a thread and pass, which count as time of the pass.
 *
 * What this cannot see, unless the moving mark meets it: a gap in the middle of one pass that a
 * later pass closes (of all kernels but `read`), and one in the last pass of copy and add.
 */
#ifndef CHAOSITY_CONTENTS_H
#define CHAOSITY_CONTENTS_H

#include <stddef.h>
#include <stdint.h>

#include "streams/expected_values.h"
#include "streams/stream_kernels.h"

/* One thread's part: the pointers are to its first element, which is number `first` of the array */
struct part {
    double *array[MOST_ARRAYS]; /* a, b, c; NULL where the kernel has none */
    uint64_t first;
    size_t elements;
    double read_sum; /* of the first array's initial contents; `read` must find it */
};

/* Writes the initial contents of `count` elements from `from` on, of one array of the part. To be
 * called for each piece of each array once, before the first pass. */
void write_contents(const struct stream *stream, struct part *part, int array, size_t from,
                    size_t count);

/* Runs a pass (they are numbered from 0 on) over the part and adds what it finds to the verdict. */
void run_pass(const struct stream *stream, const struct part *part, uint64_t pass,
              struct verdict *verdict);

/* Compares all elements of the part with what they must be after this many passes. */
void check_contents(const struct stream *stream, const struct part *part, uint64_t passes,
                    struct verdict *verdict);

/* What a kernel does that stops anywhere: instead of a whole pass it visits pieces. There are no
 * marks; instead visits differ by their scalar or by the elements that the sources start with.
 * Handed over by pointer: a copy is read in wider words than it was written in, and such a load
 * waits for all stores before it, which costs a short piece a quarter of its bandwidth. */
struct piece {
    size_t from, count; /* elements of the part */
    size_t source;      /* the first element of b and c that is read; not for `read` */
    uint64_t visit;     /* which one of this piece it is, from 0 on, or NEVER */
};

#define NEVER UINT64_MAX

/* Runs the kernel over a piece and returns its sum (`read`), which must be sum_of_piece(), or 0. */
double run_piece(const struct stream *stream, const struct part *part, const struct piece *piece);

/* What the first array holds in this piece at the start; a whole number. */
double sum_of_piece(const struct part *part, const struct piece *piece);

/* Compare the written array with what this visit must have left: all of the piece, or the element
 * `at` of it. */
void check_piece(const struct stream *stream, const struct part *part, const struct piece *piece,
                 struct verdict *verdict);
void check_element(const struct stream *stream, const struct part *part, const struct piece *piece,
                   size_t at, struct verdict *verdict);

/* Compares the arrays that are only read with their initial contents. */
void check_sources(const struct stream *stream, const struct part *part, struct verdict *verdict);

#endif
