/* SPDX-License-Identifier: Apache-2.0
 *
 * This file has only the loops. It is compiled without link-time optimisation, so that the compiler
 * sees a single pass. If the compiler saw that passes are repeated, it could remove all but the
 * last.
 *
 * An ordinary store is what a compiler generates for `a[i] = ...`: no prefetch for writing, no
 * non-temporal hint. The Makefile's -fno-tree-loop-distribute-patterns keeps GCC from replacing
 * copy and fill with memcpy and memset, which use non-temporal stores above a certain size.
 * Measured on Sapphire Rapids, with arrays larger than the L3 and with arrays in the L2: neither
 * prefetching the reads nor different offsets of the arrays change the bandwidth beyond the noise.
 */
#include "streams/stream_kernels.h"

#include "streams/vector_types.h"

#define B(i) load(b + (i))
#define C(i) load(c + (i))
#define FILL_VALUE(i) s
#define COPY_VALUE(i) B(i)
#define SCALE_VALUE(i) s *B(i)
#define ADD_VALUE(i) B(i) + C(i)
#define TRIAD_VALUE(i) B(i) + s *C(i)

#define SIGNATURE(name)                                                                            \
    static double name(double *restrict a, const double *restrict b, const double *restrict c,     \
                       size_t elements, double scalar)

/* Unrolled by 4: then the loop's own instructions cost nothing measurable, even in the L1. */
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
#define OFFERED_NT(function) function
void drain_stores(void) { drain_nt(); }
#else
#define OFFERED_NT(function) NULL
void drain_stores(void) {}
#endif

/* 8 sums: two loads start per cycle and an addition takes 4 cycles, so with fewer sums additions
 * would wait for each other. 16 loads per iteration: with 8, GCC 12 orders them so that reading
 * from the L2 is a tenth slower. */
SIGNATURE(read_sum) {
    enum { SUMS = 8, LOADS = 16 };
    (void)b, (void)c, (void)scalar;
    vector sum[SUMS] = {{0}};
    size_t i = 0;
    for (; i + LOADS * VECTOR_DOUBLES <= elements; i += LOADS * VECTOR_DOUBLES)
#pragma GCC unroll 16
        for (size_t j = 0; j < LOADS; j++)
            sum[j % SUMS] += load(a + i + j * VECTOR_DOUBLES);
    for (; i < elements; i += VECTOR_DOUBLES)
        sum[0] += load(a + i);
    for (int j = 1; j < SUMS; j++)
        sum[0] += sum[j];
    double total = 0;
    for (int j = 0; j < VECTOR_DOUBLES; j++)
        total += sum[0][j];
    return total;
}

const struct stream streams[] = {
    {"read", READ, 1, false, read_sum}, /* sum += a[i] */
    {"fill", FILL, 1, false, fill},     /* a[i] = s */
    {"copy", COPY, 2, false, copy},     /* a[i] = b[i] */
    {"scale", SCALE, 2, false, scale},  /* a[i] = s * b[i] */
    {"add", ADD, 3, false, add},        /* a[i] = b[i] + c[i] */
    {"triad", TRIAD, 3, false, triad},  /* a[i] = b[i] + s * c[i] */
    {"fill_nt", FILL, 1, true, OFFERED_NT(fill_nt)},
    {"copy_nt", COPY, 2, true, OFFERED_NT(copy_nt)},
    {"scale_nt", SCALE, 2, true, OFFERED_NT(scale_nt)},
    {"add_nt", ADD, 3, true, OFFERED_NT(add_nt)},
    {"triad_nt", TRIAD, 3, true, OFFERED_NT(triad_nt)},
};
const int stream_count = sizeof streams / sizeof streams[0];
const char stream_isa[] = ISA;
