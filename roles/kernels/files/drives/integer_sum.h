/* SPDX-License-Identifier: Apache-2.0
 *
 * The compute kernel of chaosity-sum.
 */
#ifndef CHAOSITY_INTEGER_SUM_H
#define CHAOSITY_INTEGER_SUM_H

#include <stddef.h>
#include <stdint.h>

#include "streams/instruction_sets.h"

/* Returns the sum of 64-bit integers modulo 2^64, which is the same for signed and unsigned
 * integers. The words are aligned to LINE_BYTES, and `count` is a multiple of the words of a
 * line. */
typedef uint64_t sum_function(const uint64_t *words, size_t count);

#define DECLARE_SUM(isa, argument) extern sum_function sum_words_##isa;
EACH_ISA(DECLARE_SUM, )

/* Returns the sum, computed with the chosen instruction set. */
static inline uint64_t sum_words(const uint64_t *words, size_t count) {
    static sum_function *const functions[] = OF_EACH_ISA(sum_words);
    return functions[chosen_isa](words, count);
}

/* Returns the same sum as sum_words(), computed word by word, for a check of sum_words(). */
static inline uint64_t sum_words_one_by_one(const uint64_t *words, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += words[i];
    return sum;
}

#endif
