/* SPDX-License-Identifier: Apache-2.0
 *
 * The contents of arrays, and the values that kernels must compute from the contents. All values
 * are whole numbers far below 2^53, so every sum and product is exact in any order, with or without
 * fused multiply-add. A result is right if it is equal to the expected value.
 */
#ifndef CHAOSITY_EXPECTED_VALUES_H
#define CHAOSITY_EXPECTED_VALUES_H

#include <stdbool.h>
#include <stdint.h>

/* Number of different scalars, marks and offsets that passes use in turn. The number is prime, so
 * that an error that happens every 2^n passes occurs with all of them. */
enum { CYCLE = 1021 };

/* Content of memory that no pass has written yet; no kernel computes this content. */
static const double never_written = -1;

/* Returns the initial content of element `index` of an array: 1 to 16, from the upper bits of a
 * multiplicative hash (Knuth, The Art of Computer Programming 3, section 6.4), for which compilers
 * generate vector instructions. The factor 7 makes the contents of different arrays different. */
static inline int pattern(int array, uint64_t index) {
    return (int)((((uint32_t)index + (uint32_t)array * 7u) * 2654435761u) >> 28) + 1;
}

/* Returns the scalar by which kernels multiply, or which they add, in a pass. */
static inline double scalar_of(uint64_t pass) { return 2 + (double)(pass % CYCLE); }

struct verdict {
    uint64_t wrong; /* number of wrong values or sums */
    double max_relative_error;
};

/* Counts a wrong value and its relative error. */
void record_difference(double got, double wanted, struct verdict *verdict);

/* Counts a wrong value unless both values are equal. */
static inline void check_equal(double got, double wanted, struct verdict *verdict) {
    if (got != wanted)
        record_difference(got, wanted, verdict);
}

/* Tests compile defects that the checks must find: make EXTRA=-DMUTANT=1, ... */
#ifndef MUTANT
#define MUTANT NO_MUTANT
#endif
/* A defect that happens once happens in pass (or chunk) MUTANT_PASS. */
enum { NO_MUTANT, ALWAYS_SHORT, ONCE_SHORT, ONCE_SKIPPED, CORRUPTED, MUTANT_PASS = 3 };

static inline bool mutant_leaves_out_the_end(uint64_t pass) {
    return MUTANT == ALWAYS_SHORT || (MUTANT == ONCE_SHORT && pass == MUTANT_PASS);
}

static inline bool mutant_skips(uint64_t pass) {
    return MUTANT == ONCE_SKIPPED && pass == MUTANT_PASS;
}

/* Returns the value, with an error in the last bit if this defect is selected. */
static inline double mutated(double value, uint64_t pass) {
    return MUTANT == CORRUPTED && pass >= MUTANT_PASS ? value * (1 + 0x1p-52) : value;
}

#endif
