/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "latency/cache_sizes.h"

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "common/parse_numbers.h"

/* Returns a number that describes the cache of a CPU with an index; -1 if this cache does not
 * exist. */
static int64_t cache_number(int cpu, int index, const char *name) {
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index, name);
    return kernel_number(path, "");
}

size_t cache_line_bytes(int cpu) {
    int64_t bytes = cache_number(cpu, 0, "coherency_line_size");
#ifdef _SC_LEVEL1_DCACHE_LINESIZE
    if (bytes <= 0)
        bytes = sysconf(_SC_LEVEL1_DCACHE_LINESIZE);
#endif
    /* The size of a cache line on nearly all x86-64 and arm64 cores. */
    return bytes > 0 ? (size_t)bytes : 64;
}

size_t largest_cache_bytes(int cpu) {
    int64_t largest = 0, kib;
    for (int index = 0; (kib = cache_number(cpu, index, "size")) >= 0; index++)
        /* The size is always in KiB: "266240K" (Linux, drivers/base/cacheinfo.c). */
        if (kib > largest)
            largest = kib;
    return (size_t)largest * 1024;
}
