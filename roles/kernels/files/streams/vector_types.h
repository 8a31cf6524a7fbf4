/* SPDX-License-Identifier: Apache-2.0
 *
 * The widest vector type of the instruction set that the compiler may use (-march=native), and its
 * non-temporal store, which bypasses the caches. Arithmetic, ordinary loads and stores are plain C
 * on GCC's vector types.
 */
#ifndef CHAOSITY_VECTOR_TYPES_H
#define CHAOSITY_VECTOR_TYPES_H

#if defined __AVX512F__
#define ISA "avx512"
#define VECTOR_BYTES 64
#elif defined __AVX2__
#define ISA "avx2"
#define VECTOR_BYTES 32
#elif defined __SSE2__
#define ISA "sse2"
#define VECTOR_BYTES 16
#elif defined __aarch64__
#define ISA "neon"
#define VECTOR_BYTES 16
#else
#define ISA "generic"
#define VECTOR_BYTES 16
#endif

/* may_alias: the same memory is also read as single doubles */
typedef double vector __attribute__((vector_size(VECTOR_BYTES), may_alias));
enum { VECTOR_DOUBLES = VECTOR_BYTES / 8 };

static inline vector load(const double *from) { return *(const vector *)from; }

static inline void store(double *to, vector value) { *(vector *)to = value; }

static inline vector all(double value) { return value - (vector){0}; }

#if defined WITHOUT_NON_TEMPORAL /* for tests: as on an instruction set without them */
#define HAVE_NON_TEMPORAL 0

#elif defined __x86_64__
#include <immintrin.h>

#define HAVE_NON_TEMPORAL 1
enum { NT_DOUBLES = VECTOR_DOUBLES }; /* written by one non-temporal store */

static inline void store_nt(double *to, vector value) {
#if VECTOR_BYTES == 64
    _mm512_stream_pd(to, value);
#elif VECTOR_BYTES == 32
    _mm256_stream_pd(to, value);
#else
    _mm_stream_pd(to, value);
#endif
}

/* value(i) is a macro of the element's index */
#define STORE_NT(to, i, value) store_nt((to) + (i), value(i))

/* Waits until all non-temporal stores have left the core: data in its write-combining buffers are
 * not in memory yet and must not count as written. */
static inline void drain_nt(void) { _mm_sfence(); }

#elif defined __aarch64__

#define HAVE_NON_TEMPORAL 1
enum { NT_DOUBLES = 2 * VECTOR_DOUBLES };

/* STNP, the only non-temporal store of A64, stores a pair. */
static inline void store_nt(double *to, vector low, vector high) {
    __asm__ volatile("stnp %q1, %q2, [%0]" : : "r"(to), "w"(low), "w"(high) : "memory");
}

#define STORE_NT(to, i, value) store_nt((to) + (i), value(i), value((i) + VECTOR_DOUBLES))

static inline void drain_nt(void) { __asm__ volatile("dmb ishst" : : : "memory"); }

#else
#define HAVE_NON_TEMPORAL 0
#endif

#endif
