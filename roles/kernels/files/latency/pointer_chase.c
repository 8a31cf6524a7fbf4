/* SPDX-License-Identifier: Apache-2.0 */
#include "latency/pointer_chase.h"

#include "common/start_line_and_signals.h"

/* Tests compile defects that the checks must find: make EXTRA=-DMUTANT=1, ... */
#ifndef MUTANT
#define MUTANT NO_MUTANT
#endif
enum { NO_MUTANT, SEVERAL_CYCLES, LINE_LEFT_OUT };

static void **line_at(const struct chase *chase, size_t index) {
    return (void **)(void *)(chase->start + index * chase->line_bytes);
}

void chase_link_to_self(const struct chase *chase, size_t from, size_t count) {
    for (size_t i = from; i < from + count; i++)
        *line_at(chase, i) = line_at(chase, i);
}

/* The random number generator splitmix64 (Sebastiano Vigna, https://prng.di.unimi.it/splitmix64.c,
 * public domain) passes the tests of BigCrush, accepts any seed and takes a few instructions. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* Returns a random number below `bound`, the high half of a product; all numbers are equally
 * likely. Products that would make some numbers more likely are rejected (Daniel Lemire, "Fast
 * Random Integer Generation in an Interval", 2019, algorithm 5). */
static uint64_t random_below(uint64_t *state, uint64_t bound) {
    unsigned __int128 product = (unsigned __int128)next_random(state) * bound;
    if ((uint64_t)product < bound)
        for (uint64_t least = -bound % bound; (uint64_t)product < least;)
            product = (unsigned __int128)next_random(state) * bound;
    return (uint64_t)(product >> 64);
}

/* Describes `count` lines of a chase with a distance of `stride` lines. */
struct some_lines {
    const struct chase *chase;
    size_t first, stride, count;
};

static void **some_line_at(const struct some_lines *lines, size_t index) {
    return line_at(lines->chase, lines->first + index * lines->stride);
}

static void swap_links(void **one, void **other) {
    void *link = *one;
    *one = *other;
    *other = link;
}

/* Links lines into one cycle by Sattolo's algorithm, which is the algorithm of Fisher and Yates,
 * except that a line is never exchanged with itself. Nearly every exchange misses all caches and,
 * with small pages, the TLB. So for a batch of exchanges, the lines are first chosen and
 * prefetched, so that their misses overlap; current cores can have about 64 misses in flight. */
static void shuffle_links(const struct some_lines *lines, uint64_t *state) {
    enum { BATCH = 64 };
    void **partner[BATCH];
    for (size_t last = lines->count - 1; last > 0 && !stop_requested();) {
        size_t count = last < BATCH ? last : BATCH;
        for (size_t i = 0; i < count; i++) {
            uint64_t bound = last - i + (MUTANT == SEVERAL_CYCLES);
            partner[i] = some_line_at(lines, random_below(state, bound));
            __builtin_prefetch(partner[i], 1);
        }
        for (size_t i = 0; i < count; i++)
            swap_links(some_line_at(lines, last - i), partner[i]);
        last -= count;
    }
}

void chase_shuffle(const struct chase *chase, size_t block_lines, uint64_t seed) {
    uint64_t state = seed;
    if (block_lines == 0 || block_lines > chase->lines)
        block_lines = chase->lines;
    size_t blocks = 0;
    for (size_t first = 0; first < chase->lines && !stop_requested(); first += block_lines) {
        size_t left = chase->lines - first;
        shuffle_links(&(struct some_lines){chase, first, 1, left < block_lines ? left : block_lines},
                      &state);
        blocks++;
    }
    /* Each block is a cycle now. The chain leaves a block at its first line, which gets the link
     * that the first line of the next block had. So the chain enters a block behind the first line
     * of the block, and ends the block at this first line. */
    if (blocks > 0)
        shuffle_links(&(struct some_lines){chase, 0, block_lines, blocks}, &state);
    if (MUTANT == LINE_LEFT_OUT) {
        void **line = line_at(chase, chase->lines / 2);
        *line = *(void **)*line;
    }
}

/* clang-format off */
#define STEP line = *line;
#define STEPS_4 STEP STEP STEP STEP
#define STEPS_16 STEPS_4 STEPS_4 STEPS_4 STEPS_4
#define STEPS_64 STEPS_16 STEPS_16 STEPS_16 STEPS_16
/* clang-format on */

/* A step is one load from the address that the previous load returned, which takes at least 3
 * cycles on current cores. The counter and the branch of the loop do not depend on a load, so an
 * out-of-order core executes them while it waits. An in-order core needs about one more cycle per
 * iteration of 64 loads, below 1 % even if all loads hit the L1. */
void **chase_walk(void **line, uint64_t steps) {
    for (uint64_t i = 0; i < steps / CHASE_UNROLL; i++) {
        STEPS_64
    }
    for (uint64_t i = 0; i < steps % CHASE_UNROLL; i++) {
        STEP
    }
    return line;
}

uint64_t chase_steps_to_return(void **line, uint64_t limit) {
    enum { LOOK = 1 << 16 }; /* steps between two checks for a stop signal: a few milliseconds */
    void **at = line;
    for (uint64_t steps = 1; steps <= limit; steps++) {
        at = *at;
        if (at == line)
            return steps;
        if (steps % LOOK == 0 && stop_requested())
            return 0;
    }
    return 0;
}

bool chase_has_line(const struct chase *chase, const void *line) {
    size_t offset =
        (size_t)line - (size_t)chase->start; /* a huge number if `line` lies before the start */
    return offset < chase->lines * chase->line_bytes && offset % chase->line_bytes == 0;
}

bool chase_is_permutation(const struct chase *chase) {
    uint64_t sum = 0, exclusive_or = 0;
    for (size_t i = 0; i < chase->lines; i++) {
        void **link = *line_at(chase, i);
        if (!chase_has_line(chase, link) || link == line_at(chase, i))
            return false;
        uint64_t index = ((size_t)link - (size_t)chase->start) / chase->line_bytes;
        sum += i - index; /* modulo 2^64; each result must be 0 at the end */
        exclusive_or ^= i ^ index;
    }
    return sum == 0 && exclusive_or == 0;
}
