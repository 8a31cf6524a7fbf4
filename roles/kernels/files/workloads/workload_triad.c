/* SPDX-License-Identifier: Apache-2.0
 *
 * The triad of the bandwidth kernels, told in elements.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "streams/stream_arrays.h"
#include "common/process.h"
#include "streams/stream_options.h"
#include "streams/bandwidth_run.h"
#include "workloads/workload_table.h"

static void print_about(const void *self) {
    const struct arrays *arrays = self;
    printf("\"array_bytes\":%zu,", arrays->bytes);
}

struct passes lay_out_triad(const struct demand *demand, struct mapping *mapping) {
    struct arrays *arrays = calloc(1, sizeof *arrays);
    if (arrays == NULL)
        refuse("out of memory");
    arrays->stream = find_stream("triad");
    arrays->threads = demand->threads;
    size_t lines = demand->bytes / (size_t)arrays->stream->arrays / LINE_BYTES;
    require_a_share(demand, lines, "cache lines of an array");
    arrays->bytes = lines * LINE_BYTES;
    map_arrays(arrays, demand->placement);
    *mapping = arrays->mapping;
    struct passes passes = passes_of(arrays);
    passes.amount_per_pass = arrays->bytes / sizeof(double);
    passes.print_about = print_about;
    return passes;
}

void release_triad(void *self) {
    free_arrays(self);
    free(self);
}
