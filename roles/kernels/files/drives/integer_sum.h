/* SPDX-License-Identifier: Apache-2.0
 *
 * The compute kernel of chaosity-sum.
 */
#ifndef CHAOSITY_INTEGER_SUM_H
#define CHAOSITY_INTEGER_SUM_H

#include <stddef.h>
#include <stdint.h>

/* Sum of 64-bit integers modulo 2^64, the same for signed and unsigned integers. The words are
 * aligned to LINE_BYTES, and `count` is a multiple of the words of a line. */
uint64_t sum_words(const uint64_t *words, size_t count);

/* The same sum, computed word by word, to check the other function. */
uint64_t sum_words_one_by_one(const uint64_t *words, size_t count);

#endif
