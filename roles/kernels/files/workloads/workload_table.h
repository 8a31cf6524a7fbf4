/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that memory bounds and whose page placement is varied: each a kernel over arrays in one
 * mapping. Threads have contiguous parts; what they read outside their own is what sets the kernels
 * apart. Contents are whole numbers that can be computed again (expected_values.h), so moving pages under a
 * running kernel must change nothing.
 */
#ifndef CHAOSITY_WORKLOADS_H
#define CHAOSITY_WORKLOADS_H

#include <stddef.h>
#include <stdint.h>

#include "common/placed_memory.h"
#include "streams/timed_passes.h"

struct demand {
    size_t bytes; /* of all arrays together, at most; each begins on a page */
    int threads;
    struct placement placement;
};

/* Maps the memory and divides it, touching nothing; leaves the mapping. The samples of the passes
 * count elements. Refuses fewer bytes than give each thread something to do. */
typedef struct passes lay_out_function(const struct demand *demand, struct mapping *mapping);

struct workload {
    const char *name, *formula;
    lay_out_function *lay_out;
    void (*release)(void *self); /* what lay_out left as `self` of the passes */
};

extern const struct workload workloads[];
extern const int workload_count;

lay_out_function lay_out_triad, lay_out_gather, lay_out_stencil, lay_out_spmv;
void release_triad(void *self);

/* Refuses when there are not as many of these (named by `what`) as threads. */
void require_a_share(const struct demand *demand, uint64_t units, const char *what);

/* The first of `count` things that belongs to a thread; that of the next thread is where its own
 * end. */
static inline size_t first_of(size_t count, int thread, int threads) {
    return count * (size_t)thread / (size_t)threads;
}

/* One of `limit` places, at random by the number: multiplications of which the upper halves count
 * (Knuth, The Art of Computer Programming 3, section 6.4), three cycles or so, where a line from
 * memory takes a core more than ten. The constants are the golden ratio's and that of D. Stafford's
 * 64-bit finaliser "mix 13". */
static inline uint64_t at_random(uint64_t number, uint64_t limit) {
    __extension__ typedef unsigned __int128 wide;
    uint64_t hash = number * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 32) * 0xbf58476d1ce4e5b9u;
    return (uint64_t)((wide)hash * limit >> 64);
}

#endif
