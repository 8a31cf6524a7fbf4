/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of the instruction set for which a loop is compiled: their loads, stores and arithmetic,
 * and the non-temporal store, which bypasses the caches. The Makefile compiles the loops once per
 * instruction set and defines ISA as the name of the instruction set (see instruction_sets.h).
 */
#ifndef CHAOSITY_VECTOR_TYPES_H
#define CHAOSITY_VECTOR_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined __x86_64__
#define VECTOR_REGISTER(variable) "+x"(variable)
#elif defined __aarch64__
#define VECTOR_REGISTER(variable) "+w"(variable)
#else
#define VECTOR_REGISTER(variable) "+m"(variable)
#endif

#if defined __ARM_FEATURE_SVE
/* The length of an SVE vector is known only at run time, so the type of the vector has no size. */
#include <arm_sve.h>

#define VECTOR_DOUBLES svcntd()
typedef svfloat64_t vector;
typedef svuint64_t words_vector;
static inline vector load(const double *from) { return svld1(svptrue_b64(), from); }
static inline words_vector load_words(const uint64_t *from) { return svld1(svptrue_b64(), from); }
static inline void store(double *to, vector value) { svst1(svptrue_b64(), to, value); }
static inline vector all(double value) { return svdup_f64(value); }
static inline words_vector no_words(void) { return svdup_u64(0); }
static inline double total(vector value) { return svaddv(svptrue_b64(), value); }
static inline uint64_t total_words(words_vector value) { return svaddv(svptrue_b64(), value); }
#define PLUS(left, right) svadd_x(svptrue_b64(), left, right)
#define TIMES(left, right) svmul_x(svptrue_b64(), left, right)

#define NT_DOUBLES VECTOR_DOUBLES
#define STORE_NT(to, i, value) svstnt1(svptrue_b64(), (to) + (i), value(i))

#else

#if defined __AVX512F__
#define VECTOR_BYTES 64
#elif defined __AVX2__
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

enum { VECTOR_DOUBLES = VECTOR_BYTES / 8 };

/* may_alias is necessary because the same memory is also read as single doubles */
typedef double vector __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef uint64_t words_vector __attribute__((vector_size(VECTOR_BYTES), may_alias));

static inline vector load(const double *from) { return *(const vector *)from; }
static inline words_vector load_words(const uint64_t *from) { return *(const words_vector *)from; }
static inline void store(double *to, vector value) { *(vector *)to = value; }
static inline vector all(double value) { return value - (vector){0}; }
static inline words_vector no_words(void) { return (words_vector){0}; }
#define PLUS(left, right) ((left) + (right))
#define TIMES(left, right) ((left) * (right))

#define DEFINE_TOTAL(name, number, vector_type)                                                    \
    static inline number name(vector_type value) {                                                 \
        number sum = 0;                                                                            \
        for (int i = 0; i < VECTOR_DOUBLES; i++)                                                   \
            sum += value[i];                                                                       \
        return sum;                                                                                \
    }
DEFINE_TOTAL(total, double, vector)
DEFINE_TOTAL(total_words, uint64_t, words_vector)

#if defined __x86_64__
#include <immintrin.h>

/* Doubles that one non-temporal store writes; value(i) is a macro. */
#define NT_DOUBLES VECTOR_DOUBLES
#if VECTOR_BYTES == 64
#define STREAM_STORE _mm512_stream_pd
#elif VECTOR_BYTES == 32
#define STREAM_STORE _mm256_stream_pd
#else
#define STREAM_STORE _mm_stream_pd
#endif
#define STORE_NT(to, i, value) STREAM_STORE((to) + (i), value(i))

#elif defined __aarch64__

#define NT_DOUBLES (2 * VECTOR_DOUBLES)
/* STNP, the only non-temporal store of A64 without SVE, stores a pair. */
static inline void store_nt(double *to, vector low, vector high) {
    __asm__ volatile("stnp %q1, %q2, [%0]" : : "r"(to), "w"(low), "w"(high) : "memory");
}

#define STORE_NT(to, i, value) store_nt((to) + (i), value(i), value((i) + VECTOR_DOUBLES))

#endif
#endif

/* Sets `result` to the sum of `count` elements, a multiple of a cache line. The loop has 8 sums,
 * because two loads start per cycle and an addition takes 4 cycles, so that with fewer sums, one
 * addition would wait for another. IN_ORDER keeps GCC from sorting the loads by other rules, which
 * halved the rate from the L2 cache of a Zen 5; 16 loads per iteration instead of 8 reduced this
 * rate by an eighth. The sums are no array, since SVE forbids arrays of vectors. */
#define IN_ORDER(sum) __asm__ volatile("" : VECTOR_REGISTER(sum))
#define ADD_NTH(n, from, load_vector)                                                              \
    sum##n = PLUS(sum##n, load_vector((from) + at + n * step));                                    \
    IN_ORDER(sum##n);
#define SUM_ALL(result, from, count, vector_type, zero, load_vector, total_of)                     \
    do {                                                                                           \
        const size_t step = VECTOR_DOUBLES;                                                        \
        vector_type sum0 = zero, sum1 = zero, sum2 = zero, sum3 = zero, sum4 = zero, sum5 = zero,  \
                    sum6 = zero, sum7 = zero;                                                      \
        size_t at = 0;                                                                             \
        for (; at + 8 * step <= (count); at += 8 * step) {                                         \
            ADD_NTH(0, from, load_vector) ADD_NTH(1, from, load_vector)                            \
            ADD_NTH(2, from, load_vector) ADD_NTH(3, from, load_vector)                            \
            ADD_NTH(4, from, load_vector) ADD_NTH(5, from, load_vector)                            \
            ADD_NTH(6, from, load_vector) ADD_NTH(7, from, load_vector)                            \
        }                                                                                          \
        for (; at < (count); at += step)                                                           \
            sum0 = PLUS(sum0, load_vector((from) + at));                                           \
        sum0 = PLUS(PLUS(PLUS(sum0, sum1), PLUS(sum2, sum3)),                                      \
                    PLUS(PLUS(sum4, sum5), PLUS(sum6, sum7)));                                     \
        (result) = total_of(sum0);                                                                 \
    } while (0)

#endif
