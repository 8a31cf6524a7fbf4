/* SPDX-License-Identifier: Apache-2.0
 *
 * Contents that are whole numbers far below 2^53, so that every sum and product of them is exact in
 * any order, with or without fused multiply-add: a result is right when it is equal.
 */
#ifndef CHAOSITY_EXACT_H
#define CHAOSITY_EXACT_H

#include <stdbool.h>
#include <stdint.h>

/* Passes cycle through this many scalars, marks and offsets. A prime, so that nothing that happens
 * every 2^n passes always meets the same ones. */
enum { CYCLE = 1021 };

/* What is written into memory that no pass has reached: no kernel computes it. */
static const double untouched = -1;

/* 1 ... 16 from the upper bits of a multiplicative hash (Knuth, The Art of Computer Programming 3,
 * section 6.4), which a compiler turns into vector instructions. The 7 sets the arrays apart. */
static inline int pattern(int array, uint64_t index) {
    return (int)((((uint32_t)index + (uint32_t)array * 7u) * 2654435761u) >> 28) + 1;
}

/* What the kernels multiply with or add in this pass. */
static inline double scalar_of(uint64_t pass) { return 2 + (double)(pass % CYCLE); }

struct verdict {
    uint64_t wrong; /* values or sums that were not what they had to be */
    double max_relative_error;
};

void note_difference(double got, double wanted, struct verdict *verdict);

static inline void compare(double got, double wanted, struct verdict *verdict) {
    if (got != wanted)
        note_difference(got, wanted, verdict);
}

/* Mistakes that the checks must find, for the tests: make EXTRA=-DMUTANT=1, ... */
#ifndef MUTANT
#define MUTANT NO_MUTANT
#endif
/* The mistakes that happen once do so in this pass, or chunk. */
enum { NO_MUTANT, ALWAYS_SHORT, ONCE_SHORT, ONCE_SKIPPED, CORRUPTED, MUTANT_PASS = 3 };

static inline bool mutant_leaves_out_the_end(uint64_t pass) {
    return MUTANT == ALWAYS_SHORT || (MUTANT == ONCE_SHORT && pass == MUTANT_PASS);
}

static inline bool mutant_skips(uint64_t pass) {
    return MUTANT == ONCE_SKIPPED && pass == MUTANT_PASS;
}

/* What this gives is to be written back: off by the last bit, if it is to be. */
static inline double mutated(double value, uint64_t pass) {
    return MUTANT == CORRUPTED && pass >= MUTANT_PASS ? value * (1 + 0x1p-52) : value;
}

#endif
