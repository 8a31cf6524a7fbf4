/* SPDX-License-Identifier: Apache-2.0
 *
 * This kernel has its own file, compiled without link-time optimisation, for the reason that
 * stream_kernels.c gives.
 */
#include "drives/integer_sum.h"

#include "streams/stream_kernels.h"
#include "streams/vector_types.h"

/* A defect that the checks must find, for tests: make EXTRA=-DMUTANT=1. */
#ifndef MUTANT
#define MUTANT 0
#endif

typedef uint64_t words_vector __attribute__((vector_size(VECTOR_BYTES), may_alias));
enum { VECTOR_WORDS = VECTOR_BYTES / 8, LINE_WORDS = LINE_BYTES / 8 };

static inline words_vector load_words(const uint64_t *from) { return *(const words_vector *)from; }

/* Numbers of sums and loads as in read_sum() of stream_kernels.c. */
uint64_t sum_words(const uint64_t *words, size_t count) {
    enum { SUMS = 8, LOADS = 16 };
    words_vector sum[SUMS] = {{0}};
    size_t i = 0;
    if (MUTANT == 1)
        count -= LINE_WORDS;
    for (; i + LOADS * VECTOR_WORDS <= count; i += LOADS * VECTOR_WORDS)
#pragma GCC unroll 16
        for (size_t j = 0; j < LOADS; j++)
            sum[j % SUMS] += load_words(words + i + j * VECTOR_WORDS);
    for (; i < count; i += VECTOR_WORDS)
        sum[0] += load_words(words + i);
    for (int j = 1; j < SUMS; j++)
        sum[0] += sum[j];
    uint64_t total = 0;
    for (int j = 0; j < VECTOR_WORDS; j++)
        total += sum[0][j];
    return total;
}

uint64_t sum_words_one_by_one(const uint64_t *words, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += words[i];
    return sum;
}
