/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs limited by memory, for experiments with page placement. Each program is a kernel over
 * arrays in one mapping. Each thread has a contiguous part; the kernels differ in what a thread
 * reads outside its part. Contents are whole numbers that can be computed again
 * (expected_values.h), so moving pages while a kernel runs must not change any result.
 */
#ifndef CHAOSITY_WORKLOAD_TABLE_H
#define CHAOSITY_WORKLOAD_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "common/placed_memory.h"
#include "streams/timed_passes.h"

struct workload_options {
    size_t bytes; /* upper limit in bytes of all arrays together; each array begins on a page */
    int threads;
    struct placement placement;
};

/* Maps memory into `mapping` and divides it among threads, without touching a page. Returns the
 * passes, whose samples count elements. If the size leaves a thread without work, the process ends
 * with an error. */
typedef struct passes lay_out_function(const struct workload_options *options,
                                       struct mapping *mapping);

struct workload {
    const char *name, *formula;
    lay_out_function *lay_out;
    void (*release)(void *self); /* function that frees `self` of the passes */
};

extern const struct workload workloads[];
extern const int workload_count;

lay_out_function lay_out_triad, lay_out_gather, lay_out_stencil, lay_out_spmv;
void release_triad(void *self);

/* Ends the process with an error if there are fewer units than threads; `what` names the units. */
void require_one_per_thread(const struct workload_options *options, uint64_t units,
                            const char *what);

/* Returns the index of the first of `count` items that belongs to a thread; its items end where the
 * items of the next thread begin. */
static inline size_t first_of_thread(size_t count, int thread, int threads) {
    return count * (size_t)thread / (size_t)threads;
}

/* Returns a pseudo-random index below `limit`, computed from a number as upper halves of products
 * (Knuth, The Art of Computer Programming 3, section 6.4). The computation takes about three
 * cycles, while a core needs more than ten cycles for a line from memory. The constants are those
 * of the golden ratio and of D. Stafford's 64-bit finaliser "mix 13". */
static inline uint64_t random_index(uint64_t number, uint64_t limit) {
    __extension__ typedef unsigned __int128 wide;
    uint64_t hash = number * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 32) * 0xbf58476d1ce4e5b9u;
    return (uint64_t)((wide)hash * limit >> 64);
}

#endif
