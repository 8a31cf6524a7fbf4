/* SPDX-License-Identifier: Apache-2.0
 *
 * The compute kernel of chaosity-sum.
 */
#ifndef CHAOSITY_WORDS_H
#define CHAOSITY_WORDS_H

#include <stddef.h>
#include <stdint.h>

/* The sum of 64-bit integers, modulo 2^64, which is the same for signed ones. The words are aligned
 * to LINE_BYTES and `count` is a multiple of a line's. */
uint64_t sum_words(const uint64_t *words, size_t count);

/* The same, word by word: what the other is checked with. */
uint64_t sum_words_plainly(const uint64_t *words, size_t count);

#endif
