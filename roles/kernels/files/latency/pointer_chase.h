/* SPDX-License-Identifier: Apache-2.0
 *
 * A chain of dependent loads through all lines of a piece of memory, in random order.
 *
 * The first bytes of each line hold the address of the next line, so a load cannot start before the
 * previous load has returned, and a prefetcher cannot predict the order. The chain is one cycle
 * over all lines: each turn loads every line once, wherever it starts. A random permutation with
 * several cycles would visit only a part of the lines, which could fit into a cache.
 */
#ifndef CHAOSITY_POINTER_CHASE_H
#define CHAOSITY_POINTER_CHASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct chase {
    char *start;       /* of the first line */
    size_t lines;      /* at least two */
    size_t line_bytes; /* a power of two, at least the size of a pointer */
};

/* Number of steps in one iteration of chase_walk(). */
enum { CHASE_UNROLL = 64 };

/* Makes `count` lines from `from` on point to themselves. Call it once for each line; this is the
 * first touch of its page. */
void chase_link_to_self(const struct chase *chase, size_t from, size_t count);

/* Links lines that point to themselves into one random cycle. All (lines - 1)! cycles are equally
 * likely; the same seed gives the same cycle. Returns early after a stop signal.
 *
 * With `block_lines` above 0, the cycle visits all lines of a block of so many lines before it goes
 * to the next block; the order within blocks and the order of blocks are random. */
void chase_shuffle(const struct chase *chase, size_t block_lines, uint64_t seed);

/* Follows the chain for this many steps and returns the line that it reaches. */
void **chase_walk(void **line, uint64_t steps);

/* Number of steps after which the chain first returns to `line`; 0 when it does not return within
 * `limit` steps, or after a stop signal. */
uint64_t chase_steps_to_return(void **line, uint64_t limit);

/* Whether the links form a permutation: each link is the address of another line, and number, sum
 * and exclusive-or of all links are as if each line was linked once. chase_steps_to_return() checks
 * that the permutation is a single cycle. */
bool chase_is_permutation(const struct chase *chase);

/* Whether this is the address of a line. */
bool chase_has_line(const struct chase *chase, const void *line);

#endif
