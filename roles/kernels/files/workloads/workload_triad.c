/* SPDX-License-Identifier: Apache-2.0
 *
 * The triad of the bandwidth kernels, counted in elements.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/errors.h"
#include "common/placed_memory.h"
#include "streams/bandwidth_run.h"
#include "streams/stream_arrays.h"
#include "streams/stream_options.h"
#include "workloads/workload_table.h"

static void print_details(const void *self) {
    const struct arrays *arrays = self;
    printf("\"array_bytes\":%zu,", arrays->bytes);
}

struct passes lay_out_triad(const struct workload_options *options, struct mapping *mapping) {
    struct arrays *arrays = calloc(1, sizeof *arrays);
    if (arrays == NULL)
        refuse("out of memory");
    arrays->stream = find_stream("triad");
    arrays->threads = options->threads;
    size_t lines = options->bytes / (size_t)arrays->stream->arrays / LINE_BYTES;
    require_one_per_thread(options, lines, "cache lines of an array");
    arrays->bytes = lines * LINE_BYTES;
    map_arrays(arrays, options->placement);
    *mapping = arrays->mapping;
    struct passes passes = passes_over(arrays);
    passes.amount_per_pass = arrays->bytes / sizeof(double);
    passes.print_details = print_details;
    return passes;
}

void release_triad(void *self) {
    free_arrays(self);
    free(self);
}
