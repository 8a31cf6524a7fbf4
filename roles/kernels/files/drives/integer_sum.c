/* SPDX-License-Identifier: Apache-2.0
 *
 * This loop has its own file, compiled once per instruction set without link-time optimisation, for
 * the reason that stream_kernels.c gives.
 */
#include "drives/integer_sum.h"

#include "streams/stream_kernels.h"
#include "streams/vector_types.h"

/* A defect that the checks must find, for tests: make EXTRA=-DMUTANT=1. */
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
