/* SPDX-License-Identifier: Apache-2.0
 *
 * The contents of the arrays, and checks that every pass did its work.
 *
 * All values are whole numbers, see expected_values.h. No value grows, overflows or becomes
 * denormal after any number of passes.
 *
 * - Source arrays hold a pattern that depends on the element and the array: wrong elements are
 * found.
 * - The written array starts with -1, which no kernel writes: elements that no pass reached are
 *   found.
 * - The scalar changes from pass to pass: the written array must hold the last pass's result.
 * - Marks: before each pass, every thread writes a number that depends on the pass into two source
 * elements of its part, the last element and a moving element. After the pass, the result of the
 * mark must be in the written array, and the source is restored. So a pass that is skipped, ends
 * early or reads stale data is found, also for copy and add, which have no scalar. For `read`, the
 * sum must be exact, so each element of each pass is checked. Marks cause a few cache misses per
 * thread and pass, which count as time of the pass.
 *
 * Two errors are only found if the moving mark is in the gap: a gap in the middle of a pass that a
 * later pass fills (all kernels but `read`), and a gap in the last pass of copy and add.
 */
#ifndef CHAOSITY_ARRAY_VALIDATION_H
#define CHAOSITY_ARRAY_VALIDATION_H

#include <stddef.h>
#include <stdint.h>

#include "streams/expected_values.h"
#include "streams/stream_kernels.h"

/* The part of the arrays that belongs to one thread. The pointers point to the first element of the
 * part, which has the index `first` in the array. */
struct part {
    /* Arrays a, b and c; NULL for arrays that the kernel does not use. */
    double *array[MOST_ARRAYS];
    uint64_t first;
    size_t elements;
    double read_sum; /* sum of the initial contents of the first array, which `read` must find */
};

/* Writes the initial contents of `count` elements, from `from` on, of one array of the part. Call
 * this function once for each piece of each array, before the first pass. */
void write_contents(const struct stream *stream, struct part *part, int array, size_t from,
                    size_t count);

/* Runs a pass (passes are numbered from 0) over the part, and adds wrong values to the verdict. */
void run_pass(const struct stream *stream, const struct part *part, uint64_t pass,
              struct verdict *verdict);

/* Compares all elements of the part with their expected values after a number of passes. */
void check_contents(const struct stream *stream, const struct part *part, uint64_t passes,
                    struct verdict *verdict);

/* A piece of a part, for kernels that can stop anywhere, because they visit pieces instead of
 * running complete passes. Pieces have no marks; instead, visits differ by their scalar or by the
 * source elements. A piece is passed by pointer: a copy would be read in wider words than it was
 * written in, and a load of this kind waits for all earlier stores, which takes a quarter of the
 * bandwidth of a short piece. */
struct piece {
    size_t from, count; /* position and length, in elements of the part */
    size_t source;      /* first element of b and c that is read; not used for `read` */
    uint64_t visit;     /* number of earlier visits to this piece, or NEVER */
};

#define NEVER UINT64_MAX

/* Runs the kernel over a piece. Returns the sum for `read`, which must equal sum_of_piece(), and 0
 * for other kernels. */
double run_piece(const struct stream *stream, const struct part *part, const struct piece *piece);

/* Returns the sum of the initial contents of the first array in a piece, a whole number. */
double sum_of_piece(const struct part *part, const struct piece *piece);

/* Both functions compare the written array with the result that a visit must have left:
 * check_piece() compares the complete piece, check_element() the element `at` of the piece. */
void check_piece(const struct stream *stream, const struct part *part, const struct piece *piece,
                 struct verdict *verdict);
void check_element(const struct stream *stream, const struct part *part, const struct piece *piece,
                   size_t at, struct verdict *verdict);

/* Compares arrays that are only read with their initial contents. */
void check_sources(const struct stream *stream, const struct part *part, struct verdict *verdict);

#endif
