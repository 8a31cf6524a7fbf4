/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs limited by memory, for experiments with page placement. Each is a kernel over arrays in
 * one mapping. Threads have contiguous parts; the kernels differ in what threads read outside their
 * own part. Contents are whole numbers that can be computed again (expected_values.h), so moving
 * pages while a kernel runs must not change any result.
 */
#ifndef CHAOSITY_WORKLOAD_TABLE_H
#define CHAOSITY_WORKLOAD_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "common/placed_memory.h"
#include "streams/timed_passes.h"

struct workload_options {
    size_t bytes; /* upper limit of all arrays together; each array begins on a page */
    int threads;
    struct placement placement;
};

/* Maps memory into `mapping` and divides it among threads, without touching a page. Returns the
 * passes, whose samples count elements. Refuses a size that leaves a thread without work. */
typedef struct passes lay_out_function(const struct workload_options *options,
                                       struct mapping *mapping);

struct workload {
    const char *name, *formula;
    lay_out_function *lay_out;
    void (*release)(void *self); /* frees `self` of the passes */
};

extern const struct workload workloads[];
extern const int workload_count;

lay_out_function lay_out_triad, lay_out_gather, lay_out_stencil, lay_out_spmv;
void release_triad(void *self);

/* Refuses when there are fewer units than threads; `what` names the units. */
void require_one_per_thread(const struct workload_options *options, uint64_t units,
                            const char *what);

/* Index of the first of `count` items that belongs to a thread; its items end where the next
 * thread's begin. */
static inline size_t first_of_thread(size_t count, int thread, int threads) {
    return count * (size_t)thread / (size_t)threads;
}

/* A pseudo-random index below `limit`, determined by the number: upper halves of products (Knuth,
 * The Art of Computer Programming 3, section 6.4). It takes about three cycles, while a line from
 * memory takes a core more than ten. The constants are the golden ratio's and that of D. Stafford's
 * 64-bit finaliser "mix 13". */
static inline uint64_t random_index(uint64_t number, uint64_t limit) {
    __extension__ typedef unsigned __int128 wide;
    uint64_t hash = number * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 32) * 0xbf58476d1ce4e5b9u;
    return (uint64_t)((wide)hash * limit >> 64);
}

#endif
