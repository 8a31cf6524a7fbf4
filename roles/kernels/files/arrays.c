/* SPDX-License-Identifier: Apache-2.0 */
#include "arrays.h"

#include <unistd.h>

#include "common.h"

/* Pieces in which pages are made and filled: small enough that what the kernel zeroed is still in
 * the L2 when the contents are written. */
static const size_t setup_piece_bytes = 256 * 1024;

void require_array_bytes(size_t bytes, int threads) {
    if (bytes % LINE_BYTES != 0 || bytes / LINE_BYTES < (size_t)threads)
        refuse("--array-bytes must be a multiple of %d and at least %d for each of %d threads, "
               "not %zu",
               LINE_BYTES, LINE_BYTES, threads, bytes);
}

static size_t stride_of(const struct arrays *arrays) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (arrays->bytes + page - 1) / page * page;
}

void map_arrays(struct arrays *arrays, struct placement placement) {
    arrays->mapping = map_memory(stride_of(arrays) * (size_t)arrays->stream->arrays, placement);
}

struct part part_of(const struct arrays *arrays, int thread) {
    size_t lines = arrays->bytes / LINE_BYTES, threads = (size_t)arrays->threads;
    size_t first = lines * (size_t)thread / threads, end = lines * ((size_t)thread + 1) / threads;
    struct part part = {
        .first = first * LINE_DOUBLES,
        .elements = (end - first) * LINE_DOUBLES,
    };
    for (int array = 0; array < arrays->stream->arrays; array++) {
        char *start = arrays->mapping.start + (size_t)array * stride_of(arrays);
        part.array[array] = (double *)(void *)(start + first * LINE_BYTES);
    }
    return part;
}

void touch_part(const struct arrays *arrays, struct part *part) {
    size_t piece = setup_piece_bytes / sizeof(double);
    for (int array = 0; array < arrays->stream->arrays; array++)
        for (size_t from = 0; from < part->elements && !stop_requested(); from += piece) {
            size_t count = part->elements - from < piece ? part->elements - from : piece;
            populate(&arrays->mapping, (char *)(part->array[array] + from), count * sizeof(double));
            write_contents(arrays->stream, part, array, from, count);
        }
}
