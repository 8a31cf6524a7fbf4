/* SPDX-License-Identifier: Apache-2.0
 *
 * A chain of dependent loads through all lines of a piece of memory, in random order.
 *
 * The first bytes of each line hold the address of the next line, so a load cannot start before the
 * one before it has come back, and the order leaves a prefetcher nothing to guess. The chain is one
 * cycle over all lines: every line is loaded once in each turn, from wherever it starts. A random
 * permutation that is not one cycle would leave most of its lines out, and the part that is chased
 * could fit a cache.
 */
#ifndef CHAOSITY_CHASE_H
#define CHAOSITY_CHASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chase {
    char *start;       /* of the first line */
    size_t lines;      /* at least two */
    size_t line_bytes; /* a power of two, at least the size of a pointer */
};

/* chase_walk() takes this many steps between two looks at its counter. */
enum { CHASE_UNROLL = 64 };

/* Lets `count` lines from `from` on point to themselves. To be called for each line once: this is
 * the first touch. */
void chase_lay(const struct chase *chase, size_t from, size_t count);

/* Makes one random cycle of the lines that were laid, each of the (lines - 1)! cycles as likely as
 * any other; the same seed gives the same cycle. Ends early when a stop is requested. */
void chase_shuffle(const struct chase *chase, uint64_t seed);

/* Follows the chain for so many steps and returns the line that it then has come to. */
void **chase_walk(void **line, uint64_t steps);

/* After how many steps the chain first comes back to `line`; 0 when it has not within `limit`, or
 * when a stop is requested. */
uint64_t chase_return(void **line, uint64_t limit);

/* Whether the lines are linked as a permutation: each link is the address of a line, none of them
 * is the line itself, and number, sum and exclusive-or of all of them are as if each line was
 * linked once. That the permutation is one cycle is for chase_return() to find. */
bool chase_intact(const struct chase *chase);

/* Whether this is the address of one of the lines. */
bool chase_has_line(const struct chase *chase, const void *line);

#endif
