/* SPDX-License-Identifier: Apache-2.0
 *
 * This file contains only the loops, and is compiled once per instruction set. This file is
 * compiled without link-time optimisation, so that the compiler sees a single pass. If the compiler
 * saw that passes are repeated, it could remove all passes but the last one.
 *
 * An ordinary store is what a compiler generates for `a[i] = ...`: no prefetch for writing, no
 * non-temporal hint. The Makefile's -fno-tree-loop-distribute-patterns keeps GCC from replacing
 * copy and fill with memcpy and memset, which use non-temporal stores above a certain size.
 * Measurements on Sapphire Rapids, with arrays larger than the L3 cache and with arrays in the L2
 * cache, showed that neither prefetching the reads nor different offsets of the arrays change the
 * bandwidth beyond the noise.
 */
#include "streams/stream_kernels.h"

#include "streams/instruction_sets.h"
#include "streams/vector_types.h"

#define B(i) load(b + (i))
#define C(i) load(c + (i))
#define FILL_VALUE(i) s
#define COPY_VALUE(i) B(i)
#define SCALE_VALUE(i) TIMES(s, B(i))
#define ADD_VALUE(i) PLUS(B(i), C(i))
#define TRIAD_VALUE(i) PLUS(B(i), TIMES(s, C(i)))

#define SIGNATURE(name)                                                                            \
    double OF_THIS_ISA(name)(double *restrict a, const double *restrict b,                         \
                             const double *restrict c, size_t elements, double scalar)

/* The loop is unrolled by 4, so that its counter and branch take no measurable time, even with
 * arrays in the L1 cache. */
#define ORDINARY(name, value)                                                                      \
    SIGNATURE(name) {                                                                              \
        const vector s = all(scalar);                                                              \
        (void)b, (void)c, (void)s;                                                                 \
        _Pragma("GCC unroll 4") for (size_t i = 0; i < elements; i += VECTOR_DOUBLES)              \
            store(a + i, value(i));                                                                \
        return 0;                                                                                  \
    }

#define NON_TEMPORAL(name, value)                                                                  \
    SIGNATURE(name) {                                                                              \
        const vector s = all(scalar);                                                              \
        (void)b, (void)c, (void)s;                                                                 \
        _Pragma("GCC unroll 4") for (size_t i = 0; i < elements; i += NT_DOUBLES)                  \
            STORE_NT(a, i, value);                                                                 \
        return 0;                                                                                  \
    }

ORDINARY(fill, FILL_VALUE)
ORDINARY(copy, COPY_VALUE)
ORDINARY(scale, SCALE_VALUE)
ORDINARY(add, ADD_VALUE)
ORDINARY(triad, TRIAD_VALUE)

#if HAVE_NON_TEMPORAL
NON_TEMPORAL(fill_nt, FILL_VALUE)
NON_TEMPORAL(copy_nt, COPY_VALUE)
NON_TEMPORAL(scale_nt, SCALE_VALUE)
NON_TEMPORAL(add_nt, ADD_VALUE)
NON_TEMPORAL(triad_nt, TRIAD_VALUE)
#endif

SIGNATURE(read) {
    double sum;
    (void)b, (void)c, (void)scalar;
    SUM_ALL(sum, a, elements, vector, all(0), load, total);
    return sum;
}
