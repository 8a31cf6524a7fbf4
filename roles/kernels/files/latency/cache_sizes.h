/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes of a CPU's caches, as the Linux kernel reports them.
 */
#ifndef CHAOSITY_CACHE_SIZES_H
#define CHAOSITY_CACHE_SIZES_H

#include <stddef.h>

/* Returns the bytes of a cache line of a CPU. */
size_t cache_line_bytes(int cpu);

/* Returns the bytes of the largest cache that a CPU uses, shared or not; 0 if the kernel reports no
 * caches, as in some virtual machines. */
size_t largest_cache_bytes(int cpu);

#endif
