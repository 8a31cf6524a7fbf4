/* SPDX-License-Identifier: Apache-2.0 */
#include "streams/stream_arrays.h"

#include <stdlib.h>

#include "common/errors.h"
#include "streams/instruction_sets.h"

void require_array_bytes(const char *option, size_t bytes, int threads) {
    if (bytes % LINE_BYTES != 0 || bytes / LINE_BYTES < (size_t)threads)
        refuse("%s must be a multiple of %d and at least %d for each of %d threads, not %zu",
               option, LINE_BYTES, LINE_BYTES, threads, bytes);
}

static struct part part_of(const struct arrays *arrays, int thread) {
    size_t lines = arrays->bytes / LINE_BYTES, threads = (size_t)arrays->threads;
    size_t first = lines * (size_t)thread / threads, end = lines * ((size_t)thread + 1) / threads;
    struct part part = {
        .first = first * LINE_DOUBLES,
        .elements = (end - first) * LINE_DOUBLES,
    };
    for (int array = 0; array < arrays->stream->arrays; array++) {
        char *start = arrays->mapping.start + (size_t)array * whole_pages(arrays->bytes);
        part.array[array] = (double *)(void *)(start + first * LINE_BYTES);
    }
    return part;
}

void map_arrays(struct arrays *arrays, struct placement placement) {
    size_t bytes = whole_pages(arrays->bytes) * (size_t)arrays->stream->arrays;
    arrays->mapping = map_memory(bytes, placement);
    arrays->parts = calloc((size_t)arrays->threads, sizeof *arrays->parts);
    if (arrays->parts == NULL)
        refuse("out of memory");
    for (int i = 0; i < arrays->threads; i++)
        arrays->parts[i] = part_of(arrays, i);
}

void free_arrays(struct arrays *arrays) { free(arrays->parts); }

struct filling {
    const struct arrays *arrays;
    struct part *part;
    int array;
};

static void write_piece(void *context, size_t from, size_t count) {
    const struct filling *filling = context;
    write_contents(filling->arrays->stream, filling->part, filling->array, from, count);
}

void touch_part(const struct arrays *arrays, int thread) {
    struct part *part = &arrays->parts[thread];
    for (int array = 0; array < arrays->stream->arrays; array++) {
        struct array_slice array_slice = {part->array[array], sizeof(double), 0, part->elements};
        struct filling filling = {arrays, part, array};
        fill_slice(&arrays->mapping, array_slice, write_piece, &filling);
    }
}

/* Number of elements in a piece of the trial. A piece takes some ten microseconds, in comparison
 * with which a clock reading and waiting for non-temporal stores are short. */
enum { TRIAL_ELEMENTS = 256 * 1024 / 8 };

static size_t trial_elements(const struct part *part) {
    return part->elements < TRIAL_ELEMENTS ? part->elements : TRIAL_ELEMENTS;
}

static uint64_t run_trial(void *self, uint64_t step) {
    const struct arrays *arrays = self;
    const struct part *part = &arrays->parts[0];
    struct piece piece = {.count = trial_elements(part)};
    piece.from = piece.source = step % (part->elements / piece.count) * piece.count;
    run_piece(arrays->stream, part, &piece);
    if (arrays->stream->non_temporal)
        drain_stores();
    return piece.count * sizeof(double) * (uint64_t)arrays->stream->arrays;
}

void choose_isa_on(const struct arrays *arrays, double seconds) {
    struct part *part = &arrays->parts[0];
    uint64_t steps = choose_isa(run_trial, (void *)(uintptr_t)arrays, seconds);
    size_t written = trial_elements(part) * steps;
    if (arrays->stream->operation != READ && steps > 0)
        write_contents(arrays->stream, part, 0, 0,
                       written < part->elements ? written : part->elements);
}
