/* SPDX-License-Identifier: Apache-2.0
 *
 * A chain of dependent loads through all lines of a piece of memory, in random order.
 *
 * The first bytes of each line contain the address of the next line, so a load cannot start before
 * the previous load has returned, and a prefetcher cannot predict the order. The chain is one cycle
 * over all lines: each turn loads every line once, from whichever line the turn starts. A random
 * permutation with several cycles would visit only a part of the lines, which could fit into a
 * cache.
 */
#ifndef CHAOSITY_POINTER_CHASE_H
#define CHAOSITY_POINTER_CHASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chase {
    char *start;       /* address of the first line */
    size_t lines;      /* number of lines, at least two */
    size_t line_bytes; /* bytes of a line: a power of two, at least the size of a pointer */
};

/* Number of steps in one iteration of chase_walk(). */
enum { CHASE_UNROLL = 64 };

/* Makes `count` lines, from line `from` on, point to themselves. Call this function once for each
 * line; the call is the first touch of the page of the line. */
void chase_link_to_self(const struct chase *chase, size_t from, size_t count);

/* Links lines that point to themselves into one random cycle. All (lines - 1)! cycles are equally
 * likely; the same seed gives the same cycle. Returns early after a stop signal.
 *
 * With `block_lines` above 0, the cycle visits all lines of a block of `block_lines` lines before
 * it goes to the next block; the order within blocks and the order of blocks are random. */
void chase_shuffle(const struct chase *chase, size_t block_lines, uint64_t seed);

/* Follows the chain for `steps` steps and returns the line that it reaches. */
void **chase_walk(void **line, uint64_t steps);

/* Returns the number of steps after which the chain first returns to `line`; 0 if the chain does
 * not return within `limit` steps, or after a stop signal. */
uint64_t chase_steps_to_return(void **line, uint64_t limit);

/* Returns whether the links are a permutation: each link is the address of another line, and
 * number, sum and exclusive-or of all links are those of a chain that links each line once.
 * chase_steps_to_return() checks that the permutation is a single cycle. */
bool chase_is_permutation(const struct chase *chase);

/* Returns whether an address is the address of a line. */
bool chase_has_line(const struct chase *chase, const void *line);

#endif
