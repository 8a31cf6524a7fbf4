/* SPDX-License-Identifier: Apache-2.0
 *
 * Contents of the arrays, and the checks that every pass did its work.
 *
 * All values are whole numbers, see expected_values.h. No value grows, overflows or becomes
 * denormal, however many passes run.
 *
 * - Source arrays hold a pattern that depends on the element and the array: wrong elements are
 * found.
 * - The written array starts with -1, which no kernel writes: elements that no pass reached are
 *   found.
 * - The scalar changes from pass to pass: the written array must hold the last pass's result.
 * - Marks: before each pass every thread writes a number that depends on the pass into two source
 *   elements of its part, the last element and a moving one. After the pass the result must be
 * there, and the source is restored. So in every pass a pass that is skipped, ends early or reads
 * stale data is found, also for copy and add, which have no scalar. For `read` the sum must be
 * exact, so each element of each pass is checked. Marks cost a few cache misses per thread and
 * pass, which count as time of the pass.
 *
 * Not found, unless the moving mark meets it: a gap in the middle of a pass that a later pass fills
 * (all kernels but `read`), and a gap in the last pass of copy and add.
 */
#ifndef CHAOSITY_ARRAY_VALIDATION_H
#define CHAOSITY_ARRAY_VALIDATION_H

#include <stddef.h>
#include <stdint.h>

#include "streams/expected_values.h"
#include "streams/stream_kernels.h"

/* One thread's part of the arrays. The pointers point to its first element, which has the index
 * `first` in the array. */
struct part {
    double *array[MOST_ARRAYS]; /* a, b, c; NULL where the kernel has none */
    uint64_t first;
    size_t elements;
    double read_sum; /* sum of the first array's initial contents, which `read` must find */
};

/* Writes the initial contents of `count` elements from `from` on, of one array of the part. Call it
 * once for each piece of each array, before the first pass. */
void write_contents(const struct stream *stream, struct part *part, int array, size_t from,
                    size_t count);

/* Runs a pass (numbered from 0) over the part and adds wrong values to the verdict. */
void run_pass(const struct stream *stream, const struct part *part, uint64_t pass,
              struct verdict *verdict);

/* Compares all elements of the part with their expected values after this many passes. */
void check_contents(const struct stream *stream, const struct part *part, uint64_t passes,
                    struct verdict *verdict);

/* A piece of a part, for kernels that can stop anywhere: they visit pieces instead of running whole
 * passes. There are no marks; instead visits differ by their scalar or by the source elements.
 * Passed by pointer: a copy would be read in wider words than it was written in, and such a load
 * waits for all earlier stores, which costs a short piece a quarter of its bandwidth. */
struct piece {
    size_t from, count; /* in elements of the part */
    size_t source;      /* first element of b and c that is read; unused for `read` */
    uint64_t visit;     /* number of earlier visits to this piece, or NEVER */
};

#define NEVER UINT64_MAX

/* Runs the kernel over a piece. Returns the sum for `read`, which must equal sum_of_piece(), and 0
 * for other kernels. */
double run_piece(const struct stream *stream, const struct part *part, const struct piece *piece);

/* Sum of the first array's initial contents in this piece, a whole number. */
double sum_of_piece(const struct part *part, const struct piece *piece);

/* Compare the written array with the result that this visit must have left: check_piece() compares
 * the whole piece, check_element() its element `at`. */
void check_piece(const struct stream *stream, const struct part *part, const struct piece *piece,
                 struct verdict *verdict);
void check_element(const struct stream *stream, const struct part *part, const struct piece *piece,
                   size_t at, struct verdict *verdict);

/* Compares the arrays that kernels only read with their initial contents. */
void check_sources(const struct stream *stream, const struct part *part, struct verdict *verdict);

#endif
