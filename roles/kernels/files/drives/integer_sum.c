/* SPDX-License-Identifier: Apache-2.0
 *
 * This loop has a separate file, which is compiled once per instruction set and without link-time
 * optimisation, for the reason that stream_kernels.c gives.
 */
#include "drives/integer_sum.h"

#include "streams/stream_kernels.h"
#include "streams/vector_types.h"

/* Tests compile a defect that the checks must find: make EXTRA=-DMUTANT=1. */
#ifndef MUTANT
#define MUTANT 0
#endif

uint64_t OF_THIS_ISA(sum_words)(const uint64_t *words, size_t count) {
    uint64_t sum;
    if (MUTANT == 1)
        count -= LINE_DOUBLES;
    SUM_ALL(sum, words, count, words_vector, no_words(), load_words, total_words);
    return sum;
}
